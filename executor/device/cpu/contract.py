"""Batched products on the CPU: by BLAS, by a loop kernel where BLAS is slow, and tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cpu.copy import CopyKernel
from tnplan.executor.device.protocols.device import Call
from tnplan.executor.device.protocols.output_tiling import OutputBlock, OutputTiling, Rows

Array = NDArray[Any]

SMALL_PRODUCT = 64


def is_small(n_batch: int, m: int, n: int, k: int) -> bool:
    """Whether the loop kernel beats BLAS.

    Measured, in nanoseconds a product (BLAS, loop): m = n = k = 2: 73, 8; 4: 65, 42; 8: 120, 294;
    k = 1 and m = n = 64: 5800, 720.
    """
    return k == 1 or (n_batch > 1 and m * n * k <= SMALL_PRODUCT)


def bind_product(a: Array, b: Array, c: Array) -> Call:
    """c[t, i, j] = the sum over q of a[t, i, q] b[t, j, q]; contiguous (b, m, k), (b, n, k), (b, m, n)."""
    if is_small(*a.shape[:2], *b.shape[1:]):
        from tnplan.executor.device.cpu.copy_kernel import small_products

        small_products(a[:0], b[:0], c[:0])
        return lambda: small_products(a, b, c)
    if len(a) == 1:
        a, b, c = a[0], b[0], c[0]
    transposed = b.swapaxes(-1, -2)

    def run() -> None:
        np.matmul(a, transposed, out=c)

    return run


def bind_tiles(tiling: OutputTiling, a: Array, b: Array, c: Array, workspace: Array) -> Call:
    """Form every tile of the product in the flat `workspace` and copy it to its place in the flat `c`."""
    small = is_small(tiling.batch[0].rows, tiling.m[0].rows, tiling.n[0].rows, a.shape[2])
    multiply: Callable[[Array, Array, Array], Any] = np.matmul
    if small:
        from tnplan.executor.device.cpu.copy_kernel import small_products

        multiply = small_products
        small_products(a[:0], b[:0], c[:0].reshape(0, 1, 1))
    steps = {}
    for extents, copy in tiling.copies.items():
        mover = CopyKernel(copy, c.dtype, tiling.start_divisor)
        product = workspace[: prod(extents)].reshape(extents)
        steps[extents] = multiply, product, mover.placed(c, workspace)

    def rows_of(operand: Array, transposed: bool) -> Rows:
        def view(batch: OutputBlock, block: OutputBlock) -> Array:
            part = operand[batch.start : batch.start + batch.rows, block.start : block.start + block.rows]
            return part.swapaxes(1, 2) if transposed else part

        return view

    by_columns = not small
    return tiling.bind(
        rows_of(a, by_columns and not tiling.n_last), rows_of(b, by_columns and tiling.n_last), steps
    )
