"""A product of operands that are stored with the summed modes first, on a GPU: by cuBLAS, written directly or
tile by tile. The products of gradients are such.
"""

from __future__ import annotations

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
    if workspace is None or not len(workspace):
        raise ValueError("a contraction whose result is stored in another order needs a workspace")
    tiling = cut_output(shape, len(workspace), EFFICIENT_EXTENT)
    sides = (a_stored, b_stored) if tiling.n_last else (b_stored, a_stored)
    steps = {
        extents: (
            cublas.bind_stored(stream, (*extents, k), dtype, precision, *sides),
            workspace.data.ptr,
            bind_placed(c, workspace, copy, tiling.start_divisor, stream),
        )
        for extents, copy in tiling.copies.items()
    }
    return tiling.bind(_rows_of(a, a_stored, k), _rows_of(b, b_stored, k), steps)


def _rows_of(operand: Array, stored: tuple[bool, int], k: int) -> Rows:
    """The address of the first element of a block."""
    (k_first, rows), base, itemsize = stored, operand.data.ptr, operand.itemsize
    step = 1 if k_first else k
    return lambda batch, block: base + (batch.start * rows * k + block.start * step) * itemsize
