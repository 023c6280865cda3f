"""The tables of a fused chain: where each element of a tile lies at every stage, for the kernel fused.cu.

A tile's modes are cut into bits. Each bit has a position in the tile, which it keeps from stage to stage; the
summed bits of a stage leave theirs to the bits that its branch brings. The place of an element is the XOR of
the places of its bits: position p stands for 2^p, and from `bank_bits` on also turns the bank, so that lanes
whose bits differ in position modulo `bank_bits` meet no bank conflict. Pure arithmetic; knows no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from executor.device.device import FusedShape
from executor.device.permutation import row_major
from planner.hardware.fusion import MOST_EXTENT, MOST_STAGES, FusedStage, FusedTile, fused_tile

Bit = tuple[int, int]
"""A mode and the number of one of its bits, 0 the least significant."""

IDLE = 0xFFFF
LANE_BITS = 5
BANK_BYTES = 128
USUAL_COLUMNS = 3
KNOWN_K = 8
MOST_NEAR = 2048
TRIES = 200


MOST_WALK = 32

STAGE_DTYPE = np.dtype([
    ("k", "u2"), ("n", "u2"), ("shape", "u2"), ("unused", "u2"),
    ("row", "u2", MOST_WALK), ("k_place", "u2", MOST_EXTENT), ("n_place", "u2", MOST_EXTENT),
])  # fmt: skip
TABLES_DTYPE = np.dtype([
    ("load_offset", "i8", MOST_WALK), ("store_offset", "i8", MOST_WALK),
    ("branch", "u8", MOST_STAGES), ("branch_elements", "i4", MOST_STAGES),
    ("load_place", "u2", MOST_WALK), ("store_place", "u2", MOST_WALK), ("stage", STAGE_DTYPE, MOST_STAGES),
])  # fmt: skip
"""The structs Stage and Tables of fused.cu."""


@dataclass(frozen=True)
class FusedTables:
    """What the kernel reads, as fused.cu says; places in bytes, offsets and starts in elements.

    `parameters` is one TABLES_DTYPE without the branches' addresses. `own_offset` is (threads, 2),
    `near` and `far` are (count, 2): source and target. `own_place` is (2 + 2 stages, threads). `shapes` are
    the rows, columns and k (0: read from the stage) of its kinds of stages; `own_part` as in fused.cu.
    """

    parameters: NDArray[np.void]
    own_offset: NDArray[np.int64]
    near: NDArray[np.int64]
    far: NDArray[np.int64]
    own_place: NDArray[np.uint16]
    branch_place: NDArray[np.uint16]
    n_loads: int
    n_stores: int
    shapes: tuple[tuple[int, int, int], ...]
    own_part: bool
    n_stages: int
    tile_bytes: int

    @property
    def n_tiles(self) -> int:
        """The tiles of the whole operand."""
        return len(self.near) * len(self.far)


@dataclass(frozen=True)
class _Walk:
    """Places and offsets of a walk over a tile: of each thread, and of each round."""

    own_place: NDArray[np.int64]
    own_offset: NDArray[np.int64]
    place: NDArray[np.int64]
    offset: NDArray[np.int64]


@dataclass(frozen=True)
class _Layout:
    """Positions of the bits: of the operand's, and of those that each stage brings."""

    loaded: dict[Bit, int]
    brought: tuple[dict[Bit, int], ...]

    def held(self, stage: int, stages: Sequence[FusedStage]) -> dict[Bit, int]:
        """The bits in the tile before a stage."""
        bits = dict(self.loaded)
        for number in range(stage):
            gone = set(stages[number].k_modes)
            bits = {bit: place for bit, place in bits.items() if bit[0] not in gone}
            bits |= self.brought[number]
        return bits


