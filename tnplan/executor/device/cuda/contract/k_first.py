"""A product of operands that are stored with the summed modes first, on a GPU: by cuBLAS, written directly or
tile by tile, which other products are too. The products of gradients are such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tnplan.executor.device.cuda.contract import cublas
from tnplan.executor.device.cuda.copy.permute import bind_placed
from tnplan.executor.device.protocols.device import Call, ContractShape
from tnplan.executor.device.protocols.output_tiling import Rows, cut_output

Array = Any
"""A flat cupy.ndarray."""
EFFICIENT_EXTENT = 256
"""Tiles keep m and n at least this large where they can: below it cuBLAS loses much of its rate."""


def bind_k_first(
    shape: ContractShape, a: Array, b: Array, c: Array, workspace: Array | None, precision: str, stream: Any
) -> Call:
    """c = the sum over k of a times b, in the precision asked for or in fp32 where that is fp16x3.

    Raises ValueError where a workspace is needed and missing. cuBLAS has its own workspace by then.
    """
    n_batch, m, n, k = shape.sizes
    precision = "fp32" if precision == "fp16x3" else precision
    a_stored, b_stored = ("a" in shape.k_first, m), ("b" in shape.k_first, n)
    direct, dtype = shape.direct, c.dtype.name
    if direct is not None:
        if direct == "nm":
            a, b, m, n, a_stored, b_stored = b, a, n, m, b_stored, a_stored
        multiply = cublas.bind_stored(stream, (n_batch, m, n, k), dtype, precision, a_stored, b_stored)
        addresses = a.data.ptr, b.data.ptr, c.data.ptr
        return lambda: multiply(*addresses)

    def multiply_tile(extents: tuple[int, int, int], n_last: bool) -> cublas.Multiply:
        sides = (a_stored, b_stored) if n_last else (b_stored, a_stored)
        return cublas.bind_stored(stream, (*extents, k), dtype, precision, *sides)

    return bind_in_tiles(shape, a, b, c, workspace, stream, multiply_tile)


def bind_in_tiles(
    shape: ContractShape, a: Array, b: Array, c: Array, workspace: Array | None, stream: Any,
    multiply: Callable[[tuple[int, int, int], bool], cublas.Multiply],
) -> Call:  # fmt: skip
    """Form every tile of a product in the workspace and copy it to its place in c.

    `multiply` is given the extents of a tile and whether its columns are those of b. Raises ValueError where
    there is no workspace.
    """
    if workspace is None or not len(workspace):
        raise ValueError("a contraction whose result is stored in another order needs a workspace")
    tiling, address = cut_output(shape, len(workspace), EFFICIENT_EXTENT), workspace.data.ptr
    steps = {
        extents: (
            multiply(extents, tiling.n_last), address,
            bind_placed(c, workspace, copy, tiling.start_divisor, stream),
        )
        for extents, copy in tiling.copies.items()
    }  # fmt: skip
    _, m, n, k = shape.sizes

    def rows_of(operand: Array, rows: int, step: int) -> Rows:
        """The address of the first element of a block."""
        base, itemsize = operand.data.ptr, operand.itemsize
        return lambda batch, block: base + (batch.start * rows * k + block.start * step) * itemsize

    a_step, b_step = (1 if name in shape.k_first else k for name in "ab")
    return tiling.bind(rows_of(a, m, a_step), rows_of(b, n, b_step), steps)
