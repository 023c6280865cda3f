"""Folded networks of expectation values: real, and those of dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuits import random_circuit, state_vector
from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import I2, X, Y, Z, gate
from tnplan.circuits.program import Channel, depolarizing
from tnplan.planner.networks.of_circuits.sandwich import (
    WordCone,
    folded_leaves,
    folded_sandwich,
    folding_pays,
    sandwich,
    transfer_parts,
)
from tnplan.planner.networks.of_circuits.steps import Step
from tnplan.planner.networks.of_circuits.wires import MATRICES, OpenNetwork, leaves, support_of
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.workloads.lattice import lattice_circuit

N = 5
WORDS = [(0b00001, 0b00000), (0b10110, 0b01100), (0b00000, 0b10001), (0b11111, 0b10101)]
AMPLITUDE_DAMPING = Channel((2,), (np.diag([1, 0.8]), np.array([[0, 0.6], [0, 0]])))


def value(opened: OpenNetwork, tensors: list[np.ndarray]) -> complex:
    """The number that a closed network is."""
    inputs = (*opened.network.inputs, *opened.leaf_terms)
    network = type(opened.network)(inputs, (), opened.network.size_dict)
    network, arrays = simplify(network, [*opened.arrays, *tensors])
    places = {index: place for place, index in enumerate(network.size_dict)}
    operands: list[object] = []
    for term, array in zip(network.inputs, arrays, strict=True):
        operands += [array, [places[index] for index in term]]
    return complex(np.einsum(*operands, [], optimize="greedy"))  # type: ignore[call-overload]


def word_values(steps: list[Step], x: int, z: int) -> tuple[complex, complex]:
    """The value of a word by a folded network, and by one with a ket and a bra."""
    support = support_of(x, z)
    folded = folded_sandwich(steps, support)
    assert all(array.dtype == np.float64 for array in folded.arrays)
    letters = [leaf[0] for leaf in folded_leaves([(x, z)], support)]
    wanted = value(sandwich(steps, support), [leaf[0] for leaf in leaves([(x, z)], support)])
    return value(folded, letters), wanted


@pytest.mark.parametrize("seed", range(6))
def test_values_of_gates_are_those_of_the_state_vector(seed: int) -> None:
    circuit = random_circuit(N, 18, seed)
    state = state_vector(circuit)
    for x, z in WORDS:
        moved = state
        for qubit in range(N):
            letter = MATRICES[(x >> qubit & 1) + 2 * (z >> qubit & 1)]
            moved = np.moveaxis(np.tensordot(letter, moved, ([1], [qubit])), 0, qubit)
        found, by_sandwich = word_values(list(circuit.gates), x, z)
        assert found == pytest.approx(np.vdot(state, moved), abs=1e-12)
        assert found == pytest.approx(by_sandwich, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_noise_and_gates_that_are_not_unitary(seed: int) -> None:
    squeeze = Gate("squeeze", (1,), np.array([[1, 0.2j], [0.1, 0.5]]))
    steps: list[Step] = []
    for number, one in enumerate(random_circuit(N, 12, seed).gates):
        steps += [one, depolarizing(one.qubits, 0.05)]
        if number % 4 == 1:
            steps += [AMPLITUDE_DAMPING, squeeze]
    for x, z in WORDS:
        found, wanted = word_values(steps, x, z)
        assert found == pytest.approx(wanted, abs=1e-12)


def test_several_words_are_rows() -> None:
    support = support_of(0b101, 0b001)
    found = folded_leaves([(0b101, 0b001), (0b101, 0b100)], support)
    assert [leaf.tolist() for leaf in found] == [[[0, 0, 0, 1], [0, 1, 0, 0]], [[0, 1, 0, 0], [0, 0, 0, 1]]]


@pytest.mark.parametrize(("name", "rank"), [("cz", 4), ("cnot", 4), ("fs", 16), ("is", 16)])
def test_a_gate_is_two_tensors_where_it_is_a_sum_of_few_products(name: str, rank: int) -> None:
    one = gate(name, (0, 1), (0.3, 0.2) if name == "fs" else ())
    parts = transfer_parts(one)
    assert [part.shape for part in parts] == ([(4, 4, rank)] * 2 if rank < 16 else [(4,) * 4])
    whole = np.einsum("ack,bdk->abcd", *parts) if rank < 16 else parts[0]
    letters = (I2, X, Z, Y)
    for a in range(4):
        for b in range(4):
            moved = one.matrix @ np.kron(letters[a], letters[b]) @ one.matrix.conj().T
            for c in range(4):
                for d in range(4):
                    wanted = np.trace(np.kron(letters[c], letters[d]) @ moved).real / 4
                    assert whole[c, d, a, b] == pytest.approx(wanted, abs=1e-12)


def test_folding_is_for_gates_that_leave_no_qubit_as_it_is() -> None:
    dense = lattice_circuit("rectangular", 2, 3, 3, 0).gates
    assert folding_pays([*dense, gate("h", (0,)), gate("t", (1,))])
    assert not folding_pays([*dense, gate("cnot", (0, 1))])
    wide = Gate("wide", (0, 1, 2, 3), np.linalg.qr(np.random.default_rng(0).normal(size=(16, 16)))[0])
    assert not folding_pays([wide])
    assert WordCone([*dense, gate("cnot", (0, 1))], support_of(0b100000, 0)).is_dense  # it cancels
    cone = WordCone([*dense, wide], support_of(1, 0))
    assert not cone.can_fold
    noisy = WordCone([*dense, depolarizing((0, 1), 0.1)], support_of(1, 0))
    assert noisy.is_dense
    assert noisy.is_noisy


def test_two_state_vectors_are_counted() -> None:
    steps = [gate("h", (0,)), gate("fs", (0, 1), (0.1, 0.2)), gate("h", (2,))]
    assert 10 ** WordCone(steps, support_of(1, 0)).log10_apart == pytest.approx(2 * 2**2 * (2 + 4))
    assert WordCone([], support_of(1, 0)).log10_apart < 1
