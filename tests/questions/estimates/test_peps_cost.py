"""What a PEPS is predicted to take: memory beside the peak of the call, and bonds below ranks."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import brickwork, qaoa, trotter
from tests.support.counted_ranks import CountedRanks
from tests.support.peps_cases import peps_case
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.compose import inverse
from tnplan.jobs.job import Rank
from tnplan.planner.hardware.profile import Tier

OPTIONS: Any = {"method": "peps", "device": "cpu", "threads": 1}


def circuit_of(seed: int) -> tuple[tnplan.Circuit, int]:
    """A circuit on squares or a 3-regular graph, and a limit of the bond."""
    random = np.random.default_rng(seed)
    graph: Any = (nx.grid_2d_graph(4, 5), nx.random_regular_graph(3, 24, seed=seed))[seed % 2]
    edges = [*nx.convert_node_labels_to_integers(graph).edges]
    gates = (brickwork, trotter, qaoa)[seed % 3](len(graph), edges, 8, random)
    return tnplan.Circuit(GateSequence(len(graph), tuple(gates))), (8, 16)[seed // 2 % 2]


def predicted(circuit: tnplan.Circuit, **options: Any) -> Any:
    (row,) = circuit.estimate(expectation=["Z0", "X1 Z2"], **OPTIONS, **options).rows
    assert row.cost is not None
    return row.cost


@pytest.mark.parametrize("seed", slow_after(2, range(20)))
def test_memory_is_near_the_peak_of_the_call(seed: int) -> None:
    circuit, bond = circuit_of(7_000 + seed)
    cost = predicted(circuit, max_bond=bond)
    circuit.expectation("Z0", **OPTIONS, max_bond=2)  # what is imported stays
    tracemalloc.start()
    try:
        circuit.expectation(["Z0", "X1 Z2"], **OPTIONS, max_bond=bond)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert abs(peak - cost.memory_bytes) < 0.1 * peak + 2e5


def test_bonds_that_stay_below_their_ranks_are_known_from_pilots() -> None:
    """A circuit and its inverse: bonds shrink again, and by ranks they grow on."""
    edges = [*nx.cycle_graph(12).edges]
    half = GateSequence(12, tuple(brickwork(12, edges, 6, np.random.default_rng(1))))
    last = brickwork(12, edges, 2, np.random.default_rng(2))
    circuit = tnplan.Circuit(GateSequence(12, (*half.gates, *inverse(half).gates, *last)))
    assert circuit.expectation("X0", **OPTIONS).details["max_bond"] <= 8
    assert predicted(circuit).memory_bytes < 1e6
    assert predicted(circuit, search_time=0.0).memory_bytes > 2e6


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[CountedRanks]:
    """The ranks of calls, which count what they receive."""
    found, connected = list[CountedRanks](), Rank.connected

    def counting(rank: Rank) -> Any:
        ranks: Any = connected(rank)
        found.append(CountedRanks(ranks))
        return found[-1]

    monkeypatch.setattr(Rank, "connected", counting)
    return found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The bytes whose time estimates have asked for: in the end those of each rank in each run."""
    sizes: list[float] = []
    monkeypatch.setattr(
        Tier, "messages_s", lambda tier, messages, size_bytes: sizes.append(size_bytes) or 0.0
    )
    return sizes


def received(counted: list[CountedRanks]) -> list[int]:
    return [rank.received_bytes for rank in sorted(counted, key=lambda rank: rank.rank)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("seed", slow_after(2, range(91_301, 91_310)))
def test_ranks_receive_what_is_told(
    seed: int, ranks: int, counted: list[CountedRanks], told: list[float]
) -> None:
    """Pilots have the bonds of both runs and the sweeps: all bytes of arrays are known."""
    _, gates, words, bond = peps_case(seed)
    options: Any = {**OPTIONS, "max_bond": bond, "precision": ("fp64", "fp32")[seed % 2]}
    circuit = tnplan.Circuit(gates)
    circuit.estimate(expectation=words, devices=ranks, **options)
    found = circuit.expectation(words, ranks=ranks, **options)
    runs = 2 if found.details["largest_discarded_weight"] else 1
    last = np.reshape(told[-ranks * runs :], (runs, ranks))
    assert last.sum(axis=0).tolist() == received(counted)
    assert last.sum() > 0


def test_ranks_receive_the_whole_state_for_samples(counted: list[CountedRanks], told: list[float]) -> None:
    circuit = circuit_of(1)[0]
    circuit.estimate(sample=10, devices=3, max_bond=4, **OPTIONS)
    circuit.sample(10, ranks=3, max_bond=4, seed=1, **OPTIONS)
    assert told[-3:] == received(counted)


def test_devices_share_the_time_and_the_memory() -> None:
    edges = [*nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 10)).edges]
    circuit = tnplan.Circuit(GateSequence(40, tuple(brickwork(40, edges, 24, np.random.default_rng(3)))))
    options: Any = {**OPTIONS, "expectation": "Z20", "max_bond": 16, "search_time": 0.0}
    rows = circuit.estimate(devices=[1, 2, 4, 41], **options).rows
    costs = [row.cost for row in rows[:3]]
    assert costs[0].time_s > 1.4 * costs[1].time_s > 1.8 * costs[2].time_s
    assert costs[0].memory_bytes > 1.4 * costs[1].memory_bytes
    assert rows[3].cost is None  # more devices than qubits
    between = int((costs[0].memory_bytes + costs[1].memory_bytes) / 2)
    small = replace(tnplan.load_profile("cpu"), memory_bytes=between)
    alone, both = circuit.estimate(devices=[1, 2], hardware=small, **options).rows
    assert (alone.cost, alone.needs_devices, both.needs_devices) == (None, 2, 2)
    assert both.cost.memory_bytes == costs[1].memory_bytes
    assert circuit.estimate(hardware=small, **options).rows[0].needs_devices == 2
