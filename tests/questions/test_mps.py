"""Matrix product states: exact unless they are truncated, and what is said of a truncation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import brickwork, graph, rotation
from tests.support.circuits import state_vector
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate

pytest.importorskip("quimb")

CPU: Any = {"device": "cpu", "threads": 1, "method": "mps"}
STEPS = 600


@pytest.mark.parametrize(
    ("precision", "angle"),
    [
        pytest.param(name, unit * 3.0**k, marks=[] if k in (1, 4) else [pytest.mark.slow])
        for name, unit in (("fp32", 1e-7), ("fp64", 1e-15))
        for k in range(6)
    ],
)
def test_small_gates_that_follow_each_other_add_up(precision: str, angle: float) -> None:
    """Each entangles by about a unit in the last place: a state that drops them all loses their sum."""
    gates = [gate("h", (q,)) for q in range(3)]
    step = [rotation("ZZ", (0, 1), angle), rotation("XX", (1, 2), angle)]
    gates += STEPS * step
    circuit = GateSequence(3, tuple(gates))
    strings = ["000", "011", "101"]
    found = tnplan.Circuit(circuit).amplitudes(strings, precision=precision, **CPU)
    expected = [state_vector(circuit)[tuple(map(int, text))] for text in strings]
    assert found.error_kind == "exact"
    # A unit in the last place a gate.
    unit = {"fp32": 2.0**-23, "fp64": 2.0**-52}[precision]
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=2 * STEPS * unit)


@pytest.mark.parametrize("n", [10, 60])
def test_bonds_of_a_ghz_state_stay_two(n: int) -> None:
    gates = (gate("h", (0,)), *(gate("cnot", (q, q + 1)) for q in range(n - 1)))
    circuit = tnplan.Circuit(GateSequence(n, gates))
    for precision in ("fp32", "fp64"):
        assert circuit.amplitudes("0" * n, precision=precision, **CPU).details["max_bond"] == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_truncated_state_says_estimate(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, edges = graph("line", 10, random)
    circuit = tnplan.Circuit(GateSequence(n, tuple(brickwork(n, edges, 12, random))))
    words = [f"Z{q} Z{q + 1}" for q in range(n - 1)]
    exact = circuit.expectation(words, **CPU)
    assert (exact.error_kind, exact.error) == ("exact", 0)
    truncated = circuit.expectation(words, max_bond=8, **CPU)
    assert truncated.error_kind == "estimate"
    assert truncated.details["max_bond"] <= 8
    assert 0 < truncated.details["fidelity_estimate"] < 1
    assert np.all(truncated.error > 0)
    whole = circuit.expectation(words, max_bond=1 << n, **CPU)
    np.testing.assert_allclose(whole.value, exact.value, rtol=0, atol=1e-10)
