"""Circuits for expectation values: coupling maps against known ones, and what their gates do."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import tnplan
from tests.support.circuits import state_vector, unitary
from tests.support.engines.pauli import eagle_edges
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.root import ROOT
from tnplan.planner.workloads.dynamics import (
    coupling_map,
    edge_layers,
    kicked_ising,
    loschmidt,
    qaoa_ansatz,
    vqe_ansatz,
)

ECHO = ROOT.parent / "shared" / "data" / "circuits" / "ole_49q_l3.qasm"
Z, X, ONE = np.diag([1.0, -1]), np.array([[0, 1], [1, 0]]), np.eye(2)


def word(letters: dict[int, np.ndarray], n: int) -> np.ndarray:
    """The matrix of a word; qubit 0 is the most significant bit."""
    matrix = np.eye(1)
    for q in range(n):
        matrix = np.kron(matrix, letters.get(q, ONE))
    return matrix


def turn(generator: np.ndarray, angle: float) -> np.ndarray:
    """exp(-i angle P / 2)."""
    return math.cos(angle / 2) * np.eye(len(generator)) - 1j * math.sin(angle / 2) * generator


def test_the_chip_of_127_is_eagle() -> None:
    assert coupling_map("heavy-hex", 127) == sorted(tuple(sorted(edge)) for edge in eagle_edges())


@pytest.mark.skipif(not ECHO.exists(), reason="needs ../shared/data/circuits")
def test_the_chip_of_156_has_the_couplings_of_a_published_circuit() -> None:
    lines = re.findall(r"^cz q\[(\d+)\], q\[(\d+)\];", ECHO.read_text(), re.MULTILINE)
    used = {tuple(sorted(map(int, pair))) for pair in lines}
    assert len(used) == 54
    assert used <= set(coupling_map("heavy-hex", 156))


def test_layers_share_no_qubit_and_have_all_edges() -> None:
    for n_edges, n_qubits in ((144, 127), (176, 156)):
        edges = coupling_map("heavy-hex", n_qubits)
        layers = edge_layers(edges)
        assert len(edges) == n_edges
        assert sorted(edge for layer in layers for edge in layer) == edges
        assert all(len({q for edge in layer for q in edge}) == 2 * len(layer) for layer in layers)
        assert max(np.bincount(np.ravel(edges))) == 3


def test_a_step_of_the_kicked_model() -> None:
    expected = np.eye(16)
    for q in range(4):
        expected = turn(word({q: X}, 4), 0.4) @ expected
    for q in range(3):
        expected = turn(word({q: Z, q + 1: Z}, 4), 0.9) @ expected
    circuit = kicked_ising("line", 4, 2, 0.4, 0.9)
    np.testing.assert_allclose(unitary(circuit.gates, 4), expected @ expected, atol=1e-12)


def test_an_echo_is_a_perturbation_taken_through_a_circuit() -> None:
    circuit = loschmidt("line", 5, 2, 0.5, 0.3)
    n = (len(circuit.gates) - 3) // 2
    there = unitary(circuit.gates[:n], 5)
    middle = turn(word({0: Z}, 5), 0.3) @ turn(word({2: Z}, 5), 0.3) @ turn(word({4: Z}, 5), 0.3)
    np.testing.assert_allclose(unitary(circuit.gates, 5), there.conj().T @ middle @ there, atol=1e-12)
    undone = loschmidt("line", 5, 2, 0.5, 0.0)
    np.testing.assert_allclose(unitary(undone.gates, 5), np.eye(32), atol=1e-12)


def test_ansatz_circuits() -> None:
    edges = [(0, 1), (1, 2), (0, 2)]
    cut = sum((np.eye(8) - word({u: Z, v: Z}, 3)) / 2 for u, v in edges)
    state = np.full(8, 8**-0.5, np.complex128)
    for gamma, beta in ((0.3, 0.8), (0.5, 0.2)):
        state = np.exp(-1j * gamma * np.diag(cut)) * state
        for q in range(3):
            state = turn(word({q: X}, 3), 2 * beta) @ state
    found = state_vector(qaoa_ansatz(3, edges, [0.3, 0.5], [0.8, 0.2])).ravel()
    assert abs(np.vdot(found, state)) == pytest.approx(1, abs=1e-12)
    circuit = vqe_ansatz("line", 4, 2, 7)
    assert [sum(one.name == name for one in circuit.gates) for name in ("ry", "rz", "cz")] == [12, 12, 6]
    again = vqe_ansatz("line", 4, 2, 7)
    assert [one.params for one in circuit.gates] == [one.params for one in again.gates]


# fmt: off
BAD_VALUES: list[Row] = [
    (lambda: tnplan.workload.ising(1, qubits=100), "--qubits", "is 100 on heavy-hex", "give 127 or 156"),
    (lambda: tnplan.workload.ising(0), "--steps", "is 0", "give an integer from 1"),
    (lambda: tnplan.workload.ising(1, field=math.nan), "--field", "is nan", "give a finite angle in radians"),
    (lambda: tnplan.workload.ising(1, lattice="ring"), "--lattice",
     "'ring' is unknown", "choose from heavy-hex"),
    (lambda: tnplan.workload.loschmidt(1, qubits=1), "--qubits", "is 1", "give an integer from 2"),
    (lambda: tnplan.workload.ansatz(1, kind="uccsd"), "--kind",
     "'uccsd' is unknown", "choose from vqe, qaoa"),
    (lambda: tnplan.workload.ansatz(0), "--layers", "is 0", "give an integer from 1"),
]
# fmt: on


@table(BAD_VALUES)
def test_bad_values_are_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)
