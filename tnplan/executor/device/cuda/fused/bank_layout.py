"""Where each bit of a fused chain's tile lies at every stage, and how a stage deals its bits to lanes.

A tile's modes are cut into bits. Each bit has a position in the tile, which it keeps from stage to stage; the
summed bits of a stage leave theirs to the bits that its branch brings. The place of an element is the XOR of
the places of its bits: position p stands for 2^p, and from `bank_bits` on also turns the bank, so that lanes
whose bits differ in position modulo `bank_bits` meet no bank conflict. Pure arithmetic; knows no device and
no order in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from tnplan.planner.hardware.fusion_tile import FusedStage, FusedTile

Bit = tuple[int, int]
"""A mode and the number of one of its bits, 0 the least significant."""

Kind = tuple[str, int, int]
"""How a stage is worked on. ("FMA", rows, columns): what a thread holds of its result. ("TENSOR", groups,
rounds): on tensor cores, by so many groups of 16 rows of a warp at a time, so often."""

LANE_BITS = 5
MOST_WHOLE, MOST_DEALT = 16, 8
"""Columns of a thread of multiply-adds where it has whole rows, and where rows are dealt to several warps."""
TENSOR_SIDE = 4
TENSOR_ROWS = 16
TENSOR_ROW_LANES = 3
MOST_GROUPS = 2
MOST_GROUP_COLUMNS = 32
TRIES = 60
TRIES_A_STAGE = 6


def on_tensor_cores(stage: FusedStage) -> bool:
    """Whether tensor cores can work on a stage: its k and n fill theirs, as its rows always do."""
    return min(stage.k, stage.n) >= TENSOR_SIDE


def stage_kind(stage: FusedStage, threads: int, results: int, tensor: bool) -> Kind:
    """How a block works on a stage, of which a thread has up to so many `results`.

    With `tensor` it works on tensor cores where they can.
    """
    rows = stage.elements_in // stage.k
    if tensor and on_tensor_cores(stage):
        of_warp = max(1, rows // TENSOR_ROWS // (threads >> LANE_BITS))
        groups = min(of_warp, MOST_GROUPS, max(1, MOST_GROUP_COLUMNS // stage.n))
        return "TENSOR", groups, of_warp // groups
    # As many results of a thread as keep every warp busy; whole rows where that leaves enough rows.
    whole = min(results, MOST_WHOLE)
    most = whole if stage.n <= whole else min(results // 2, MOST_DEALT)
    columns = min(stage.n, most, max(1, stage.elements_out // threads))
    return "FMA", max(1, rows * (stage.n // columns) // threads), columns


@dataclass(frozen=True)
class Lanes:
    """The bits of a stage's k, n and rows, each in the order in which the kernel counts them.

    Lanes differ in the first five of `rows`; on tensor cores in the first two of `k` (when they read) and of
    `n` (when they write) and the first three of `rows`. `lost`: bank conflicts, weighted by accesses.
    """

    k: tuple[Bit, ...]
    n: tuple[Bit, ...]
    rows: tuple[Bit, ...]
    lost: int


@dataclass(frozen=True)
class BankLayout:
    """Positions of the bits before each stage and at last, and of those that each stage brings."""

    positions: tuple[dict[Bit, int], ...]
    brought: tuple[dict[Bit, int], ...]
    lanes: tuple[Lanes, ...]


class BankLayoutSearch:
    """Layouts of one tile. `load_bits` and `store_bits` in the order that lanes take them, `warp_bits` those
    that tell the warps apart at each stage, `kinds` of the stages."""

    def __init__(
        self, tile: FusedTile, extents: Mapping[int, int], bank_bits: int, kinds: Sequence[Kind],
        load_bits: Sequence[Bit], store_bits: Sequence[Bit], warp_bits: Sequence[Sequence[Bit]],
    ) -> None:  # fmt: skip
        self.tile, self.bank_bits, self.kinds = tile, bank_bits, kinds
        self.load_bits, self.store_bits, self.warp_bits = load_bits, store_bits, warp_bits
        self.summed = [bits_of(stage.k_modes, extents) for stage in tile.stages]
        self.new = [bits_of(stage.n_modes, extents) for stage in tile.stages]

    def best(self) -> BankLayout:
        """The layout with the fewest bank conflicts in loads, stages and stores, of some random ones."""
        random = Random(0)
        best: tuple[int, BankLayout] | None = None
        # Random search from a fixed seed: the same layout, and so the same compiled kernel, in every process.
        for _ in range(TRIES):
            layout = self._random(random)
            lost = self._lost(self.load_bits, layout.positions[0])
            lost += self._lost(self.store_bits, layout.positions[-1])
            lost += sum(lanes.lost for lanes in layout.lanes)
            if best is None or lost < best[0]:
                best = lost, layout
            if lost == 0:
                break
        assert best is not None
        return best[1]

    def _random(self, random: Random) -> BankLayout:
        """Random positions at first; every stage takes the best of a few for the bits that it brings."""
        # Invariant: at every stage no two bits have the same position: a brought bit takes one that a summed
        # bit has left, or one that is free because the tile was smaller.
        free = list(range(self.tile.elements.bit_length() - 1))
        random.shuffle(free)
        positions = [{bit: free.pop() for bit in self.load_bits}]
        brought, chosen = [], []
        for number, (summed, new) in enumerate(zip(self.summed, self.new, strict=True)):
            before = positions[-1]
            free += [before[bit] for bit in summed]
            lanes_of = self._lanes(number, before)
            best: tuple[Lanes, list[int]] | None = None
            for _ in range(TRIES_A_STAGE):
                random.shuffle(free)
                lanes = lanes_of(dict(zip(new, free, strict=False)))
                if best is None or lanes.lost < best[0].lost:
                    best = lanes, list(free)
                if lanes.lost == 0:
                    break
            assert best is not None
            chosen.append(best[0])
            brought.append(dict(zip(new, best[1], strict=False)))
            free = best[1][len(new) :]
            staying = {bit: position for bit, position in before.items() if bit not in summed}
            positions.append(staying | brought[-1])
        return BankLayout(tuple(positions), tuple(brought), tuple(chosen))

    def _lanes(self, number: int, positions: Mapping[Bit, int]) -> Callable[[Mapping[Bit, int]], Lanes]:
        """The lanes of a stage, from the positions of the bits that it brings."""
        summed, new, warps = self.summed[number], self.new[number], list(self.warp_bits[number])
        rows = [bit for bit in positions if bit not in summed and bit not in warps]
        rows.sort(key=positions.__getitem__)
        # The bits of lanes: those of rows in different banks lead, so that a warp reads its rows without
        # conflict.
        first = self._in_different_banks(rows, positions)
        if self.kinds[number][0] == "FMA":
            ordered = _led(rows, first) + warps
            lost = 2 * self.tile.stages[number].k.bit_length() * self._lost(ordered, positions)
            fixed = Lanes(tuple(summed), tuple(new), tuple(ordered), lost)
            return lambda brought: fixed
        k_pairs = self._pairs(summed, positions)
        row_pairs = self._pairs(first if len(first) > 1 else rows, positions)
        # On tensor cores lanes differ in two bits of k when they read, in two of n when they write, and in
        # three of rows: the pairs are chosen for both together.
        reads = [[self._lost([*pair, *row_pair], positions) for row_pair in row_pairs] for pair in k_pairs]

        def lanes(brought: Mapping[Bit, int]) -> Lanes:
            n_pairs, after = self._pairs(new, brought), {**positions, **brought}
            writes = [[self._lost([*pair, *row_pair], after) for row_pair in row_pairs] for pair in n_pairs]
            lost, k, n, row = min(
                (lost_read + lost_write, k, n, row)
                for k, of_reads in enumerate(reads)
                for n, of_writes in enumerate(writes)
                for row, (lost_read, lost_write) in enumerate(zip(of_reads, of_writes, strict=True))
            )
            ordered = _led(rows, row_pairs[row]) + warps
            return Lanes(tuple(_led(summed, k_pairs[k])), tuple(_led(new, n_pairs[n])), tuple(ordered), lost)

        return lanes

    def _in_different_banks(self, bits: Iterable[Bit], positions: Mapping[Bit, int]) -> list[Bit]:
        """The first of the bits in every bank."""
        by_bank: dict[int, Bit] = {}
        for bit in bits:
            by_bank.setdefault(positions[bit] % self.bank_bits, bit)
        return [by_bank[bank] for bank in sorted(by_bank)]

    def _pairs(self, bits: Sequence[Bit], positions: Mapping[Bit, int]) -> list[tuple[Bit, Bit]]:
        """Pairs of the bits, one for every two banks."""
        by_banks = {
            frozenset(positions[bit] % self.bank_bits for bit in pair): pair for pair in combinations(bits, 2)
        }
        return list(by_banks.values())

    def _lost(self, bits: Sequence[Bit], positions: Mapping[Bit, int]) -> int:
        """How often an access waits for lanes that differ in the first of `bits` and meet in a bank."""
        lanes = bits[: self.bank_bits]
        # n bits in d different banks: groups of 2^(n - d) lanes meet in a bank, of which all but one wait.
        banks = {positions[bit] % self.bank_bits for bit in lanes}
        return (1 << len(lanes) - len(banks)) - 1


def bits_of(modes: Sequence[int], extents: Mapping[int, int]) -> list[Bit]:
    """The bits of modes in storage order, fastest first."""
    return [(mode, bit) for mode in reversed(modes) for bit in range(extents[mode].bit_length() - 1)]


def _led(bits: Iterable[Bit], first: Sequence[Bit]) -> list[Bit]:
    """The bits with those of `first` before the others."""
    return [*first, *(bit for bit in bits if bit not in first)]
