"""Which Pauli words are summed over the same tiles of two states. Knows masks of bits; no state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class WordGroup:
    """Words, by their numbers and by rising x, that tiles on the bits `held`, rising, have inside.

    All of them have the same bits of x outside of a tile, those of `far_x`.
    """

    held: tuple[int, ...]
    far_x: int
    words: tuple[int, ...]


def word_groups(
    words: Sequence[tuple[int, int]], n_bits: int, tile_bits: int, run_bits: int, most: int
) -> list[WordGroup]:
    """Groups of at most `most` words whose masks are x and z over `n_bits` bits, each word in one of them.

    A tile holds `tile_bits` bits, the lowest `run_bits` among them. Words are taken in turn as long as their
    bits of x fit into a tile; a word that fits into none keeps its upper bits of x outside.
    """
    low = (1 << run_bits) - 1
    room = tile_bits - run_bits
    left, groups = list(range(len(words))), []
    while left:
        first = words[left[0]][0] & ~low
        if first.bit_count() > room:
            held, far_x = low, first
        else:
            held, far_x = low | first, 0
        chosen: list[int] = []
        for number in left:
            x = words[number][0] & ~far_x
            is_same = words[number][0] & far_x == far_x
            if len(chosen) < most and is_same and (held | x).bit_count() <= tile_bits:
                held |= x
                chosen.append(number)
        free = (bit for bit in range(n_bits) if not held >> bit & 1)
        while held.bit_count() < tile_bits:
            held |= 1 << next(free)
        bits = tuple(bit for bit in range(n_bits) if held >> bit & 1)
        by_x = sorted(chosen, key=lambda number: words[number][0])
        groups.append(WordGroup(bits, far_x & ~held, tuple(by_x)))
        left = [number for number in left if number not in set(chosen)]
    return groups
