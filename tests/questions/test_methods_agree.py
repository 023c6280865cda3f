"""Methods agree on circuits of every family: values equal the state vector's, and so do distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.chi_square import check_counts
from tests.support.circuit_families import random_case
from tests.support.circuits import state_vector
from tests.support.effort import repeats
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence

CPU: Any = {"device": "cpu", "threads": 1}
TOLERANCE = 1e-9
MOST_PAULI_QUBITS = 10
"""A word may grow to 4^n words: with 12 qubits a list of observables took more than an hour."""
SHOTS = 2000
OTHERS = {
    "expectation": ("contraction", "pauli", "mps", "stabilizer"),
    "amplitudes": ("contraction", "mps"),
    "sample": ("contraction", "mps", "stabilizer", "statevector"),
}


@pytest.mark.parametrize("seed", slow_after(12, range(repeats(24, 500))))
def test_methods_agree(seed: int) -> None:
    case = random_case(10_000 + seed, most_qubits=10, most_depth=12)
    if not isinstance(case.circuit, GateSequence) or case.n_qubits > 12:
        case = random_case(20_000 + seed, most_qubits=8, most_depth=6)
    if not isinstance(case.circuit, GateSequence) or case.n_qubits > 12:
        pytest.skip(f"{case.name} has no dense state here")
    circuit, state = tnplan.Circuit(case.circuit), state_vector(case.circuit)
    ask = getattr(circuit, case.question)
    if case.question == "sample":
        for method in OTHERS["sample"]:
            if method == "stabilizer" and not _is_answered(circuit, method):
                continue
            counts = ask(SHOTS, method=method, seed=seed, **CPU).value
            check_counts(counts, abs(state) ** 2)
        return
    argument = case.argument[:50]
    expected = ask(argument, method="statevector", **CPU).value
    for method in OTHERS[case.question]:
        if method == "stabilizer" and not _is_answered(circuit, method):
            continue
        if method == "pauli" and case.n_qubits > MOST_PAULI_QUBITS:
            continue
        found = ask(argument, method=method, **CPU)
        np.testing.assert_allclose(found.value, expected, rtol=0, atol=TOLERANCE, err_msg=method)
        assert found.error_kind == "exact"


def _is_answered(circuit: tnplan.Circuit, method: str) -> bool:
    """Whether the method answers: the stabilizers of Clifford gates alone."""
    try:
        circuit.sample(1, method=method, **CPU)
    except tnplan.InputError:
        return False
    return True
