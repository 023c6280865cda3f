"""Exchanges in parts beside chains: what is planned, what may not run at once, and the same bits as whole."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from itertools import product
from math import inf
from typing import ClassVar

import numpy as np
import pytest

from tests.support.contraction.executor import contract_pairwise
from tests.support.contraction.overlap import (
    SharedArrays,
    agree,
    closes_in_parts,
    hiding_profile,
    in_parts,
    planned,
    swapping_path,
)
from tests.support.networks import TOLERANCE, random_arrays
from tests.support.null_device.dry_run import dry_run
from tests.support.slow import slow_after
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import ThreadCommunicator
from tnplan.executor.device.protocols.communicator import OverlappedExchange
from tnplan.planner.hardware.chunked_overlap import Span, Spans, cut_modes, exposed_s, hazards
from tnplan.planner.hardware.process_grid import Digit
from tnplan.planner.passes import pipeline
from tnplan.planner.passes.chunk_exchanges import ChunkedExchanges
from tnplan.planner.passes.lowering import settle_overlap as beside
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import Gather, Instruction, Redistribute, Schedule, with_parts

SEEDS = range(60)


@cache
def case(seed: int) -> Schedule:
    """A schedule on 2, 4 or 8 ranks; about two in five have exchanges in parts."""
    profile = hiding_profile((1 << 11, 1 << 12, 1 << 11)[seed // 3 % 3])
    return planned(swapping_path(seed), (2, 4, 8)[seed % 3], profile)


class LateArrays(SharedArrays):
    """Shared arrays whose exchanges beside other work are made when that work is done."""

    def bind_overlapped(self, moved, kept, peers, sent_bytes):
        bound = super().bind_overlapped(moved, kept, peers, sent_bytes)
        return OverlappedExchange(lambda: None, bound.begin, bound.time_s)


class Messages:
    """Ranks that reach nobody's memory, and whose messages beside other work move when that begins."""

    begun: ClassVar[list[OverlappedExchange]] = []

    @classmethod
    def bind_overlapped(cls, communicator, sends, receives):
        """The messages, and a note of them."""
        assert all(view.flags.c_contiguous for _, view in (*sends, *receives))
        bound = cls.moving(partial(communicator.exchange, sends, receives))
        cls.begun.append(bound)
        return bound

    @staticmethod
    def moving(call):
        """When the call is made."""
        return OverlappedExchange(call, lambda: None, lambda: 0.0)


class LateMessages(Messages):
    """Messages that move when the work beside them is done."""

    @staticmethod
    def moving(call):
        """When the call is made."""
        return OverlappedExchange(lambda: None, call, lambda: 0.0)


WAYS = (SharedArrays, LateArrays, Messages, LateMessages)


def replayed(monkeypatch, schedule, arrays, way):
    """The result with exchanges beside chains by memory or messages, and whether there were any."""
    opened = []

    def open_memory(self, arena):
        opened.append(way(self, arena))
        return opened[-1]

    with monkeypatch.context() as patch:
        if issubclass(way, Messages):
            patch.setattr(way, "begun", [])
            patch.setattr(ThreadCommunicator, "overlaps", True)
            patch.setattr(ThreadCommunicator, "bind_overlapped", lambda *call: way.bind_overlapped(*call))
        else:
            patch.setattr(ThreadCommunicator, "open_memory", open_memory)
        result = execute(schedule, arrays, ranks=schedule.ranks_per_group, device="cpu").array
        return result, any(one.used for one in opened) or (issubclass(way, Messages) and bool(way.begun))


@pytest.mark.parametrize("seeds", slow_after(1, [SEEDS[::6], SEEDS[3::6], SEEDS[1::3], SEEDS[2::3]]))
def test_parts_give_the_bits_of_the_whole(monkeypatch, seeds):
    seen = Counter()
    for seed in seeds:
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
        for way in WAYS:
            result, used = replayed(monkeypatch, schedule, arrays, way)
            assert used
            assert agree(schedule, path, arrays, result, whole), (seed, way)
        seen["before"] += sum(item.before > 0 for item in parts)
        seen["after"] += sum(item.after > 0 for item in parts)
        seen["rows"] += sum(max(item.before, item.after) > 1 for item in parts)
        seen["gathers"] += sum(isinstance(item, Gather) for item in parts)
    assert min(seen[kind] for kind in ("before", "after", "rows", "gathers")) >= 1, seen


def test_chains_that_close_are_among_those_in_parts():
    assert any(closes_in_parts(case(seed)) for seed in SEEDS)


