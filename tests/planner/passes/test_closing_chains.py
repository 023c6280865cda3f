"""Chains that close: what they leave meets a tensor of the same modes and is never stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.contraction.fused import check, planned
from tests.support.contraction.schedules import closing, meeting_path
from tests.support.kernels.gpus import needs_gpus
from tests.support.null_device.dry_run import dry_run
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import DTYPES
from tnplan.planner.passes.chain_checks import chain_problems
from tnplan.planner.passes.lowering.spill import reading_another
from tnplan.planner.passes.lowering.unfuse import unfuse
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import Contract, Fused, ReduceScatter, Schedule

SEEDS = range(6)


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(1))])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_gives_the_value(seed: int, dtype: str, device: str) -> None:
    path = meeting_path(seed, dtype)
    schedule = planned(path)
    assert len(closing(schedule)) == 1
    assert not any(isinstance(item, Contract) and item.c == schedule.result for item in schedule.once)
    check(path, schedule, seed, device=device)


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(2))])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_sum_what_their_shards_give(seed: int, ranks: int, device: str) -> None:
    if device == "gpu" and ranks > 2:
        pytest.skip("needs 4 GPUs")
    path = meeting_path(seed)
    schedule = planned(path, ranks)
    (chain,) = closing(schedule)
    assert chain.closing is not None
    spread = [place for place, mode in enumerate(schedule.buffers[chain.closing].layout) if mode is not None]
    assert schedule.buffers[chain.out].partial == tuple(spread)
    check(path, schedule, seed, ranks=ranks, device=device)


def test_some_results_are_partial() -> None:
    sums = [
        item
        for seed in SEEDS
        for item in planned(meeting_path(seed), 2).instructions
        if isinstance(item, ReduceScatter)
    ]
    assert sums


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_closes_may_be_an_early_sum(seed: int, ranks: int) -> None:
    path = meeting_path(seed, n_sliced=2)
    schedule = planned(path, ranks)
    assert closing(schedule)
    check(path, schedule, seed, ranks=ranks)


def test_early_sums_are_among_them() -> None:
    assert any(planned(meeting_path(seed, n_sliced=2)).summed for seed in SEEDS)


def test_what_is_planned_is_what_is_replayed() -> None:
    for seed in SEEDS:
        schedule = planned(meeting_path(seed))
        counts, peak = dry_run(schedule, 0)
        assert counts.flops == pytest.approx(schedule.operations)
        assert peak <= schedule.predicted.peak_bytes


def test_the_last_tensor_takes_no_memory() -> None:
    schedule = planned(meeting_path(0))
    (chain,) = closing(schedule)
    assert chain.closing is not None
    modes = set(schedule.buffers[chain.closing].modes)
    assert [buffer for buffer in schedule.buffers if set(buffer.modes) == modes] == [
        schedule.buffers[chain.closing]
    ]


def test_a_tensor_that_waited_compressed_closes_as_well() -> None:
    chain = Fused(1, (2,), 3, (0, 1), closing=4)
    assert reading_another(chain, 4, 5) == replace(chain, closing=5)
    assert reading_another(chain, 2, 5) == replace(chain, branches=(5,))


def test_a_library_contracts_the_two_tensors() -> None:
    schedule = planned(meeting_path(0))
    (chain,) = closing(schedule)
    apart = unfuse(schedule)
    assert not any(isinstance(item, Fused) for item in apart.instructions)
    (last,) = (item for item in apart.once if isinstance(item, Contract) and item.c == chain.out)
    assert chain.closing in (last.a, last.b)
    assert set(apart.buffers[last.a].modes) == set(apart.buffers[last.b].modes)


def test_a_schedule_is_read_as_it_was_written(tmp_path: Path) -> None:
    schedule = planned(meeting_path(1))
    save_schedule(schedule, tmp_path / "schedule.json")
    assert load_schedule(tmp_path / "schedule.json") == schedule


def test_broken_chains_that_close_are_refused() -> None:
    schedule = planned(meeting_path(0), 2)
    (chain,) = closing(schedule)
    verify(schedule)

    def edit(**changes: object) -> Schedule:
        changed = (replace(item, **changes) if item is chain else item for item in schedule.once)  # type: ignore[arg-type]
        return replace(schedule, once=tuple(changed))

    def edit_out(**changes: object) -> Schedule:
        buffers = list(schedule.buffers)
        buffers[chain.out] = replace(buffers[chain.out], **changes)  # type: ignore[arg-type]
        return replace(schedule, buffers=tuple(buffers))

    for broken, message in (
        (edit(closing=None), "one step per branch"),
        (edit(closing=chain.branches[0]), "does not have the modes that it leaves"),
        (edit(closing=chain.out), "holds nothing"),
        (edit_out(partial=()), "its result is not partial"),
    ):
        with pytest.raises(InputError, match=message):
            verify(broken)
    assert not list(chain_problems(schedule, chain))
    assert list(chain_problems(schedule, replace(chain, adds=True))) == [
        "it closes, and cannot add to an early sum"
    ]