@lru_cache(maxsize=1024)
def fused_tables(shape: FusedShape, capacity: int, threads: int, itemsize: int) -> FusedTables:
    """The tables for tiles of at most `capacity` elements of `itemsize` bytes and blocks of `threads`.

    Raises ValueError where the chain has no such tile.
    """
    tile = fused_tile(shape.operand, shape.branches, shape.out, capacity)
    if tile is None:
        raise ValueError(f"a chain does not fit a tile of {capacity} elements")
    return _Builder(shape, tile, threads, itemsize).tables()


class _Builder:
    def __init__(self, shape: FusedShape, tile: FusedTile, threads: int, itemsize: int) -> None:
        self.shape, self.tile, self.threads = shape, tile, threads
        self.extents = {mode: extent for part in (shape.operand, *shape.branches) for mode, extent in part}
        self.itemsize = itemsize
        self.bank_bits = max(1, (BANK_BYTES // itemsize).bit_length() - 1)
        self.source = _bit_strides(shape.operand, self.extents)
        self.target = _bit_strides(shape.out, self.extents)
        inside = set(tile.modes).union(*(stage.n_modes for stage in tile.stages))
        self.load_bits = sorted(
            (bit for bit in self.source if bit[0] in tile.modes), key=self.source.__getitem__
        )
        self.store_bits = sorted(
            (bit for bit in self.target if bit[0] in inside), key=self.target.__getitem__
        )
        self.warp_bits = self._warp_bits()
        self.layout = self._best_layout()

    def tables(self) -> FusedTables:
        stages = self.tile.stages
        load = self._walk(self.load_bits, self.layout.loaded, self.source)
        store = self._walk(self.store_bits, self.layout.held(len(stages), stages), self.target)
        branches = [self._branch(number) for number in range(len(stages))]
        parameters = np.zeros((), TABLES_DTYPE)
        own_place = [load.own_place, store.own_place]
        for side, walk in (("load", load), ("store", store)):
            parameters[f"{side}_offset"][: len(walk.offset)] = walk.offset
            parameters[f"{side}_place"][: len(walk.place)] = walk.place
        parameters["branch_elements"][: len(stages)] = [len(branch) for branch in branches]
        shapes = [self._shape(stage) for stage in stages]
        kinds = tuple(sorted(set(shapes)))
        for number, shape in enumerate(shapes):
            parameters["stage"]["shape"][number] = kinds.index(shape)
            own_place += self._stage(number, shape, parameters["stage"][number])
        near, far = self._starts()
        return FusedTables(
            parameters=parameters,
            own_offset=np.stack([load.own_offset, store.own_offset], axis=1),
            near=near,
            far=far,
            own_place=np.stack(own_place).astype(np.uint16),
            branch_place=np.concatenate(branches).astype(np.uint16),
            n_loads=len(load.offset),
            n_stores=len(store.offset),
            shapes=kinds,
            own_part=self._own_part(),
            n_stages=len(stages),
            tile_bytes=self.tile.elements * self.itemsize,
        )

    def place(self, position: int) -> int:
        """The place of a bit at a position, in bytes."""
        turn = 1 << position % self.bank_bits if position >= self.bank_bits else 0
        return (1 << position | turn) * self.itemsize

    def _walk(self, bits: Sequence[Bit], positions: Mapping[Bit, int], strides: Mapping[Bit, int]) -> _Walk:
        """A walk along `bits`, fastest first: the lowest are dealt to the threads, the others to rounds."""
        n_own = min(len(bits), self.threads.bit_length() - 1)
        places = [self.place(positions[bit]) for bit in bits]
        offsets = [strides[bit] for bit in bits]
        own_place = np.full(self.threads, IDLE, np.int64)
        own_place[: 1 << n_own] = _combine(places[:n_own])
        own_offset = np.zeros(self.threads, np.int64)
        own_offset[: 1 << n_own] = _sums(offsets[:n_own])
        return _Walk(own_place, own_offset, _combine(places[n_own:]), _sums(offsets[n_own:]))

    def _starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Source and target of tiles, by the modes outside the tile: the fast ones, and the others."""
        strides = [
            dict(zip([mode for mode, _ in part], row_major([extent for _, extent in part]), strict=True))
            for part in (self.shape.operand, self.shape.out)
        ]
        near = np.zeros((1, 2), np.int64)
        modes = [entry for entry in self.shape.operand if entry[0] not in self.tile.modes]
        while modes and len(near) * modes[-1][1] <= MOST_NEAR:
            near = _outer_sum(modes.pop(), strides, near)
        far = np.zeros((1, 2), np.int64)
        while modes:
            far = _outer_sum(modes.pop(), strides, far)
        return near, far

    def _stage(
        self, number: int, shape: tuple[int, int, int], out: NDArray[np.void]
    ) -> list[NDArray[np.int64]]:
        """Fill the struct of a stage; the first place and the first column of each thread."""
        stage = self.tile.stages[number]
        held = self.layout.held(number, self.tile.stages)
        positions = {**held, **self.layout.brought[number]}
        n_rows, n_columns, _ = shape
        rows = [self.place(held[bit]) for bit in self._row_bits(held, stage)]
        n_own = LANE_BITS + n_rows.bit_length() - 1
        lane_places, group_places = _combine(rows[:LANE_BITS]), _combine(rows[n_own:])
        base = np.full(self.threads, IDLE, np.int64)
        column = np.zeros(self.threads, np.int64)
        parts = stage.n // n_columns
        for warp in range(len(group_places) * parts):
            group, part = divmod(warp, parts)
            threads = slice(warp << LANE_BITS, (warp + 1) << LANE_BITS)
            base[threads] = lane_places ^ group_places[group]
            column[threads] = part * n_columns
        out["k"], out["n"] = stage.k, stage.n
        out["row"][:n_rows] = _combine(rows[LANE_BITS:n_own])
        out["k_place"][: stage.k] = self._places(stage.k_modes, positions)
        out["n_place"][: stage.n] = self._places(stage.n_modes, positions)
        return [base, column]

    def _places(self, modes: Sequence[int], positions: Mapping[Bit, int]) -> NDArray[np.int64]:
        return _combine([self.place(positions[bit]) for bit in self._bits(modes)])

    def _shape(self, stage: FusedStage) -> tuple[int, int, int]:
        """Rows and columns of a thread, as many outputs as keep every warp busy, and k where it is small."""
        outputs = max(0, (stage.elements_out // self.threads).bit_length() - 1)
        rows = (stage.elements_in // stage.k).bit_length() - 1 - LANE_BITS
        columns = min(stage.n.bit_length() - 1, max(USUAL_COLUMNS, outputs - rows), outputs)
        return 1 << min(rows, outputs - columns), 1 << columns, stage.k if stage.k <= KNOWN_K else 0

    def _own_part(self) -> bool:
        """Whether each warp keeps to the same rows of the tile at every stage."""
        n_warps = self.threads >> LANE_BITS
        return len(self.warp_bits) == n_warps.bit_length() - 1 and all(
            stage.n == columns and stage.elements_out == self.threads * rows * columns
            for stage in self.tile.stages
            for rows, columns, _ in (self._shape(stage),)
        )

    def _row_bits(self, held: Mapping[Bit, int], stage: FusedStage) -> list[Bit]:
        """The bits that a stage does not sum: lanes in different banks first, those of the warps last."""
        left = [bit for bit in held if bit[0] not in stage.k_modes and bit not in self.warp_bits]
        left.sort(key=held.__getitem__)
        first = []
        for bank in range(self.bank_bits):
            bit = next((bit for bit in left if held[bit] % self.bank_bits == bank), None)
            if bit is not None:
                first.append(bit)
                left.remove(bit)
        return first + left + self.warp_bits

    def _warp_bits(self) -> list[Bit]:
        """Bits that no stage sums, one for each bit of a warp's number: the slowest of the operand's."""
        summed = {mode for stage in self.tile.stages for mode in stage.k_modes}
        kept = [bit for bit in self.load_bits if bit[0] not in summed]
        n_bits = (self.threads >> LANE_BITS).bit_length() - 1
        return kept[len(kept) - n_bits :] if len(kept) >= n_bits + LANE_BITS else []

    def _bits(self, modes: Sequence[int]) -> list[Bit]:
        """The bits of modes in storage order, fastest first."""
        return [(mode, bit) for mode in reversed(modes) for bit in range(self.extents[mode].bit_length() - 1)]

    def _branch(self, number: int) -> NDArray[np.int64]:
        """Where each element of a branch goes, in elements: k slow, n fast."""
        stage = self.tile.stages[number]
        n_bits, k_bits = self._bits(stage.n_modes), self._bits(stage.k_modes)
        place = {bit: 1 << order for order, bit in enumerate([*n_bits, *k_bits])}
        stored = self._bits([mode for mode, _ in self.shape.branches[number]])
        return _combine([place[bit] for bit in stored])

    def _best_layout(self) -> _Layout:
        """Positions with the fewest bank conflicts in loads, stages and stores, of some random ones."""
        random = Random(0)
        best: tuple[int, _Layout] | None = None
        for _ in range(TRIES):
            layout = self._random_layout(random)
            conflicts = self._conflicts(layout)
            if best is None or conflicts < best[0]:
                best = conflicts, layout
            if conflicts == 0:
                break
        assert best is not None
        return best[1]

    def _random_layout(self, random: Random) -> _Layout:
        width = self.tile.elements.bit_length() - 1
        free = list(range(width))
        random.shuffle(free)
        held = {bit: free.pop() for bit in self.load_bits}
        loaded = dict(held)
        brought = []
        for stage in self.tile.stages:
            for bit in self._bits(stage.k_modes):
                free.append(held.pop(bit))
            random.shuffle(free)
            new = {bit: free.pop() for bit in self._bits(stage.n_modes)}
            brought.append(new)
            held |= new
        return _Layout(loaded, tuple(brought))

    def _conflicts(self, layout: _Layout) -> int:
        """The bank bits that the first lanes of loads, stages and stores leave unused, weighted."""
        stages = self.tile.stages
        walks = [
            (self.load_bits, layout.loaded, 1),
            (self.store_bits, layout.held(len(stages), stages), 1),
            *(
                (self._row_bits(held, stage), held, 2 * stage.k.bit_length())
                for number, stage in enumerate(stages)
                for held in (layout.held(number, stages),)
            ),
        ]
        lost = 0
        for bits, positions, weight in walks:
            lanes = bits[: self.bank_bits]
            banks = {positions[bit] % self.bank_bits for bit in lanes}
            lost += weight * ((1 << len(lanes) - len(banks)) - 1)
        return lost


def _outer_sum(
    mode: tuple[int, int], strides: Sequence[Mapping[int, int]], inner: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The (source, target) offsets of a slower mode and the faster ones in `inner` together."""
    step = np.array([side[mode[0]] for side in strides], np.int64)
    return (np.arange(mode[1])[:, None, None] * step + inner).reshape(-1, 2)


def _bit_strides(modes: Sequence[tuple[int, int]], extents: Mapping[int, int]) -> dict[Bit, int]:
    """The stride of every bit of modes whose extents are powers of two."""
    strides = row_major([extent for _, extent in modes])
    return {
        (mode, bit): stride << bit
        for (mode, extent), stride in zip(modes, strides, strict=True)
        if extent & (extent - 1) == 0
        for bit in range(extents[mode].bit_length() - 1)
    }


def _combine(parts: Sequence[int]) -> NDArray[np.int64]:
    """The XOR of every subset of `parts`, indexed by the subset, the first part the lowest bit."""
    table = np.zeros(1, np.int64)
    for part in parts:
        table = np.concatenate([table, table ^ part])
    return table


def _sums(parts: Sequence[int]) -> NDArray[np.int64]:
    """The sum of every subset of `parts`, indexed likewise."""
    table = np.zeros(1, np.int64)
    for part in parts:
        table = np.concatenate([table, table + part])
    return table
