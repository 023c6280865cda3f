"""Large products in fp16x3 by cuBLAS from halves: the twin here, the device where there is one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.contraction.copy import random_values
from tests.support.kernels.contract import TOP, contract_on, ranges, shape_of, splitters, truths
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_unless
from tnplan.executor.device.protocols.precision import BLOCK_REALS, expected_error


def halves_product(a, b):
    """a [m, k] times b [n, k] transposed as halves.cu and cuBLAS do it: float32 or complex64.

    Each row with one power of two; in blocks of 1024 reals three products of half-precision numbers, the
    small ones first.
    """
    if a.dtype.kind == "c":
        turned = np.stack([b.conj(), 1j * b.conj()], 1).reshape(2 * len(b), -1)
        reals = (np.ascontiguousarray(x).view(np.float32) for x in (a, turned.astype(a.dtype)))
        sums = halves_product(*reals)
        return np.ascontiguousarray(sums).view(a.dtype)
    exponents, halves = [], []
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for x in (a, b):
            most = np.max(np.where(np.isfinite(x), np.abs(x), 0), axis=1, keepdims=True)
            exponents.append(np.where(most > 0, TOP + 1 - np.frexp(most)[1], 0))
            scaled = np.ldexp(x, exponents[-1]).astype(np.float32)
            high = scaled.astype(np.float16).astype(np.float32)
            halves.append((high, (scaled - high).astype(np.float16).astype(np.float32)))
        (a_high, a_low), (b_high, b_low) = halves
        sums = np.zeros((len(a), len(b)), np.float32)
        for first in range(0, a.shape[1], BLOCK_REALS):
            block = slice(first, first + BLOCK_REALS)
            sums += (
                a_low[:, block] @ b_high[:, block].T + a_high[:, block] @ b_low[:, block].T
                + a_high[:, block] @ b_high[:, block].T
            )  # fmt: skip
        return np.ldexp(sums, -(exponents[0] + exponents[1].T)).astype(np.float32)


def halves_by(runner, a, b, order, monkeypatch):
    """The product of 2-d a and b of hundreds of rows by cuBLAS's halves or their twin, as [m, n]."""
    if runner == "twin":
        return halves_product(a, b)
    import tnplan.executor.device.cuda.contract.fp16x3_cublas as halves
    from tnplan.executor.device.cuda.contract import dispatch as cupy_contract

    monkeypatch.setattr(cupy_contract, "cut", lambda *_: None)
    monkeypatch.setattr(halves, "LEAST_SIDE", 256)
    monkeypatch.setattr(halves, "LEAST_SUM", 512)
    m, n = (4, len(a) // 4), (2, len(b) // 2)
    shape = shape_of((), m, n, a.shape[1], order)
    assert halves.tiles(shape, a.dtype.name) is not None
    c = contract_on("gpu", shape, a[None], b[None], 0, "fp16x3")
    sizes = (*m, *n)
    return c.reshape([sizes[mode] for mode in order]).transpose(np.argsort(order)).reshape(len(a), len(b))


@splitters
@pytest.mark.parametrize(
    ("dtype", "kind"),
    slow_unless(
        lambda dtype, kind: (dtype + kind) % 2 == 0,
        ["float32", "complex64"],
        ["normal", "positive", "tiny", "huge", "mixed rows", "growing", "sparse"],
    ),
)
@pytest.mark.parametrize(("k", "order"), [
    (512, (0, 1, 2, 3)), (1500, (3, 0, 2, 1)),
    pytest.param(2600, (2, 1, 3, 0), marks=pytest.mark.slow),
])  # fmt: skip
def test_products_are_as_exact_as_promised(
    runner, dtype, kind, k, order, monkeypatch
):  # fmt: skip
    rng = np.random.default_rng(k)
    a, b = (ranges(rng, rows, k, dtype, kind) for rows in (300, 260))
    if kind in ("tiny", "huge", "growing"):
        b = ranges(rng, 260, k, dtype, "normal")
    if dtype == "float32":
        a, b = (x[:, : k // 8 * 8] for x in (a, b))
    a, b = map(np.ascontiguousarray, (a, b))
    c = halves_by(runner, a, b, order, monkeypatch)
    truth, scale = (values[0] for values in truths(a[None], b[None]))
    lost = k * 2.0**-35 * np.abs(a).max(1, keepdims=True).astype(float) * np.abs(b).max(1).astype(float)
    assert np.all(np.abs(c - truth) <= expected_error("fp16x3", k) * scale + lost)


@needs_gpus(1)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_products_of_many_tiles(dtype, monkeypatch):
    import tnplan.executor.device.cuda.contract.fp16x3_cublas as halves

    monkeypatch.setattr(halves, "MOST_COLUMNS", 256)
    monkeypatch.setattr(halves, "ROWS_BYTES", 3 * 1024 * 200)
    rng = np.random.default_rng(4)
    a, b = random_values(rng, (1000, 1200), dtype), random_values(rng, (580, 1200), dtype)
    for order in [(0, 1, 2, 3), (2, 0, 1, 3), (3, 2, 1, 0)]:
        c = halves_by("gpu", a, b, order, monkeypatch)
        truth, scale = (values[0] for values in truths(a[None], b[None]))
        assert np.all(np.abs(c - truth) <= expected_error("fp16x3", 1200) * scale)


@splitters
def test_infinities_and_nans_stay_in_their_rows_and_columns(runner, monkeypatch):
    rng = np.random.default_rng(3)
    a, b = (random_values(rng, (rows, 1024), "float32") for rows in (260, 300))
    a[3, 50], a[7, 2], b[5, 99] = np.inf, np.nan, -np.inf
    bad = np.zeros((260, 300), bool)
    bad[[3, 7]] = bad[:, 5] = True
    assert np.array_equal(~np.isfinite(halves_by(runner, a, b, (0, 1, 2, 3), monkeypatch)), bad)