@pytest.mark.slow
def test_without_the_check_of_hazards_values_would_be_wrong(monkeypatch):
    wrong = refused = 0
    monkeypatch.setattr(beside, "hazards", lambda *_: [])
    for user in ("tnplan.planner.passes.pipeline", "tnplan.jobs.schedules"):
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
        path = swapping_path(seed)
        arrays = random_arrays(path, seed)
        whole = execute(schedule, arrays, ranks=schedule.ranks_per_group, device="cpu").array
        results = [replayed(monkeypatch, schedule, arrays, way)[0] for way in WAYS]
        wrong += not agree(schedule, path, arrays, whole, *results)
    assert refused
    assert wrong == refused


@pytest.mark.parametrize("seeds", slow_after(1, [SEEDS[:5], SEEDS[5:10], SEEDS[10:20]]))
def test_exchanges_between_nodes_go_in_parts(monkeypatch, seeds):
    """Where each node has one device, all that moves does so between nodes."""
    made = hiding_profile(1 << 13)
    apart = replace(made, tiers=tuple(replace(tier, devices=1) for tier in made.tiers[:1]) + made.tiers[1:])
    done = 0
    for seed in seeds:
        path = swapping_path(seed)
        schedule = planned(path, 4, apart)
        if not any(in_parts(schedule)):
            continue
        assert not any(step.moved_bytes_by_tier[0] for step in schedule.steps)
        arrays = random_arrays(path, seed)
        whole = execute(schedule, arrays, ranks=4, device="cpu").array
        for way in (Messages, LateMessages):
            result, used = replayed(monkeypatch, schedule, arrays, way)
            assert used
            assert agree(schedule, path, arrays, result, whole), (seed, way)
        done += 1
    assert done > 1


def whole(item: Instruction) -> Instruction:
    """An instruction, or an exchange that is in parts made whole."""
    return replace(item, parts=1, before=0, after=0) if isinstance(item, Redistribute) else item


@pytest.mark.parametrize("seeds", slow_after(1, [SEEDS[::2], SEEDS[1::2]]))
def test_what_is_counted_does_not_depend_on_parts(seeds):
    done = 0
    for seed in seeds:
        schedule = case(seed)
        if any(in_parts(schedule)):
            alone = with_parts(schedule, [list(map(whole, part.instructions)) for part in schedule.parts])
            rank = seed % schedule.ranks_per_group
            assert dry_run(schedule, rank) == dry_run(alone, rank)
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
        patch.setattr(pipeline, "chunk_exchanges", lambda sharded, _: ChunkedExchanges(sharded.orders))
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
        ({"before": 0, "after": 0}, "beside 0 and 0 chains"),
        ({"before": -1}, "beside -1 and"),
        ({"after": 50}, "not there"),
        ({"parts": 3}, "first modes"),
        ({"parts": 1 << 20}, "first modes"),
        ({"parts": 0}, "0 parts beside"),
    ],
)
def test_parts_that_cannot_be_are_refused(change, message):
    schedule = rising()
    with pytest.raises(InputError, match=message):
        verify(changed(schedule, **change))


def changed(schedule: Schedule, **fields: object) -> Schedule:
    """The first exchange in parts on both sides, with other fields."""

    def change(item: Instruction) -> Instruction:
        wanted = isinstance(item, Redistribute) and item.before and item.after and item.parts == 2
        return replace(item, **fields) if wanted else item

    return with_parts(schedule, [list(map(change, part.instructions)) for part in schedule.parts])


def test_an_alias_that_does_harm_is_refused():
    """The result of the chain after, or the operand of the one before, moved onto what parts still need."""
    refused = Counter()
    for schedule in map(case, SEEDS):
        for part in (part.instructions for part in schedule.parts):
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


def interleavings(parts, order, n_before, n_after):
    """Orders of steps before (B) and after (A) on parts and of exchanges (E), with each exchange as early or
    late as can be beside the steps."""
    lane = [("B", step, n) for n in order for step in range(n_before)]
    lane += [("A", step, n) for n in order for step in range(n_after)]
    for choice in product((False, True), repeat=parts):
        positions = []
        for late, n in zip(choice, order, strict=True):
            first = lane.index(("B", n_before - 1, n)) + 1 if n_before else 0
            last = lane.index(("A", 0, n)) if n_after else len(lane)
            positions.append(last if late else first)
        for place in range(1, parts):
            positions[place] = max(positions[place], positions[place - 1])
        whole = list(lane)
        for place in range(parts - 1, -1, -1):
            whole.insert(positions[place], ("E", 0, order[place]))
        yield whole


