"""Changes of layout whose rounds overlap, with messages that move as early and as late as they may."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.contraction.redistribution import random_case, run_case, transfers
from tests.support.slow import slow_after
from tnplan.executor.contraction.redistribute import plan as exchange
from tnplan.executor.contraction.redistribute.plan import Redistribution, ShardedTensor
from tnplan.executor.device.comm.threads import ThreadCommunicator
from tnplan.planner.hardware.process_grid import Digit


def early(self, sends, receives):
    return lambda: self.exchange(sends, receives), lambda: None


def late(self, sends, receives):
    return lambda: None, lambda: self.exchange(sends, receives)


@pytest.mark.parametrize("moves", [early, late])
@pytest.mark.parametrize("seed", slow_after(25, range(60)))
def test_rounds_that_overlap_give_the_same_shards(monkeypatch, moves, seed):
    monkeypatch.setattr(exchange, "PIPELINED_ELEMENTS", 1)
    monkeypatch.setattr(ThreadCommunicator, "overlaps", True)
    monkeypatch.setattr(ThreadCommunicator, "bind_exchange", moves)
    rng = np.random.default_rng(seed)
    grid, extents, source, out = random_case(rng, summing=seed % 2 == 1)
    run_case(grid, extents, source, out, int(rng.choice([48, 64, 4096])), seed=seed)


def test_small_exchanges_go_in_one_round_and_large_ones_take_turns():
    grid = (Digit(2, 0), Digit(2, 0))
    layouts = ShardedTensor((0, 1, 2), (0, 1)), ShardedTensor((0, 1, 2), (1, 2))
    for extent, wanted in ((64, (1, 3, 1, 1)), (1 << 23, (4, 3, 1, 2))):
        extents = {0: 2, 1: 2, 2: extent}
        change = Redistribution(*layouts, extents, grid, 0)
        rounds = exchange.plan_redistribution(change, 8 * 2 * extent, overlap=True).rounds
        assert (rounds.pieces, rounds.peers_a_wave, rounds.waves, rounds.turns) == wanted


def test_without_overlap_there_is_one_turn():
    grid = (Digit(2, 0),)
    plan = transfers(
        grid, {0: 2, 1: 1 << 24}, ShardedTensor((0, 1), (0,)), ShardedTensor((0, 1), (1,)), 0, 1 << 26
    )
    assert plan.rounds.turns == 1
