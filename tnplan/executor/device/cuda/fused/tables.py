"""The tables of a fused chain: which element each thread of the kernel fused.cu moves and works on.

Turns a layout of the tile (`bank_layout`) and the orders in memory into places and offsets. Pure arithmetic;
knows no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cuda.fused.bank_layout import (
    LANE_BITS,
    TENSOR_ROW_LANES,
    TENSOR_ROWS,
    BankLayoutSearch,
    Bit,
    Kind,
    bits_of,
    on_tensor_cores,
    stage_kind,
)
from tnplan.executor.device.protocols.copy import mode_strides
from tnplan.executor.device.protocols.device import FusedShape
from tnplan.planner.hardware.fusion_tile import FusedStage, FusedTile, fused_tile

# Which bits of a fused chain's tile tell its warps apart at each stage, and where all warps must meet.
#
# Warps that differ in the same bits, stage after stage, touch parts of the tile of their own and need
# not wait for each other. Pure arithmetic on bits; knows no places, nor any order but that of the walks.


@dataclass(frozen=True)
class Warps:
    """`load`, `stages` and `store`: the bits that tell warps apart, least significant first; none where warps
    are dealt otherwise. `meets`: whether all meet after the load, after each stage and after the store."""

    load: tuple[Bit, ...]
    stages: tuple[tuple[Bit, ...], ...]
    store: tuple[Bit, ...]
    meets: tuple[bool, ...]


def deal_warps(
    tile: FusedTile, kinds: Sequence[Kind], extents: Mapping[int, int], load_bits: Sequence[Bit],
    store_bits: Sequence[Bit], n_bits: int,
) -> Warps:  # fmt: skip
    """The bits of 2^n_bits warps, kept as long as possible, and by the walks too where lanes leave them."""
    n_stages = len(tile.stages)
    chosen: list[tuple[Bit, ...]] = []
    meets = [True] * (n_stages + 2)
    tile_bits = list(load_bits)
    # Greedy: as many stages as possible keep the bits that tell warps apart. Within such a run each warp
    # reads what it wrote itself, so that no barrier of the block is needed.
    while len(chosen) < n_stages:
        begin = len(chosen)
        common, end = _run(tile, kinds, tile_bits, begin, n_bits)
        walks = (load_bits, begin == 0), (store_bits, end == n_stages)
        lanes = [set(bits[:LANE_BITS]) for bits, joins in walks if joins]
        # Bits that lanes of a walk take are used last, so that the walk can be dealt to warps by the same
        # bits.
        common.sort(key=lambda bit: -sum(bit in lane_bits for lane_bits in lanes))
        chosen += [tuple(common[len(common) - n_bits :])] * (end - begin) if end > begin else [()]
        meets[begin + 1 : end] = [False] * (end - begin - 1)
        for stage in tile.stages[begin : len(chosen)]:
            inner = [bit for bit in tile_bits if bit[0] not in stage.k_modes]
            tile_bits = [*inner, *bits_of(stage.n_modes, extents)]
    load = _of_walk(load_bits, chosen[0], n_bits)
    store = _of_walk(store_bits, chosen[-1], n_bits)
    apart = [bits is not None for bits in (load, store)]
    meets[0], meets[-2] = not apart[0], not apart[1]
    # The next tile may be loaded without a barrier only if nobody else touches this warp's part at any stage.
    meets[-1] = not (all(apart) and load == store and not any(meets[:-1]))
    return Warps(load or (), tuple(chosen), store or (), tuple(meets))


def _run(
    tile: FusedTile, kinds: Sequence[Kind], tile_bits: Sequence[Bit], begin: int, n_bits: int
) -> tuple[list[Bit], int]:
    """The bits that all stages of a run from stage `begin` on keep, n_bits or more, and the run's end."""
    common, end = list(tile_bits), begin
    while end < len(kinds):
        stage = tile.stages[end]
        left = [bit for bit in common if bit[0] not in stage.k_modes]
        if len(left) < n_bits or not _by_rows(stage, kinds[end], n_bits):
            break
        common, end = left, end + 1
    return common, end


