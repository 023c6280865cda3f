"""A product with few results and a long sum on the GPU: parts of the sum at once, then their sum.

A lone long sum would leave most of the device idle and round as often as it has terms. Knows one product;
`cublas` multiplies, and the parts are added in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from executor.device.cupy_copy import bind_copy, bind_sum
from executor.device.device import Call, ContractShape
from executor.device.permutation import make_copy, row_major

Array = Any
"""A flat cupy.ndarray."""
Multiply = Callable[[int, int, int], None]

LONG_SUM = 4096
"""Sums of fewer terms are never split."""
PART_TERMS = 1024
"""Terms of a part, at least."""
PARTS_BYTES = 32 << 20
"""What all parts take together, at most."""
BLOCK_EXTENT = 64
MANY_BLOCKS = 264
"""So many blocks of results, two for each multiprocessor of an H200, occupy the device without a split."""


def count_parts(shape: ContractShape, itemsize: int) -> int:
    """How many parts the sum of a product is cut into; 1 where it is not."""
    n_batch, m, n, k = shape.sizes
    if n_batch != 1 or k < LONG_SUM or m * n == 0:
        return 1
    blocks = -(-m // BLOCK_EXTENT) * -(-n // BLOCK_EXTENT)
    most = min(k // PART_TERMS, PARTS_BYTES // (m * n * itemsize))
    if blocks >= MANY_BLOCKS:
        return 1
    return next((parts for parts in range(most, 1, -1) if k % parts == 0), 1)


def split_bytes(shape: ContractShape, itemsize: int) -> int:
    """The bytes of scratch memory: all parts, and the result where c has another order."""
    parts = count_parts(shape, itemsize)
    if parts == 1:
        return 0
    _, m, n, _ = shape.sizes
    return (parts + (shape.direct is None)) * m * n * itemsize


def bind_split(
    shape: ContractShape, multiply: Multiply, a: Array, b: Array, c: Array, scratch: Array, stream: Any
) -> Call:
    """c = the sum of the parts that `multiply` (a [m | k], b [n | k] -> [parts | m | n]) gives.

    `scratch` is a flat array of bytes, `split_bytes` of them or more, and lives as long as the call.
    """
    _, m, n, _ = shape.sizes
    count, itemsize = m * n, c.itemsize
    parts = count_parts(shape, itemsize)
    turned = shape.direct == "nm"
    left, right = (b, a) if turned else (a, b)
    held = scratch[: split_bytes(shape, itemsize)].view(c.dtype)
    terms = held[: parts * count]
    result = c if shape.direct else held[parts * count :]
    add = bind_sum(result, terms, (parts, count), (False, True), stream)
    place: Call | None = None
    if shape.direct is None:
        extents = [extent for extent, _ in (*shape.m, *shape.n)]
        targets = [stride for _, stride in (*shape.m, *shape.n)]
        axes = list(zip(extents, row_major(extents), targets, strict=True))
        place = bind_copy(c, result, make_copy(axes), 0, 0, None, False, stream)
    addresses = left.data.ptr, right.data.ptr, terms.data.ptr

    def run() -> None:
        multiply(*addresses)
        add()
        if place is not None:
            place()

    # The launches know addresses alone: this keeps the memory when the device takes a larger scratch.
    run.__dict__["memory"] = held
    return run
