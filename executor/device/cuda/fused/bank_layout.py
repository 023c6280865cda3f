"""Where each bit of a fused chain's tile lies at every stage, and how a stage deals its bits to lanes.

A tile's modes are cut into bits. Each bit has a position in the tile, which it keeps from stage to stage; the
summed bits of a stage leave theirs to the bits that its branch brings. The place of an element is the XOR of
the places of its bits: position p stands for 2^p, and from `bank_bits` on also turns the bank, so that lanes
whose bits differ in position modulo `bank_bits` meet no bank conflict. Pure arithmetic; knows no device and
no order in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def stage_kind(stage: FusedStage, threads: int, held: int, tensor: bool) -> Kind:
    """How a block works on a stage, a thread with up to `held` results; `tensor`: on tensor cores if able."""
    rows = stage.elements_in // stage.k
    if tensor and on_tensor_cores(stage):
        of_warp = max(1, rows // TENSOR_ROWS // (threads >> LANE_BITS))
        groups = min(of_warp, MOST_GROUPS, max(1, MOST_GROUP_COLUMNS // stage.n))
        return "TENSOR", groups, of_warp // groups
    # As many results of a thread as keep every warp busy; whole rows where that leaves enough rows.
    most = min(held, MOST_WHOLE) if stage.n <= min(held, MOST_WHOLE) else min(held // 2, MOST_DEALT)
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
    """Positions of the bits: those held before each stage and at last, and those that each stage brings."""

    held: tuple[dict[Bit, int], ...]
    brought: tuple[dict[Bit, int], ...]
    lanes: tuple[Lanes, ...]


class BankLayoutSearch:
    """Layouts of one tile. `load_bits` and `store_bits` in the order that lanes take them, `warp_bits` those
    that tell the warps apart at each stage, `kinds` of the stages."""

    def __init__(
        self, tile: FusedTile, extents: Mapping[int, int], bank_bits: int, kinds: Sequence[Kind],
        load_bits: Sequence[Bit], store_bits: Sequence[Bit], warp_bits: Sequence[Sequence[Bit]],
    ) -> None:  # fmt: skip
        self.tile, self.extents, self.bank_bits, self.kinds = tile, extents, bank_bits, kinds
        self.load_bits, self.store_bits, self.warp_bits = load_bits, store_bits, warp_bits

    def best(self) -> BankLayout:
        """The layout with the fewest bank conflicts in loads, stages and stores, of some random ones."""
        random = Random(0)
        best: tuple[int, BankLayout] | None = None
        for _ in range(TRIES):
            layout = self._random(random)
            lost = self._lost(self.load_bits, layout.held[0]) + self._lost(self.store_bits, layout.held[-1])
            lost += sum(lanes.lost for lanes in layout.lanes)
            if best is None or lost < best[0]:
                best = lost, layout
            if lost == 0:
                break
        assert best is not None
        return best[1]

    def _random(self, random: Random) -> BankLayout:
        """Random positions at first; every stage takes the best of a few for the bits that it brings."""
        free = list(range(self.tile.elements.bit_length() - 1))
        random.shuffle(free)
        held = [{bit: free.pop() for bit in self.load_bits}]
        brought, chosen = [], []
        for stage, kind, warps in zip(self.tile.stages, self.kinds, self.warp_bits, strict=True):
            before = held[-1]
            summed, new = bits_of(stage.k_modes, self.extents), bits_of(stage.n_modes, self.extents)
            kept = {bit: position for bit, position in before.items() if bit[0] not in stage.k_modes}
            free += [before[bit] for bit in summed]
            best: tuple[Lanes, list[int]] | None = None
            for _ in range(TRIES_A_STAGE):
                random.shuffle(free)
                lanes = self._lanes(kind, stage, warps, before, dict(zip(new, free, strict=False)))
                if best is None or lanes.lost < best[0].lost:
                    best = lanes, list(free)
                if lanes.lost == 0:
                    break
            assert best is not None
            chosen.append(best[0])
            brought.append(dict(zip(new, best[1], strict=False)))
            free = best[1][len(new) :]
            held.append(kept | brought[-1])
        return BankLayout(tuple(held), tuple(brought), tuple(chosen))

    def _lanes(
        self, kind: Kind, stage: FusedStage, warps: Sequence[Bit], held: Mapping[Bit, int],
        brought: Mapping[Bit, int],
    ) -> Lanes:  # fmt: skip
        summed, new = bits_of(stage.k_modes, self.extents), bits_of(stage.n_modes, self.extents)
        rows = [bit for bit in held if bit[0] not in stage.k_modes and bit not in warps]
        rows.sort(key=held.__getitem__)
        first = self._in_different_banks(rows, held)
        if kind[0] == "FMA":
            ordered = _led(rows, first) + list(warps)
            lost = 2 * stage.k.bit_length() * self._lost(ordered, held)
            return Lanes(tuple(summed), tuple(new), tuple(ordered), lost)
        best: tuple[int, tuple[Bit, Bit], tuple[Bit, Bit], tuple[Bit, Bit]] | None = None
        for k_pair in self._pairs(summed, held):
            for n_pair in self._pairs(new, brought):
                for row_pair in self._pairs(first if len(first) > 1 else rows, held):
                    lost = self._lost([*k_pair, *row_pair], held)
                    lost += self._lost([*n_pair, *row_pair], {**held, **brought})
                    if best is None or lost < best[0]:
                        best = lost, k_pair, n_pair, row_pair
        assert best is not None
        lost, k_pair, n_pair, row_pair = best
        ordered = _led(rows, row_pair) + list(warps)
        return Lanes(tuple(_led(summed, k_pair)), tuple(_led(new, n_pair)), tuple(ordered), lost)

    def _in_different_banks(self, bits: Iterable[Bit], positions: Mapping[Bit, int]) -> list[Bit]:
        """The first of the bits in every bank."""
        found: dict[int, Bit] = {}
        for bit in bits:
            found.setdefault(positions[bit] % self.bank_bits, bit)
        return [found[bank] for bank in sorted(found)]

    def _pairs(self, bits: Sequence[Bit], positions: Mapping[Bit, int]) -> list[tuple[Bit, Bit]]:
        """Pairs of the bits, one for every two banks."""
        found = {
            frozenset(positions[bit] % self.bank_bits for bit in pair): pair for pair in combinations(bits, 2)
        }
        return list(found.values())

    def _lost(self, bits: Sequence[Bit], positions: Mapping[Bit, int]) -> int:
        """How often an access waits for lanes that differ in the first of `bits` and meet in a bank."""
        lanes = bits[: self.bank_bits]
        banks = {positions[bit] % self.bank_bits for bit in lanes}
        return (1 << len(lanes) - len(banks)) - 1


def bits_of(modes: Sequence[int], extents: Mapping[int, int]) -> list[Bit]:
    """The bits of modes in storage order, fastest first."""
    return [(mode, bit) for mode in reversed(modes) for bit in range(extents[mode].bit_length() - 1)]


def _led(bits: Iterable[Bit], first: Sequence[Bit]) -> list[Bit]:
    """The bits with those of `first` before the others."""
    return [*first, *(bit for bit in bits if bit not in first)]
