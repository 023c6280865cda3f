"""Batched products on the CPU: by BLAS, by a loop kernel where BLAS is slow, and tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cpu.copy import CopyKernel
from tnplan.executor.device.protocols.device import Call
from tnplan.executor.device.protocols.output_tiling import OutputBlock, OutputTiling

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
    left, right, left_blocks, right_blocks = a, b, tiling.m, tiling.n
    if not tiling.n_last:
        left, right, left_blocks, right_blocks = b, a, tiling.n, tiling.m
    all_blocks = (*tiling.batch, *left_blocks, *right_blocks)
    divisor = gcd(*(block.c_offset for block in all_blocks))
    small = is_small(tiling.batch[0].rows, left_blocks[0].rows, right_blocks[0].rows, a.shape[2])
    multiply: Callable[[Array, Array, Array], Any] = np.matmul
    if small:
        from tnplan.executor.device.cpu.copy_kernel import small_products

        multiply = small_products
        small_products(a[:0], b[:0], c[:0].reshape(0, 1, 1))
    shapes: dict[tuple[int, int, int], tuple[Array, Callable[[int], None], int]] = {}
    for rows, copy in tiling.copies.items():
        mover = CopyKernel(copy, c.dtype, divisor)
        n_batch, m, n = rows
        key = rows if tiling.n_last else (n_batch, n, m)
        tile = workspace[: n_batch * m * n].reshape(key)
        shapes[key] = (tile, mover.placed(mover.units(c), mover.units(workspace)), mover.unit)

    def views(
        operand: Array, batch: OutputBlock, blocks: tuple[OutputBlock, ...], turn: bool
    ) -> list[tuple[Array, int, int]]:
        part = operand[batch.start : batch.start + batch.rows]
        cut = [
            (part[:, block.start : block.start + block.rows], block.rows, block.c_offset) for block in blocks
        ]
        return [(view.swapaxes(1, 2) if turn else view, rows, offset) for view, rows, offset in cut]

    batches = [
        (block.rows, block.c_offset, views(left, block, left_blocks, False),
         views(right, block, right_blocks, not small))
        for block in tiling.batch
    ]  # fmt: skip

    def run() -> None:
        for n_batch, batch_offset, lefts, rights in batches:
            for left_view, left_rows, left_offset in lefts:
                offset = batch_offset + left_offset
                for right_view, right_rows, right_offset in rights:
                    tile, place, unit = shapes[n_batch, left_rows, right_rows]
                    multiply(left_view, right_view, tile)
                    place((offset + right_offset) // unit)

    return run
