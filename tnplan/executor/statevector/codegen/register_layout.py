"""Which bits of a tile a thread has in registers from round to round, and which threads have to meet between.

Knows bits of an index, and what neighbouring threads should have; no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

LANE_BITS = 5
"""The first of a layout's thread bits number the threads of a warp."""
ALL, WARP = 0, -1
BARRIERS = 16
"""Where threads meet between rounds: all, those of a warp, or, from 1 on, groups of warps by number."""


@dataclass(frozen=True)
class RegisterLayout:
    """Tile bits in registers, rising, and those that number the threads, the first for neighbours."""

    registers: tuple[int, ...]
    threads: tuple[int, ...]

    @property
    def text(self) -> str:
        """As the kernel's macros take it."""
        return f"{_code(self.registers)}, {_code(self.threads)}"

    def on(self, where: Sequence[int]) -> RegisterLayout:
        """The same layout with tile bit k renamed to where[k]."""
        return RegisterLayout(
            tuple(where[bit] for bit in self.registers), tuple(where[bit] for bit in self.threads)
        )


class LayoutChoice:
    """Makes the layouts of a tile of `tile_bits` bits, of amplitudes of `item_bytes`."""

    def __init__(self, tile_bits: int, register_bits: int, item_bytes: int) -> None:
        self.tile_bits, self.register_bits = tile_bits, register_bits
        self.bank_bits = 4 if item_bytes == 8 else 3
        self.close_bits = range(1, 3) if item_bytes == 8 else range(2)
        """Bits that lanes must have while the state is read or written, so that it is in long runs."""

    def first(self, targets: Sequence[int], soon: Sequence[int] = ()) -> RegisterLayout:
        """Targets in registers, filled up with the highest bits; neighbours' bits fall into all banks.

        Bits that are targets `soon` are among the first of a thread, so that few warps change places for it.
        """
        free = [bit for bit in range(self.tile_bits - 1, -1, -1) if bit not in targets]
        registers = sorted([*targets, *free[: self.register_bits - len(targets)]])
        rest = [bit for bit in range(self.tile_bits) if bit not in registers]
        lanes: list[int] = []
        for bit in rest:
            banks = [lane % self.bank_bits for lane in lanes]
            if len(lanes) < self.bank_bits and bit % self.bank_bits not in banks:
                lanes.append(bit)
        later = sorted((bit for bit in rest if bit not in lanes), key=lambda bit: (bit not in soon, bit))
        return RegisterLayout(tuple(registers), (*lanes, *later))

    def following(self, layout: RegisterLayout, targets: Sequence[int]) -> RegisterLayout:
        """Targets in registers, with bits that are there already; few threads change places for it."""
        now = layout.registers
        if set(targets) <= set(now):
            return layout
        kept = [bit for bit in sorted(now, reverse=True) if bit not in targets]
        registers = sorted([*targets, *kept[: self.register_bits - len(targets)]])
        return self._swapped(layout, registers) or self.first(targets)

    def last(self, layout: RegisterLayout) -> RegisterLayout:
        """One in which the state is written in long runs, by the threads of a warp if that can be."""
        least = {*self.close_bits, 0}
        for threads in (layout.threads[:LANE_BITS], layout.threads):
            for registers in combinations(threads[::-1], self.register_bits):
                if not least & set(registers):
                    made = self._swapped(layout, sorted(registers))
                    if made is not None and not self.is_scattered(made):
                        return made
        return self.first(())

    def _swapped(self, layout: RegisterLayout, registers: Sequence[int]) -> RegisterLayout | None:
        """The layout with other registers in which every thread bit that stays one keeps its place.

        None where neighbours' bits would not fall into all banks.
        """
        threads = list(layout.threads)
        holes = [k for k, bit in enumerate(threads) if bit in registers]
        leaving = sorted(bit for bit in layout.registers if bit not in registers)
        for bits in permutations(leaving):
            for hole, bit in zip(holes, bits, strict=True):
                threads[hole] = bit
            lanes = threads[: self.bank_bits]
            if len({bit % self.bank_bits for bit in lanes}) == len(lanes):
                return RegisterLayout(tuple(registers), tuple(threads))
        return None

    def is_scattered(self, layout: RegisterLayout) -> bool:
        """Whether the threads of a warp would read and write the state in short runs."""
        near = layout.threads[:LANE_BITS]
        return any(bit not in near for bit in self.close_bits) or 0 not in (*near, *layout.registers)


class Barriers:
    """Where threads meet between two layouts."""

    def __init__(self) -> None:
        self._next = 1

    def between(self, old: RegisterLayout, new: RegisterLayout) -> int:
        """Where the threads meet that have each other's amplitudes: those equal in thread bits that stay.

        Two groups of warps have no numbered barrier in common until all threads have met.
        """
        same = [a == b for a, b in zip(old.threads, new.threads, strict=True)][LANE_BITS:]
        if all(same):
            return WARP
        first, count = self._next, 1 << sum(same)
        if count == 1 or first + count > BARRIERS:
            self._next = 1
            return ALL
        self._next += count
        return first


def _code(bits: Sequence[int]) -> str:
    return f"{sum(bit << (4 * k) for k, bit in enumerate(bits)):#x}ull"
