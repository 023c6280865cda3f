"""The permuting copy: fused modes and tables, the kernels and their NumPy twin against a transpose."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest

from tests.oracles.copy import copy_numpy
from tests.support.contraction.copy import box_case, random_values
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.copy import deal, make_copy, row_major, tables, widen

DTYPES = ("float32", "float64", "complex64", "complex128")


def kernel(target, source, copy, target_start, source_start, rows, add, threads=1):
    NumpyDevice(threads).bind_copy(target, source, copy, target_start, source_start, rows, add)()


def twin(target, source, copy, target_start, source_start, rows, add):
    made = tables(copy)
    first, last = rows if rows is not None and copy.lead else (0, made.outer)
    copy_numpy(target, source, made, target_start, source_start, first, last, add)


def permutation_case(rng, dtype):
    """A box inside a larger row-major source, and its copy in a permuted order inside a larger target."""
    rank = int(rng.integers(0, 7))
    extents = [int(e) for e in rng.integers(1, 5, rank)]
    whole = [e + int(rng.integers(0, 3)) for e in extents]
    order = [int(axis) for axis in rng.permutation(rank)]
    return box_case(rng, dtype, extents, whole, order)


@pytest.mark.parametrize("runner", [kernel, twin])
@pytest.mark.parametrize("dtype", DTYPES)
def test_boxes_are_permuted(runner, dtype):
    rng = np.random.default_rng(7)
    for _ in range(60):
        source, axes, start, expected = permutation_case(rng, dtype)
        offset = int(rng.integers(0, 5))
        target = random_values(rng, len(expected) + offset + 3, dtype)
        wanted = target.copy()
        wanted[offset : offset + len(expected)] = expected
        runner(target, source, make_copy(axes), offset, start, None, False)
        assert np.array_equal(target, wanted)


@pytest.mark.parametrize("runner", [kernel, twin])
def test_added_boxes(runner):
    rng = np.random.default_rng(8)
    for _ in range(60):
        source, axes, start, expected = permutation_case(rng, "complex64")
        target = random_values(rng, len(expected), "complex64")
        wanted = target + expected
        runner(target, source, make_copy(axes), 0, start, None, True)
        assert np.array_equal(target, wanted)


@pytest.mark.parametrize("runner", [kernel, twin])
def test_rows_in_pieces_make_up_the_whole(runner):
    rng = np.random.default_rng(9)
    for _ in range(40):
        source, axes, start, _ = permutation_case(rng, "float32")
        n_lead = int(rng.integers(0, len(axes) + 1))
        packed = [(extent, stride, own) for (extent, stride, _), own in
                  zip(axes, row_major([axis[0] for axis in axes]), strict=True)]  # fmt: skip
        copy = make_copy(packed[n_lead:], packed[:n_lead])
        whole = np.zeros(prod(axis[0] for axis in axes), np.float32)
        runner(whole, source, make_copy(packed), 0, start, None, False)
        pieces = np.zeros_like(whole)
        cuts = sorted({0, copy.rows, *(int(cut) for cut in rng.integers(0, copy.rows + 1, 2))})
        for first, last in pairwise(cuts):
            buffer = np.zeros((last - first) * copy.row_elements, np.float32)
            runner(buffer, source, copy, -first * copy.row_elements, start, (first, last), False)
            pieces[first * copy.row_elements : last * copy.row_elements] = buffer
        assert np.array_equal(pieces, whole)


@pytest.mark.parametrize("runner", [kernel, twin])
def test_the_one_row_of_a_copy_without_leading_modes_is_all_of_it(runner):
    source = np.arange(750.0)
    target = np.zeros(1500)
    runner(target, source, make_copy([(750, 1, 2)]), 0, 0, (0, 1), False)
    assert np.array_equal(target[::2], source)


def test_many_binary_modes_and_threads():
    rng = np.random.default_rng(10)
    source = np.arange(1 << 20, dtype=np.complex64)
    order = rng.permutation(20)
    strides = row_major([2] * 20)
    axes = [(2, strides[axis], own) for axis, own in zip(order, strides, strict=True)]
    expected = np.ascontiguousarray(source.reshape([2] * 20).transpose(order)).ravel()
    for threads in (1, 2):
        target = np.zeros_like(source)
        kernel(target, source, make_copy(axes), 0, 0, None, False, threads)
        assert np.array_equal(target, expected)


def test_modes_beyond_numpys_limit_are_fused():
    rank = 70
    extents = [2 if axis in (3, 40, 66) else 1 for axis in range(rank)]
    strides = row_major(extents)
    reverse = dict(zip([66, 40, 3], row_major([2, 2, 2]), strict=True))
    axes = [(extent, stride, reverse.get(axis, 1)) for axis, (extent, stride) in
            enumerate(zip(extents, strides, strict=True))]  # fmt: skip
    source = np.arange(8, dtype=np.float64)
    target = np.zeros(8)
    kernel(target, source, make_copy(axes), 0, 0, None, False)
    assert np.array_equal(target, source.reshape(2, 2, 2).transpose(2, 1, 0).ravel())


def test_adjacent_modes_fuse_and_runs_are_found():
    copy = make_copy([(4, 30, 60), (2, 15, 30), (5, 3, 3), (3, 1, 1)])
    assert copy.axes == ((8, 15, 30),)
    assert copy.run == 15
    assert make_copy([(2, 4, 4), (4, 1, 1)]).contiguous


def test_wide_units_need_every_stride_and_start():
    copy = make_copy([(3, 8, 4), (4, 1, 1)])
    assert widen(copy, 0, 4)[1] == 4
    assert widen(copy, 2, 4)[1] == 2
    assert widen(copy, 3, 4)[1] == 1
    assert widen(make_copy([(3, 6, 4), (4, 1, 1)]), 0, 4)[1] == 2


def test_tables_stay_small():
    strides = row_major([2] * 30)
    order = np.random.default_rng(3).permutation(30)
    loops = deal(make_copy([(2, strides[axis], own) for axis, own in zip(order, strides, strict=True)]))
    assert sum(prod(axis[0] for axis in axes) for axes in loops) <= 3 * (1 << 9) + 128


def test_an_empty_box_is_left_alone():
    target = np.ones(4, np.float32)
    kernel(target, np.zeros(4, np.float32), make_copy([(0, 2, 2), (2, 1, 1)]), 0, 0, None, False)
    assert np.array_equal(target, np.ones(4, np.float32))
