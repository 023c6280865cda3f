"""Calls in any order that their waits allow give the result of the schedule's order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np

from tests.support.contraction.fused import fusing_profile
from tests.support.contraction.schedules import planned, sliced_lattice
from tests.support.networks import random_path, window
from tnplan.executor.contraction.bind.program import arena_bytes
from tnplan.executor.contraction.run.compiled_program import CompiledProgram, small_buffers_apart, waits
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.device import Call
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import Contract, Free, Fused, Schedule


class ShufflingDevice(NumpyDevice):
    """What it records runs in a random order of those that are allowed."""

    runs_calls_together = True
    moved = 0

    def recorded(self, calls: Sequence[Call], waits: Sequence[Sequence[int]] | None = None) -> Call:
        assert waits is not None
        assert len(waits) == len(calls)
        chance = random.Random(len(calls))

        def run() -> None:
            done, left = set[int](), list(range(len(calls)))
            while left:
                number = chance.choice([each for each in left if done.issuperset(waits[each])])
                self.moved += number != left[0]
                left.remove(number)
                done.add(number)
                calls[number]()

        return run


def schedules() -> list[Schedule]:
    found = [planned(random_path(seed)) for seed in range(700, 760)]
    found += [planned(sliced_lattice(seed)) for seed in range(3)]
    fused = [
        plan(replace(window(size, 12), dtype="complex64"), fusing_profile(1 << 15), memory_bytes=inf)
        for size in (12, 16)
    ]
    assert any(isinstance(item, Fused) for schedule in fused for item in schedule.instructions)
    # With no memory to spare, buffers take each other's places as planned.
    return [*found, *fused, *(replace(each, memory_bytes=arena_bytes(each)) for each in (*found, *fused))]


def test_any_allowed_order_gives_the_result() -> None:
    moved = 0
    for number, schedule in enumerate(schedules()):
        apart = small_buffers_apart(schedule)
        verify(replace(apart, predicted=replace(apart.predicted, peak_bytes=arena_bytes(apart))))
        random_values = np.random.default_rng(number)
        shapes = [tuple(schedule.size_dict[index] for index in leaf) for leaf in schedule.leaves]
        device, plain = ShufflingDevice(), NumpyDevice()
        programs = [
            CompiledProgram(schedule, each, run_ranks(1, lambda own: own)[0]) for each in (device, plain)
        ]
        for changed in [None, *[None] * 3, frozenset({0}), frozenset({0}), frozenset({0})]:
            for tensor, shape in enumerate(shapes):
                if changed is None or tensor in changed:
                    values = random_values.normal(size=shape).astype(schedule.dtype)
                    for program in programs:
                        program.set(tensor, values)
            results = []
            for program in programs:
                program.run(changed)
                results.append(np.array(program.result))
            np.testing.assert_array_equal(*results)
        moved += device.moved
    assert moved > 1000


def test_small_buffers_stay_in_the_memory_of_the_plan() -> None:
    path = replace(window(16, 12), dtype="complex64")
    free = plan(path, fusing_profile(1 << 15), memory_bytes=inf)
    size = arena_bytes(free)
    roomy = small_buffers_apart(free)
    assert arena_bytes(roomy) > size
    for extra in (0, 1 << 10):
        bounded = small_buffers_apart(replace(free, memory_bytes=size + extra))
        assert size <= arena_bytes(bounded) <= size + extra
    starts = [buffer.offset_bytes for buffer in roomy.buffers if buffer.offset_bytes >= size]
    assert len(starts) == len(set(starts))


def test_waits_leave_out_what_follows() -> None:
    schedule = planned(random_path(700))
    products = [item for item in schedule.once if isinstance(item, Contract)] * 3
    found = waits(schedule, products)
    assert found is not None
    # The same products again: each waits for the one before at most once, and never for what that waits for.
    for number, direct in enumerate(found):
        indirect = {other for earlier in direct for other in found[earlier]}
        assert not indirect & set(direct)
        assert all(other < number for other in direct)


def test_chains_keep_their_order() -> None:
    """Kernels of one kind hold the branches in the same memory of a GPU."""
    schedule = plan(replace(window(16, 12), dtype="complex64"), fusing_profile(1 << 15), memory_bytes=inf)
    items = [item for item in small_buffers_apart(schedule).once if not isinstance(item, Free)]
    chains = [number for number, item in enumerate(items) if isinstance(item, Fused)]
    assert len(chains) > 1
    found = waits(small_buffers_apart(schedule), items)
    assert found is not None
    over: list[set[int]] = []
    for direct in found:
        over.append(set(direct).union(*(over[other] for other in direct)))
    for earlier, chain in pairwise(chains):
        assert earlier in over[chain]
