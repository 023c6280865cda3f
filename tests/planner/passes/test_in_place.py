"""Chains that leave their result where their operand was: planned where memory is short, and replayed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import contract_pairwise
from tests.support.contraction.fused import chains, fused_rates, fusing_profile, stem_path
from tests.support.contraction.stems import in_place, steady_path, stem
from tests.support.kernels.gpus import needs_gpus
from tests.support.networks import TOLERANCE, random_arrays
from tests.support.slow import slow_after
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.chain_checks import keeps_off
from tnplan.planner.passes.lowering import buffer_assignment as memory
from tnplan.planner.passes.lowering.buffer_assignment import Lifetime, assign
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import Free, Fused, Schedule, with_parts


def swelling_path(seed: int, rank: int = 11, n_steps: int = 24) -> ContractionPath:
    """A stem that grows and shrinks by a mode now and then."""
    chance = random.Random(seed)

    def changes(held: list[str], left: int) -> tuple[list[str], int]:
        count = 2 if left <= 3 else chance.choice((1, 1, 2))
        more = 0 if left <= 3 else count + chance.choice((-1, 0, 0, 0, 1))
        if left > 3 and not rank - 1 <= len(held) - count + more <= rank + 3:
            more = count
        return chance.sample(held[:6] if chance.random() < 0.6 else held, count), more

    return stem(rank, n_steps, changes)


def change(schedule: Schedule, item: Fused) -> str:
    """What a chain in place does to its operand."""
    operand, out = schedule.buffers[item.operand], schedule.buffers[item.out]
    if item.parts > 1:
        return "slides ahead" if out.offset_bytes < operand.offset_bytes else "slides behind"
    return "grows" if out.size_bytes > operand.size_bytes else "stays"


def tight(path: ContractionPath, ranks: int = 1, fused_bytes: int = 1 << 14) -> tuple[Schedule, Schedule]:
    """A plan without a limit, and one with room for less than two tensors of the stem."""
    profile = fusing_profile(fused_bytes)
    options = {"devices": ranks, "ranks_per_group": ranks, "threshold_bytes": 1}
    free = plan(path, profile, memory_bytes=inf, **options)  # type: ignore[arg-type]
    limit = int(0.75 * free.predicted.peak_bytes)
    return free, plan(path, profile, memory_bytes=limit, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(1))])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", ["complex64", "float64"])
def test_where_memory_is_short_chains_work_in_place(seed: int, dtype: str, device: str) -> None:
    path = replace(steady_path(seed), dtype=dtype)
    free, short = tight(path)
    assert not list(in_place(free))
    assert len(list(in_place(short))) > 1
    assert short.predicted.peak_bytes < 0.75 * free.predicted.peak_bytes
    arrays = random_arrays(path, seed)
    expected = contract_pairwise(path, arrays)
    found = execute(short, arrays, device=device).array
    assert found is not None
    assert np.abs(found - expected).max() < 10 * TOLERANCE[dtype] * np.abs(expected).max()


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(1))])
@pytest.mark.parametrize(("dtype", "behind"), [("complex64", False), ("float64", True)])
@pytest.mark.parametrize("seeds", slow_after(1, [range(12), range(12, 30)]))
def test_chains_that_grow_and_shrink_work_in_place(
    dtype: str, behind: bool, seeds: range, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = memory.buffer_groups
    monkeypatch.setattr(memory, "buffer_groups", lambda sizes, in_place, _: groups(sizes, in_place, behind))
    changes: Counter[str] = Counter()
    for seed in seeds:
        path = replace(swelling_path(seed), dtype=dtype)
        profile = fusing_profile(1 << 14)
        free = plan(path, profile, memory_bytes=inf)
        arrays = random_arrays(path, seed)
        expected = contract_pairwise(path, arrays)
        for share in (0.9, 0.75, 0.6):
            try:
                short = plan(path, profile, memory_bytes=share * free.predicted.peak_bytes)
            except InputError:
                break
            changes.update(change(short, item) for item in in_place(short))
            found = execute(short, arrays, device=device).array
            assert found is not None
            assert np.abs(found - expected).max() < 10 * TOLERANCE[dtype] * np.abs(expected).max(), seed
    slides = "slides behind" if behind else "slides ahead"
    assert min(changes[name] for name in ("stays", "grows", slides)) > 1, changes


@pytest.mark.parametrize("ranks", slow_after(1, [2, 4]))
def test_several_ranks_grow_and_shrink_in_place(ranks: int) -> None:
    changes: Counter[str] = Counter()
    for seed in range(20):
        path = swelling_path(seed, 13)
        options = {"devices": ranks, "ranks_per_group": ranks, "threshold_bytes": 1}
        profile = fusing_profile(1 << 14)
        free = plan(path, profile, memory_bytes=inf, **options)  # type: ignore[arg-type]
        try:
            limit = 0.9 * free.predicted.peak_bytes
            short = plan(path, profile, memory_bytes=limit, **options)  # type: ignore[arg-type]
        except InputError:
            continue
        changes.update(change(short, item) for item in in_place(short))
        arrays = random_arrays(path, seed)
        expected = contract_pairwise(path, arrays)
        found = execute(short, arrays, ranks=ranks).array
        assert found is not None
        assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()
    assert min(changes["grows"], changes["stays"]) > 1, changes


@pytest.mark.parametrize("rate", [1e3, 3e8])
@pytest.mark.parametrize("seed", range(3))
def test_products_that_are_faster_give_way_to_chains(seed: int, rate: float) -> None:
    """Where memory is short; chains at the lower rate are never the faster way."""
    path = steady_path(seed)
    profile = replace(fusing_profile(1 << 14), fused_flop_per_s=fused_rates(rate))
    free = plan(path, profile, memory_bytes=inf)
    assert rate > 1e3 or not list(chains(free))
    limit = 0.75 * free.predicted.peak_bytes
    short = plan(path, profile, memory_bytes=limit)
    assert list(in_place(short))
    assert short.predicted.peak_bytes <= limit
    arrays = random_arrays(path, seed)
    expected = contract_pairwise(path, arrays)
    found = execute(short, arrays).array
    assert found is not None
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("seed", slow_after(1, [0, 3, 6]))
def test_several_ranks_work_in_place(ranks: int, seed: int) -> None:
    path = steady_path(seed, 14)
    _, short = tight(path, ranks)
    assert list(in_place(short))
    arrays = random_arrays(path, seed)
    expected = contract_pairwise(path, arrays)
    found = execute(short, arrays, ranks=ranks).array
    assert found is not None
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("seed", range(40))
def test_any_stem_may_be_short_of_memory(seed: int) -> None:
    path = stem_path(seed)
    profile = fusing_profile(1 << 15)
    free = plan(path, profile, memory_bytes=inf)
    arrays = random_arrays(path, seed)
    expected = contract_pairwise(replace(path, sliced_inds=()), arrays)
    for share in (0.9, 0.7, 0.55):
        try:
            schedule = plan(path, profile, memory_bytes=share * free.predicted.peak_bytes)
        except InputError:
            break
        assert schedule.predicted.peak_bytes <= share * free.predicted.peak_bytes
        found = execute(schedule, arrays).array
        assert found is not None
        tolerance = 10 * TOLERANCE[path.dtype]
        assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-30)


def short_case() -> tuple[Schedule, Fused]:
    schedule = tight(steady_path(0))[1]
    return schedule, next(in_place(schedule))


def test_modes_that_do_not_keep_their_places_are_refused() -> None:
    schedule, item = short_case()
    buffers = list(schedule.buffers)
    modes = buffers[item.out].modes
    buffers[item.out] = replace(buffers[item.out], modes=(*modes[1:], modes[0]))
    with pytest.raises(InputError, match="overlaps buffer"):
        verify(replace(schedule, buffers=tuple(buffers)))


def sliding_case() -> tuple[Schedule, Fused]:
    for seed in range(60):
        path = swelling_path(seed)
        free = plan(path, fusing_profile(1 << 14), memory_bytes=inf)
        try:
            limit = 0.75 * free.predicted.peak_bytes
            schedule = plan(path, fusing_profile(1 << 14), memory_bytes=limit)
        except InputError:
            continue
        item = next((item for item in in_place(schedule) if item.parts > 1), None)
        if item is not None:
            return schedule, item
    raise AssertionError("no chain slides")


def with_chain(schedule: Schedule, item: Fused, **fields: object) -> Schedule:
    """The schedule with fields of a chain changed."""
    changed = replace(item, **fields)  # type: ignore[arg-type]
    parts = [[changed if one == item else one for one in part.instructions] for part in schedule.parts]
    return with_parts(schedule, parts)


def test_a_chain_that_slides_keeps_off_what_is_yet_to_be_read() -> None:
    schedule, item = sliding_case()
    verify(schedule)
    with pytest.raises(InputError, match="overlaps buffer"):
        verify(with_chain(schedule, item, parts=item.parts // 2))
    with pytest.raises(InputError, match="overlaps buffer"):
        verify(with_chain(schedule, item, parts=1))


def test_parts_keep_off_what_is_yet_to_be_read() -> None:
    """Against a chain that is done part by part on a list of bytes."""
    chance, kept = random.Random(3), 0
    for _ in range(3000):
        parts, read, written = chance.choice((1, 2, 4)), chance.randint(1, 5), chance.randint(1, 5)
        operand, out = chance.randint(0, 12), chance.randint(0, 12)
        memory = dict.fromkeys(range(operand, operand + parts * read), "operand")
        safe = True
        for number in range(parts)[:: -1 if out > operand else 1]:
            mine = range(operand + number * read, operand + (number + 1) * read)
            safe &= all(memory[place] == "operand" for place in mine)
            written_to = range(out + number * written, out + (number + 1) * written)
            safe &= not set(mine) & set(written_to)
            memory |= dict.fromkeys(written_to, "out")
        found = keeps_off((operand, operand + parts * read), (out, out + parts * written), parts)
        assert found == safe, (parts, read, written, operand, out)
        kept += found
    assert 300 < kept < 2700


def test_more_parts_than_a_chain_has_calls_for_are_refused_at_once() -> None:
    schedule, item = sliding_case()
    with pytest.raises(InputError, match="overlaps buffer"):
        verify(with_chain(schedule, item, parts=1 << 60))


@pytest.mark.parametrize("parts", [0, -1, 3, 1 << 20])
def test_parts_that_its_tensors_do_not_have_are_refused(parts: int) -> None:
    schedule = plan(swelling_path(0), fusing_profile(1 << 14), memory_bytes=inf)
    with pytest.raises(InputError, match=f"do not have {parts} parts alike"):
        verify(with_chain(schedule, next(chains(schedule)), parts=parts))


def test_a_schedule_with_parts_is_read_as_it_was_written(tmp_path: Path) -> None:
    schedule, _ = sliding_case()
    save_schedule(schedule, tmp_path / "s.json")
    assert load_schedule(tmp_path / "s.json") == schedule


def test_an_operand_whose_place_was_taken_is_not_read_again() -> None:
    schedule, item = short_case()
    instructions = list(schedule.once)
    place = instructions.index(item)
    instructions.insert(place + 1, Free(item.operand))
    with pytest.raises(InputError, match="holds nothing"):
        verify(with_parts(schedule, [instructions]))


def test_buffers_in_one_place_live_one_after_the_other() -> None:
    lifetimes = [Lifetime(1000, 0, 3), Lifetime(600, 1, 6), Lifetime(1000, 3, 5), Lifetime(1000, 5, 9)]
    arena = assign(lifetimes, {2: (0, 1), 3: (2, 1)})
    assert arena.offsets[0] == arena.offsets[2] == arena.offsets[3]
    assert arena.size_bytes == 1024 + 768
    assert assign(lifetimes).size_bytes == 2 * 1024 + 768


def test_buffers_in_one_place_stay_together_among_many() -> None:
    many = [Lifetime(1 << 21, number, number + 1) for number in range(2 * memory.LARGE_COUNT)]
    last = len(many)
    arena = assign([*many, Lifetime(2048, 0, 5), Lifetime(1024, 5, 9)], {last + 1: (last, 16)})
    assert arena.offsets[last + 1] == arena.offsets[last] - 256
    arena = assign([*many, Lifetime(1024, 0, 5), Lifetime(2048, 5, 9)], {last + 1: (last, 16)})
    assert arena.offsets[last + 1] == arena.offsets[last] + 256
