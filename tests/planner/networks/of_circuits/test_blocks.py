"""Blocks of gates, in their order, are the circuit; their networks have its amplitudes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuit_families import FAMILIES, GRAPHS, graph
from tests.support.circuits import contract, random_circuit, state_vector
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.planner.networks.of_circuits.blocks import blocks_of
from tnplan.planner.networks.of_circuits.steps import diagonal_qubits


def circuit_of(family: str, seed: int, most: int = 8) -> GateSequence:
    """A circuit of a family on some graph."""
    random = np.random.default_rng(seed)
    n_qubits, edges = graph(GRAPHS[seed % len(GRAPHS)], most, random)
    return GateSequence(n_qubits, tuple(FAMILIES[family](n_qubits, edges, 5, random)))


@pytest.mark.parametrize("most", [1, 3, 6])
@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_in_their_order_are_the_circuit(family: str, most: int) -> None:
    circuit = circuit_of(family, most)
    blocks = blocks_of(circuit.gates, circuit.n_qubits, most)
    order = blocks[-1].order
    assert blocks[-1].n_gates == len(order) == len(circuit.gates)
    found = state_vector(GateSequence(circuit.n_qubits, tuple(order)))
    np.testing.assert_allclose(found, state_vector(circuit), rtol=0, atol=1e-10)
    before = 0
    for block in blocks:
        inside = order[before + len(block.moves) : block.n_gates]
        changed = [
            {q for q, keeps in zip(one.qubits, diagonal_qubits(one), strict=True) if not keeps}
            for one in inside
        ]
        assert set().union(*changed) <= set(block.qubits)
        assert len(block.qubits) <= max([most, *map(len, changed[:1])])
        before = block.n_gates


@pytest.mark.parametrize("seed", range(4))
def test_the_network_of_a_block_has_the_amplitudes_at_its_end(seed: int) -> None:
    n_qubits = 6
    gates = random_circuit(n_qubits, 40, seed).gates
    for block in blocks_of(gates, n_qubits, 3):
        if not block.qubits:
            continue
        opened, given = block.network(n_qubits)
        state = state_vector(GateSequence(n_qubits, tuple(block.order[: block.n_gates])))
        closed = [np.eye(2)[1] for _ in given]
        terms = (*opened.network.inputs, *opened.leaf_terms)
        network = type(opened.network)(terms, opened.output, opened.network.size_dict)
        found = np.abs(contract(network, [*opened.arrays, *closed])) ** 2
        # Qubits that are not linked with the block's are summed over: their state has norm 1.
        seen = sorted({*given, *block.qubits})
        others = tuple(qubit for qubit in range(n_qubits) if qubit not in seen)
        chances = (np.abs(state) ** 2).sum(axis=others)
        index = tuple(1 if qubit in given else slice(None) for qubit in seen)
        np.testing.assert_allclose(found, chances[index], rtol=0, atol=1e-12)


def test_gates_that_map_strings_to_strings_are_in_no_block() -> None:
    gates = [gate("x", (0,)), gate("cnot", (0, 1)), gate("h", (2,)), gate("cz", (1, 2)), gate("sw", (0, 2))]
    first, last = blocks_of(gates, 3, 1)
    assert [one.name for one in first.moves] == ["x", "cnot"]
    assert first.qubits == (2,)
    assert [one.name for one in last.moves] == ["sw"]
    assert first.network(3)[1] == ()
