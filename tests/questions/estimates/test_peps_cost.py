"""What a PEPS is predicted to take: memory beside the peak of the call, and bonds below ranks."""

from __future__ import annotations

import tracemalloc
from typing import Any

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import brickwork, qaoa, trotter
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.compose import inverse

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
