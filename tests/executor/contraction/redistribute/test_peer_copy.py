"""Changes of layout by copies straight between shards, on threads that see each other's arrays."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tests.support.contraction.overlap import SharedArrays
from tests.support.contraction.redistribution import local, random_case, transfers
from tnplan.executor.contraction.redistribute import peer_copy as bind_direct
from tnplan.executor.contraction.redistribute.packed import bind_redistribution
from tnplan.executor.contraction.redistribute.peer_copy import can_copy_to_peers, runs
from tnplan.executor.contraction.redistribute.plan import Redistribution, ShardedTensor
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.planner.hardware.process_grid import Digit, box, box_shape, grid_size, largest_shard, rank_digits


def run_direct(grid, extents, source, out, n_reached=None):
    """Exchange on thread ranks with shared arenas; whether the memory was used, the same on all ranks."""
    rng = np.random.default_rng(1)
    whole = rng.standard_normal([extents[mode] for mode in source.modes])
    offset = 64 * (largest_shard(source.modes, source.layout, extents, grid) // 8 + 1)
    size = offset + 8 * largest_shard(out.modes, out.layout, extents, grid)

    def work(communicator):
        digits = rank_digits(communicator.rank, grid)
        bounds = box(source.modes, source.layout, extents, digits, grid)
        out_bounds = box(out.modes, out.layout, extents, digits, grid)
        arena = np.zeros(size, np.uint8)
        reached = communicator.size if n_reached is None else n_reached
        memory = SharedArrays(communicator, arena, reached)
        held = memory.view(communicator.rank, 0, prod(box_shape(bounds)), "float64")
        held[:] = local(whole, source.modes, source.modes, bounds).ravel()
        result = memory.view(communicator.rank, offset, prod(box_shape(out_bounds)), "float64")
        result[:] = np.nan
        call = bind_redistribution(
            Redistribution(source, replace(out, offset_bytes=offset), extents, grid, communicator.rank),
            NumpyDevice(), communicator, (held, result), np.empty(4096), memory,
        )  # fmt: skip
        call()
        assert np.array_equal(result, local(whole, source.modes, out.modes, out_bounds).ravel())
        return memory.used, memory.sent_bytes

    used = run_ranks(grid_size(grid), work)
    assert len({entry[0] for entry in used}) == 1
    return used[0][0], sum(entry[1] for entry in used)


@pytest.mark.parametrize("seed", range(150))
def test_random_layout_changes(monkeypatch, seed):
    monkeypatch.setattr(bind_direct, "SHORTEST_RUN_BYTES", 8)
    rng = np.random.default_rng(seed)
    grid, extents, source, out = random_case(rng, summing=False)
    source, out = ShardedTensor(source.modes, source.layout), ShardedTensor(out.modes, out.layout)
    used, sent_bytes = run_direct(grid, extents, source, out)
    plans = [transfers(grid, extents, source, out, rank) for rank in range(grid_size(grid))]
    assert used == bool(Redistribution(source, out, extents, grid, 0).moving)
    assert sent_bytes == 8 * sum(transfer.elements for plan in plans for transfer in plan.sends)


def test_ranks_that_are_not_reached_exchange_by_messages():
    grid = (Digit(2, 0), Digit(2, 0))
    extents = dict.fromkeys(range(6), 4)
    near = ShardedTensor(tuple(range(6)), (0, 1)), ShardedTensor(tuple(range(6)), (0, 2))
    assert run_direct(grid, extents, *near) == (True, 4**6 // 2 * 8)
    assert run_direct(grid, extents, *near, n_reached=1) == (False, 0)


def test_short_runs_and_sums_go_by_messages():
    grid = (Digit(2, 0),)
    extents = dict.fromkeys(range(4), 2)

    class Reached:
        ranks = frozenset((0, 1))

    def direct(source, out):
        return can_copy_to_peers(Redistribution(source, out, extents, grid, 0), Reached(), "complex128")

    modes = (0, 1, 2, 3)
    assert direct(ShardedTensor(modes, (0,)), ShardedTensor(modes, (1,)))
    assert not direct(ShardedTensor(modes, (2,)), ShardedTensor(modes, (3,)))
    assert not direct(ShardedTensor(modes, (None,), (0,)), ShardedTensor(modes, (0,)))


def test_runs_are_the_modes_behind_those_that_the_other_side_spreads():
    modes = (0, 1, 2, 3)
    extents = {0: 2, 1: 3, 2: 5, 3: 7}
    grid = (Digit(2, 0),)

    def lengths(before, after):
        source, out = ShardedTensor(modes, before), ShardedTensor(modes, after)
        return runs(Redistribution(source, out, extents, grid, 0))

    assert lengths((0,), (2,)) == (7, 3 * 5 * 7)
    assert lengths((3,), (None,)) == (2 * 3 * 5 * 7, 1)


def test_peers_differ_in_the_moving_digits_only():
    grid = (Digit(2, 1), Digit(3, 0), Digit(2, 0))
    extents = dict.fromkeys(range(4), 6)

    def peers(before, after):
        source, out = ShardedTensor((0, 1, 2, 3), before), ShardedTensor((0, 1, 2, 3), after)
        return Redistribution(source, out, extents, grid, 7).peers()

    assert peers((0, 1, 2), (0, 1, 3)) == [6]
    assert peers((0, 1, 2), (3, 1, 0)) == [0, 1, 6]
    assert peers((None, 1, 2), (0, 1, 2)) == []