def _by_rows(stage: FusedStage, kind: Kind, n_bits: int) -> bool:
    """Whether every warp has rows of its own, and all of their columns."""
    unit, first, second = kind
    if unit == "TENSOR":
        return stage.elements_in // stage.k == TENSOR_ROWS * first * second << n_bits
    return second == stage.n and stage.elements_in // stage.k == first << LANE_BITS + n_bits


def _of_walk(bits: Sequence[Bit], warps: tuple[Bit, ...], n_bits: int) -> tuple[Bit, ...] | None:
    """The bits of warps in a walk, where a stage's can be: its lanes take others, and all have elements."""
    apart = len(warps) == n_bits and len(bits) >= LANE_BITS + n_bits
    return warps if apart and not set(warps) & set(bits[:LANE_BITS]) else None


IDLE = 0xFFFF
BANK_BYTES = 128
MOST_NEAR = 2048
FRAGMENTS = 256
"""As in fused.cu: branches of up to so many elements are held in fragments for tensor cores."""
FRAGMENT_BYTES = 16
OUTPUTS_A_THREAD = {4: 32, 8: 16, 16: 8}
"""By bytes an element: elements of a tile that come to a thread, and the sums that it holds in registers."""


@dataclass(frozen=True)
class StageTables:
    """One stage: its kind, k and n, the byte where its branch begins in the memory that has it, and places
    of rows, of k and of n that the kernel takes as constants."""

    kind: Kind
    k: int
    n: int
    first: int
    row_place: tuple[int, ...]
    k_place: tuple[int, ...]
    n_place: tuple[int, ...]


