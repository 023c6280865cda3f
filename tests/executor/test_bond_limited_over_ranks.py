"""A contraction with a bond limit over ranks: the bits of one rank, and even work."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from tests.support.bond_limited_cases import Arguments, case, on_graph
from tests.support.counted_ranks import CountedRanks
from tests.support.slow import slow_after
from tnplan.executor.bond_limited.dry_run import dry_run, dry_run_over_ranks
from tnplan.executor.bond_limited.network import CompressBond, ContractPair, contract_with_bond_limit
from tnplan.executor.bond_limited.over_ranks import ArrayExchange, contract_over_ranks
from tnplan.executor.device.comm.threads import ThreadCommunicator, run_ranks
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.jobs.arrays.planning import read_request
from tnplan.planner.networks.network import PairNetwork
from tnplan.planner.search.bond_limited_order import BondLimitedOrder, follow, search_order
from tnplan.planner.search.bond_limited_owners import owners_of

CUTOFF = 1e-10
FIRST_SEED = 9_300_000


class Connected:
    """The largest connected part of a network: its arrays, bonds, order and steps."""

    def __init__(self, arguments: Arguments, max_bond: int) -> None:
        call = read_request(arguments[0], arguments[1:])
        pairs = PairNetwork(call.network)
        dtype = np.result_type(*call.operands)
        tensors, _ = pairs.tensors([np.asarray(one, dtype) for one in call.operands], str(dtype), np)
        numbers = max(pairs.components, key=len)
        self.shapes = pairs.bonds_within(numbers)
        self.arrays, self.dtype = [tensors[number] for number in numbers], str(dtype)
        self.max_bond, self.neighbours = max_bond, [list(bonds) for bonds in self.shapes]
        found = search_order(self.shapes, max_bond, 1e9)
        self.order: BondLimitedOrder = follow(self.shapes, found.pairs, max_bond)
        self.steps: list[Any] = []
        steps = zip(self.order.pairs, self.order.compressions, strict=True)
        for new, (pair, cuts) in enumerate(steps, len(numbers)):
            self.steps += [ContractPair(*pair, new), *(CompressBond(*cut) for cut in cuts)]

    def alone(self) -> Any:
        own = [one.copy() for one in self.arrays]
        return contract_with_bond_limit(own, self.neighbours, self.steps, self.max_bond, CUTOFF)

    def over(self, count: int, counted: list[CountedRanks] | None = None) -> list[Any]:
        owners = owners_of(self.shapes, self.order, count)

        def on_rank(ranks: ThreadCommunicator) -> Any:
            connected: Any = ranks
            if counted is not None:
                connected = CountedRanks(ranks)
                counted.append(connected)
            own = [
                one.copy() if owner == ranks.rank else None
                for one, owner in zip(self.arrays, owners, strict=False)
            ]
            limits, exchange = (self.max_bond, CUTOFF), ArrayExchange(connected, np)
            return contract_over_ranks(own, self.neighbours, self.steps, owners, limits, exchange, self.dtype)

        return run_ranks(count, on_rank)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("seed", slow_after(6, range(FIRST_SEED, FIRST_SEED + 30)))
def test_ranks_give_the_bits_of_one(seed: int, count: int) -> None:
    _, arguments, max_bond = case(seed)
    network = Connected(arguments, max_bond)
    with blas_threads(1):
        alone = network.alone()
        first, *others = network.over(count)
    assert (first.mantissa, first.exponent) == (alone.mantissa, alone.exponent)
    assert first.discarded == alone.discarded
    assert all(other.mantissa == 0 and other.discarded == alone.discarded for other in others)


def test_zeros_are_zero_on_ranks() -> None:
    arguments = on_graph(nx.grid_2d_graph(5, 5), 3, np.random.default_rng(1))
    arguments[20] = np.zeros_like(arguments[20])
    network = Connected(arguments, 4)
    alone, found = network.alone(), network.over(3)[0]
    assert alone.mantissa == found.mantissa == 0
    assert found.discarded == alone.discarded


def test_ranks_share_the_work_and_the_memory() -> None:
    arguments = on_graph(nx.grid_2d_graph(12, 12), 3, np.random.default_rng(2))
    network = Connected(arguments, 32)
    whole = dry_run(network.shapes, network.steps, 32, network.dtype)
    for count in (2, 4):
        owners = owners_of(network.shapes, network.order, count)
        assert {*owners} == {*range(count)}
        assert owners[-1] == 0
        works = dry_run_over_ranks(network.shapes, network.steps, 32, network.dtype, owners)
        assert max(work.peak_bytes for work in works) < whole.peak_bytes
        products = [sum(work.operations.values()) for work in works]
        assert max(products) < 0.8 * sum(products)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("seed", slow_after(2, range(91_210, 91_222)))
def test_messages_are_those_that_shapes_tell(seed: int, count: int) -> None:
    """Bonds keep all singular values that the limit leaves them, as shapes have it."""
    _, arguments, max_bond = case(seed)
    network = Connected(arguments, max_bond)
    counted: list[CountedRanks] = []
    with blas_threads(1):
        network.over(count, counted)
    owners = owners_of(network.shapes, network.order, count)
    works = dry_run_over_ranks(network.shapes, network.steps, max_bond, network.dtype, owners)
    counted.sort(key=lambda rank: rank.rank)
    for rank, work in zip(counted, works, strict=False):
        told = work.messages, work.sent_bytes, work.received_bytes
        assert told == (rank.messages, rank.sent_bytes, rank.received_bytes)
    assert sum(rank.sent_bytes for rank in counted) == sum(work.received_bytes for work in works) > 0
