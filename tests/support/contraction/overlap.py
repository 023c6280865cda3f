"""Random stems whose spread modes must be swapped between chains, and ranks that see each other's arrays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from math import inf

import numpy as np

from tests.support.contraction.executor import contract_pairwise
from tests.support.contraction.fused import fusing_profile
from tests.support.networks import TOLERANCE
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.communicator import OverlappedExchange
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.data_flow import overlapped_rows
from tnplan.planner.schedule.schedule import Redistribute, Schedule


def hiding_profile(fused_bytes: int) -> Profile:
    """The fusing machine in one node, with slow links, whose kernel is busy with a single tile."""
    made = fusing_profile(fused_bytes)
    link = replace(made.tiers[0], devices=64, bytes_per_s=5e8)
    return replace(made, fused_tiles=1, tiers=(link, made.tiers[1]))


def swapping_path(seed: int) -> ContractionPath:
    """A stem of 10 to 12 binary modes whose modes are summed in turn while others come; some are sliced."""
    chance = random.Random(seed)
    names = iter(f"i{number}" for number in range(1000))
    held = [next(names) for _ in range(chance.randint(10, 12))]
    terms = [tuple(held)]
    for _ in range(chance.randint(8, 16)):
        oldest = held[: chance.randint(2, 4)]
        summed = chance.sample(oldest, chance.randint(1, 2))
        fresh = [next(names) for _ in range(len(summed) + chance.choice((-1, 0, 0, 0, 1)))]
        branch = summed + fresh
        chance.shuffle(branch)
        terms.append(tuple(branch))
        held = [index for index in held if index not in summed] + fresh
    n_terms = len(terms)
    steps = [(0, 1), *((n_terms + number, number + 2) for number in range(n_terms - 2))]
    n_open = chance.choice((0, 2, len(held)))
    output = tuple(chance.sample(held, n_open))
    closing = [index for index in held if index not in output]
    if closing:
        terms.append(tuple(closing))
        steps = [tuple(t + (t >= n_terms) for t in step) for step in steps]
        steps.append((n_terms + n_terms - 1, n_terms))
    sizes = {index: 2 for term in terms for index in term}
    inside = [index for index in sizes if index not in output]
    sliced = tuple(index for index in inside if chance.random() < 0.02)
    network = Network(tuple(terms), output, sizes)
    return ContractionPath(network, tuple(steps), sliced, chance.choice(DTYPES), f"swapping {seed}")


def planned(path: ContractionPath, ranks: int, profile: Profile, memory_bytes: float = inf) -> Schedule:
    """The schedule of one group."""
    return plan(
        path, profile, devices=ranks, ranks_per_group=ranks, memory_bytes=memory_bytes, threshold_bytes=1
    )


def in_parts(schedule: Schedule) -> Iterator[Redistribute]:
    """The exchanges of a schedule that go in parts."""
    for item in schedule.instructions:
        if isinstance(item, Redistribute) and item.parts > 1:
            yield item


def agree(schedule: Schedule, path: ContractionPath, arrays: list[np.ndarray], *results: np.ndarray) -> bool:
    """Whether results of a schedule, with its exchanges whole and in parts, are the same bits.

    Where a chain that closes goes in parts, these are added up in the order in which they come: up to the
    rounding of that sum.
    """
    first, *others = results
    if not closes_in_parts(schedule):
        return all(np.array_equal(first, other) for other in others)
    scale = contract_pairwise(path, [np.abs(array.astype(complex)) for array in arrays])
    limit = TOLERANCE[path.dtype] * np.abs(scale)
    return all(bool(np.all(np.abs(first - other) <= limit)) for other in others)


def closes_in_parts(schedule: Schedule) -> bool:
    """Whether a chain that closes goes in parts."""
    return any(
        chain.closing is not None
        for part in schedule.parts
        for number, item in enumerate(part.instructions)
        if isinstance(item, Redistribute) and item.parts > 1
        for row in overlapped_rows(part.instructions, number)
        for chain in row
    )


class SharedArrays:
    """The arenas of all thread ranks; see `PeerMemory`."""

    def __init__(self, communicator, arena, n_reached=None):
        self.arenas = communicator.gather_objects(arena)
        self.ranks = frozenset(range(communicator.size if n_reached is None else n_reached))
        self.exchange = communicator.exchange
        self.sent_bytes = 0
        self.used = False

    def view(self, peer, offset_bytes, count, dtype):
        """A flat view of a peer's arena."""
        size = count * np.dtype(dtype).itemsize
        return self.arenas[peer][offset_bytes : offset_bytes + size].view(dtype)

    def bind_copy(self, target, source, copy, target_start, source_start):
        """The copies of the CPU."""
        return NumpyDevice().bind_copy(target, source, copy, target_start, source_start)

    def meet(self, peers):
        """Wait for peers: a number goes each way."""
        self.exchange([(peer, np.zeros(1)) for peer in peers], [(peer, np.zeros(1)) for peer in peers])

    def bind(self, copies, overlapped_rows, peers, sent_bytes):
        """The copies between two meetings."""

        def run():
            self.used = True
            self.sent_bytes += sent_bytes
            self.meet(peers)
            for copy in (*copies, *overlapped_rows):
                copy()
            self.meet(peers)

        return run

    def bind_overlapped(self, moved, kept, peers, sent_bytes):
        """The copies between two meetings; all of it when it begins."""

        def begin():
            self.used = True
            self.sent_bytes += sent_bytes
            self.meet(peers)
            for target, source in (*moved, *kept):
                assert target.flags.c_contiguous
                assert source.flags.c_contiguous
                np.copyto(target, source)
            self.meet(peers)

        return OverlappedExchange(begin, lambda: None, lambda: 0.0)
