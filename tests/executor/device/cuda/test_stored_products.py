"""The kernels of small products and of long sums, emulated, with operands stored with k first and last."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.emulator import compiled, needs_compiler, source
from tests.support.root import ROOT

KERNELS = ROOT / "executor" / "device" / "cuda" / "contract" / "kernels"
LONG_SUMS = """
extern "C" void call(unsigned blocks, const Value* a, const Value* b, Value* c, long long k, unsigned length, int m, int n)
{
    run(blocks, 1, THREADS, [=] { sum_parts(a, b, c, k, length, m, n); });
}
"""
PRODUCTS = """
extern "C" void call(const Value* a, const Value* b, Value* c, long long count, INDEX m, INDEX n, int k, INDEX all_m,
                     INDEX all_n)
{
    run(2, 1, 64, [=] { products(a, b, c, count, m, n, k, all_m, all_n); });
}
"""
ROUNDING = {"complex64": 1e-4, "float64": 1e-12, "complex128": 1e-12}
sizes_and_storage = pytest.mark.parametrize(
    ("m", "n", "k_first"),
    [
        (6, 3, (False, False)), (4, 4, (True, False)), (9, 17, (True, False)), (4, 2, (False, True)),
        (6, 3, (True, True)),
    ],
)  # fmt: skip


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    made = generator.normal(size=shape) + 1j * generator.normal(size=shape)
    return (made if np.dtype(dtype).kind == "c" else made.real).astype(dtype)


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@needs_compiler
@sizes_and_storage
@pytest.mark.parametrize("dtype", ROUNDING)
def test_parts_of_long_sums(dtype: str, m: int, n: int, k_first: tuple[bool, bool]) -> None:
    split_k: Any = pytest.importorskip("tnplan.executor.device.cuda.contract.split_k")
    k, parts = 1024, 4
    a, b = values((m, k), dtype, 0), values((n, k), dtype, 1)
    stored = [
        np.ascontiguousarray(one.T) if first else one for one, first in zip((a, b), k_first, strict=True)
    ]
    block = split_k.result_block(m, n, a.itemsize)
    threads = 32 * split_k.count_blocks(m, n, block)
    defines = split_k.long_sums_defines(dtype, block, 1, threads, k_first)
    found = np.zeros((parts, m, n), dtype)
    library = compiled(source(KERNELS / "long_sums.cu") + LONG_SUMS, defines)
    library.call(
        parts, *map(address, (*stored, found)), ctypes.c_longlong(k), ctypes.c_uint(k // parts), m, n
    )
    wanted = np.einsum("ipq,jpq->pij", *(one.reshape(len(one), parts, -1) for one in (a, b)))
    np.testing.assert_allclose(found, wanted, atol=100 * ROUNDING[dtype])


@needs_compiler
@sizes_and_storage
@pytest.mark.parametrize("dtype", ROUNDING)
def test_small_products_of_parts_of_operands(dtype: str, m: int, n: int, k_first: tuple[bool, bool]) -> None:
    small: Any = pytest.importorskip("tnplan.executor.device.cuda.contract.small_products")
    n_batch, k, starts, extents = 3, 4, (1, 2), (m, n)
    whole = [values((n_batch, k, extent + 4), dtype, seed) for seed, extent in enumerate(extents)]
    begins = []
    for one, first, start in zip(whole, k_first, starts, strict=True):
        stored = one if first else np.ascontiguousarray(one.swapaxes(1, 2))
        begins.append(stored.reshape(-1)[start if first else start * k :])
    found = np.zeros((n_batch, m, n), dtype)
    library = compiled(
        source(KERNELS / "products.cu") + PRODUCTS, small.products_defines(dtype, True, k_first)
    )
    library.call(*map(address, (*begins, found)), ctypes.c_longlong(found.size), m, n, k, m + 4, n + 4)
    parts = [
        one[:, :, start : start + extent] for one, start, extent in zip(whole, starts, extents, strict=True)
    ]
    np.testing.assert_allclose(found, np.einsum("tqi,tqj->tij", *parts), atol=ROUNDING[dtype])
