"""Changes of layout between thread ranks, against slices of one global array."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.contraction.redistribution import random_case, run_case, transfers
from tests.support.slow import slow_after
from tnplan.executor.contraction.redistribute.plan import ShardedTensor
from tnplan.planner.hardware.process_grid import Digit, grid_size


@pytest.mark.parametrize("seed", range(120))
def test_random_layout_changes(seed):
    rng = np.random.default_rng(seed)
    grid, extents, source, out = random_case(rng, summing=False)
    capacity = int(rng.choice([2, 7, 64, 4096]))
    run_case(grid, extents, source, out, capacity, seed=seed)


@pytest.mark.parametrize("seed", slow_after(30, range(80)))
def test_random_reduce_scatters(seed):
    rng = np.random.default_rng(1000 + seed)
    grid, extents, source, out = random_case(rng, summing=True)
    capacity = int(rng.choice([24, 64, 4096]))
    run_case(grid, extents, source, out, capacity, dtype=np.float32, seed=seed)


def test_a_partial_swap_moves_half():
    grid = tuple(Digit(2, 0) for _ in range(3))
    modes = tuple(range(6))
    extents = dict.fromkeys(modes, 2)
    plan = transfers(grid, extents, ShardedTensor(modes, (0, 1, 2)), ShardedTensor(modes, (0, 1, 5)), 3)
    assert sum(t.elements for t in plan.sends) * 2 == 2 ** (6 - 3)
    assert [t.peer for t in plan.sends] == [2]


def test_nothing_moves_where_the_source_is_replicated():
    grid = (Digit(3, 0), Digit(2, 1))
    extents = {0: 5, 1: 4}
    for rank in range(6):
        plan = transfers(
            grid, extents, ShardedTensor((0, 1), (None, None)), ShardedTensor((0, 1), (1, 0)), rank, 0
        )
        assert not plan.sends
        assert {t.peer for t in plan.receives} == {rank}


def test_data_comes_from_the_rank_with_equal_replicated_digits():
    grid = (Digit(2, 1), Digit(2, 0))
    plan = transfers(grid, {0: 2}, ShardedTensor((0,), (None, 0)), ShardedTensor((0,), (None, None)), 2)
    assert {t.peer for t in plan.receives} == {2, 3}


def test_pairs_agree_on_what_moves():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        grid, extents, source, out = random_case(rng, summing=seed % 2 == 1)
        plans = [transfers(grid, extents, source, out, rank, 48) for rank in range(grid_size(grid))]
        sent = {
            (rank, t.peer, t.bounds, t.wave, t.order) for rank, plan in enumerate(plans) for t in plan.sends
        }
        taken = {(t.peer, rank, t.bounds, t.wave, t.order) for rank, plan in enumerate(plans)
                 for t in plan.receives if t.peer != rank}  # fmt: skip
        assert {entry for entry in sent if all(a < b for a, b in entry[2])} == taken
        assert len({plan.rounds for plan in plans}) == 1


def test_a_workspace_too_small_to_sum_is_refused():
    grid = (Digit(5, 0),)
    with pytest.raises(ValueError, match="too small"):
        transfers(grid, {0: 2}, ShardedTensor((0,), (None,), (0,)), ShardedTensor((0,), (None,)), 0, 4)


def test_large_layouts_are_planned_quickly():
    grid = tuple(Digit(2, 0) for _ in range(10))
    modes = tuple(range(40))
    extents = dict.fromkeys(modes, 2)
    plan = transfers(
        grid, extents, ShardedTensor(modes, tuple(range(10))), ShardedTensor(modes, tuple(range(30, 40))), 77
    )
    assert len(plan.sends) == 1023
    assert len(plan.receives) == 1024
