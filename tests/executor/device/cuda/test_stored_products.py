"""The kernels of products with few columns and of long sums, emulated, for operands of either storage."""

from __future__ import annotations

import ctypes
import math
import random
import re
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.contract import shape_of
from tests.support.kernels.emulator import DOUBLE_MMA, EmulatedKernels, compiled, needs_compiler, source
from tests.support.root import ROOT
from tests.support.slow import slow_after, slow_unless

KERNELS = ROOT / "tnplan" / "executor" / "device" / "cuda" / "contract" / "kernels"
LONG_SUMS = """
extern "C" void call(unsigned blocks, const Value* a, const Value* b, Value* c, long long k, unsigned length,
                     int m, int n)
{
    run(blocks, 1, THREADS, [=] { sum_parts(a, b, c, k, length, m, n); });
}
"""
ROUNDING = {"complex64": 1e-4, "float64": 1e-12, "complex128": 1e-12}
CASES = [
    (6, 3, (False, False)), (4, 4, (True, False)), (9, 17, (True, False)), (4, 2, (False, True)),
    (6, 3, (True, True)), (8, 16, (True, True)),
]  # fmt: skip
"""m, n, and which operands are stored with k first."""


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    made = generator.normal(size=shape) + 1j * generator.normal(size=shape)
    return (made if np.dtype(dtype).kind == "c" else made.real).astype(dtype)


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@needs_compiler
@pytest.mark.parametrize(
    ("case", "dtype"), slow_unless(lambda case, dtype: (case + dtype) % 2 == 0, CASES, [*ROUNDING])
)
@pytest.mark.parametrize("n_batch", [1, 3])
def test_parts_of_long_sums(dtype: str, n_batch: int, case: tuple[int, int, tuple[bool, bool]]) -> None:
    m, n, k_first = case
    split_k: Any = pytest.importorskip("tnplan.executor.device.cuda.contract.split_k")
    k, parts = 1024, 4
    a, b = values((n_batch, m, k), dtype, 0), values((n_batch, n, k), dtype, 1)
    stored = [
        np.ascontiguousarray(one.swapaxes(1, 2)) if first else one
        for one, first in zip((a, b), k_first, strict=True)
    ]
    block = split_k.result_block(m, n, a.itemsize)
    threads = 32 * split_k.count_blocks(m, n, block)
    reads = [
        math.gcd(16 // a.itemsize, rows) if first and extent % rows == 0 else 1
        for first, extent, rows in zip(k_first, (m, n), block, strict=True)
    ]
    defines = split_k.long_sums_defines(dtype, block, 1, threads, k_first, tuple(reads))
    found = np.zeros((n_batch, parts, m, n), dtype)
    library = compiled(source(KERNELS / "long_sums.cu") + LONG_SUMS, defines)
    library.call(
        n_batch * parts, *map(address, (*stored, found)), ctypes.c_longlong(k), ctypes.c_uint(k // parts),
        m, n,
    )  # fmt: skip
    wanted = np.einsum("gipq,gjpq->gpij", *(one.reshape(n_batch, -1, parts, k // parts) for one in (a, b)))
    np.testing.assert_allclose(found, wanted, atol=100 * ROUNDING[dtype])


def emulate_few_columns(module: Any, shape: Any, a: np.ndarray, b: np.ndarray, blocks: int = 3) -> np.ndarray:
    """The product by the kernel for the shape's tiles, NaN where nothing was written."""
    tiles, vector = module.row_tiles(shape, a.itemsize), 16 // a.itemsize
    if module.operand_steps(shape)[tiles.swapped][1] != 1 or shape.k % vector:
        vector = 1
    shared_bytes = tiles.shared_bytes(shape.k, a.itemsize)
    assert shared_bytes <= module.SHARED_BYTES
    text = re.sub(
        r"extern __shared__ (.*) memory\[\];", rf"__shared__ \1 memory[{shared_bytes}];",
        source(KERNELS / "few_columns.cu").replace(source(KERNELS / "double_mma.cuh"), DOUBLE_MMA),
    )
    defines = module.few_columns_defines(a.dtype.name, tiles.width, vector, tiles.tensor)
    kernels = EmulatedKernels(text, defines)
    c = np.full(prod(shape.sizes[:3]), np.nan, a.dtype)
    arguments = module.kernel_arguments(tiles, shape, (a, b, c), module.all_tables(tiles, shape.batch))
    kernels("few_columns", (blocks * shape.sizes[0] * tiles.n_groups, 1), tiles.threads, *arguments)
    return c


@pytest.mark.parametrize("dtype", ROUNDING)
def test_what_has_no_elements_is_not_for_few_columns(dtype: str) -> None:
    module: Any = pytest.importorskip("tnplan.executor.device.cuda.contract.few_columns")
    for batch, m, n, k in ((2, 0, 4, 3), (2, 3, 0, 3), (0, 300, 4, 3), (2, 300, 4, 0)):
        shape = shape_of((batch,), (m,), (n,), k, (2, 1, 0))
        assert module.row_tiles(shape, np.dtype(dtype).itemsize) is None


@needs_compiler
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("seed", slow_after(1, [7, *range(7)]))
def test_rows_and_few_columns_in_any_order(dtype: str, seed: int) -> None:
    module: Any = pytest.importorskip("tnplan.executor.device.cuda.contract.few_columns")
    chance = random.Random(seed)
    of_tensor_cores = dtype == "complex128"
    columns = chance.choice([(2, 2), (3,), (5,), (4, 3), (5, 5), (14, 2)])
    k_first = chance.choice(["", "a", "b", "ab"])
    if of_tensor_cores and chance.random() < 0.5:  # several groups of columns, if all are stored with k last
        columns, k_first = chance.choice([((3, 5, 5), ""), ((2, 80), ""), ((24, 2), k_first)])
    rows = [chance.choice([2, 2, 3, 4, 5]) for _ in range(4)] + chance.choice([[96], [64, 3], [150]])
    chance.shuffle(rows)
    sides = [tuple(rows), columns]
    m, n = sides[:: chance.choice([1, -1])]
    batch = chance.choice([(), (), (3,), (2, 2)])
    k = chance.choice([2, 3, 4, 6, 9, 16, 25] + [80] * (of_tensor_cores and prod(columns) < 21))
    parts = batch + m + n
    order = tuple(chance.sample(range(len(parts)), len(parts)))
    shape = replace(shape_of(batch, m, n, k, order), k_first=k_first)
    a, b = (values((prod(batch), prod(side), k), dtype, seed + one) for one, side in enumerate((m, n)))
    stored = [
        np.ascontiguousarray(one.swapaxes(1, 2)) if name in shape.k_first else one
        for name, one in (("a", a), ("b", b))
    ]
    found = emulate_few_columns(module, shape, *stored)
    wanted = np.einsum("tiq,tjq->tij", a.astype(np.complex128), b).reshape(parts).transpose(order)
    np.testing.assert_allclose(found, wanted.ravel(), atol=10 * ROUNDING[dtype])


def test_tiles_hold_what_lies_in_a_row_on_both_sides() -> None:
    """Rows in a, where k is first there, and places in c."""
    module: Any = pytest.importorskip("tnplan.executor.device.cuda.contract.few_columns")
    order = (*range(10, 20), *range(10), 20, 21)  # the last ten modes of m are far apart in c
    shape = replace(shape_of((), (2,) * 20, (2, 2), 4, order), k_first="a")
    tiles = module.row_tiles(shape, 8)
    assert (tiles.rows, tiles.n_tiles) == (256, 1 << 12)
    rows, slots, places = module.tile_tables(tiles)
    assert len(np.unique(slots)) == 4 * tiles.rows
    assert slots.max() < 4 * tiles.column_step
    assert np.array_equal(rows[:16], np.arange(16))
    assert np.array_equal(places[:64], np.arange(64))


def test_other_products_are_left_to_other_ways() -> None:
    module: Any = pytest.importorskip("tnplan.executor.device.cuda.contract.few_columns")
    for batch, m, n, k in (
        ((65,), (512,), (4,), 4), ((), (512,), (33,), 4), ((), (512,), (4,), 65), ((), (509 * 2,), (4,), 4),
        ((), (512,), (1,), 4), ((), (16,), (4,), 4),
    ):  # fmt: skip
        order = tuple(range(len(batch + m + n)))
        assert module.row_tiles(shape_of(batch, m, n, k, order), 8) is None
    assert module.row_tiles(shape_of((), (512,), (4,), 64, (1, 0)), 8) is not None
    for m, n, k, k_first, taken in (
        (512, 416, 4, "", True), (512, 424, 4, "", False), (512, 104, 4, "a", False), (16, 10, 10, "", True),
        (1 << 14, 12, 80, "", True), (1 << 14, 48, 400, "", False), (509 * 2, 10, 10, "", False),
    ):  # fmt: skip
        shape = replace(shape_of((), (m,), (n,), k, (1, 0)), k_first=k_first)
        assert (module.row_tiles(shape, 16) is not None) == taken, (m, n, k)
