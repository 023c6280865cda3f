"""Batched products on the CPU: by BLAS, by a loop kernel where BLAS is slow, and tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cpu.copy import SMALL_COPY, CopyKernel, placed_small
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.device.protocols.device import Call, RowShape
from tnplan.executor.device.protocols.output_tiling import OutputBlock, OutputTiling, Rows

Array = NDArray[Any]

SMALL_PRODUCT = 64
"""Multiply-adds of one of several products up to which the loop kernel beats BLAS."""
SMALL_CONTRACTION = 4096
"""Multiply-adds of all products together up to which NumPy does them, without loading numba."""
FEWEST_TOGETHER = 4
"""Rows that share one of the other operand, in the mean, from which on they are one matrix product."""
GATHERED_ELEMENTS = 1 << 22
"""Elements of gathered rows at once."""


def by_loop(a: Array, b: Array, n_batch: int, m: int, n: int) -> bool:
    """Whether the loop kernel forms the products: it reads operands that are stored with k last."""
    in_order = a.flags.c_contiguous and b.flags.c_contiguous
    return in_order and is_small(n_batch, m, n, a.shape[2])


def is_small(n_batch: int, m: int, n: int, k: int) -> bool:
    """Whether the loop kernel beats BLAS.

    Measured, in nanoseconds a product (BLAS, loop): m = n = k = 2: 73, 8; 4: 65, 42; 8: 120, 294;
    k = 1 and m = n = 64: 5800, 720.
    """
    return k == 1 or (n_batch > 1 and m * n * k <= SMALL_PRODUCT)


def bind_in_numpy(a: Array, b: Array, c: Array) -> Call:
    """A small batch of products, by BLAS or, where nothing is summed, element by element."""
    transposed = b.swapaxes(-1, -2)
    return partial(np.multiply if a.shape[2] == 1 else np.matmul, a, transposed, out=c)


def bind_product(a: Array, b: Array, c: Array) -> Call:
    """c[t, i, j] = the sum over q of a[t, i, q] b[t, j, q]; shapes (b, m, k), (b, n, k), (b, m, n).

    c is contiguous; each of a and b is, or is with its last two axes exchanged.
    """
    if c.size * a.shape[2] <= SMALL_CONTRACTION:
        return bind_in_numpy(a, b, c)
    if by_loop(a, b, *c.shape):
        from tnplan.executor.device.cpu.copy_kernel import small_products

        return small_products.bound(a, b, c)
    if len(a) == 1:
        a, b, c = a[0], b[0], c[0]
    return partial(np.matmul, a, b.swapaxes(-1, -2), out=c)


def bind_tiles(
    tiling: OutputTiling, a: Array, b: Array, c: Array, workspace: Array,
    own: Callable[[Array, Array, Array], Any] | None = None,
) -> Call:  # fmt: skip
    """Form every tile of the product in the flat `workspace` and copy it to its place in the flat `c`.

    `own` multiplies as `bind_product` does, in place of BLAS.
    """
    few = len(c) <= SMALL_COPY and len(c) * a.shape[2] <= SMALL_CONTRACTION
    small = not few and by_loop(a, b, tiling.batch[0].rows, tiling.m[0].rows, tiling.n[0].rows)
    multiply: Callable[[Array, Array, Array], Any] = own or np.matmul
    if small and own is None:
        from tnplan.executor.device.cpu.copy_kernel import small_products

        multiply = small_products
        # Called once with nothing, so that it is compiled when it is bound and not when it is first needed.
        small_products(a[:0], b[:0], c[:0].reshape(0, 1, 1))
    steps = {}
    for extents, copy in tiling.copies.items():
        product = workspace[: prod(extents)].reshape(extents)
        if few:
            store = placed_small(c, workspace, copy)
        else:
            store = CopyKernel(copy, c.dtype, tiling.start_divisor).placed(c, workspace)
        steps[extents] = multiply, product, store

    def rows_of(operand: Array, transposed: bool) -> Rows:
        def view(batch: OutputBlock, block: OutputBlock) -> Array:
            rows = operand[batch.start : batch.start + batch.rows, block.start : block.start + block.rows]
            return rows.swapaxes(1, 2) if transposed else rows

        return view

    by_columns = not small and own is None
    return tiling.bind(
        rows_of(a, by_columns and not tiling.n_last), rows_of(b, by_columns and tiling.n_last), steps
    )


def bind_row_products(
    shape: RowShape, pairs: Array, arrays: tuple[Array, Array, Array], threads: int
) -> Callable[[], None]:
    """Products of pairs of rows, by BLAS; see `RowDevice.bind_rows`.

    The pairs that share a row of one operand are one product with it, with the other rows gathered. Where
    hardly any share one, both rows of each pair are gathered, and multiplied in a batch.
    """
    (a, b, c), each = arrays, shape.each
    h, m, n, k = each.sizes
    left, right = a.reshape(-1, h, m, k), b.reshape(-1, h, n, k).swapaxes(2, 3)
    modes = ((shape.count, shape.row_stride), *each.batch, *each.m, *each.n)
    extents, strides = [extent for extent, _ in modes], [c.itemsize * stride for _, stride in modes]
    out = np.lib.stride_tricks.as_strided(c, extents, strides)
    if len(pairs) < FEWEST_TOGETHER * min(len(left), len(right)):
        longest = max(1, GATHERED_ELEMENTS // (h * k * (m + n)))

        def one_by_one(first: int, last: int) -> None:
            rows = pairs[first:last]
            product = np.matmul(left[rows[:, 0]], right[rows[:, 1]])
            out[first:last] = product.reshape(-1, *extents[1:])

        return partial(over_rows, len(pairs), threads, one_by_one, longest)
    by_right = _gathers_left((len(left), m), (len(right), n), len(pairs))
    shared, other = (pairs[:, 1], pairs[:, 0]) if by_right else (pairs[:, 0], pairs[:, 1])
    # Pairs sorted by the row that they share: each group is a range, and its results go back to their rows.
    order = np.argsort(shared, kind="stable")
    starts = np.flatnonzero(np.diff(shared[order], prepend=-1))
    ends = np.append(starts[1:], len(order))
    longest = max(1, GATHERED_ELEMENTS // (h * max(k * m, k * n, m * n)))

    def in_groups(first: int, last: int) -> None:
        for group in range(first, last):
            for start in range(starts[group], ends[group], longest):
                rows = order[start : min(start + longest, ends[group])]
                row, rows_of_other = int(shared[rows[0]]), other[rows]
                if by_right:
                    operand = left[rows_of_other].transpose(1, 0, 2, 3).reshape(h, -1, k)
                    product = np.matmul(operand, right[row]).reshape(h, -1, m, n).transpose(1, 0, 2, 3)
                else:
                    operand = right[rows_of_other].transpose(1, 2, 0, 3).reshape(h, k, -1)
                    product = np.matmul(left[row], operand).reshape(h, m, -1, n).transpose(2, 0, 1, 3)
                out[rows] = product.reshape(-1, *extents[1:])

    return partial(over_rows, len(starts), threads, in_groups)


def _gathers_left(left: tuple[int, int], right: tuple[int, int], count: int) -> bool:
    """Whether rows of the left operand are gathered: the smaller ones, where enough of them go together.

    Of both operands the number of rows, and what a row has in the result.
    """
    (r, m), (s, n) = left, right
    if min(count / r, count / s) >= FEWEST_TOGETHER:
        return m <= n
    return s <= r
