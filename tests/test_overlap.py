"""Exchanges in parts beside chains: what is planned, what may not run at once, and the same bits as whole."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from math import inf

import numpy as np
import pytest
from executor_case import contract_pairwise
from overlap_case import SharedArrays, hiding_profile, in_parts, planned, swapping_path
from support import TOLERANCE, random_arrays

from executor.contraction.null_replay import null_replay
from executor.device.communicator import Beside
from executor.device.threads import ThreadCommunicator
from planner.errors import InputError
from planner.hardware.layout import Digit
from planner.hardware.overlap import Span, Spans, cut_modes, exposed_s, hazards
from planner.passes import beside, pipeline
from planner.passes.overlap import Overlaps
from planner.passes.verify import verify
from planner.schedule import Gather, Instruction, Redistribute, Schedule
from planner.schedule_file import load_schedule, save_schedule
from tnplan.execution import execute

SEEDS = range(60)


@cache
def case(seed: int) -> Schedule:
    """A schedule on 2, 4 or 8 ranks; about two in five have exchanges in parts."""
    profile = hiding_profile((1 << 12, 1 << 13, 1 << 14)[seed // 3 % 3])
    return planned(swapping_path(seed), (2, 4, 8)[seed % 3], profile)


class LateArrays(SharedArrays):
    """Shared arrays whose exchanges beside other work are made when that work is done."""

    def bind_beside(self, moved, kept, peers, sent_bytes):
        bound = super().bind_beside(moved, kept, peers, sent_bytes)
        return Beside(lambda: None, bound.begin, bound.time_s)


def replayed(monkeypatch, schedule, arrays, memory):
    opened = []

    def open_memory(self, arena):
        opened.append(memory(self, arena))
        return opened[-1]

    with monkeypatch.context() as patch:
        patch.setattr(ThreadCommunicator, "open_memory", open_memory)
        result = execute(schedule, arrays, ranks=schedule.ranks_per_group, device="cpu").array
    return result, any(one.used for one in opened)


@pytest.mark.parametrize("batch", range(3))
def test_parts_give_the_bits_of_the_whole(monkeypatch, batch):
    seen = Counter()
    for seed in SEEDS[batch::3]:
        schedule = case(seed)
        parts = list(in_parts(schedule))
        if not parts:
            continue
        path = swapping_path(seed)
        arrays = random_arrays(path, seed)
        whole = execute(schedule, arrays, ranks=schedule.ranks_per_group, device="cpu").array
        wanted = contract_pairwise(path, [array.astype(complex) for array in arrays])
        scale = contract_pairwise(path, [np.abs(array.astype(complex)) for array in arrays])
        assert np.all(np.abs(whole - wanted) <= TOLERANCE[path.dtype] * scale), seed
        for memory in (SharedArrays, LateArrays):
            result, used = replayed(monkeypatch, schedule, arrays, memory)
            assert used
            assert np.array_equal(result, whole), (seed, memory)
        seen["before"] += sum(item.before for item in parts)
        seen["after"] += sum(item.after for item in parts)
        seen["gathers"] += sum(isinstance(item, Gather) for item in parts)
    assert min(seen[kind] for kind in ("before", "after", "gathers")) >= 1, seen


def test_without_the_check_of_hazards_values_would_be_wrong(monkeypatch):
    wrong = refused = 0
    monkeypatch.setattr(beside, "hazards", lambda *_: [])
    for user in ("planner.passes.pipeline", "tnplan.execution"):
        monkeypatch.setattr(f"{user}.verify", lambda schedule: None)
    for seed in SEEDS:
        schedule = case.__wrapped__(seed)
        if not any(in_parts(schedule)):
            continue
        try:
            verify(schedule)
        except InputError as refusal:
            refused += "part" in refusal.problem
        else:
            continue
        arrays = random_arrays(swapping_path(seed), seed)
        whole = execute(schedule, arrays, ranks=schedule.ranks_per_group, device="cpu").array
        results = [
            replayed(monkeypatch, schedule, arrays, memory)[0] for memory in (SharedArrays, LateArrays)
        ]
        wrong += not all(np.array_equal(result, whole) for result in results)
    assert refused
    assert wrong == refused


def test_what_is_counted_does_not_depend_on_parts():
    done = 0
    for seed in SEEDS:
        schedule = case(seed)
        if any(in_parts(schedule)):
            body, once = (
                tuple(
                    replace(item, parts=1, before=False, after=False)
                    if isinstance(item, Redistribute)
                    else item
                    for item in part
                )
                for part in (schedule.body, schedule.once)
            )
            alone = replace(schedule, body=body, once=once)
            rank = seed % schedule.ranks_per_group
            assert null_replay(schedule, rank) == null_replay(alone, rank)
            done += 1
    assert done > 10


def test_hidden_seconds_are_taken_off_the_exchange():
    hidden = 0
    for seed in SEEDS:
        schedule = case(seed)
        assert all(step.exchange_s >= 0 for step in schedule.steps)
        parts = {item.step for item in in_parts(schedule)}
        assert {n for n, step in enumerate(schedule.steps) if step.hidden_s} == parts
        hidden += len(parts)
    assert hidden > 10


def test_parts_are_left_out_where_only_whole_exchanges_fit(monkeypatch):
    seed = 11
    path, ranks, profile = swapping_path(seed), (2, 4, 8)[seed % 3], hiding_profile(1 << 12)
    free = planned(path, ranks, profile)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "overlap", lambda tree, orders, *_: Overlaps(orders, {}))
        peak_bytes = planned(path, ranks, profile).predicted.peak_bytes
    assert any(in_parts(free))
    assert free.predicted.peak_bytes > peak_bytes
    assert planned(path, ranks, profile, peak_bytes).predicted.peak_bytes <= peak_bytes


def test_a_schedule_in_parts_survives_its_file(tmp_path):
    schedule = next(schedule for schedule in map(case, SEEDS) if any(in_parts(schedule)))
    save_schedule(schedule, tmp_path / "s.json")
    assert load_schedule(tmp_path / "s.json") == schedule


def rising():
    return next(
        schedule
        for schedule in map(case, SEEDS)
        if any(item.before and item.after and item.parts == 2 for item in in_parts(schedule))
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": 1}, "beside nothing"),
        ({"before": False, "after": False}, "beside nothing"),
        ({"parts": 3}, "first modes"),
        ({"parts": 1 << 20}, "first modes"),
        ({"parts": 0}, "beside nothing"),
    ],
)
def test_parts_that_cannot_be_are_refused(change, message):
    schedule = rising()
    with pytest.raises(InputError, match=message):
        verify(changed(schedule, **change))


def changed(schedule: Schedule, **fields: object) -> Schedule:
    """The first exchange in parts on both sides, with other fields."""
    parts = {}
    for name in ("once", "body"):
        parts[name] = tuple(
            replace(item, **fields)
            if isinstance(item, Redistribute) and item.before and item.after and item.parts == 2
            else item
            for item in getattr(schedule, name)
        )
    return replace(schedule, **parts)


def test_an_alias_that_does_harm_is_refused():
    """The result of the chain after, or the operand of the one before, moved onto what parts still need."""
    refused = Counter()
    for schedule in map(case, SEEDS):
        for part in (schedule.once, schedule.body):
            for item in part:
                if isinstance(item, Redistribute) and item.before and item.after and item.parts > 1:
                    refused += refusals(schedule, part, item)
    assert refused[True], refused


def refusals(schedule: Schedule, part: tuple[Instruction, ...], item: Redistribute) -> Counter[bool]:
    """How often half a buffer moved onto another is refused for a part, or for another reason."""
    refused: Counter[bool] = Counter()
    chains = [next(p for p in part if getattr(p, "out", None) == item.source and p.op == "fused"),
              next(p for p in part if getattr(p, "operand", None) == item.out)]  # fmt: skip
    for moved, onto in ((chains[1].out, item.source), (item.out, chains[0].operand)):
        size = schedule.buffers[onto].size_bytes
        for shift in (-size // 2, size // 2):
            offset = schedule.buffers[onto].offset_bytes + shift
            buffers = list(schedule.buffers)
            buffers[moved] = replace(buffers[moved], offset_bytes=max(offset, 0))
            try:
                verify(replace(schedule, buffers=tuple(buffers)))
            except InputError as refusal:
                refused["part " in refusal.problem] += 1
    return refused


def interleavings(parts, order, before, after):
    """Orders of making (P), exchanging (E) and reading (Q) parts, with each exchange as early or late as can
    be beside the chains."""
    lane = [("P", n) for n in order] + [("Q", n) for n in order]
    for choice in product((False, True), repeat=parts):
        positions = []
        for late, n in zip(choice, order, strict=True):
            first = lane.index(("P", n)) + 1 if before else parts
            last = lane.index(("Q", n)) if after else parts
            positions.append(last if late else first)
        for place in range(1, parts):
            positions[place] = max(positions[place], positions[place - 1])
        whole = list(lane)
        for place in range(parts - 1, -1, -1):
            whole.insert(positions[place], ("E", order[place]))
        yield whole


def run_parts(spans, parts, arena, order):
    """What Z holds after the operations of `order` on an arena of numbers."""
    arena = arena.copy()

    def cells(span, n):
        part = span.part(n, parts)
        return slice(part.start, part.stop)

    def mixed(span, n, others, target):
        values = [arena[cells(span, n)], *(arena[other.start : other.stop] for other in others)]
        total = sum(int((array * np.arange(1, len(array) + 1)).sum()) for array in values)
        size = (target.stop - target.start) // parts
        arena[cells(target, n)] = (total + np.arange(size) * 7919) % 1000003

    result = []
    for kind, n in order:
        if kind == "P":
            mixed(spans.operand, n, spans.branches, spans.source)
        elif kind == "E":
            arena[cells(spans.out, n)] = arena[cells(spans.source, n)]
        else:
            mixed(spans.out, n, spans.others, spans.result)
            result.append(arena[cells(spans.result, n)].copy())
    return result


@pytest.mark.parametrize("seed", range(300))
def test_hazards_are_found_exactly(seed):
    """Without a hazard all interleavings give the result of one after the other; with one, some does not."""
    chance = random.Random(seed)
    parts = chance.choice((2, 4))
    unit = 4

    def room(size):
        start = chance.randrange(0, 40) * 2
        return Span(start, start + size * parts)

    while True:
        size = chance.choice((unit, 2 * unit))
        source, out = room(size), room(size)
        operand, result = room(chance.choice((unit, 2 * unit))), room(chance.choice((unit, 2 * unit)))
        branches = (room(1),)
        others = (room(1),)
        apart = [
            (source, out), (out, result), (source, operand), (source, branches[0]), (operand, branches[0]),
            *((others[0], span) for span in (source, out, result, operand)),
        ]  # fmt: skip
        if not any(first.meets(second) for first, second in apart):
            break
    before, after = chance.choice(((True, True), (True, False), (False, True)))
    whole = Spans(source, out, operand, branches, result, others)
    spans = replace(whole, operand=operand if before else None, branches=branches if before else ())
    spans = replace(spans, result=result if after else None, others=others if after else ())
    arena = np.random.default_rng(seed).integers(1, 1000, 300)
    for falling in (False, True):
        order = tuple(reversed(range(parts))) if falling else tuple(range(parts))
        alone = [("P", n) for n in order] + [("E", n) for n in order] + [("Q", n) for n in order]
        wanted = run_parts(whole, parts, arena, alone)
        right = all(
            all(map(np.array_equal, run_parts(whole, parts, arena, lane), wanted))
            for lane in interleavings(parts, order, before, after)
        )
        assert right == (not any(hazards(spans, parts, falling))), (spans, parts, falling)


def test_modes_that_cut_stand_first_but_for_those_of_one_value():
    grid = (Digit(2, 0), Digit(2, 0))
    extents = dict.fromkeys(range(6), 2) | {5: 3}
    assert cut_modes((0, 1, 2, 3), (0, None), extents, grid, 4) == (1, 2)
    assert cut_modes((1, 0, 2, 3), (0, 3), extents, grid, 4) == (1, 2)
    assert cut_modes((1, 0, 2, 3), (0, 3), extents, grid, 8) is None
    assert cut_modes((1, 5, 2), (5, None), extents, grid, 4) is None
    assert cut_modes((5, 1), (None, None), extents, grid, 2) is None
    assert cut_modes((5, 1), (None, None), extents, grid, 6) == (5, 1)
    # Shards that differ in size are not cut into the same ranges.
    assert cut_modes((1, 2, 5), (5, None), extents, grid, 4) is None


def test_exposed_seconds():
    assert exposed_s([4, 4], [3, 3], [0, 0]) == 3
    assert exposed_s([0, 0], [3, 3], [4, 4]) == 3
    assert exposed_s([4, 4], [3, 3], [3, 3]) == 0
    assert exposed_s([4, 4], [3, 3], [1, 1]) == 2
    assert exposed_s([2, 2], [9, 9], [2, 2]) == 14
    assert exposed_s([0, 0], [3, 3], [0, 0]) == 6
    assert exposed_s([1, 1], [inf, 0], [0, 0]) == inf
