"""The tables of the backward pass through a fused chain: what each thread of adjoint.cu moves and works on.

Values and cotangents lie in their tiles as a chain's steps leave them there. A step back reads what the step
wrote and writes where that read, so that the layout of the chain serves both ways. Pure arithmetic; knows no
device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import inf

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cuda.fused.bank_layout import LANE_BITS, Bit, Kind, stage_kind
from tnplan.executor.device.cuda.fused.tables import (
    IDLE,
    StageTables,
    TableBuilder,
    Walk,
    bit_strides,
    chain_tile,
    combine,
)
from tnplan.executor.device.protocols.device import AdjointShape
from tnplan.planner.hardware.fusion_tile import ADJOINT_TILE_BYTES, FusedStage, FusedTile, fused_tile

LANES = 1 << LANE_BITS
RESULTS_A_THREAD = {4: 16, 8: 8, 16: 4}
"""By bytes an element: elements of a tile that come to a thread. Half of those of a chain one way: on an H100
more warps hid more of what is waited for."""
MOST_SIDE = 4
"""k and n of a block of results that a lane sums at once, at most."""
MOST_ROW_BITS = 8
"""So many bits of rows are tried as those of lanes."""


@dataclass(frozen=True)
class GradientTables:
    """The gradient of one branch: k and n of a block of results, the lanes that share one, blocks of a lane,
    its rounds over rows and its first sum; the places of rounds, and of every block's first k and n."""

    k: int
    n: int
    row_lanes: int
    blocks: int
    rounds: int
    first: int
    round_place: tuple[int, ...]
    block_k_place: tuple[int, ...]
    block_n_place: tuple[int, ...]


