"""Observables as matrix product operators: exact values, estimates that cover the error, light cones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import random_case
from tests.support.slow import slow_after
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.compose import inverse
from tnplan.circuits.gates import gate

pytest.importorskip("quimb")
AT_ONCE = 60


def cases(seeds: Sequence[int], most_qubits: int) -> Iterator[tuple[int, tnplan.Circuit, list[Any]]]:
    """The circuits of unitary gates among some seeds, and two observables of each."""
    for seed in seeds:
        case = random_case(seed, most_qubits=most_qubits, most_depth=8)
        circuit = tnplan.Circuit(case.circuit)
        # Heavy hexagons come with more qubits than are asked for.
        is_small = isinstance(case.circuit, GateSequence) and case.circuit.n_qubits <= most_qubits
        if case.question == "expectation" and is_small:
            yield seed, circuit, list(case.argument)[:2]


@pytest.mark.parametrize("first", slow_after(1, range(7000, 7000 + 6 * AT_ONCE, AT_ONCE)))
def test_values_are_those_of_the_state_vector(first: int) -> None:
    for seed, circuit, words in cases(range(first, first + AT_ONCE), 6):
        exact = circuit.expectation(words, method="statevector").value
        found = circuit.expectation(words, method="mpo")
        assert found.value == pytest.approx(exact, abs=1e-10), seed
        assert found.error_kind == "exact"


@pytest.mark.slow
def test_the_estimate_covers_the_error() -> None:
    """Of values that truncation changes, on seeds that nothing was fitted to; goal: nine in ten."""
    covered = []
    for _, circuit, words in cases(range(8000, 8300), 10):
        exact = circuit.expectation(words, method="statevector").value
        for bond in (4, 16):
            found = circuit.expectation(words, method="mpo", max_bond=bond)
            assert found.error_kind == "estimate"
            errors = np.abs(found.value - exact)
            covered += list((errors <= found.error)[errors > 1e-9])
    assert len(covered) > 50
    assert np.mean(covered) >= 0.9


def test_gates_outside_of_the_light_cone_are_left_out() -> None:
    """An echo of 400 qubits: all but what the perturbed gate reaches cancels."""
    n = 400
    layer = [gate("ry", (q,), (0.3 + 0.01 * q,)) for q in range(n)]
    layer += [gate("cz", (q, q + 1)) for first in (0, 1) for q in range(first, n - 1, 2)]
    forward = GateSequence(n, tuple(layer * 2))
    kick = GateSequence(n, (gate("rx", (200,), (0.7,)),))
    echo = GateSequence(n, forward.gates + kick.gates + inverse(forward).gates)
    near, far = tnplan.Circuit(echo).expectation(["Z200", "Z10"], method="mpo").value
    assert far == pytest.approx(1.0, abs=1e-10)
    local = [g for g in forward.gates if all(190 <= q < 211 for q in g.qubits)]
    small = GateSequence(n, (*local, *kick.gates, *inverse(GateSequence(n, tuple(local))).gates))
    exact = tnplan.Circuit(small).expectation("Z200", method="contraction").value
    assert near == pytest.approx(exact, abs=1e-9)
    assert near < 0.99


def test_a_sum_of_words_and_a_gate_on_three_qubits() -> None:
    toffoli = Gate("ccx", (2, 0, 1), np.eye(8)[[0, 1, 2, 3, 4, 5, 7, 6]].astype(complex))
    gates = gate("h", (0,)), gate("cnot", (0, 1)), gate("t", (1,)), toffoli, gate("h", (2,))
    circuit = tnplan.Circuit(GateSequence(3, gates))
    real = tnplan.PauliSum.of("0.5 X0 X1 + 1.5 Y0 Y1 - 2 Z0 + 0.25 X2")
    for observable in (real, real + 0.5j * real @ real):
        exact = circuit.expectation(observable, method="statevector").value
        assert circuit.expectation(observable, method="mpo").value == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("question", ["sample", "amplitudes"])
def test_other_questions_are_refused(question: str) -> None:
    argument = 10 if question == "sample" else ["00"]
    with pytest.raises(tnplan.InputError, match=question):
        getattr(tnplan.Circuit(GateSequence(2, (gate("h", (0,)),))), question)(argument, method="mpo")


def test_traces_over_all_inputs_are_those_of_pauli_propagation() -> None:
    """Without truncation they are exact; with it the estimate covers the error."""
    covered = []
    for seed, circuit, _ in cases(range(9000, 9060), 7):
        a, b = "0.5 X0 + 0.25 Z0 Z1 - Y1", "0.7 X0 + 0.2 Z0 Z1 + 0.4 Z1 + 0.1"
        try:
            exact = circuit.trace(a, b, method="pauli").value
        except tnplan.InputError:  # a gate on one qubit alone, or one that 'pauli' does not take
            continue
        found = circuit.trace(a, b, method="mpo")
        assert found.value == pytest.approx(exact, abs=1e-10), seed
        assert found.error_kind == "exact"
        cut = circuit.trace(a, b, method="mpo", max_bond=3)
        covered.append(abs(cut.value - exact) <= cut.error + 1e-10)
    assert len(covered) > 5
    assert np.mean(covered) >= 0.9
    with pytest.raises(tnplan.InputError, match="traces over all inputs"):
        tnplan.Circuit(GateSequence(2, ())).trace("Z0", "Z0", method="mpo", state="01")
