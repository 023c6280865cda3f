"""Which bits are held and which blocks are done with them: the choice behind passes and stages of ranks.

A block can be done while its targets are held, if no block left behind that does not commute comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from executor.statevector.blocks import Block

EXCHANGES_TRIED = 64
WINDOW = 2000
"""So many of the blocks left are looked at when bits are chosen."""


def choose(blocks: Sequence[Block], always: int, size: int) -> int:
    """The mask of `size` bits or fewer, those of `always` among them, that let many blocks be done."""
    held = grow(blocks, always, size)
    taken = len(sweep(blocks, held)[0])
    if taken == len(blocks):
        return held
    return _improve(blocks[:WINDOW], held, always, min(taken, WINDOW))


def grow(blocks: Sequence[Block], always: int, size: int) -> int:
    """The mask of `size` bits or fewer that the first blocks want, the bits of `always` among them."""
    held = always
    blocked = fixed = 0
    for block in blocks:
        wanted = held | block.target_mask
        if _waits(block, blocked, fixed) or wanted.bit_count() > size:
            blocked |= block.target_mask
            fixed |= block.mask
        else:
            held = wanted
    return held


def sweep(blocks: Sequence[Block], held: int) -> tuple[list[Block], list[Block]]:
    """The blocks that can be done while the bits of `held` are in the tile, and those left, both in order."""
    done: list[Block] = []
    left: list[Block] = []
    blocked = fixed = 0
    for block in blocks:
        if block.target_mask & ~held or _waits(block, blocked, fixed):
            blocked |= block.target_mask
            fixed |= block.mask
            left.append(block)
        else:
            done.append(block)
    return done, left


def _waits(block: Block, blocked: int, fixed: int) -> bool:
    """Whether a block left behind, with targets in `blocked` and bits in `fixed`, has to act before it."""
    return bool(block.mask & blocked or block.target_mask & fixed)


def _improve(blocks: Sequence[Block], held: int, always: int, taken: int) -> int:
    """Exchange a held bit for another one while that lets more blocks be done."""
    every = 0
    for block in blocks:
        every |= block.target_mask
    for _ in range(EXCHANGES_TRIED):
        best = held
        for out in bits_of(held & ~always):
            for new in bits_of(every & ~held):
                other = held & ~(1 << out) | 1 << new
                count = len(sweep(blocks, other)[0])
                if count > taken:
                    best, taken = other, count
        if best == held:
            return held
        held = best
    return held


def bits_of(mask: int) -> list[int]:
    """The bits set in a mask, rising."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