@dataclass(frozen=True)
class FusedTables:
    """What the kernel is made with and what it reads, as fused.cu says; places, offsets and starts in bytes.

    `load` and `store` are the places and the offsets of the elements of a tile that a thread moves.
    `thread_offset` is (threads, 2), `near` and `far` are (count, 2): source and target. `thread_place` is
    (2 + 2 stages, threads); `branch_place` the place of every element of every branch, in elements.
    `constant_bytes` and `branch_bytes` is what branches take in constant memory, for threads of multiply-adds
    that hold whole rows, and in shared memory. `meets`: whether all warps meet after the load, each stage,
    the store; `threads`: of a block.
    """

    stages: tuple[StageTables, ...]
    load: tuple[tuple[int, ...], tuple[int, ...]]
    store: tuple[tuple[int, ...], tuple[int, ...]]
    thread_offset: NDArray[np.int64]
    near: NDArray[np.int64]
    far: NDArray[np.int64]
    thread_place: NDArray[np.uint16]
    branch_place: NDArray[np.uint16]
    constant_bytes: int
    branch_bytes: int
    meets: tuple[bool, ...]
    threads: int
    tile_bytes: int

    @property
    def n_tiles(self) -> int:
        """The tiles of the whole operand."""
        return len(self.near) * len(self.far)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: a tile, branches, the places of its threads."""
        return self.tile_bytes + self.branch_bytes + self.thread_place.nbytes


_Places = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Walk:
    """Places and offsets of a walk over a tile: of each thread, and of each round."""

    thread_place: NDArray[np.int64]
    thread_offset: NDArray[np.int64]
    place: NDArray[np.int64]
    offset: NDArray[np.int64]


def best_tables(shape: FusedShape, capacity: int, itemsize: int, tensor: bool = False) -> FusedTables:
    """The tables of a chain in the tiles, of at most `capacity` elements, and blocks that suit it best.

    Measured on an H200: on tensor cores tiles of half the capacity leave more blocks to hide loads. Raises
    ValueError where the chain has no tile.
    """
    halved = fused_tile(shape.operand, shape.branches, shape.out, capacity // 2)
    tile = halved or chain_tile(shape, capacity)
    tensor = tensor and any(map(on_tensor_cores, tile.stages))
    if halved is not None and tensor:
        capacity //= 2
    return fused_tables(shape, capacity, capacity // OUTPUTS_A_THREAD[itemsize], itemsize, tensor)


@lru_cache(maxsize=1024)
def fused_tables(
    shape: FusedShape, capacity: int, threads: int, itemsize: int, tensor: bool = False
) -> FusedTables:
    """The tables for tiles of at most `capacity` elements of `itemsize` bytes and blocks of `threads`.

    With `tensor` stages run on tensor cores where they can. Raises ValueError where the chain has no such
    tile.
    """
    return TableBuilder(shape, chain_tile(shape, capacity), threads, itemsize, tensor).tables()


def chain_tile(chain: FusedShape, capacity: int) -> FusedTile:
    """The tile of a chain, of at most `capacity` elements; ValueError where it has none."""
    tile = fused_tile(chain.operand, chain.branches, chain.out, capacity)
    if tile is None:
        raise ValueError(f"a chain does not fit a tile of {capacity} elements")
    return tile


class TableBuilder:
    """Makes the tables of a chain in tiles that are given."""

    def __init__(self, shape: FusedShape, tile: FusedTile, threads: int, itemsize: int, tensor: bool) -> None:
        self.shape, self.tile, self.threads = shape, tile, threads
        self.large = [shape.operand, shape.out]
        self.extents = {mode: extent for modes in (shape.operand, *shape.branches) for mode, extent in modes}
        self.itemsize = itemsize
        self.bank_bits = max(1, (BANK_BYTES // itemsize).bit_length() - 1)
        self.source = bit_strides(shape.operand, self.extents, itemsize)
        self.target = bit_strides(shape.out, self.extents, itemsize)
        inside = set(tile.modes).union(*(stage.n_modes for stage in tile.stages))
        self.load_bits = sorted(
            (bit for bit in self.source if bit[0] in tile.modes), key=self.source.__getitem__
        )
        self.store_bits = sorted(
            (bit for bit in self.target if bit[0] in inside), key=self.target.__getitem__
        )
        most_results = OUTPUTS_A_THREAD[itemsize]
        self.kinds = [stage_kind(stage, threads, most_results, tensor) for stage in tile.stages]
        n_warps = threads >> LANE_BITS
        self.warps = deal_warps(
            tile, self.kinds, self.extents, self.load_bits, self.store_bits, n_warps.bit_length() - 1
        )
        self.layout = BankLayoutSearch(
            tile, self.extents, self.bank_bits, self.kinds, self.load_bits, self.store_bits,
            self.warps.stages,
        ).best()  # fmt: skip

    def tables(self) -> FusedTables:
        """All tables."""
        load = self._walk(self.load_bits, self.warps.load, self.layout.positions[0], self.source)
        store = self._walk(self.store_bits, self.warps.store, self.layout.positions[-1], self.target)
        thread_place = [load.thread_place, store.thread_place]
        stages, branches = [], []
        taken = {True: 0, False: 0}
        for number, (stage, kind) in enumerate(zip(self.tile.stages, self.kinds, strict=True)):
            places, own = (self._tensor_stage if kind[0] == "TENSOR" else self._fma_stage)(number, kind)
            thread_place += own
            branches.append(self._branch(number))
            constant = kind[0] == "FMA" and kind[2] == stage.n
            first = taken[constant]
            stages.append(StageTables(kind, stage.k, stage.n, first, *(tuple(map(int, p)) for p in places)))
            taken[constant] += self._branch_bytes(number)
        near, far = self._starts()
        return FusedTables(
            stages=tuple(stages), load=(tuple(map(int, load.place)), tuple(map(int, load.offset))),
            store=(tuple(map(int, store.place)), tuple(map(int, store.offset))),
            thread_offset=np.stack([load.thread_offset, store.thread_offset], axis=1), near=near, far=far,
            thread_place=np.stack(thread_place).astype(np.uint16),
            branch_place=np.concatenate(branches).astype(np.uint16), constant_bytes=taken[True],
            branch_bytes=taken[False], meets=self.warps.meets, threads=self.threads,
            tile_bytes=self.tile.elements * self.itemsize,
        )  # fmt: skip

    def place(self, position: int) -> int:
        """The place of a bit at a position, in bytes."""
        # XOR swizzle: position p is address bit p; above the bits of the banks it also turns the bank. The
        # map from positions to places is linear over GF(2) and one to one.
        turn = 1 << position % self.bank_bits if position >= self.bank_bits else 0
        return (1 << position | turn) * self.itemsize

    def _places(self, bits: Sequence[Bit], positions: Mapping[Bit, int]) -> list[int]:
        return [self.place(positions[bit]) for bit in bits]

    def _walk(
        self, bits: Sequence[Bit], warps: Sequence[Bit], positions: Mapping[Bit, int],
        strides: Mapping[Bit, int],
    ) -> Walk:  # fmt: skip
        """A walk along `bits`, fastest first: the lowest are dealt to threads, the others to rounds. Where
        `warps` are given, lanes take the lowest and warps those.
        """
        # The fastest bits in memory go to lanes: a warp moves whole lines.
        lanes = bits[:LANE_BITS] if warps else ()
        bits = [*lanes, *warps, *(bit for bit in bits if bit not in lanes and bit not in warps)]
        n_own = min(len(bits), self.threads.bit_length() - 1)
        places = self._places(bits, positions)
        offsets = [strides[bit] for bit in bits]
        thread_place = np.full(self.threads, IDLE, np.int64)
        thread_place[: 1 << n_own] = combine(places[:n_own])
        thread_offset = np.zeros(self.threads, np.int64)
        thread_offset[: 1 << n_own] = combine(offsets[:n_own], np.add)
        return Walk(thread_place, thread_offset, combine(places[n_own:]), combine(offsets[n_own:], np.add))

    def _starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where tiles start in each of `large`, by the modes outside the tile: the fast ones, the others."""
        strides = [
            {mode: self.itemsize * stride for mode, stride in mode_strides(tensor).items()}
            for tensor in self.large
        ]
        near = np.zeros((1, len(strides)), np.int64)
        outer_modes = [entry for entry in self.shape.operand if entry[0] not in self.tile.modes]
        # Starts of tiles as sums of two small tables, near[t % len(near)] + far[t // len(near)], in place of
        # one of all tiles.
        while outer_modes and len(near) * outer_modes[-1][1] <= MOST_NEAR:
            near = _outer_sum(outer_modes.pop(), strides, near)
        far = np.zeros((1, len(strides)), np.int64)
        while outer_modes:
            far = _outer_sum(outer_modes.pop(), strides, far)
        return near, far

    def _fma_stage(self, number: int, kind: Kind) -> tuple[_Places, list[NDArray[np.int64]]]:
        """The places of a stage's rows, k and n; the first row's, and the first column, of each thread."""
        lanes, positions = self.layout.lanes[number], self.layout.positions[number]
        k, n = self._places(lanes.k, positions), self._places(lanes.n, self.layout.brought[number])
        return self._fma_places(self._places(lanes.rows, positions), k, n, kind)

    def _fma_places(
        self, rows: Sequence[int], k: Sequence[int], n: Sequence[int], kind: Kind
    ) -> tuple[_Places, list[NDArray[np.int64]]]:
        _, n_rows, n_columns = kind
        # Bits of rows from the fastest: lanes of a warp, rows of a thread, then warps; columns that a thread
        # cannot take go to further warps.
        n_own = LANE_BITS + n_rows.bit_length() - 1
        lane_places, group_places = combine(rows[:LANE_BITS]), combine(rows[n_own:])
        base = np.full(self.threads, IDLE, np.int64)
        column = np.zeros(self.threads, np.int64)
        column_groups = (1 << len(n)) // n_columns
        for warp in range(len(group_places) * column_groups):
            group, column_group = divmod(warp, column_groups)
            threads = slice(warp << LANE_BITS, (warp + 1) << LANE_BITS)
            base[threads] = lane_places ^ group_places[group]
            column[threads] = column_group * n_columns
        return (combine(rows[LANE_BITS:n_own]), combine(k), combine(n)), [base, column]

    def _tensor_stage(self, number: int, kind: Kind) -> tuple[_Places, list[NDArray[np.int64]]]:
        """The places of a stage's rows, k and n by fours; where each thread first reads and first writes."""
        lanes, positions = self.layout.lanes[number], self.layout.positions[number]
        _, groups, rounds = kind
        rows = self._places(lanes.rows, positions)
        k = self._places(lanes.k, positions)
        n = self._places(lanes.n, self.layout.brought[number])
        lane_rows = rows[:TENSOR_ROW_LANES]
        n_own = TENSOR_ROW_LANES + (2 * groups * rounds).bit_length() - 1
        warp_places = combine(rows[n_own:])
        sides = []
        for places in (k, n):
            side = np.full(self.threads, IDLE, np.int64)
            lane_places = combine([*places[:2], *lane_rows])
            for warp, warp_place in enumerate(warp_places):
                side[warp << LANE_BITS : (warp + 1) << LANE_BITS] = lane_places ^ warp_place
            sides.append(side)
        return (combine(rows[TENSOR_ROW_LANES:n_own]), combine(k[2:]), combine(n[2:])), sides

    def _branch(self, number: int) -> NDArray[np.int64]:
        """Where each element of a branch goes, in elements: k slow, n fast; on tensor cores see fused.cu."""
        lanes = self.layout.lanes[number]
        if self.kinds[number][0] == "TENSOR":
            return self._branch_places(number, [*lanes.n[:2], *lanes.k[:2], *lanes.n[2:], *lanes.k[2:]])
        return self._branch_places(number, [*lanes.n, *lanes.k])

    def _branch_places(self, number: int, order: Sequence[Bit]) -> NDArray[np.int64]:
        """The place of each element of a branch as it is stored; bits in this order, fastest first."""
        offset_of = {bit: 1 << number for number, bit in enumerate(order)}
        stored = bits_of([mode for mode, _ in self.shape.branches[number]], self.extents)
        return combine([offset_of[bit] for bit in stored])

    def _branch_bytes(self, number: int) -> int:
        """The bytes of a branch in constant or shared memory."""
        elements = self.tile.stages[number].k * self.tile.stages[number].n
        if self.kinds[number][0] == "TENSOR" and elements <= FRAGMENTS:
            return 2 * elements * FRAGMENT_BYTES
        return -(-elements * self.itemsize // FRAGMENT_BYTES) * FRAGMENT_BYTES


def _outer_sum(
    mode: tuple[int, int], strides: Sequence[Mapping[int, int]], inner: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The offsets of a slower mode and the faster ones in `inner` together, in each tensor."""
    step = np.array([side[mode[0]] for side in strides], np.int64)
    return (np.arange(mode[1])[:, None, None] * step + inner).reshape(-1, len(strides))


def bit_strides(
    modes: Sequence[tuple[int, int]], extents: Mapping[int, int], itemsize: int
) -> dict[Bit, int]:
    """The stride in bytes of every bit of modes whose extents are powers of two."""
    strides = mode_strides(modes)
    return {
        (mode, bit): itemsize * strides[mode] << bit
        for mode, extent in modes
        if extent & (extent - 1) == 0
        for bit in range(extents[mode].bit_length() - 1)
    }


def combine(terms: Sequence[int], both: np.ufunc = np.bitwise_xor) -> NDArray[np.int64]:
    """The XOR, or another sum, of every subset of `terms`, indexed by the subset, the first part the lowest
    bit."""
    # Doubling: the second half is the first with one more part, so that entry s has the parts of the bits of
    # s.
    table = np.zeros(1, np.int64)
    for term in terms:
        table = np.concatenate([table, both(table, term)])
    return table
