"""Contractions on the GPU, in every precision: the split product's twin here, the device where there is one.

Errors are taken relative to the contraction of absolute values.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tests.support.contraction.copy import random_values
from tests.support.kernels.contract import (
    CHUNK,
    GPU,
    LARGEST,
    TOP,
    contract_on,
    ranges,
    shape_of,
    splitters,
    truths,
)
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_unless
from tnplan.executor.device.protocols.precision import BLOCK_REALS, check_precision, expected_error, supported

DTYPES = ("float32", "float64", "complex64", "complex128")


runners = pytest.mark.parametrize("runner", ["cpu", GPU])


def check(runner, batch, m, n, k, order, dtype, capacity, precision, rng):
    shape = shape_of(batch, m, n, k, order)
    sizes = shape.sizes
    a = random_values(rng, (sizes[0], sizes[1], k), dtype)
    b = random_values(rng, (sizes[0], sizes[2], k), dtype)
    c = contract_on(runner, shape, a, b, capacity, precision)
    truth, scale = (
        np.ascontiguousarray(values.reshape(batch + m + n).transpose(order)).ravel()
        for values in truths(a, b)
    )
    assert c.dtype == dtype
    assert np.all(np.abs(c - truth) <= expected_error(check_precision(precision, dtype), k) * scale)


def every_precision():
    return [(dtype, precision) for dtype in DTYPES for precision in supported(dtype)]


@runners
@pytest.mark.parametrize(("dtype", "precision"), every_precision())
def test_any_order_any_workspace_any_precision(runner, dtype, precision):
    rng = np.random.default_rng(5)
    for _ in range(40):
        batch, m, n = (
            tuple(int(e) for e in rng.choice([1, 2, 2, 3, 5, 7, 20], rng.integers(0, 4))) for _ in range(3)
        )
        order = tuple(int(position) for position in rng.permutation(len(batch + m + n)))
        k = int(rng.choice([1, 2, 4, 9, 33]))
        capacity = int(rng.choice([1, 2, 63, 1024, 1 << 18]))
        if prod(batch + m + n) <= 1000 * capacity:
            check(runner, batch, m, n, k, order, dtype, capacity, precision, rng)


@runners
@pytest.mark.parametrize(("dtype", "precision"), every_precision())
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_direct_orders_of_every_size(runner, dtype, precision, order):
    rng = np.random.default_rng(6)
    for batch, m, n, k in [
        (1, 4, 5, 6), (3, 40, 50, 6), (100, 2, 2, 2), (1, 1, 7, 9), (1, 7, 1, 9), (1, 300, 200, 1),
        (1, 130, 260, 70), (2, 128, 32, 64), (1, 257, 3, 128), (1, 129, 129, 129), (5, 17, 16, 4),
    ]:  # fmt: skip
        check(runner, (batch,), (m,), (n,), k, order, dtype, 0, precision, rng)


WIDE = [
    (9, 320, 72, 8), (40, 512, 64, 8), (1, 2048, 512, 16), (70, 512, 8, 16), (33, 512, 8, 64),
    (31, 700, 16, 40), (50, 600, 32, 12), (150, 64, 64, 64), (150, 60, 52, 20), (1, 9000, 130, 9),
    (7, 1100, 66, 21), (1000, 1, 2, 512),
]  # fmt: skip
"""Batch, m, n and k of products with more tiles than blocks of a kernel, or just as few."""


@runners
@pytest.mark.parametrize(
    ("dtype", "size"),
    slow_unless(lambda dtype, size: (dtype + size) % 2 == 0, ["float32", "complex64"], WIDE),
)
def test_products_of_many_tiles(runner, dtype, size):
    """Each of c's modes last in turn, whole or in two parts: written by 16 bytes or one by one."""
    batch, m, n, k = size
    rng = np.random.default_rng(12)
    for order in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        check(runner, (batch,), (m,), (n,), k, order, dtype, 0 if order[0] == 0 else 1 << 20, "fp32", rng)
    if m % 2 == 0 and n % 2 == 0:
        check(runner, (batch,), (2, m // 2), (2, n // 2), k, (0, 3, 1, 4, 2), dtype, 1 << 20, "fp32", rng)
        check(runner, (batch,), (m // 2, 2), (n // 2, 2), k, (0, 1, 3, 2, 4), dtype, 1 << 20, "fp32", rng)


@runners
@pytest.mark.parametrize(("dtype", "precision"), [("complex64", "fp16x3"), ("float32", "fp16x3")])
def test_large_k_and_interleaved_modes(runner, dtype, precision):
    rng = np.random.default_rng(10)
    order = tuple(int(position) for position in rng.permutation(16))
    check(runner, (), (2,) * 8, (2,) * 8, 3000, order, dtype, 4096, precision, rng)


@runners
@pytest.mark.parametrize(("dtype", "precision"), every_precision())
@pytest.mark.parametrize("k_first", ["a", "b", "ab"])
def test_operands_stored_with_k_first(runner, dtype, precision, k_first):
    rng = np.random.default_rng(7)
    for _ in range(20):
        batch, m, n = (
            tuple(int(e) for e in rng.choice([2, 2, 3, 5, 40], rng.integers(0, 3))) for _ in range(3)
        )
        order = tuple(int(position) for position in rng.permutation(len(batch + m + n)))
        k, capacity = int(rng.choice([2, 3, 4, 9, 33])), int(rng.choice([1, 63, 1024, 1 << 18]))
        if prod(batch + m + n) > 1000 * capacity:
            continue
        shape = replace(shape_of(batch, m, n, k, order), k_first=k_first)
        a, b = (random_values(rng, (shape.sizes[0], rows, k), dtype) for rows in shape.sizes[1:3])
        stored = [
            np.ascontiguousarray(one.swapaxes(1, 2)) if name in k_first else one
            for name, one in (("a", a), ("b", b))
        ]
        c = contract_on(runner, shape, *stored, capacity, precision)
        truth, scale = (
            np.ascontiguousarray(values.reshape(batch + m + n).transpose(order)).ravel()
            for values in truths(a, b)
        )
        assert np.all(np.abs(c - truth) <= expected_error(check_precision(precision, dtype), k) * scale)


@runners
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_and_few_columns(runner, dtype):
    rng = np.random.default_rng(8)
    for number in range(24):
        m = tuple(int(e) for e in rng.choice([2, 2, 2, 3, 4, 5, 25], rng.integers(3, 8)))
        n = tuple(int(e) for e in rng.choice([2, 2, 3, 5], rng.integers(1, 4)))
        m, n = (m, n) if number % 2 else (n, m)
        k, k_first = int(rng.choice([2, 3, 4, 16, 25, 64])), ("a", "b", "ab", "")[number // 2 % 4]
        order = tuple(int(position) for position in rng.permutation(len(m + n)))
        shape = replace(shape_of((), m, n, k, order), k_first=k_first)
        a, b = (random_values(rng, (1, rows, k), dtype) for rows in shape.sizes[1:3])
        stored = [
            np.ascontiguousarray(one.swapaxes(1, 2)) if name in k_first else one
            for name, one in (("a", a), ("b", b))
        ]
        precision = "fp64" if dtype in ("float64", "complex128") else "fp32"
        c = contract_on(runner, shape, *stored, 1 << 16, precision)
        truth, scale = (
            np.ascontiguousarray(values.reshape(m + n).transpose(order)).ravel() for values in truths(a, b)
        )
        assert np.all(np.abs(c - truth) <= expected_error(precision, k) * scale)


@runners
def test_nothing_contracted_is_zero_and_nothing_stored_is_nothing(runner):
    for precision in supported("complex64"):
        empty = np.zeros((2, 3, 0), np.complex64), np.zeros((2, 4, 0), np.complex64)
        shape = shape_of((2,), (3,), (4,), 0, (2, 1, 0))
        assert not np.any(contract_on(runner, shape, *empty, 0, precision))
        shape = shape_of((2,), (0,), (4,), 3, (2, 1, 0))
        none = np.zeros((2, 0, 3), np.complex64), np.zeros((2, 4, 3), np.complex64)
        assert contract_on(runner, shape, *none, 0, precision).size == 0


@runners
def test_a_missing_workspace_is_an_error(runner):
    values = np.ones((1, 6, 2)), np.ones((1, 4, 2))
    with pytest.raises(ValueError, match="workspace"):
        contract_on(runner, shape_of((), (2, 3), (4,), 2, (0, 2, 1)), *values, 0, "fp64")


def test_a_precision_that_a_type_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="fp8"):
        check_precision("fp8", "float32")
    with pytest.raises(ValueError, match="fp64"):
        check_precision("fp64", "complex64")
    assert check_precision("fp16x3", "complex128") == "fp64"
    assert supported("complex64") == ("fp32", "tf32", "fp16x3")


def split_product(a, b):
    """a [m, k] times b [n, k] transposed as mma.cu does it: float32 or complex64.

    Chunk by chunk, each row with its own power of two, three products of half-precision numbers.
    """
    if a.dtype.kind == "c":  # rows of (re, im); b as (re, -im) for real sums and (im, re) for imaginary ones
        turned = np.stack([b.conj(), 1j * b.conj()], 1).reshape(2 * len(b), -1)
        sums = split_product(*(np.ascontiguousarray(x).view(np.float32) for x in (a, turned.astype(a.dtype))))
        return np.ascontiguousarray(sums).view(a.dtype)
    sums = np.zeros((len(a), len(b)), np.float32)
    exponents = [np.full((len(x), 1), 127) for x in (a, b)]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for first in range(0, a.shape[1], CHUNK):
            halves = []
            for side, x in enumerate((a, b)):
                chunk = x[:, first : first + CHUNK]
                old = exponents[side]
                if first == 0 or np.any(np.abs(np.ldexp(chunk, old)) > LARGEST):
                    most = np.max(np.where(np.isfinite(chunk), np.abs(chunk), 0), axis=1, keepdims=True)
                    wanted = TOP + 1 - np.frexp(most)[1]
                    exponents[side] = np.where(most > 0, np.minimum(old, wanted), old)
                    factor = np.ldexp(np.float32(1), exponents[side] - old)
                    sums *= factor if side == 0 else factor.T
                scaled = np.ldexp(chunk, exponents[side]).astype(np.float32)
                high = scaled.astype(np.float16).astype(np.float32)
                low = (scaled - high).astype(np.float16).astype(np.float32)
                halves.append((high, low))
            (a_high, a_low), (b_high, b_low) = halves
            sums += a_high @ b_high.T
            sums += a_high @ b_low.T
            sums += a_low @ b_high.T
        return np.ldexp(sums, -(exponents[0] + exponents[1].T)).astype(np.float32)


def split_by(runner, a, b):
    """The product of 2-d a and b by the kernel or its twin."""
    if runner == "twin":
        sums = np.zeros((len(a), len(b)), a.dtype)
        step = BLOCK_REALS // (2 if a.dtype.kind == "c" else 1)
        for first in range(0, a.shape[1], step):
            sums += split_product(a[:, first : first + step], b[:, first : first + step])
        return sums
    shape = shape_of((), (len(a),), (len(b),), a.shape[1], (0, 1))
    return contract_on("gpu", shape, a[None], b[None], 0, "fp16x3").reshape(len(a), len(b))


@splitters
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize(
    "kind", ["normal", "positive", "tiny", "huge", "mixed rows", "growing", "sparse"]
)  # fmt: skip
@pytest.mark.parametrize("k", [5, 256, 1500, 8192])
def test_three_half_precision_products_are_as_exact_as_promised(runner, dtype, kind, k):
    rng = np.random.default_rng(k)
    a, b = (ranges(rng, rows, k, dtype, kind) for rows in (33, 20))
    if kind in ("tiny", "huge", "growing"):
        b = ranges(rng, 20, k, dtype, "normal")
    c = split_by(runner, a, b)
    truth, scale = (values[0] for values in truths(a[None], b[None]))
    # What a row's largest number hides: numbers below 2^-37 of it are lost.
    lost = k * 2.0**-35 * np.abs(a).max(1, keepdims=True).astype(float) * np.abs(b).max(1).astype(float)
    error = np.abs(c - truth)
    assert expected_error("fp16x3", k) <= 1e-5
    assert np.all(error <= expected_error("fp16x3", k) * scale + lost)


@splitters
def test_infinities_and_nans_stay_in_their_rows_and_columns(runner):
    rng = np.random.default_rng(3)
    a, b = (random_values(rng, (rows, 100), "float32") for rows in (20, 20))
    a[3, 50], a[7, 2], b[5, 99] = np.inf, np.nan, -np.inf
    c = split_by(runner, a, b)
    bad = np.zeros((20, 20), bool)
    bad[[3, 7]] = bad[:, 5] = True
    assert np.array_equal(~np.isfinite(c), bad)


def test_errors_grow_with_k_and_precisions_keep_their_order():
    for k in (1, 16, 256, 4096):
        exact = [expected_error(precision, k) for precision in ("fp64", "fp32", "fp16x3", "tf32")]
        assert exact == sorted(exact)
        assert all(
            expected_error(p, k) <= expected_error(p, 2 * k) for p in ("fp64", "fp32", "fp16x3", "tf32")
        )


def test_two_tables_hold_the_places_of_a_part():
    two_level_offsets = pytest.importorskip("tnplan.executor.device.cuda.contract.scatter").two_level_offsets
    rng = np.random.default_rng(4)
    for _ in range(100):
        extents = tuple(int(e) for e in rng.choice([1, 2, 3, 6, 7, 20], rng.integers(0, 6)))
        part = tuple((extent, int(rng.integers(1, 1000))) for extent in extents)
        high, low = two_level_offsets(part)
        places = sum(
            (index * stride for index, (_, stride) in zip(np.indices(extents), part, strict=True)),
            np.zeros(extents, np.int64),
        )
        numbers = np.arange(prod(extents))
        assert np.array_equal(high[numbers // len(low)] + low[numbers % len(low)], places.ravel())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (2, 0, 3, 1)])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        ((4, 2), (2, 3), 1 << 15), ((1, 1), (1, 1), 1 << 14), ((4, 4), (4, 8), 1 << 13),
        ((3, 3), (1, 5), 3**9), ((8, 8), (8, 8), 1 << 13),
    ],
)  # fmt: skip
@runners
def test_few_results_of_a_long_sum(runner, m, n, k, dtype, order):
    check_long_sum(runner, shape_of((), m, n, k, order), order, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("order", "k_first"), [((0, 1), "a"), ((1, 0), "a"), ((0, 1), "b"), ((1, 0), "ab")])
@runners
def test_few_results_of_a_long_sum_stored_with_k_first(runner, dtype, order, k_first):
    shape = replace(shape_of((), (6,), (3,), 1 << 17, order), k_first=k_first)
    check_long_sum(runner, shape, order, dtype)


@pytest.mark.parametrize(
    ("dtype", "k_first"),
    slow_unless(lambda dtype, k_first: (dtype + k_first) % 2 == 0, DTYPES, ["", "b"]),
)
@pytest.mark.parametrize(
    ("batch", "m", "n", "order"),
    [((4,), (1,), (1,), (0, 1, 2)), ((3, 2), (2,), (5,), (0, 1, 3, 2)), ((300,), (1,), (4,), (1, 0, 2))],
)
@runners
def test_few_results_of_each_long_sum_of_a_batch(runner, batch, m, n, order, k_first, dtype):
    shape = replace(shape_of(batch, m, n, 1 << 13, order), k_first=k_first)
    check_long_sum(runner, shape, order, dtype)


def check_long_sum(runner, shape, order, dtype):
    """Errors as for a sum of the terms of one part: far below those of one sum over all of k."""
    rng, (n_batch, m, n, k) = np.random.default_rng(11), shape.sizes
    extents = [extent for extent, _ in (*shape.batch, *shape.m, *shape.n)]
    a, b = random_values(rng, (n_batch, m, k), dtype), random_values(rng, (n_batch, n, k), dtype)
    precision = "fp64" if dtype in ("float64", "complex128") else "fp32"
    stored = [
        np.ascontiguousarray(one.swapaxes(1, 2)) if name in shape.k_first else one
        for name, one in (("a", a), ("b", b))
    ]
    c = contract_on(runner, shape, *stored, 64, precision)
    truth = np.einsum("bmk,bnk->bmn", a.astype(np.complex128), b).reshape(extents).transpose(order).ravel()
    scale = np.einsum("bmk,bnk->bmn", np.abs(a), np.abs(b)).reshape(extents).transpose(order).ravel()
    assert np.all(np.abs(c - truth) <= expected_error(precision, 1024) * scale)


def test_parts_of_a_long_sum():
    pytest.importorskip("cupy")
    from tnplan.executor.device.cuda.contract.split_k import count_parts, split_bytes

    complex64 = np.dtype("complex64")
    for m, n, k, parts in (
        (8, 4, 1 << 23, 1 << 13), (8, 4, 1 << 28, 1 << 13), (128, 32, 1 << 21, 1 << 10), (3, 2, 3**9, 27),
        (1 << 12, 1 << 12, 1 << 14, 1), (8, 4, 2048, 1),
    ):  # fmt: skip
        assert count_parts(shape_of((), (m,), (n,), k, (0, 1)), complex64) == parts
    for batch, m, k, parts in (
        (4, 1, 1 << 26, 1 << 11), (1 << 20, 1, 1 << 13, 2), (4, 64, 1 << 20, 1), (1 << 10, 1, 512, 2),
        (1 << 20, 1, 512, 1),
    ):  # fmt: skip
        assert count_parts(shape_of((batch,), (m,), (m,), k, (0, 1, 2)), complex64) == parts
    assert split_bytes(shape_of((), (8,), (4,), 1 << 13, (1, 0)), complex64) == 32 * 32 * 8
    assert split_bytes(shape_of((2,), (8,), (4,), 1 << 13, (0, 1, 2)), complex64) == 2 * 32 * 32 * 8


def test_products_too_long_for_32_bits_go_to_cublas():
    scratch_bytes = pytest.importorskip("tnplan.executor.device.cuda.contract.dispatch").scratch_bytes
    for m, scattered in ((1 << 30, True), (1 << 31, False), (1 << 33, False)):
        for shape in (shape_of((), (m,), (1,), 2, (0, 1)), shape_of((), (1,), (m,), 2, (1, 0))):
            assert (scratch_bytes(shape, "complex64", "fp16x3") == 0) == scattered


@pytest.mark.parametrize(
    ("size", "dtype", "is_own"),
    [
        ((64, 512, 64, 8), "complex64", True), ((64, 512, 64, 8), "float32", True),
        ((64, 512, 16, 300), "complex64", True), ((64, 512, 16, 300), "float32", False),
        ((64, 512, 64, 64), "complex64", False), ((2, 512, 64, 8), "complex64", False),
        ((200, 8, 512, 9), "complex64", True), ((64, 512, 64, 8), "complex128", False),
    ],
)  # fmt: skip
def test_large_products_of_short_sums_or_few_columns_need_no_cublas(size, dtype, is_own):
    """In the order in which cuBLAS would store them too."""
    scratch_bytes = pytest.importorskip("tnplan.executor.device.cuda.contract.dispatch").scratch_bytes
    batch, m, n, k = size
    for order in (0, 1, 2), (0, 2, 1):
        shape = shape_of((batch,), (m,), (n,), k, order)
        assert shape.direct is not None
        assert (scratch_bytes(shape, dtype, supported(dtype)[0]) == 0) == is_own


@needs_gpus(1)
@pytest.mark.parametrize(
    ("m", "n", "order"),
    [((1 << 32,), (2,), (0, 1)), ((2, 1 << 30), (1,), (1, 0, 2)), ((2, 1 << 30), (2,), (2, 1, 0))],
)
def test_more_rows_than_32_bits_count(m, n, order):
    import cupy

    from tnplan.executor.device.cuda.contract import Product
    from tnplan.executor.device.cuda.contract.dispatch import bind_contract, scratch_bytes

    k, m_all, n_all = 2, prod(m), prod(n)
    needed_bytes = 4 * (m_all * (k + n_all) + (1 << 26))
    if cupy.cuda.runtime.memGetInfo()[0] < needed_bytes:
        pytest.skip(f"needs {needed_bytes >> 30} GiB of free GPU memory")
    shape = shape_of((), m, n, k, order)
    a, b = cupy.ones(k * m_all, np.float32), cupy.arange(1, 1 + k * n_all, dtype=np.float32)
    a[-4:] = cupy.arange(4)
    c = cupy.full(m_all * n_all, np.nan, np.float32)
    workspace = cupy.empty(1 << 22, np.float32)
    scratch = cupy.empty(scratch_bytes(shape, "float32", "fp32"), np.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    call = bind_contract(Product(shape, a, b, c, stream), workspace, "fp32", scratch)
    cupy.cuda.Device().synchronize()
    call()
    stream.synchronize()
    left, right = np.ones((6, k), np.float32), b.get().reshape(n_all, k)
    left[-2:] = np.arange(4).reshape(2, k)
    rows = np.array([0, 1, m_all // 2 - 1, m_all // 2, m_all - 2, m_all - 1])
    index = np.unravel_index(rows, m)
    start = sum(place * stride for place, (_, stride) in zip(index, shape.m, strict=True))
    places = start[:, None] + np.arange(n_all) * shape.n[0][1]
    assert np.array_equal(c[cupy.asarray(places)].get(), left @ right.T)
    assert not bool(cupy.isnan(c[:: 1 << 12]).any())
    del a, c
    cupy.get_default_memory_pool().free_all_blocks()
