"""Chains that add to an early sum themselves, in place of an addition after them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import lattice
from tests.support.contraction.fused import check, planned
from tests.support.kernels.gpus import needs_gpus
from tests.support.null_device.dry_run import dry_run
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.lowering.unfuse import unfuse
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import Accumulate, Fused, Schedule

SEEDS = (3, 7, 9)


def sliced(seed: int, dtype: str = "complex64") -> ContractionPath:
    """A long lattice, large enough for chains at the waist, with some of its bonds sliced."""
    path = lattice(4, 10, 2, 0, dtype, n_open=1)
    bonds = sorted(set(path.network.size_dict) - {*path.network.output})
    chosen = np.random.default_rng(seed).choice(bonds, 6, replace=False)
    return replace(path, sliced_inds=tuple(map(str, chosen)))


def adding(schedule: Schedule) -> list[Fused]:
    return [item for item in schedule.instructions if isinstance(item, Fused) and item.adds]


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(1))])
@pytest.mark.parametrize("dtype", ["complex64", "float64"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_gives_the_value(seed: int, dtype: str, device: str) -> None:
    path = sliced(seed, dtype)
    schedule = planned(path)
    assert len(adding(schedule)) == 1
    assert sum(isinstance(item, Accumulate) for item in schedule.instructions) == 1
    check(path, schedule, seed, device=device)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_add_their_shards(ranks: int) -> None:
    for seed in SEEDS:
        path = sliced(seed)
        schedule = planned(path, ranks)
        assert adding(schedule)
        check(path, schedule, seed, ranks=ranks)


def test_what_is_planned_is_what_is_replayed() -> None:
    schedule = planned(sliced(3))
    counts, peak = dry_run(schedule, 0, range(schedule.n_slices))
    assert counts.flops == pytest.approx(schedule.operations)
    assert peak <= schedule.predicted.peak_bytes


def test_short_memory_has_room_for_the_sum() -> None:
    path = sliced(7)
    free = planned(path)
    short = planned(path, memory_bytes=0.9 * free.predicted.peak_bytes)
    assert adding(short)
    check(path, short, 7)


def test_a_library_adds_afterwards() -> None:
    schedule = planned(sliced(3))
    (chain,) = adding(schedule)
    apart = unfuse(schedule)
    assert not any(isinstance(item, Fused) for item in apart.instructions)
    sums = [item for item in apart.instructions if isinstance(item, Accumulate) and item.out == chain.out]
    assert len(sums) == 1
    assert apart.buffers[sums[0].source].modes == schedule.buffers[chain.out].modes


def test_a_schedule_is_read_as_it_was_written(tmp_path: Path) -> None:
    schedule = planned(sliced(3))
    save_schedule(schedule, tmp_path / "schedule.json")
    assert load_schedule(tmp_path / "schedule.json") == schedule


def test_a_chain_adds_only_to_the_sum_of_its_part() -> None:
    schedule = planned(sliced(3))
    others = [item for item in schedule.body if isinstance(item, Fused)]
    assert others
    wrong = tuple(replace(item, adds=True) if item is others[0] else item for item in schedule.body)
    with pytest.raises(InputError, match=r"body\[\d+\] fused.*is not the sum of this part"):
        verify(replace(schedule, body=wrong))


def test_a_sum_is_not_written_over() -> None:
    schedule = planned(sliced(3))
    outer = [
        replace(part, instructions=tuple(
            replace(item, adds=False) if isinstance(item, Fused) and item.adds else item
            for item in part.instructions
        ))
        for part in schedule.outer
    ]  # fmt: skip
    with pytest.raises(InputError, match="is written while it is in use"):
        verify(replace(schedule, outer=tuple(outer)))
