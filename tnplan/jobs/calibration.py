"""What one device does alone: copies, permutations, matrix products and fused chains, as rates.

Knows the device's interface and shapes; never schedules or profiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from statistics import median
from time import perf_counter

import numpy as np

from tnplan.common.arrays import ITEM_BYTES
from tnplan.executor.contraction.redistribute.packed import bind_redistribution
from tnplan.executor.contraction.redistribute.plan import Redistribution, ShardedTensor
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.copy import make_copy, row_major
from tnplan.executor.device.protocols.device import Call, ContractShape, Device, FusedShape, View
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.fusion_tile import FusedTile, fused_tile
from tnplan.planner.hardware.process_grid import Digit, prime_factors
from tnplan.planner.hardware.profile import RecordedRates, SmallProductTimes

# Seconds of bound calls on a device, and random values that fill it. Knows the device's interface alone.


WARM_UPS = 2
REPEATS = 5
LEAST_CALL_S = 1e-4
FILL_ELEMENTS = 1 << 22


def seconds(device: Device, call: Call, repeats: int) -> float:
    """The median seconds of a call, by the device's own clock."""
    for _ in range(WARM_UPS):
        call()
    marks = device.marks(2 * repeats)
    for first, second in zip(marks[::2], marks[1::2], strict=True):
        device.mark(first)
        call()
        device.mark(second)
    device.synchronize()
    return median(device.elapsed_s(*pair) for pair in zip(marks[::2], marks[1::2], strict=True))


def recorded_seconds(device: Device, call: Call, count: int) -> float:
    """The median seconds of a recorded run of so many equal calls, one after the other, on an idle device."""
    call()
    replay = device.recorded([call] * count)
    marks, times = device.marks(2), []
    for _ in range(WARM_UPS + REPEATS):
        device.synchronize()
        device.mark(marks[0])
        replay()
        device.mark(marks[1])
        device.synchronize()
        times.append(device.elapsed_s(*marks))
    return median(times[WARM_UPS:])


def sustained_seconds(device: Device, call: Call, least_s: float) -> float:
    """The median seconds of a call once calls have gone on for about `least_s`, as in a long run.

    A device lowers its clocks then to keep to its power limit.
    """
    once_s = seconds(device, call, 1)
    for _ in range(round(least_s / max(once_s, LEAST_CALL_S))):
        call()
    return seconds(device, call, REPEATS)


def fill(device: Device, view: View, dtype: str, seed: int) -> None:
    """Normal random numbers, repeated where the view is long: zeros would flatter the device."""
    chance = np.random.default_rng(seed)
    count = min(len(view), FILL_ELEMENTS)
    values = chance.standard_normal(count)
    if dtype.startswith("complex"):
        values = values + 1j * chance.standard_normal(count)
    values = values.astype(dtype)
    for first in range(0, len(view), count):
        piece = view[first : first + count]
        device.from_host(piece, values[: len(piece)])


SUSTAINED_S = 0.3
SUSTAINED_K = 64
"""From this k on products are measured once they have gone on for so long: they may draw all the power that a
device is allowed, and lower its clocks."""
LAUNCHES = 300
FEW_CALLS, MANY_CALLS = 8, 200
"""Calls of recorded runs from whose times the time of each is told from that of their start."""
SMALL_SIDES, SMALL_K = (8, 64), (2, 8, 32, 128, 512, 2048, 8192)
"""Extents of small products, which leave most of a GPU idle: their time is that of one block."""
LARGEST_FLOPS = 4e12
"""Real operations of one measured product at most."""
PRODUCT_K = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
LONG_K = 512
"""The k of products that draw all the power that a device is allowed."""
LEAST_LENGTH = 8
"""m is about so many times k at least."""
CHAINS = (
    (3,) * 3, (3,) * 4, (3,) * 5, (3,) * 6, (2,) * 5, (3, 2, 3, 3), (3, 4, 3), (4, 3, 3, 3), (4, *(3,) * 7),
    (4, 4, 3), (5, 5), (6,),
)  # fmt: skip
"""Fused chains that are measured: log2 of k (and n) of each branch. Slices of circuits and lattices spend
their time in chains of these kinds. One small branch alone would tell nothing: its work on chip hides behind
the memory."""


POWER_CHAIN = (3,) * 3
"""The chain whose power is measured: on an H200 that of whole slices lies as high, longer ones take less."""


@dataclass(frozen=True)
class ChainTime:
    """One fused chain: bytes read and written and the runs that they lie in, bytes moved on chip, real
    operations, seconds."""

    side_bytes: float
    run_bytes: tuple[float, float]
    tile_bytes: float
    flops: float
    time_s: float