def run_parts(spans, parts, arena, order):
    """What the last tensor holds after the operations of `order` on an arena of numbers."""
    arena = arena.copy()
    n_before = len(spans.made) - 1

    def cells(span, n):
        part = span.chunk(n, parts)
        return slice(part.start, part.stop)

    def mixed(source, n, branches, target):
        values = [arena[cells(source, n)], *(arena[other.start : other.stop] for other in branches)]
        total = sum(int((array * np.arange(1, len(array) + 1)).sum()) for array in values)
        size = (target.stop - target.start) // parts
        arena[cells(target, n)] = (total + np.arange(size) * 7919) % 1000003

    for kind, step, n in order:
        if kind == "B":
            mixed(spans.made[step], n, spans.branches[step], spans.made[step + 1])
        elif kind == "E":
            arena[cells(spans.read[0], n)] = arena[cells(spans.made[-1], n)]
        else:
            mixed(spans.read[step], n, spans.branches[n_before + step], spans.read[step + 1])
    return [arena[cells(spans.read[-1], n)] for n in range(parts)]


def random_spans(chance, parts, n_before, n_after):
    """Places as a schedule may have them: what is alive at once lies apart, or takes its operand's place."""

    def room(size, apart):
        starts = [start for start in range(0, 120, 2)
                  if not any(Span(start, start + size * parts).meets(other) for other in apart)]  # fmt: skip
        start = chance.choice(starts or [400])
        return Span(start, start + size * parts)

    n_tensors = n_before + n_after + 2
    branches = []
    for _ in range(n_before + n_after):
        branches.append((room(1, [span for row in branches for span in row]),))
    tensors = []
    for number in range(n_tensors):
        if number and number != n_before + 1 and chance.random() < 0.2:
            tensors.append(tensors[-1])  # in place
            continue
        later = branches[max(number - 1 - (number > n_before), 0) :]
        apart = [*tensors[-1:], *(span for row in later for span in row)]
        size = chance.choice((4, 4, 8))
        if number == n_before + 1:  # as it arrives
            size = (tensors[-1].stop - tensors[-1].start) // parts
        tensors.append(room(size, apart))
    return Spans(tuple(tensors[: n_before + 1]), tuple(tensors[n_before + 1 :]), tuple(branches))


@pytest.mark.parametrize("batch", slow_after(4, range(10)))
def test_hazards_are_found_exactly(batch):
    """Without a hazard all interleavings give the result of one after the other; with one, some does not."""
    seen = Counter()
    for seed in range(150 * batch, 150 * batch + 150):
        chance = random.Random(seed)
        parts = chance.choice((2, 4))
        counts = chance.choice(((1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (2, 1), (1, 2), (2, 2), (3, 2)))
        spans = random_spans(chance, parts, *counts)
        arena = np.random.default_rng(seed).integers(1, 1000, 500)
        for falling in (False, True):
            order = tuple(reversed(range(parts))) if falling else tuple(range(parts))
            alone = [("B", step, n) for step in range(counts[0]) for n in order]
            alone += [("E", 0, n) for n in order]
            alone += [("A", step, n) for step in range(counts[1]) for n in order]
            wanted = run_parts(spans, parts, arena, alone)
            right = all(
                all(map(np.array_equal, run_parts(spans, parts, arena, lane), wanted))
                for lane in interleavings(parts, order, *counts)
            )
            assert right == (not any(hazards(spans, parts, falling))), (spans, parts, falling)
            seen[right, counts] += 1
    assert {right for right, counts in seen if sum(counts) > 2} == {True, False}


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


@pytest.mark.parametrize("seeds", slow_after(1, [SEEDS[::2], SEEDS[1::2]]))
def test_small_tensors_have_places_of_their_own_where_memory_has_room(monkeypatch, seeds):
    """More is then hidden, and the tensors beside an exchange take at most what the largest does besides."""
    hidden_s, peak_bytes = Counter(), Counter()
    for seed in seeds:
        path, ranks, profile = swapping_path(seed), (2, 4, 8)[seed % 3], hiding_profile(1 << 12)
        with monkeypatch.context() as patch:
            schedules = {"apart": planned(path, ranks, profile)}
            patch.setattr(pipeline, "extend_lifetimes", lambda program: program)
            schedules["together"] = planned(path, ranks, profile)
        for name, schedule in schedules.items():
            hidden_s[name] += sum(step.hidden_s for step in schedule.steps)
            peak_bytes[name] += schedule.predicted.peak_bytes
    assert hidden_s["apart"] > hidden_s["together"]
    assert peak_bytes["together"] < peak_bytes["apart"] < 1.5 * peak_bytes["together"]