@dataclass(frozen=True)
class AdjointTables:
    """What the kernel is made with and reads, as adjoint.cu says; places, offsets and starts in bytes.

    `stages` are those of all steps there, and then of all steps back; `gradients` one a step. `load`, `store`
    and `back` are the places and offsets of the elements of the operand, of the cotangent of the result and
    of that of the operand. `thread_offset`, `near` and `far` have a column for each of these. `slots`: of
    each sum of each thread the number of its result. Results are the gradients in turn, in the order of
    steps, [k | n] each; `result_order[s]` is the element of branch s of each, and an element has `parts` of
    `part_bytes`.
    Else as `FusedTables`.
    """

    stages: tuple[StageTables, ...]
    gradients: tuple[GradientTables, ...]
    load: tuple[tuple[int, ...], tuple[int, ...]]
    store: tuple[tuple[int, ...], tuple[int, ...]]
    back: tuple[tuple[int, ...], tuple[int, ...]]
    thread_offset: NDArray[np.int64]
    near: NDArray[np.int64]
    far: NDArray[np.int64]
    thread_place: NDArray[np.uint16]
    branch_place: NDArray[np.uint16]
    slots: NDArray[np.uint16]
    result_order: tuple[NDArray[np.int64], ...]
    constant_bytes: int
    branch_bytes: int
    threads: int
    tile_bytes: int
    parts: int
    part_bytes: int

    @property
    def steps(self) -> int:
        """The steps of the chain."""
        return len(self.gradients)

    @property
    def images(self) -> int:
        """The tiles of values that gradients need."""
        return max((number + 1 for number, order in enumerate(self.result_order) if len(order)), default=0)

    @property
    def n_tiles(self) -> int:
        """The tiles of the whole operand."""
        return len(self.near) * len(self.far)

    @property
    def n_results(self) -> int:
        """The numbers that all gradients hold together."""
        return self.parts * sum(map(len, self.result_order))

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: tiles of values and of the cotangent, branches, places of threads; at
        the end all results."""
        needed = (self.images + 1) * self.tile_bytes + self.branch_bytes + self.thread_place.nbytes
        return max(needed, self.n_results * self.part_bytes)


@lru_cache(maxsize=1024)
def adjoint_tables(shape: AdjointShape, capacity: int, dtype: str, block_bytes: float = inf) -> AdjointTables:
    """The tables for tiles of at most `capacity` elements, of `ADJOINT_TILE_BYTES` where the chain fits, or
    smaller ones where a block has no more than `block_bytes` of shared memory and the chain has such tiles.

    Several tiles share a block's memory, so that smaller ones leave more blocks to hide each other's loads.
    Raises ValueError where the chain has no tile.
    """
    chain, itemsize = shape.chain, np.dtype(dtype).itemsize
    small = min(capacity, ADJOINT_TILE_BYTES // itemsize)
    smallest = fused_tile(chain.operand, chain.branches, chain.out, small)
    tile = smallest or chain_tile(chain, capacity)
    size = small if smallest else capacity
    # Halved until a block can hold all images of the tile: values that gradients need, and one cotangent.
    while True:
        threads = size // RESULTS_A_THREAD[itemsize]
        tables = _Builder(shape, tile, threads, dtype).adjoint_tables()
        size //= 2
        smaller = fused_tile(chain.operand, chain.branches, chain.out, size)
        if tables.shared_bytes <= block_bytes or smaller is None or threads == LANES:
            return tables
        tile = smaller


def steps_that_run(shape: AdjointShape) -> tuple[range, range]:
    """The steps that are made again, up to the last value that a gradient needs, and those that the cotangent
    is taken back through, down to the operand or to the first gradient."""
    wanted = [number for number, modes in enumerate(shape.gradients) if modes is not None]
    last = max(wanted, default=0)
    first = 0 if shape.back is not None else min(wanted, default=len(shape.gradients)) + 1
    return range(last), range(first, len(shape.gradients))


class _Builder(TableBuilder):
    def __init__(self, shape: AdjointShape, tile: FusedTile, threads: int, dtype: str) -> None:
        itemsize = np.dtype(dtype).itemsize
        super().__init__(shape.chain, tile, threads, itemsize, False)
        back = shape.chain.operand if shape.back is None else shape.back
        self.large = [shape.chain.operand, shape.chain.out, back]
        self.adjoint, self.parts = shape, 2 if dtype.startswith("complex") else 1
        self.back_strides = bit_strides(back, self.extents, itemsize)
        self.back_bits = sorted(self.load_bits, key=self.back_strides.__getitem__)
        # A step back is a step with k and n exchanged: it sums what the step brought and brings what it
        # summed.
        self.turned = [
            FusedStage(stage.n_modes, stage.k_modes, stage.n, stage.k, stage.elements_out, stage.elements_in)
            for stage in tile.stages
        ]

    def adjoint_tables(self) -> AdjointTables:
        """All tables."""
        walks = (
            self._walk(self.load_bits, (), self.layout.positions[0], self.source),
            self._walk(self.store_bits, (), self.layout.positions[-1], self.target),
            self._walk(self.back_bits, (), self.layout.positions[0], self.back_strides),
        )
        thread_place = [walk.thread_place for walk in walks]
        self.taken, self.branches = {True: 0, False: 0}, list[NDArray[np.int64]]()
        stages, n_steps = [], len(self.tile.stages)
        forward, back = steps_that_run(self.adjoint)
        for number, kind in enumerate(self.kinds):
            places, own = self._fma_stage(number, kind)
            lanes, stage = self.layout.lanes[number], self.tile.stages[number]
            bits = [*lanes.n, *lanes.k] if number in forward else None
            stages.append(self._stage(number, stage, kind, places, bits))
            thread_place += own
        # Read where the step wrote, written where it read: the layout of the chain serves both ways, and no
        # tile is moved between the two.
        for number, stage in enumerate(self.turned):
            kind = stage_kind(stage, self.threads, RESULTS_A_THREAD[self.itemsize], tensor=False)
            lanes, positions = self.layout.lanes[number], self.layout.positions[number]
            k, n = self._places(lanes.n, self.layout.brought[number]), self._places(lanes.k, positions)
            places, own = self._fma_places(self._places(lanes.rows, positions), k, n, kind)
            bits = [*lanes.k, *lanes.n] if number in back else None
            stages.append(self._stage(number, stage, kind, places, bits))
            thread_place += own
        gradients, slots, orders = [], list[NDArray[np.int64]](), []
        n_results = 0
        for number in range(n_steps):
            gradient, own, sums, order = self._gradient(number, sum(map(len, slots)), n_results)
            if self.adjoint.gradients[number] is None:
                sums, order = sums[:0], order[:0]
            gradients.append(gradient)
            thread_place += own
            slots.append(sums)
            orders.append(order)
            n_results += self.parts * len(order)
        near, far = self._starts()
        return AdjointTables(
            stages=tuple(stages),
            gradients=tuple(gradients),
            load=_walked(walks[0]), store=_walked(walks[1]), back=_walked(walks[2]),
            thread_offset=np.stack([walk.thread_offset for walk in walks], axis=1),
            near=near,
            far=far,
            thread_place=np.stack(thread_place).astype(np.uint16),
            branch_place=np.concatenate([*self.branches, np.zeros(0, np.int64)]).astype(np.uint16),
            slots=np.concatenate([*slots, np.zeros((0, self.threads), np.int64)]).astype(np.uint16),
            result_order=tuple(orders),
            constant_bytes=self.taken[True],
            branch_bytes=self.taken[False],
            threads=self.threads,
            tile_bytes=self.tile.elements * self.itemsize,
            parts=self.parts,
            part_bytes=self.itemsize // self.parts,
        )  # fmt: skip

    def _stage(
        self, number: int, stage: FusedStage, kind: Kind, places: Sequence[NDArray[np.int64]],
        order: Sequence[Bit] | None,
    ) -> StageTables:  # fmt: skip
        """The tables of a stage; its branch takes a place in memory in an order of bits, or is not read."""
        whole = kind[2] == stage.n
        first = self.taken[whole]
        if order is not None:
            self.branches.append(self._branch_places(number, order))
            self.taken[whole] += self._branch_bytes(number)
        return StageTables(kind, stage.k, stage.n, first, *(tuple(map(int, values)) for values in places))

    def _gradient(
        self, number: int, first: int, first_result: int
    ) -> tuple[GradientTables, list[NDArray[np.int64]], NDArray[np.int64], NDArray[np.int64]]:
        """The tables of a gradient, the places of threads, the results of their sums, and their elements."""
        stage, lanes = self.tile.stages[number], self.layout.lanes[number]
        of_lane, rows, side_k, side_n = self._lane_bits(number)
        # Bits of a result are dealt to: the block of a lane (`inner`), the lanes of a warp (`of_lane`), the
        # blocks of a warp and the warps; bits of rows, over which the gradient sums, to lanes, warps and
        # rounds.
        inner = {*lanes.k[: side_k.bit_length() - 1], *lanes.n[: side_n.bit_length() - 1], *of_lane}
        lane = self._sides(number, of_lane)
        block = self._sides(number, [bit for bit in (*lanes.n, *lanes.k) if bit not in inner])
        n_blocks, n_warps = len(block.value), self.threads // LANES
        of_warp = max(1, n_blocks // n_warps)
        of_others = [bit for bit in rows if bit not in of_lane]
        left = combine(self._places(of_others, self.layout.positions[number]))
        groups = max(1, min(n_warps // n_blocks, len(left)))
        rounds = len(left) // groups
        row_lanes = 1 << sum(bit in rows for bit in of_lane)
        # Lanes that share a block hold sums over different rows; after an exchange within the warp each of
        # them has `n_sums` of the block's sums.
        row_lane = np.arange(LANES) * row_lanes // LANES
        places = [np.full(self.threads, IDLE, np.int64) for _ in range(2)]
        count = side_k * side_n * self.parts
        n_sums = max(1, count // row_lanes)
        slots = np.full((of_warp * n_sums, self.threads), IDLE, np.int64)
        # Invariant: places are XORs of the places of bits, so that parts for lane, block and row combine by
        # XOR.
        for warp in range(min(n_warps, n_blocks // of_warp * groups)):
            own, row = warp // groups * of_warp, left[warp % groups * rounds]
            mine = slice(warp * LANES, (warp + 1) * LANES)
            places[0][mine] = lane.value ^ block.value[own] ^ row
            places[1][mine] = lane.cotangent ^ block.cotangent[own] ^ row
            for in_warp, i in product(range(of_warp), range(n_sums)):
                value = row_lane * count // row_lanes + i
                element, component = value // self.parts, value % self.parts
                at_k = element // side_n ^ lane.k ^ block.k[own + in_warp]
                at_n = element % side_n ^ lane.n ^ block.n[own + in_warp]
                result = first_result + (at_k * stage.n + at_n) * self.parts + component
                # With fewer sums than lanes that share them only the first lane of each sum writes it.
                is_first = row_lane * count % row_lanes == 0
                slots[in_warp * n_sums + i, mine] = np.where(is_first, result, IDLE)
        gradient = GradientTables(
            side_k, side_n, row_lanes, of_warp, rounds, first, tuple(map(int, left[:rounds])),
            tuple(map(int, block.value[:of_warp])), tuple(map(int, block.cotangent[:of_warp])),
        )  # fmt: skip
        # Elements of the branch by their place [k | n], n fast.
        order = np.argsort(self._branch_places(number, [*lanes.n, *lanes.k]))
        return gradient, places, slots, order

    def _lane_bits(self, number: int) -> tuple[list[Bit], set[Bit], int, int]:
        """The bits that tell the lanes of a warp apart in a gradient, those of rows, and k and n of a block.

        Neighbours have blocks beside each other where there are any. Of the bits of rows those are taken with
        which lanes meet in the fewest banks.
        """
        stage, lanes = self.tile.stages[number], self.layout.lanes[number]
        side_k, side_n = map(_side, (stage.k, stage.n))
        beside = lanes.n[side_n.bit_length() - 1 :], lanes.k[side_k.bit_length() - 1 :]
        choices = [[[bit] for bit in bits] or [[]] for bits in beside]
        best: tuple[int, list[Bit]] | None = None
        for n_bits, k_bits in product(*choices):
            count = LANE_BITS - len(n_bits) - len(k_bits)
            for rows in combinations(lanes.rows[:MOST_ROW_BITS], count):
                lane_bits = [*n_bits, *k_bits, *rows]
                lost = self._lost(number, lane_bits)
                if best is None or lost < best[0]:
                    best = lost, lane_bits
        assert best is not None
        return best[1], set(lanes.rows), side_k, side_n

    def _lost(self, number: int, bits: Sequence[Bit]) -> int:
        """How often lanes that differ in these bits wait for each other, in both tiles."""
        lanes, before = self.layout.lanes[number], self.layout.positions[number]
        brought, lost = self.layout.brought[number], 0
        # The value has bits of rows and k, the cotangent bits of rows and n: lanes that differ only in the
        # others read the same word there, which is no conflict.
        for other, positions in ((lanes.n, before), (lanes.k, {**before, **brought})):
            apart = [positions[bit] % self.bank_bits for bit in bits if bit not in other][: self.bank_bits]
            lost += (1 << len(apart) - len(set(apart))) - 1
        return lost

    def _sides(self, number: int, bits: Sequence[Bit]) -> _Sides:
        """What every value of some bits adds to places in both tiles, and to k and n."""
        lanes, positions, brought = (
            self.layout.lanes[number],
            self.layout.positions[number],
            self.layout.brought[number],
        )
        value, cotangent, k, n = [], [], [], []
        for bit in bits:
            in_k, in_n = bit in lanes.k, bit in lanes.n
            value.append(0 if in_n else self.place(positions[bit]))
            cotangent.append(0 if in_k else self.place(brought[bit] if in_n else positions[bit]))
            k.append(1 << lanes.k.index(bit) if in_k else 0)
            n.append(1 << lanes.n.index(bit) if in_n else 0)
        return _Sides(*map(combine, (value, cotangent, k, n)))


@dataclass(frozen=True)
class _Sides:
    """Places in the tiles of the value and of the cotangent, and k and n, by the values of some bits."""

    value: NDArray[np.int64]
    cotangent: NDArray[np.int64]
    k: NDArray[np.int64]
    n: NDArray[np.int64]


def _side(extent: int) -> int:
    """k or n of a block of results: half of few, so that neighbours share what they read."""
    return min(MOST_SIDE, max(extent // 2, min(extent, 2)))


def _walked(walk: Walk) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(map(int, walk.place)), tuple(map(int, walk.offset))
