"""Local contractions on the NumPy device against einsum: direct, tiled in any order, small, empty."""

from __future__ import annotations

from itertools import product
from math import prod
from threading import Thread, get_ident

import numpy as np
import pytest

from tnplan.executor.device.cpu import device
from tnplan.executor.device.cpu.contract import bind_tiles
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.cpu.parallel_rows import blas_threads, is_blas_single
from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import ContractShape
from tnplan.executor.device.protocols.output_tiling import cut_output

DTYPES = {"float32": 1e-5, "float64": 1e-12, "complex64": 1e-5, "complex128": 1e-12}


def random_values(rng, shape, dtype):
    values = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def contract(rng, batch, m, n, k, order, dtype, capacity, threads=1):
    """Contract random operands, c's modes in `order` (positions in batch + m + n); c, truth and scale."""
    parts = batch + m + n
    strides = [0] * len(parts)
    for position, stride in zip(order, row_major([parts[position] for position in order]), strict=True):
        strides[position] = stride
    modes = tuple(zip(parts, strides, strict=True))
    b, m_, n_ = prod(batch), prod(m), prod(n)
    shape = ContractShape(
        modes[: len(batch)], modes[len(batch) : len(batch) + len(m)], modes[len(batch) + len(m) :], k
    )
    a, other = random_values(rng, (b, m_, k), dtype), random_values(rng, (b, n_, k), dtype)
    c = np.full(prod(parts), np.nan, dtype)
    workspace = np.full(capacity, np.nan, dtype) if capacity else None
    NumpyDevice(threads).bind_contract(shape, a.ravel(), other.ravel(), c, workspace)()

    def arranged(product):
        return np.ascontiguousarray(product.reshape(parts).transpose(order)).ravel()

    truth = arranged(np.einsum("bmk,bnk->bmn", a.astype(np.complex128), other))
    scale = arranged(np.einsum("bmk,bnk->bmn", np.abs(a), np.abs(other)))
    return c, truth, scale


