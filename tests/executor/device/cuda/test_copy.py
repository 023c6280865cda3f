"""The GPU's permuting copy, loads and sums: the tiles' twin here, and the kernels where there is a GPU."""

from __future__ import annotations

from itertools import pairwise
from math import gcd, prod

import numpy as np
import pytest

from tests.oracles.copy import copy_tiles
from tests.support.contraction.copy import box_case, random_values
from tests.support.kernels.gpus import needs_gpus
from tnplan.executor.device.cuda.copy.tiling import SHARED_BYTES, parts, shared_bytes, tiles
from tnplan.executor.device.protocols.copy import make_copy, row_major, widen

DTYPES = ("float32", "float64", "complex64", "complex128")
UNITS = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64), 16: np.dtype(np.complex128)}
REALS = {4: "float32", 8: "float64"}
EXTENTS = (1, 2, 2, 3, 4, 5, 7, 12, 17, 33, 67)


runners = pytest.mark.parametrize("runner", ["twin", pytest.param("gpu", marks=needs_gpus(1))])


def copy_by(runner, target, source, copy, target_start, source_start, rows=None, add=False):
    """Copy NumPy arrays with the kernel, or with its twin in the same wide units."""
    if runner == "gpu":
        import cupy

        from tnplan.executor.device.cuda.copy.permute import bind_copy

        on_device = cupy.asarray(target), cupy.asarray(source)
        stream = cupy.cuda.Stream.null
        bind_copy(*on_device, copy, target_start, source_start, rows, stream, add=add)()
        target[:] = on_device[0].get()
        return
    for part in parts(copy, rows):
        into, origin = target_start + part.target_start, source_start + part.source_start
        wide, unit = widen(part.copy, gcd(into, origin), 16 // target.itemsize)
        dtype = UNITS[unit * target.itemsize]
        if add:  # components, so that real numbers are added
            for index in range(unit):
                copy_tiles(tiles(wide, dtype.itemsize), target[into + index :: unit],
                    source[origin + index :: unit], True)  # fmt: skip
        else:
            last = origin + (len(source) - origin) // unit * unit
            last_into = into + (len(target) - into) // unit * unit
            copy_tiles(tiles(wide, dtype.itemsize), target[into:last_into].view(dtype),
                source[origin:last].view(dtype), False)  # fmt: skip


def permutation_case(rng, dtype, most=20000):
    """A box inside a larger row-major source, and its copy in a permuted order."""
    extents: list[int] = []
    for _ in range(int(rng.integers(0, 12))):
        extent = int(rng.choice(EXTENTS))
        if prod(extents) * extent <= most:
            extents.append(extent)
    rank = len(extents)
    roomy = rng.random() < 0.3
    whole = [e + int(roomy and rng.integers(0, 5) == 0) for e in extents]
    order = [int(axis) for axis in rng.permutation(rank)]
    if rng.random() < 0.5:  # the merge of two sorted runs of modes, the commonest case
        in_a = rng.random(rank) < 0.5
        order = [axis for axis in range(rank) if in_a[axis]] + [
            axis for axis in range(rank) if not in_a[axis]
        ]
    return box_case(rng, dtype, extents, whole, order)


@runners
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("add", [False, True])
def test_boxes_are_permuted(runner, dtype, add):
    rng = np.random.default_rng(17)
    for _ in range(80):
        source, axes, start, expected = permutation_case(rng, dtype)
        offset = int(rng.integers(0, 5))
        target = random_values(rng, len(expected) + offset + 3, dtype)
        wanted = target.copy()
        wanted[offset : offset + len(expected)] = (
            wanted[offset : offset + len(expected)] + expected if add else expected
        )
        copy_by(runner, target, source, make_copy(axes), offset, start, None, add)
        assert np.array_equal(target, wanted)


@runners
def test_rows_in_pieces_make_up_the_whole(runner):
    rng = np.random.default_rng(19)
    for _ in range(60):
        source, axes, start, _ = permutation_case(rng, "complex64")
        n_lead = int(rng.integers(0, len(axes) + 1))
        packed = [(extent, stride, own) for (extent, stride, _), own in
                  zip(axes, row_major([axis[0] for axis in axes]), strict=True)]  # fmt: skip
        copy = make_copy(packed[n_lead:], packed[:n_lead])
        whole = np.zeros(prod(axis[0] for axis in axes), np.complex64)
        copy_by(runner, whole, source, make_copy(packed), 0, start)
        pieces = np.zeros_like(whole)
        cuts = sorted({0, copy.rows, *(int(cut) for cut in rng.integers(0, copy.rows + 1, 2))})
        for first, last in pairwise(cuts):
            buffer = np.zeros((last - first) * copy.row_elements, np.complex64)
            copy_by(runner, buffer, source, copy, -first * copy.row_elements, start, (first, last))
            pieces[first * copy.row_elements : last * copy.row_elements] = buffer
        assert np.array_equal(pieces, whole)


@runners
def test_the_one_row_of_a_copy_without_leading_modes_is_all_of_it(runner):
    source, target = np.arange(750.0), np.zeros(1500)
    copy_by(runner, target, source, make_copy([(750, 1, 2)]), 0, 0, (0, 1))
    assert np.array_equal(target[::2], source)


@runners
@pytest.mark.parametrize(("extent", "rank"), [(2, 19), (3, 12), (5, 8), (12, 5), (10, 6)])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_many_tiles(runner, extent, rank, dtype):
    rng = np.random.default_rng(rank)
    source = np.arange(extent**rank).astype(dtype)
    order = rng.permutation(rank)
    strides = row_major([extent] * rank)
    axes = [(extent, strides[axis], own) for axis, own in zip(order, strides, strict=True)]
    target = np.zeros_like(source)
    copy_by(runner, target, source, make_copy(axes), 0, 0)
    assert np.array_equal(target, source.reshape([extent] * rank).transpose(order).ravel())


@runners
@pytest.mark.parametrize("shape", [(1009, 67), (127, 127), (4099, 71), (3, 100003), (131, 2, 129)])
def test_large_primes_are_split(runner, shape):
    source = np.arange(prod(shape)).astype(np.float32)
    strides = row_major(shape)
    own = row_major(shape[::-1])[::-1]
    target = np.zeros_like(source)
    copy_by(runner, target, source, make_copy(list(zip(shape, strides, own, strict=True))), 0, 0)
    assert np.array_equal(target, source.reshape(shape).T.ravel())


@runners
@pytest.mark.parametrize("count", [1, 5, 1009, 100003, 1 << 17])
def test_contiguous_copies_and_sums(runner, count):
    rng = np.random.default_rng(count)
    source = random_values(rng, count + 1, "complex64")
    for add in (False, True):
        target = random_values(rng, count + 2, "complex64")
        wanted = target.copy()
        wanted[2:] = target[2:] + source[1:] if add else source[1:]
        copy_by(runner, target, source, make_copy([(count, 1, 1)]), 2, 1, None, add)
        assert np.array_equal(target, wanted)


@runners
def test_an_empty_box_is_left_alone(runner):
    target = np.ones(4, np.float32)
    copy_by(runner, target, np.zeros(4, np.float32), make_copy([(0, 2, 2), (2, 1, 1)]), 0, 0)
    assert np.array_equal(target, np.ones(4, np.float32))


@pytest.mark.parametrize("unit_bytes", [4, 8, 16])
@pytest.mark.parametrize("extent", [2, 3, 5, 7, 12, 47])
def test_tiles_suit_the_hardware(unit_bytes, extent):
    """Both sides touched in long pieces, shared memory within its limit, small tables, few bank conflicts."""
    rng = np.random.default_rng(extent)
    rank = int(np.log(1 << 28) / np.log(extent))
    strides = row_major([extent] * rank)
    order = [rank - 1, *rng.permutation(rank - 1)]
    copy = make_copy([(extent, strides[axis], own) for axis, own in zip(order, strides, strict=True)])
    made = tiles(copy, unit_bytes)
    assert made.store is not None
    assert made.threads <= 1024
    assert shared_bytes(made.load, made.store, made.slots, unit_bytes) <= SHARED_BYTES
    assert len(made.rows) + len(made.columns) <= 16384
    for phase in (made.load, made.store):
        assert len(phase.lanes) * len(phase.steps) >= 256
        near = np.sort(phase.all()[:, 0].astype(np.int64))
        run_elements = int(np.argmax(np.diff(near) > extent)) + 1
        assert run_elements * unit_bytes >= 128
        group = 128 // unit_bytes
        slots = phase.lanes[: len(phase.lanes) // group * group, 1].reshape(-1, group).astype(int) % group
        crowds = [np.bincount(lanes).max() for lanes in slots]
        assert np.mean(crowds) <= (1 if extent == 2 else 3.2)


def test_large_tensors_keep_64_bit_offsets():
    rank = 36
    strides = row_major([2] * rank)
    order = np.random.default_rng(1).permutation(rank)
    copy = make_copy([(2, strides[axis], own) for axis, own in zip(order, strides, strict=True)])
    made = tiles(copy, 8)
    assert made.store is not None
    last = [made.rows[-1] + made.columns[-1] + [phase.all()[:, 0].max(), 0] for phase in (made.load,)]
    assert int(last[0][0]) == (1 << rank) - 1
    assert len(made.rows) + len(made.columns) <= 1 << 13


@needs_gpus(1)
class TestOnAGpu:
    """What has no twin: placing, loads, sums."""

    def test_placed(self):
        import cupy

        from tnplan.executor.device.cuda.copy.permute import bind_placed

        rng = np.random.default_rng(23)
        for _ in range(30):
            _, axes, _, expected = permutation_case(rng, "complex64")
            dense = [(extent, own, stride) for (extent, _, stride), own in
                     zip(axes, row_major([axis[0] for axis in axes]), strict=True)]  # fmt: skip
            source = random_values(rng, len(expected), "complex64")
            tile = np.zeros_like(source)
            copy_by("twin", tile, source, make_copy(dense), 0, 0)
            target = cupy.zeros(4 * len(source) + 8, np.complex64)
            stream = cupy.cuda.Stream.null
            place = bind_placed(target, cupy.asarray(source), make_copy(dense), 2, stream)
            wanted = np.zeros(target.size, np.complex64)
            for start in (2, 2 * len(source) + 6):
                place(start)
                wanted[start : start + len(source)] = tile
            assert np.array_equal(target.get(), wanted)

    def test_loads(self):
        import cupy

        from tnplan.executor.device.cuda.copy.permute import bind_load

        rng = np.random.default_rng(29)
        for _ in range(10):
            source, axes, start, expected = permutation_case(rng, "float64")
            target = cupy.zeros(len(expected), np.float64)
            bind_load(target, source, make_copy(axes), start, cupy.cuda.Stream.null)()
            assert np.array_equal(target.get(), expected)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_sums(self, dtype):
        import cupy

        from tnplan.executor.device.cuda.copy.permute import bind_sum

        rng = np.random.default_rng(31)
        shapes = [(4, 5, 6), (100003,), (2,) * 16, (3, 50021, 2), (300, 300), (5, 70, 11), (7, 1, 0), (1,)]
        for shape in shapes:
            for _ in range(4):
                kept = tuple(bool(keep) for keep in rng.integers(0, 2, len(shape)))
                source = random_values(rng, prod(shape), dtype)
                axes = tuple(axis for axis, keep in enumerate(kept) if not keep)
                expected = source.astype(np.complex128).reshape(shape).sum(axis=axes).ravel()
                bound = np.abs(source).astype(np.float64).reshape(shape).sum(axis=axes).ravel()
                target = cupy.ones(len(expected), dtype)
                call = bind_sum(target, cupy.asarray(source), shape, kept, cupy.cuda.Stream.null)
                call()
                first = target.get()
                assert np.all(np.abs(first - expected) <= 8 * np.finfo(dtype).eps * bound)
                call()
                assert np.array_equal(first, target.get())

    def test_refusals(self):
        import cupy

        from tnplan.executor.device.cuda.copy.permute import bind_copy

        small = cupy.zeros(8, np.int16)
        with pytest.raises(ValueError, match="int16"):
            bind_copy(small, small, make_copy([(8, 1, 1)]), 0, 0, None, cupy.cuda.Stream.null)
