"""The linear cross-entropy in answers to `sample`, against dense probabilities of the outcomes themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import state_vector
from tnplan.circuits.program import CircuitProgram, Measurement
from tnplan.planner.workloads.lattice import lattice_circuit

CIRCUIT = lattice_circuit("rectangular", 3, 3, 14, 2)
CHANCES = abs(state_vector(CIRCUIT)).reshape(-1) ** 2
CPU: Any = {"device": "cpu", "threads": 1, "seed": 7}
SHOTS = 1500


def expected(counts: dict[str, int]) -> tuple[float, float]:
    """The mean of 2^n p - 1 over all shots, and its standard error."""
    terms = [2**9 * CHANCES[int(text, 2)] - 1 for text, number in counts.items() for _ in range(number)]
    return float(np.mean(terms)), float(np.std(terms, ddof=1) / np.sqrt(len(terms)))


@pytest.mark.parametrize(
    ("method", "how"),
    [
        ("statevector", {}), ("contraction", {}), ("contraction", {"sampling": "rejection"}),
        ("contraction", {"sampling": "rejection", "fidelity": 0.3}),
    ],
)  # fmt: skip
def test_an_answer_has_the_cross_entropy_of_its_samples(method: str, how: dict[str, Any]) -> None:
    answer = tnplan.Circuit(CIRCUIT).sample(SHOTS, method=method, **how, **CPU)
    value, error = expected(answer.value)
    assert answer.details["linear_xeb"] == pytest.approx(value, abs=1e-9)
    assert answer.details["linear_xeb_error"] == pytest.approx(error, abs=1e-9)
    assert answer.document["linear_xeb"] == answer.details["linear_xeb"]
    of_exact_samples = 2**9 * (CHANCES**2).sum() - 1
    share = answer.details.get("fidelity", 1.0)
    assert abs(value - share * of_exact_samples) < 5 * error + (0.1 if share < 1 else 0)


def test_outcomes_are_bits_in_another_order() -> None:
    bits = [3, 5, 0, 1, 8, 2, 7, 4, 6]
    program = CircuitProgram(9, 9, (*CIRCUIT.gates, *(Measurement(q, bit) for q, bit in enumerate(bits))))
    answer = tnplan.Circuit(program).sample(SHOTS, method="statevector", **CPU)
    back = {"".join(text[bit] for bit in bits): number for text, number in answer.value.items()}
    assert answer.details["linear_xeb"] == pytest.approx(expected(back)[0], abs=1e-9)


def test_correlated_samples_have_no_standard_error() -> None:
    answer = tnplan.Circuit(CIRCUIT).sample(
        SHOTS, method="contraction", sampling="rejection", open_qubits=3, **CPU
    )
    assert answer.details["linear_xeb"] == pytest.approx(expected(answer.value)[0], abs=1e-9)
    assert answer.details["linear_xeb_error"] is None


def test_where_there_is_none() -> None:
    some = CircuitProgram(9, 2, (*CIRCUIT.gates, Measurement(0, 0), Measurement(4, 1)))
    for answer in (
        tnplan.Circuit(some).sample(50, method="statevector", **CPU),
        tnplan.Circuit(CIRCUIT).sample(50, method="contraction", depolarizing=0.01, **CPU),
        tnplan.Circuit(CIRCUIT).sample(1, method="statevector", **CPU),
    ):
        assert "linear_xeb" not in answer.details
