"""Tiles of a contraction whose result is stored in another order than its product. Pure arithmetic.

The tile is formed in a workspace as [batch | m | n] (or [batch | n | m]) over trailing modes of each part,
then copied to its place. Leading modes are looped over; one of them may be cut into chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import gcd, prod
from typing import Any

from tnplan.executor.device.protocols.copy import Copy, make_copy, row_major
from tnplan.executor.device.protocols.device import Call, ContractShape

StridedModes = tuple[tuple[int, int], ...]
"""(extent, stride in c) of the modes of one part."""

EFFICIENT_EXTENT = 64
"""m and n of a tile are at least this large where they can be."""


@dataclass(frozen=True)
class OutputBlock:
    """Consecutive rows of one part of an operand and where they go: `start` row, `rows`, offset in c."""

    start: int
    rows: int
    c_offset: int


Rows = Callable[[OutputBlock, OutputBlock], Any]
"""What stands for the rows of an operand in a block of the batch and one of m or n, such as an address."""
TileStep = tuple[Callable[[Any, Any, Any], Any], Any, Callable[[int], None]]
"""What multiplies a left and a right operand, where to, and what copies that to an offset in c."""


@dataclass(frozen=True)
class OutputTiling:
    """The blocks of batch, m and n; every tile is one block of each.

    `n_last`: the tile is [batch | m | n], else [batch | n | m]. Rows of a tile are those of its left operand,
    columns those of its right one.
    """

    batch: tuple[OutputBlock, ...]
    m: tuple[OutputBlock, ...]
    n: tuple[OutputBlock, ...]
    n_last: bool
    copies: dict[tuple[int, int, int], Copy]
    """The copy from a tile to c, by the extents of the tile: batch, rows, columns."""

    @property
    def start_divisor(self) -> int:
        """What divides the offsets in c of all tiles."""
        return gcd(*(block.c_offset for block in (*self.batch, *self.m, *self.n)))

    def divided(self, parts: int) -> list[OutputTiling]:
        """At most `parts` tilings, each with consecutive blocks of the part that has most of them."""
        name = max(("batch", "m", "n"), key=lambda kind: len(getattr(self, kind)))
        blocks = getattr(self, name)
        parts = min(parts, len(blocks))
        ends = [len(blocks) * number // parts for number in range(parts + 1)]
        return [replace(self, **{name: blocks[first:last]}) for first, last in pairwise(ends)]

    def bind(self, a_rows: Rows, b_rows: Rows, steps: Mapping[tuple[int, int, int], TileStep]) -> Call:
        """The call that forms every tile and copies it to its place in c.

        `a_rows` and `b_rows` give what stands for the rows of a block of the batch and one of m or n. `steps`
        has those of a tile by its extents.
        """
        sides = (a_rows, self.m), (b_rows, self.n)
        (left_rows, left_blocks), (right_rows, right_blocks) = sides if self.n_last else sides[::-1]
        batches = [
            (
                batch.rows,
                batch.c_offset,
                [(left_rows(batch, block), block.rows, block.c_offset) for block in left_blocks],
                [(right_rows(batch, block), block.rows, block.c_offset) for block in right_blocks],
            )
            for batch in self.batch
        ]

        def run() -> None:
            for n_batch, batch_offset, lefts, rights in batches:
                for left, rows, left_offset in lefts:
                    offset = batch_offset + left_offset
                    for right, columns, right_offset in rights:
                        multiply, product, store = steps[n_batch, rows, columns]
                        multiply(left, right, product)
                        store(offset + right_offset)

        return run


def cut_output(shape: ContractShape, capacity: int, efficient_extent: int = EFFICIENT_EXTENT) -> OutputTiling:
    """Cut a contraction into tiles of at most `capacity` elements (at least 1).

    m and n of a tile stay at `efficient_extent` or more where they can.
    """
    sides = [shape.batch, shape.m, shape.n]
    whole = [list(modes) for modes in sides]
    chunk = [0, 0, 0]
    # Leading modes leave the tile until it fits; of the last one to leave a chunk stays, as long as fits.
    while (size := prod(extent for modes in whole for extent, _ in modes)) > capacity:
        number = _strip(whole, efficient_extent)
        extent, stride = whole[number].pop(0)
        fit = capacity // (size // extent)
        if fit > 1:
            chunk[number] = fit
            whole[number].insert(0, (fit, stride))
    cut = [_cut(modes, trailing, limit) for modes, trailing, limit in zip(sides, whole, chunk, strict=True)]
    # The part with the mode that is fastest in c is last in the tile too: the copy then has its longest runs.
    n_last = innermost(shape.n) <= innermost(shape.m)
    copies = {}
    for batch, m, n in product(*(tail for _, tail in cut)):
        stored = (batch, m, n) if n_last else (batch, n, m)
        n_batch, rows, columns = (prod(extent for extent, _ in modes) for modes in stored)
        copies[n_batch, rows, columns] = _tile_copy(stored)
    blocks = [part_blocks for part_blocks, _ in cut]
    return OutputTiling(blocks[0], blocks[1], blocks[2], n_last, copies)


def _strip(whole: list[list[tuple[int, int]]], efficient_extent: int) -> int:
    """The part that loses its leading mode: the batch first, then what spreads the tile widest over c.

    m and n stay above the extent that a matrix product needs to be efficient while they can.
    """
    if whole[0]:
        return 0
    if not whole[1] or not whole[2]:
        return 1 if whole[1] else 2
    rest = [prod(extent for extent, _ in modes[1:]) for modes in whole]
    able = [number for number in (1, 2) if rest[number] >= efficient_extent]
    if len(able) == 1:
        return able[0]
    if able:
        return max(able, key=lambda number: whole[number][0][1])
    return max((1, 2), key=lambda number: rest[number] * whole[number][0][0])


def _cut(
    modes: StridedModes, trailing: list[tuple[int, int]], limit: int
) -> tuple[tuple[OutputBlock, ...], list[StridedModes]]:
    """The blocks of a part, and the modes of its tiles: a second variant where the last chunk is smaller."""
    n_loops = len(modes) - len(trailing)
    loops, tail = modes[:n_loops], modes[n_loops:]
    chunks = [(0, tail[0][0])] if tail else [(0, 1)]
    if limit:
        extent = tail[0][0]
        # Invariant: blocks come in the order of rows, so that block i begins where block i - 1 ends.
        chunks = [(first, min(limit, extent - first)) for first in range(0, extent, limit)]
    inner = prod(extent for extent, _ in tail[1:])
    rows = prod(extent for extent, _ in tail)
    blocks = []
    for number, values in enumerate(product(*(range(extent) for extent, _ in loops))):
        base = sum(value * stride for value, (_, stride) in zip(values, loops, strict=True))
        for first, length in chunks:
            offset = base + (first * tail[0][1] if tail else 0)
            blocks.append(OutputBlock(number * rows + first * inner, length * inner, offset))
    lengths = sorted({length for _, length in chunks})
    return tuple(blocks), [((length, tail[0][1]), *tail[1:]) if tail else () for length in lengths]


def innermost(modes: StridedModes) -> int:
    """The least stride in c of the modes of a part; more than any where it has none."""
    return min((stride for extent, stride in modes if extent > 1), default=1 << 62)


def _tile_copy(sides: Sequence[StridedModes]) -> Copy:
    """The copy to c of a tile that is stored as these parts, row-major."""
    modes = [mode for side in sides for mode in side]
    strides = row_major([extent for extent, _ in modes])
    return make_copy([(extent, step, stride) for (extent, stride), step in zip(modes, strides, strict=True)])
