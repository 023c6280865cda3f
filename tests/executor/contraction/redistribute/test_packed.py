"""Changes of layout between thread ranks, against slices of one global array."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tnplan.executor.contraction.redistribute.packed import bind_exchange
from tnplan.executor.contraction.redistribute.plan import Shards, plan_exchange
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.permutation import row_major
from tnplan.planner.hardware.process_grid import Digit, box, box_shape, grid_size, rank_digits

GRIDS = ((2,), (2, 2), (2, 2, 2), (3, 2), (2, 3), (5,), (3, 2, 2))


def random_layout(rng, modes, grid, partial):
    free = list(rng.permutation(modes))
    layout = []
    for number in range(len(grid)):
        take = number not in partial and free and rng.random() < 0.65
        layout.append(int(free.pop()) if take else None)
    return tuple(layout)


def random_case(rng, summing):
    grid = tuple(Digit(radix, tier) for tier, radix in enumerate(GRIDS[rng.integers(len(GRIDS))]))
    rank = int(rng.integers(1, 7))
    modes = tuple(int(mode) for mode in rng.permutation(10)[:rank])
    extents = {mode: int(rng.choice([1, 2, 2, 3, 5])) for mode in modes}
    digits = list(range(len(grid)))
    partial = tuple(d for d in digits if rng.random() < (0.6 if summing else 0.2))
    kept = tuple(d for d in partial if not summing or rng.random() < 0.3)
    source = Shards(modes, random_layout(rng, modes, grid, partial), partial)
    order = tuple(int(mode) for mode in rng.permutation(modes)) if rng.random() < 0.3 else modes
    out = Shards(order, random_layout(rng, modes, grid, kept), kept)
    return grid, extents, source, out


def local(whole, modes, order, bounds):
    """The part of `whole` (axes `modes`) within `bounds` (over `order`), in the order of `order`."""
    turned = whole.transpose([modes.index(mode) for mode in order])
    return np.ascontiguousarray(turned[tuple(slice(a, b) for a, b in bounds)])


def run_case(grid, extents, source, out, capacity, dtype=np.float64, seed=0):
    """Exchange on thread ranks; checks every rank's shard against the global array."""
    rng = np.random.default_rng(seed)
    shape = [extents[mode] for mode in source.modes]
    terms = {}
    for rank in range(grid_size(grid)):
        key = tuple(rank_digits(rank, grid)[digit] for digit in source.partial)
        if key not in terms:
            terms[key] = rng.standard_normal(shape).astype(dtype)
    summed = [digit for digit in source.partial if digit not in out.partial]

    def expected(digits):
        total = None
        for key in sorted(terms):
            values = dict(zip(source.partial, key, strict=True))
            if any(values[digit] != digits[digit] for digit in out.partial):
                continue
            total = terms[key].copy() if total is None else total + terms[key]
        return total

    def work(communicator):
        digits = rank_digits(communicator.rank, grid)
        own_key = tuple(digits[digit] for digit in source.partial)
        bounds = box(source.modes, source.layout, extents, digits, grid)
        held = local(terms[own_key], source.modes, source.modes, bounds)
        out_bounds = box(out.modes, out.layout, extents, digits, grid)
        result = np.full(prod(box_shape(out_bounds)), np.nan, dtype)
        place = dict(zip(out.modes, row_major(box_shape(out_bounds)), strict=True))
        call = bind_exchange(
            source, out, extents, grid, NumpyDevice(), communicator, held.ravel(), result,
            np.full(capacity, np.nan, dtype), row_major(box_shape(bounds)),
            tuple(place[mode] for mode in source.modes),
        )  # fmt: skip
        call()
        wanted = local(expected(digits), source.modes, out.modes, out_bounds).ravel()
        assert np.array_equal(result, wanted), (communicator.rank, summed)
        return True

    assert all(run_ranks(grid_size(grid), work))


@pytest.mark.parametrize("seed", range(120))
def test_random_layout_changes(seed):
    rng = np.random.default_rng(seed)
    grid, extents, source, out = random_case(rng, summing=False)
    capacity = int(rng.choice([2, 7, 64, 4096]))
    run_case(grid, extents, source, out, capacity, seed=seed)


@pytest.mark.parametrize("seed", range(80))
def test_random_reduce_scatters(seed):
    rng = np.random.default_rng(1000 + seed)
    grid, extents, source, out = random_case(rng, summing=True)
    capacity = int(rng.choice([24, 64, 4096]))
    run_case(grid, extents, source, out, capacity, dtype=np.float32, seed=seed)


def transfers(grid, extents, source, out, rank, capacity=1 << 20):
    return plan_exchange(source, out, extents, grid, rank, capacity)


def test_a_partial_swap_moves_half():
    grid = tuple(Digit(2, 0) for _ in range(3))
    modes = tuple(range(6))
    extents = dict.fromkeys(modes, 2)
    plan = transfers(grid, extents, Shards(modes, (0, 1, 2)), Shards(modes, (0, 1, 5)), 3)
    assert sum(t.elements for t in plan.sends) * 2 == 2 ** (6 - 3)
    assert [t.peer for t in plan.sends] == [2]


def test_nothing_moves_where_the_source_is_replicated():
    grid = (Digit(3, 0), Digit(2, 1))
    extents = {0: 5, 1: 4}
    for rank in range(6):
        plan = transfers(grid, extents, Shards((0, 1), (None, None)), Shards((0, 1), (1, 0)), rank, 0)
        assert not plan.sends
        assert {t.peer for t in plan.receives} == {rank}


def test_data_comes_from_the_rank_with_equal_replicated_digits():
    grid = (Digit(2, 1), Digit(2, 0))
    plan = transfers(grid, {0: 2}, Shards((0,), (None, 0)), Shards((0,), (None, None)), 2)
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
        transfers(grid, {0: 2}, Shards((0,), (None,), (0,)), Shards((0,), (None,)), 0, 4)


def test_large_layouts_are_planned_quickly():
    grid = tuple(Digit(2, 0) for _ in range(10))
    modes = tuple(range(40))
    extents = dict.fromkeys(modes, 2)
    plan = transfers(grid, extents, Shards(modes, tuple(range(10))), Shards(modes, tuple(range(30, 40))), 77)
    assert len(plan.sends) == 1023
    assert len(plan.receives) == 1024
