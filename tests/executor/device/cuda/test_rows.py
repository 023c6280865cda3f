"""Products of pairs of rows: the kernels of GPUs, emulated and on a GPU, beside each pair by NumPy."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np
import pytest

from tests.support.effort import repeats
from tests.support.kernels import row_emulator
from tests.support.kernels.contract import shape_of
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_after
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.device import RowShape

pytest.importorskip("cupy")

RUNNERS = [
    "numpy", pytest.param("emulated", marks=needs_compiler), pytest.param("gpu", marks=needs_gpus(1)),
]  # fmt: skip
ROUNDING = {"complex64": 3e-6, "complex128": 1e-14, "float32": 3e-6, "float64": 1e-14}


def opened(runner: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    if runner == "numpy":
        return NumpyDevice()
    if runner == "emulated":
        row_emulator.emulate(monkeypatch)
        return row_emulator.EmulatedRowDevice()
    from tnplan.executor.device.cuda.device import CupyDevice

    return CupyDevice(0)


def values(chance: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    made = chance.normal(size=shape) + 1j * chance.normal(size=shape)
    return np.ascontiguousarray((made if np.dtype(dtype).kind == "c" else made.real).astype(dtype))


def check(
    device: Any, sizes: tuple[int, ...], counts: tuple[int, ...], pairs: np.ndarray, dtype: str, seed: int,
    precision: str = "fp32",
) -> None:  # fmt: skip
    """Rows anywhere in c, and modes in parts in any order; nothing beside c is written."""
    chance, draw = np.random.default_rng(seed), random.Random(seed)
    (n_batch, m, n, k), n_rows = sizes, len(pairs)
    parts = [(n_rows,), (n_batch,), *((one // 2, 2) if one % 2 == 0 else (one,) for one in (m, n))]
    order = draw.sample(range(sum(map(len, parts))), sum(map(len, parts)))
    if draw.random() < 0.4:
        order.sort()
    whole = shape_of(parts[0] + parts[1], parts[2], parts[3], k, order)
    each = shape_of(parts[1], parts[2], parts[3], k, range(len(order) - 1))
    each = type(each)(whole.batch[1:], whole.m, whole.n, k)
    shape = RowShape(each, n_rows, whole.batch[0][1])
    a, b = (
        values(chance, (counts[0], n_batch, m, k), dtype),
        values(chance, (counts[1], n_batch, n, k), dtype),
    )
    size = prod(whole.sizes[:3])
    work = m * n * n_batch * draw.choice([1, 3, n_rows])
    sizes_of = [a.size, b.size, size, work]
    starts = np.cumsum([0, *(-(-one * a.itemsize // 256) * 256 + 256 for one in sizes_of)])
    device.allocate(int(starts[-1]))
    views = [device.view(int(at), one, dtype) for at, one in zip(starts, sizes_of, strict=False)]
    nan = np.full(size, np.nan, dtype)
    for view, array in zip(views, (a, b, nan), strict=False):
        device.from_host(view, array.reshape(-1))
    call = device.bind_rows(shape, pairs.astype(np.int32), *views, precision)
    results = []
    for _ in range(2):
        device.from_host(views[2], nan)
        call()
        results.append(np.array(device.to_host(views[2])))
    assert np.array_equal(*(one.view(np.uint8) for one in results))
    exact = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    right = np.einsum("rtiq,rtjq->rtij", a[pairs[:, 0]].astype(exact), b[pairs[:, 1]].astype(exact))
    extents = [extent for part in parts for extent in part]
    wanted = right.reshape(extents).transpose(order).reshape(-1)
    rounding = 2e-2 if precision == "tf32" else ROUNDING[dtype]
    np.testing.assert_allclose(results[0], wanted, rtol=0, atol=rounding * (4 + k))


def random_pairs(chance: np.random.Generator, counts: tuple[int, int], n_rows: int) -> np.ndarray:
    chosen = chance.choice(counts[0] * counts[1], min(n_rows, counts[0] * counts[1]), replace=False)
    return np.stack(np.divmod(np.sort(chosen), counts[1]), axis=1)


CASES = [
    # batch, m, n, k; rows of a and b; pairs
    ((1, 16, 1, 70), (5, 40), 100), ((1, 64, 4, 8), (40, 3), 100), ((1, 8, 8, 16), (60, 9), 70),
    ((2, 3, 5, 7), (9, 9), 30), ((1, 1, 1, 4), (50, 60), 70), ((1, 1, 1, 100), (50, 60), 60),
    ((1, 2, 2, 2), (2, 400), 500), ((3, 1, 70, 17), (4, 6), 9), ((1, 130, 66, 9), (3, 4), 7),
    ((1, 5, 1, 1), (7, 30), 90), ((2, 40, 34, 18), (5, 4), 9), ((1, 32, 64, 20), (6, 5), 12),
    ((1, 1, 300, 3), (4, 4), 7), ((1, 2, 2, 33), (1, 30), 30), ((1, 6, 6, 6), (1, 1), 1),
    ((1, 130, 130, 9), (3, 4), 7), ((1, 512, 8, 16), (20, 3), 20), ((1, 256, 4, 8), (10, 32), 80),
    ((1, 32, 8, 90), (10, 160), 160), ((1, 8, 32, 90), (160, 10), 160), ((1, 16, 1, 80), (5, 100), 150),
    ((1, 60, 10, 40), (6, 12), 60), ((1, 30, 40, 12), (4, 30), 60),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("runner", RUNNERS)
def test_pairs_of_rows(runner: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = repeats(3, 1) if runner == "emulated" else 1
    for number, (sizes, counts, n_rows) in [*enumerate(CASES)][::every]:
        pairs = random_pairs(np.random.default_rng(number), counts, n_rows)
        check(opened(runner, monkeypatch), sizes, counts, pairs, dtype, number)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("seed", slow_after(3, range(6)))
def test_pairs_in_any_order(runner: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not sorted, rows without pairs, and pairs that stand twice."""
    chance = np.random.default_rng(seed)
    sizes = tuple(int(one) for one in (chance.integers(1, 3), *chance.integers(1, 80, 3)))
    counts = tuple(int(one) for one in chance.integers(1, 40, 2))
    pairs = np.stack([chance.integers(0, count, 60) for count in counts], axis=1)
    check(opened(runner, monkeypatch), sizes, counts, pairs, "complex64", seed)