def check(dtype, c, truth, scale):
    assert c.dtype == dtype
    assert np.all(np.abs(c - truth) <= DTYPES[dtype] * scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_order_and_any_workspace(dtype):
    rng = np.random.default_rng(5)
    for _ in range(120):
        batch, m, n = (
            tuple(int(e) for e in rng.choice([1, 2, 2, 3, 5, 7], rng.integers(0, 4))) for _ in range(3)
        )
        order = tuple(int(position) for position in rng.permutation(len(batch + m + n)))
        k = int(rng.choice([1, 2, 4, 9]))
        capacity = int(rng.choice([1, 2, 5, 16, 63, 1024, 1 << 18]))
        check(dtype, *contract(rng, batch, m, n, k, order, dtype, capacity))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_direct_orders_need_no_workspace(dtype, order):
    rng = np.random.default_rng(6)
    for batch, m, n, k in [
        (1, 4, 5, 6),
        (3, 40, 50, 6),
        (100, 2, 2, 2),
        (1, 1, 7, 9),
        (1, 7, 1, 9),
        (1, 300, 200, 1),
    ]:
        check(dtype, *contract(rng, (batch,), (m,), (n,), k, order, dtype, 0))


def test_modes_of_extent_one_do_not_spoil_a_direct_order():
    rng = np.random.default_rng(7)
    check("float64", *contract(rng, (3,), (4, 1), (5, 1), 2, (4, 0, 1, 2, 3), "float64", 0))


def test_a_missing_workspace_is_an_error():
    with pytest.raises(ValueError, match="workspace"):
        contract(np.random.default_rng(8), (), (2, 3), (4,), 2, (0, 2, 1), "float64", 0)


def test_nothing_contracted_is_zero_and_nothing_stored_is_nothing():
    rng = np.random.default_rng(9)
    c, _, _ = contract(rng, (2,), (3,), (4,), 0, (2, 1, 0), "complex64", 0)
    assert np.array_equal(c, np.zeros(24, np.complex64))
    c, _, _ = contract(rng, (2,), (0,), (4,), 3, (2, 1, 0), "complex64", 0)
    assert c.size == 0


def test_a_large_interleaved_result():
    rng = np.random.default_rng(10)
    order = tuple(int(position) for position in rng.permutation(18))
    check("complex64", *contract(rng, (2,), (2,) * 9, (2,) * 8, 8, order, "complex64", 4096))


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_threads_share_tiles_and_give_the_same_bits(threads, monkeypatch):
    monkeypatch.setattr(device, "PARALLEL_PRODUCTS", 1)
    rng = np.random.default_rng(threads)
    for _ in range(10):
        parts = [tuple(int(e) for e in rng.choice([2, 3, 5], rng.integers(0, 4))) for _ in range(3)]
        order = tuple(int(position) for position in rng.permutation(sum(map(len, parts))))
        seed, capacity = int(rng.integers(2**31)), int(rng.choice([40, 300]))
        given = (*parts, 5, order, "complex64", capacity)
        one = contract(np.random.default_rng(seed), *given)
        several = contract(np.random.default_rng(seed), *given, threads)
        check("complex64", *several)
        assert np.array_equal(one[0], several[0])


@pytest.mark.parametrize(("capacity", "shared"), [(64, 4), (2048, 1)])
def test_threads_share_tiles_where_each_has_one(capacity, shared, monkeypatch):
    monkeypatch.setattr(device, "PARALLEL_PRODUCTS", 1)
    bound = []
    monkeypatch.setattr(device, "bind_tiles", lambda *given: bound.append(given) or bind_tiles(*given))
    order = tuple(int(position) for position in np.random.default_rng(12).permutation(12))
    rng = np.random.default_rng(14)
    check("complex64", *contract(rng, (2,), (2,) * 6, (2,) * 5, 4, order, "complex64", capacity, 4))
    assert len(bound) == shared


def test_tiles_come_in_turn_where_another_thread_lets_blas_take_more(monkeypatch):
    monkeypatch.setattr(device, "PARALLEL_PRODUCTS", 1)
    order = tuple(int(position) for position in np.random.default_rng(12).permutation(12))
    found, users, are_limited = [], [], []

    def noted(*given):
        call = bind_tiles(*given)
        return lambda: users.append(get_ident()) or call()

    def rank():
        with blas_threads(1):
            are_limited.append(is_blas_single())
        rng = np.random.default_rng(13)
        found.append(contract(rng, (2,), (2,) * 6, (2,) * 5, 4, order, "complex64", 64, 2))
        users.append(get_ident())

    monkeypatch.setattr(device, "bind_tiles", noted)
    with blas_threads(2):
        if is_blas_single():
            pytest.skip("BLAS has one thread here")
        one = Thread(target=rank)
        one.start()
        one.join()
    check("complex64", *found[0])
    if are_limited == [True]:
        pytest.skip("a limit of BLAS from any thread holds here")
    assert len(users) == 3
    assert len(set(users)) == 1


@pytest.mark.parametrize("capacity", [1, 3, 10, 97, 500, 5000])
def test_tiles_fit_and_cover(capacity):
    rng = np.random.default_rng(capacity)
    for _ in range(10):
        parts = [tuple(int(e) for e in rng.choice([1, 2, 3, 11, 101], rng.integers(0, 3))) for _ in range(3)]
        strides = iter(row_major([e for part in parts for e in part]))
        shape = ContractShape(*(tuple((extent, next(strides)) for extent in part) for part in parts), 4)
        tiling = cut_output(shape, capacity)
        blocks = (tiling.batch, tiling.m, tiling.n)
        for part, cut in zip(parts, blocks, strict=True):
            rows = [row for block in cut for row in range(block.start, block.start + block.rows)]
            assert rows == list(range(prod(part)))
        for rows in tiling.copies:
            assert prod(rows) <= capacity
        rows_and_columns = blocks[1:] if tiling.n_last else blocks[:0:-1]
        used = {tuple(block.rows for block in one) for one in product(blocks[0], *rows_and_columns)}
        assert used <= set(tiling.copies)


def test_sums_over_any_modes():
    rng = np.random.default_rng(11)
    for _ in range(50):
        extents = tuple(int(e) for e in rng.integers(1, 4, rng.integers(1, 8)))
        kept = tuple(bool(flag) for flag in rng.integers(0, 2, len(extents)))
        source = rng.standard_normal(extents)
        expected = source.sum(axis=tuple(axis for axis, keep in enumerate(kept) if not keep))
        target = np.full(expected.size, np.nan)
        NumpyDevice().bind_sum(target, source.ravel(), extents, kept)()
        np.testing.assert_allclose(target, expected.ravel(), rtol=0, atol=1e-12)