class LocalBench:
    """A device with two buffers of `size_bytes` each and one of `spare_bytes`, where products have their tile
    of `tile_bytes`."""

    def __init__(self, device: Device, size_bytes: int, spare_bytes: int, tile_bytes: int) -> None:
        self.device = device
        self.size_bytes = size_bytes
        self.tile_bytes = tile_bytes
        device.allocate(2 * size_bytes + spare_bytes)
        fill(device, device.view(0, 2 * size_bytes // 4, "float32"), "float32", 1)

    def _view(self, place: int, count: int, dtype: str) -> View:
        """The first `count` elements of buffer 0 or 1, or of the workspace (2)."""
        return self.device.view(place * self.size_bytes, count, dtype)

    def copy_bytes_per_s(self) -> float:
        """Bytes read and written a second by a plain copy."""
        count = self.size_bytes // 8
        copy = make_copy([(count, 1, 1)])
        call = self.device.bind_copy(
            self._view(1, count, "complex64"), self._view(0, count, "complex64"), copy
        )
        return 2 * self.size_bytes / seconds(self.device, call, REPEATS)

    def permute_bytes_per_s(self, dtype: str) -> float:
        """Bytes read and written a second by a permutation that merges two runs of binary modes."""
        call, moved_bytes = self._permutation(dtype)
        return moved_bytes / seconds(self.device, call, REPEATS)

    def calls_by_kind(self, chain_bytes: int) -> dict[str, Call]:
        """A long product, a chain with tiles of so many bytes (0: the product) and a permutation."""
        k = min(self.product_extents("complex64")[-1], LONG_K)
        long_product = self._product("complex64", "fp32", k, False)[0]
        chain = self._chain("complex64", "fp32", POWER_CHAIN, chain_bytes) if chain_bytes else None
        return {
            "contract": long_product,
            "chain": long_product if chain is None else chain[0],
            "permute": self._permutation("complex64")[0],
        }

    def _permutation(self, dtype: str) -> tuple[Call, int]:
        """A call that merges two runs of binary modes, and the bytes that it reads and writes."""
        rank = (self.size_bytes // ITEM_BYTES[dtype]).bit_length() - 1
        sources = row_major((2,) * rank)
        order = [*range(0, rank, 2), *range(1, rank, 2)]
        targets = dict(zip(order, row_major((2,) * rank), strict=True))
        copy = make_copy([(2, sources[mode], targets[mode]) for mode in range(rank)])
        count = 1 << rank
        call = self.device.bind_copy(self._view(1, count, dtype), self._view(0, count, dtype), copy)
        return call, 2 * count * ITEM_BYTES[dtype]

    def launch_s(self) -> float:
        """Seconds of a contraction without work worth the name, the host included: the mean of many."""
        views = [self._view(place, 64, "complex64") for place in (0, 1)]
        shape = ContractShape((), ((4, 4),), ((4, 1),), 4)
        out = self._view(1, 128, "complex64")[64:80]
        call = self.device.bind_contract(shape, views[0][:16], views[1][:16], out, None)
        call()
        self.device.synchronize()
        start = perf_counter()
        for _ in range(LAUNCHES):
            call()
        self.device.synchronize()
        return (perf_counter() - start) / LAUNCHES

    def recorded_rates(self) -> RecordedRates:
        """What a recorded run takes to start, and each small permutation in it."""
        side = SMALL_SIDES[0]
        target, source = (self._view(place, side * side, "complex64") for place in (1, 0))
        copy = self.device.bind_copy(target, source, make_copy([(side, 1, side), (side, side, 1)]))
        few_s, many_s = (recorded_seconds(self.device, copy, count) for count in (FEW_CALLS, MANY_CALLS))
        copy_s = max(many_s - few_s, 0.0) / (MANY_CALLS - FEW_CALLS)
        return RecordedRates(max(few_s - FEW_CALLS * copy_s, 0.0), copy_s)

    def small_product_times(self, dtype: str, precision: str, start_s: float) -> SmallProductTimes:
        """Seconds of each of many small products in a recorded run, which takes `start_s` besides."""
        most = self.size_bytes // (2 * ITEM_BYTES[dtype] * SMALL_SIDES[-1])
        extents = tuple(k for k in SMALL_K if k <= most)
        return SmallProductTimes(
            SMALL_SIDES, extents,
            tuple(
                tuple(self._small_product_s(dtype, precision, side, k, start_s) for k in extents)
                for side in SMALL_SIDES
            ),
        )  # fmt: skip

    def _small_product_s(self, dtype: str, precision: str, side: int, k: int, start_s: float) -> float:
        a, c = self._view(0, side * k, dtype), self._view(1, side * side, dtype)
        b = self.device.view(self.size_bytes // 2, side * k, dtype)
        shape = ContractShape((), ((side, side),), ((side, 1),), k)
        call = self.device.bind_contract(shape, a, b, c, None, precision)
        run_s = recorded_seconds(self.device, call, MANY_CALLS)
        # A run takes more than half of its time for its calls, however its start varies.
        return max(run_s - start_s, run_s / 2) / MANY_CALLS

    def product_extents(self, dtype: str) -> tuple[int, ...]:
        """The k that products are measured at: those whose operands are long beside them."""
        return tuple(k for k in PRODUCT_K if LEAST_LENGTH * k * k * ITEM_BYTES[dtype] <= self.size_bytes)

    def product_flop_per_s(self, dtype: str, precision: str, k: int, scattered: bool) -> float:
        """Real operations a second of a product with n = k; `scattered`: c holds m and n in four runs."""
        call, flops = self._product(dtype, precision, k, scattered)
        return flops / sustained_seconds(self.device, call, SUSTAINED_S if k >= SUSTAINED_K else 0.0)

    def _product(self, dtype: str, precision: str, k: int, scattered: bool) -> tuple[Call, int]:
        """The call of such a product, and its real operations."""
        item, per_product = ITEM_BYTES[dtype], FLOPS_PER_PRODUCT[dtype]
        most_rows = self.size_bytes // item // k - k
        m = 1 << min(most_rows, int(LARGEST_FLOPS / (per_product * k * k))).bit_length() - 1
        n_parts, m_parts = _halves(k), _halves(m)
        order = (0, 2, 1, 3) if scattered else (0, 1, 2, 3)
        extents = (m_parts[0], m_parts[1], n_parts[0], n_parts[1])
        strides = dict(zip(order, row_major([extents[run] for run in order]), strict=True))
        shape = ContractShape(
            (), tuple((extents[run], strides[run]) for run in (0, 1)),
            tuple((extents[run], strides[run]) for run in (2, 3)), k,
        )  # fmt: skip
        workspace = self._view(2, self.tile_bytes // item, dtype) if scattered else None
        a, c = self._view(0, m * k, dtype), self._view(1, m * k, dtype)
        b = self.device.view(self.size_bytes - k * k * item, k * k, dtype)
        fill(self.device, a, dtype, 2)
        fill(self.device, b, dtype, 3)
        call = self.device.bind_contract(shape, a, b, c, workspace, precision)
        return call, per_product * m * k * k

    def chain_time(
        self, dtype: str, precision: str, logs: Sequence[int], capacity_bytes: int
    ) -> ChainTime | None:
        """A chain with binary modes and n = k = 2^log for each branch; None where it has no tile."""
        bound = self._chain(dtype, precision, logs, capacity_bytes)
        if bound is None:
            return None
        call, count, tile = bound
        item, time_s = ITEM_BYTES[dtype], sustained_seconds(self.device, call, SUSTAINED_S)
        flops = sum(FLOPS_PER_PRODUCT[dtype] * count * stage.n for stage in tile.stages)
        runs = (tile.runs[0] * item, tile.runs[1] * item)
        return ChainTime(count * item, runs, 2 * count * item * (len(logs) + 1), flops, time_s)

    def _chain(
        self, dtype: str, precision: str, logs: Sequence[int], capacity_bytes: int
    ) -> tuple[Call, int, FusedTile] | None:
        """The call of such a chain, its elements and its tile."""
        item = ITEM_BYTES[dtype]
        rank = (self.size_bytes // item).bit_length() - 2
        shape = chain_shape(rank, logs)
        tile = fused_tile(shape.operand, shape.branches, shape.out, capacity_bytes // item)
        if tile is None:
            return None
        count = 1 << rank
        operand, out = self._view(0, count, dtype), self._view(1, count, dtype)
        fill(self.device, operand, dtype, 4)
        branches = []
        cursor = self.size_bytes
        for branch in shape.branches:
            size = prod(extent for _, extent in branch)
            cursor -= size * item
            branches.append(self.device.view(cursor, size, dtype))
            fill(self.device, branches[-1], dtype, 5)
        call = self.device.bind_fused(shape, operand, branches, out, capacity_bytes, precision)
        return call, count, tile


def chain_shape(rank: int, logs: Sequence[int]) -> FusedShape:
    """A chain as trees have it: a branch sums the innermost modes, and brings as many into outer places."""
    modes = list(range(rank))
    branches, fresh = [], rank
    for log in logs:
        summed, modes = modes[len(modes) - log :], modes[: len(modes) - log]
        brought = list(range(fresh, fresh + log))
        fresh += log
        for number, mode in enumerate(brought):
            modes.insert(len(modes) - 2 - 3 * number, mode)
        branches.append(tuple((mode, 2) for mode in (*brought, *summed)))
    return FusedShape(
        tuple((mode, 2) for mode in range(rank)), tuple(branches), tuple((mode, 2) for mode in modes)
    )


def _halves(extent: int) -> tuple[int, int]:
    """Two factors of a power of two, the second the larger."""
    low = 1 << (extent.bit_length() - 1) // 2
    return low, extent // low


# Figures of the cost model from measured times. Pure arithmetic.
#
# A chain takes the root of (memory time)^2 + (time on chip)^2, the latter being its bytes on chip over one
# rate and its operations over another: see `tnplan.planner.hardware.cost.CostModel.fused_s`.


FREE = 1e18
"""Bytes or operations a second of what costs no time."""
LEAST_SHARE = 0.1
"""A chain tells of the work on chip only where what is left of its time is more than this share."""


def chip_rates(
    chains: Sequence[ChainTime], memory_bytes_per_s: float, short_run_bytes: float
) -> tuple[float, float]:
    """Bytes on chip and operations a second, by least squares of the relative errors of whole times, neither
    below 0 seconds.

    On chip is what the memory's time leaves of a chain's, as a root of squares. A device hides more than that
    behind the memory, so that where little is left it says little; an error of it changes the chain's time by
    its share of the square, which is its weight.

    Raises ValueError where chains are no slower than the memory.
    """
    rows, weights = [], []
    for chain in chains:
        slower = sum(1 + (short_run_bytes / run_bytes) ** 2 for run_bytes in chain.run_bytes)
        square = chain.time_s**2 - (chain.side_bytes * slower / memory_bytes_per_s) ** 2
        chip_s = sqrt(max(square, 0.0))
        if chip_s > LEAST_SHARE * chain.time_s:
            weight = (chip_s / chain.time_s) ** 2
            rows.append((weight * chain.tile_bytes / chip_s, weight * chain.flops / chip_s))
            weights.append(weight)
    if len(rows) < 2:
        raise ValueError("fused chains take no longer than the memory: nothing to fit")
    table, wanted = np.array(rows), np.array(weights)
    both = np.linalg.lstsq(table, wanted, rcond=None)[0]
    alone = wanted @ table / (table**2).sum(axis=0)
    if both[0] < 0:
        both = np.array([0.0, alone[1]])
    elif both[1] < 0:
        both = np.array([alone[0], 0.0])
    rates = 1 / np.maximum(both, 1 / FREE)
    return float(rates[0]), float(rates[1])


def redistribution_rate(swap: RedistributionTime, permute_bytes_per_s: float) -> float:
    """Bytes received a second, once the time to copy what a rank keeps is taken off."""
    kept_s = 2 * swap.kept_bytes / permute_bytes_per_s
    return swap.received_bytes / max(swap.time_s - kept_s, swap.time_s / 2)


# What devices do together: the seconds of changes of layout, through the executor's own exchange.
#
# Knows layouts and the interfaces of devices and communicators; never schedules or profiles.


DTYPE = "complex64"
ITEMSIZE = ITEM_BYTES[DTYPE]


@dataclass(frozen=True)
class RedistributionTime:
    """A change of layout: bytes that a rank receives, and keeps, and seconds on the slowest rank."""

    received_bytes: int
    kept_bytes: int
    time_s: float


def redistribution_time(
    device: Device, communicator: Communicator, shard_bytes: int, buffer_bytes: int, workspace_bytes: int
) -> RedistributionTime:
    """Every digit of the grid moves from the slowest modes of a tensor to the next ones; collective.

    Source, result and workspace lie at bytes 0, `buffer_bytes` and 2 `buffer_bytes` of the arena.
    """
    radices = prime_factors(communicator.size)
    inner = shard_bytes // (ITEMSIZE * communicator.size)
    extents = dict(enumerate((*radices, *radices, inner)))
    modes = tuple(extents)
    before, after = modes[: len(radices)], modes[len(radices) : -1]

    count = prod(radices) * inner
    source, out = (device.view(place * buffer_bytes, count, DTYPE) for place in (0, 1))
    workspace = device.view(2 * buffer_bytes, workspace_bytes // ITEMSIZE, DTYPE)
    arena = device.view(0, 2 * buffer_bytes + workspace_bytes, "uint8")
    change = Redistribution(
        ShardedTensor(modes, before), ShardedTensor(modes, after, (), buffer_bytes), extents,
        tuple(Digit(radix, 0) for radix in radices), communicator.rank,
    )  # fmt: skip
    call = bind_redistribution(
        change, device, communicator, (source, out), workspace, communicator.open_memory(arena),
    )  # fmt: skip
    communicator.connect()
    communicator.barrier()
    times = communicator.gather_objects(seconds(device, call, REPEATS))
    communicator.close_memory()
    kept_bytes = inner * ITEMSIZE
    return RedistributionTime(count * ITEMSIZE - kept_bytes, kept_bytes, max(times))