@needs_gpus(1)
@pytest.mark.parametrize("precision", ["tf32", "fp16x3"])
def test_pairs_in_lower_precision(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for sizes in ((1, 64, 48, 40), (1, 8, 8, 16)):
        pairs = random_pairs(np.random.default_rng(0), (9, 30), 100)
        check(opened("gpu", monkeypatch), sizes, (9, 30), pairs, "complex64", 0, precision)


@needs_compiler
def test_every_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tiles with either operand shared, single sums by threads and warps, cuBLAS."""
    from tnplan.executor.device.cuda.contract import rows

    row_emulator.emulate(monkeypatch)
    taken = set()
    for sizes, counts, n_rows in CASES:
        pairs = random_pairs(np.random.default_rng(0), counts, n_rows)
        n_batch, m, n, k = sizes
        each = shape_of((n_batch,), (m,), (n,), k, (0, 1, 2))
        shape = RowShape(each, len(pairs), n_batch * m * n)
        if rows.by_cublas(shape):
            taken.add("cublas")
            continue
        way = rows.row_way(shape, pairs)
        taken.add((way.tile, way.tile is not None and way.swapped, way.tile is None and k >= rows.LONG_SUM))
    assert {tile for tile, *_ in taken - {"cublas"}} == {None, *rows.TILES}
    assert "cublas" in taken
    assert {swapped for _, swapped, _ in taken - {"cublas"}} == {False, True}
    assert {is_long for _, _, is_long in taken - {"cublas"}} == {False, True}


def test_chunks_have_every_pair_once() -> None:
    from tnplan.executor.device.cuda.contract import rows

    for seed in range(20):
        chance = np.random.default_rng(seed)
        pairs = np.stack([chance.integers(0, 9, 50), chance.integers(0, 70, 50)], axis=1).astype(np.int32)
        across = int(chance.integers(1, 9))
        chunks, of_pairs = rows.chunk_tables(pairs, across)
        seen = []
        for row, first, count, _ in chunks:
            assert 1 <= count <= across
            seen += [(row, *pair) for pair in of_pairs[first : first + count]]
        assert sorted((result, row, other) for row, other, result in seen) == [
            (number, *pair) for number, pair in enumerate(pairs.tolist())
        ]
