"""Complex products in fp16x3 as Hopper GPUs form them: the twin here, the device where there is one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.contraction.copy import random_values
from tests.support.kernels.contract import (
    CHUNK,
    LARGEST,
    TOP,
    contract_on,
    ranges,
    shape_of,
    splitters,
    truths,
)
from tests.support.kernels.gpus import needs_gpus
from tnplan.executor.device.protocols.precision import BLOCK_REALS, expected_error

UNSET = 127


def halves(x, exponents):
    """Rows scaled by powers of two as the sum of two half-precision numbers."""
    scaled = np.ldexp(x, exponents).astype(np.float32)
    high = scaled.astype(np.float16).astype(np.float32)
    return high, (scaled - high).astype(np.float16).astype(np.float32)


def largest(x):
    return np.max(np.where(np.isfinite(x), np.abs(x), 0), axis=1, keepdims=True)


def wgmma_product(a, b):
    """a [m, k] times b [n, k] transposed as wgmma.cu does it: complex64.

    A row of b has one power of two; one of a begins with that of its first chunk, which later ones lower.
    Every chunk has three products of half-precision numbers; blocks of 1024 reals are added in fp32.
    """
    a, b = a.view(np.float32), b.view(np.float32).reshape(len(b), -1, 2)
    b = np.stack([b * np.float32([1, -1]), b[:, :, ::-1]], 1).reshape(2 * len(b), -1)
    result = np.zeros((len(a), len(b)), np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        most = largest(b)
        of_b = np.where(most > 0, TOP + 1 - np.frexp(most)[1], 0)
        of_a = np.full((len(a), 1), UNSET)
        for block in range(0, a.shape[1], BLOCK_REALS):
            sums = np.zeros_like(result)
            for first in range(block, min(block + BLOCK_REALS, a.shape[1]), CHUNK):
                chunk = a[:, first : first + CHUNK]
                leave = np.any(np.abs(np.ldexp(chunk, of_a)) > LARGEST, axis=1, keepdims=True)
                most = largest(chunk)
                lowered = np.where(most > 0, np.minimum(of_a, TOP + 1 - np.frexp(most)[1]), of_a)
                wanted = np.where(leave, lowered, of_a)
                sums *= np.ldexp(np.float32(1), wanted - of_a)
                of_a = wanted
                a_high, a_low = halves(chunk, of_a)
                b_high, b_low = halves(b[:, first : first + CHUNK], of_b)
                sums += a_high @ b_high.T
                sums += a_high @ b_low.T
                sums += a_low @ b_high.T
            result += np.ldexp(sums, -(of_a + of_b.T)).astype(np.float32)
    return result.view(np.complex64)


@pytest.fixture
def any_size(monkeypatch):
    """Products of any size go this way."""
    wgmma = pytest.importorskip("tnplan.executor.device.cuda.contract.fp16x3_wgmma")
    monkeypatch.setattr(wgmma, "LEAST_BLOCKS", 0)
    monkeypatch.setattr(wgmma, "LEAST_PRODUCTS", 0)
    return wgmma


def product_by(runner, a, b, m, n, order, wgmma):
    """The product of 2-d a and b, with m and n as these extents and c in this order, as [m, n]."""
    if runner == "twin":
        return wgmma_product(a, b)
    shape = shape_of((), m, n, a.shape[1], order)
    if not wgmma.has_instructions():
        pytest.skip("needs a Hopper GPU")
    assert wgmma.cut(shape, a.dtype.name) is not None
    c = contract_on("gpu", shape, a[None], b[None], 0, "fp16x3")
    sizes = (*m, *n)
    return c.reshape([sizes[mode] for mode in order]).transpose(np.argsort(order)).reshape(len(a), len(b))


def check(runner, a, b, m, n, order, wgmma):
    c = product_by(runner, a, b, m, n, order, wgmma)
    truth, scale = (values[0] for values in truths(a[None], b[None]))
    k = a.shape[1]
    # What a row's largest number hides: numbers below 2^-37 of it are lost.
    lost = k * 2.0**-35 * np.abs(a).max(1, keepdims=True).astype(float) * np.abs(b).max(1).astype(float)
    assert np.all(np.abs(c - truth) <= expected_error("fp16x3", k) * scale + lost)


@splitters
@pytest.mark.parametrize(
    "kind", ["normal", "positive", "tiny", "huge", "mixed rows", "growing", "sparse"]
)  # fmt: skip
@pytest.mark.parametrize(
    ("k", "order"),
    [
        (16, (0, 1, 2, 3)),
        (1488, (3, 0, 2, 1)),
        pytest.param(2608, (2, 1, 3, 0), marks=pytest.mark.slow),
    ],
)
def test_products_are_as_exact_as_promised(runner, kind, k, order, any_size):
    rng = np.random.default_rng(k)
    a, b = (ranges(rng, rows, k, "complex64", kind) for rows in (300, 260))
    if kind in ("tiny", "huge", "growing"):
        b = ranges(rng, 260, k, "complex64", "normal")
    check(runner, np.ascontiguousarray(a), np.ascontiguousarray(b), (4, 75), (2, 130), order, any_size)


@splitters
@pytest.mark.parametrize(
    ("m", "n"),
    [((4, 75), (1, 17)), ((2, 321), (2, 16)), ((5, 77), (3, 11)), ((1, 64), (4, 16)), ((1, 1), (1, 100)),
     ((3, 43), (1, 129)), ((1, 700), (2, 200))],
)  # fmt: skip
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (2, 0, 1, 3), (0, 2, 3, 1)])
def test_blocks_of_every_width(runner, m, n, order, any_size):
    """Few columns or many, last blocks that are not full, either operand the longer one, c in any order."""
    rng = np.random.default_rng(7)
    rows, columns = m[0] * m[1], n[0] * n[1]
    if rows < 17:
        m, rows = (1, 17), 17
    a, b = random_values(rng, (rows, 528), "complex64"), random_values(rng, (columns, 528), "complex64")
    check(runner, a, b, m, n, order, any_size)


@needs_gpus(1)
def test_columns_that_are_split_part_by_part(monkeypatch, any_size):
    monkeypatch.setattr(any_size, "SPLIT_BYTES", 128 * 1040 * 16)
    rng = np.random.default_rng(4)
    a, b = random_values(rng, (700, 1040), "complex64"), random_values(rng, (580, 1040), "complex64")
    for order in [(0, 1, 2, 3), (2, 0, 1, 3), (3, 2, 1, 0)]:
        check("gpu", a, b, (4, 175), (2, 290), order, any_size)


@needs_gpus(1)
def test_operands_that_begin_anywhere(any_size):
    """Those that cannot be read 16 bytes at a time go another way."""
    import cupy

    from tnplan.executor.device.cuda.contract import Product
    from tnplan.executor.device.cuda.contract.dispatch import bind_contract, scratch_bytes

    rng = np.random.default_rng(5)
    a, b = random_values(rng, (300, 64), "complex64"), random_values(rng, (40, 64), "complex64")
    shape = shape_of((), (300,), (40,), 64, (0, 1))
    stream = cupy.cuda.Stream(non_blocking=True)
    scratch = cupy.empty(scratch_bytes(shape, "complex64", "fp16x3"), np.uint8)
    truth, scale = (values[0] for values in truths(a[None], b[None]))
    for starts in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]:
        arrays = []
        for start, values in zip(starts, (a, b, np.full((300, 40), np.nan, a.dtype)), strict=True):
            room = cupy.zeros(values.size + 1, values.dtype)
            room[start : start + values.size] = cupy.asarray(values.ravel())
            arrays.append(room[start : start + values.size])
        call = bind_contract(Product(shape, *arrays, stream), None, "fp16x3", scratch)
        cupy.cuda.Device().synchronize()
        call()
        stream.synchronize()
        c = arrays[2].get().reshape(300, 40)
        assert np.all(np.abs(c - truth) <= expected_error("fp16x3", 64) * scale)


@splitters
def test_infinities_and_nans_stay_in_their_rows_and_columns(runner, any_size):
    rng = np.random.default_rng(3)
    a, b = random_values(rng, (260, 1040), "complex64"), random_values(rng, (200, 1040), "complex64")
    a[3, 50], a[7, 2], a[100, 900], b[5, 99] = np.inf, np.nan, np.inf, -np.inf
    bad = np.zeros((260, 200), bool)
    bad[[3, 7, 100]] = bad[:, 5] = True
    c = product_by(runner, a, b, (2, 130), (2, 100), (0, 1, 2, 3), any_size)
    assert np.array_equal(~np.isfinite(c), bad)


@splitters
def test_rows_of_zeros(runner, any_size):
    rng = np.random.default_rng(2)
    a, b = random_values(rng, (130, 64), "complex64"), random_values(rng, (70, 64), "complex64")
    a[5], a[9, :40], b[8], b[:, 0] = 0, 0, 0, 0
    c = product_by(runner, a, b, (2, 65), (2, 35), (0, 1, 2, 3), any_size)
    assert not c[5].any()
    assert not c[:, 8].any()
    check(runner, a, b, (2, 65), (2, 35), (0, 1, 2, 3), any_size)


def test_which_products_go_this_way(monkeypatch):
    wgmma = pytest.importorskip("tnplan.executor.device.cuda.contract.fp16x3_wgmma")
    monkeypatch.setattr(wgmma, "has_instructions", lambda: True)

    def cut(m, n, k, batch=(), dtype="complex64"):
        return wgmma.cut(shape_of(batch, (m,), (n,), k, tuple(range(len(batch) + 2))), dtype)

    assert cut(1 << 16, 256, 256) == wgmma.Cut(True, 1 << 16, 256, 256, 128, 256)
    assert cut(40, 1 << 18, 16) == wgmma.Cut(False, 1 << 18, 40, 16, 64, 64)
    assert cut(1 << 18, 32, 32).block_columns == 32
    assert cut(1 << 16, 256, 1 << 14).parts == [(0, 128), (128, 128)]
    long = cut(1 << 12, 1 << 12, 1 << 12)
    assert long.parts == [(first, 512) for first in range(0, 4096, 512)]
    assert long.scratch_bytes == 2048 + wgmma.SPLIT_BYTES
    for m, n, k in (
        (1 << 16, 256, 250), (1 << 20, 16, 256), (512, 512, 512), (1 << 12, 64, 64),
        (1 << 12, 1 << 12, 1 << 22), (1 << 16, 256, 0), (1 << 16, 256, (1 << 14) + 16),
    ):  # fmt: skip
        assert cut(m, n, k) is None
    assert cut(1 << 16, 256, 256, batch=(2,)) is None
    assert cut(1 << 16, 256, 256, dtype="float32") is None
    monkeypatch.setattr(wgmma, "has_instructions", lambda: False)
    assert cut(1 << 16, 256, 256) is None


def test_when_columns_lie_in_pairs():
    in_pairs = pytest.importorskip("tnplan.executor.device.cuda.contract.fp16x3_wgmma").in_pairs
    rows = ((8, 32), (4, 8))
    assert in_pairs(rows, ((2, 4), (4, 1)))
    assert in_pairs(rows, ((2, 4), (4, 1), (1, 7)))
    assert not in_pairs(((4, 1),), ((2, 4), (4, 8)))
    assert not in_pairs(((4, 15),), ((5, 3), (3, 1)))
    assert not in_pairs(((4, 9),), ((2, 4), (4, 1)))
