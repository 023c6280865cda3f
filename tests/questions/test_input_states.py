"""Every question in every kind of input state, by every method, against dense matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support import dense_answers as dense
from tests.support.circuits import unitary
from tests.support.input_states import MIXED, PURE, random_state, vector_of
from tnplan.circuits.gates import gate
from tnplan.circuits.program import (
    CircuitProgram,
    Measurement,
    Reset,
    depolarized,
)

STATES = ("statevector", "contraction")
ALL = (*STATES, "pauli")
EXACT_IN_MIXED = ("contraction", "pauli")
CPU: Any = {"device": "cpu", "threads": 1}
SIZES = (1, pytest.param(2, marks=pytest.mark.slow), 4)


def close(found: tnplan.CircuitAnswer, expected: Any) -> None:
    """The value is exact and says so."""
    assert (found.error_kind, found.error) == ("exact", 0)
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [*PURE, *MIXED])
@pytest.mark.parametrize("n", SIZES)
def test_values_of_words(n: int, kind: str) -> None:
    circuit = dense.circuit_of(n, 45, n)
    state, start = random_state(kind, n, 7 * n)
    matrix = unitary(circuit.gates, n)
    rho = matrix @ start @ matrix.conj().T
    sums = [dense.random_sum(n, 3, seed, is_complex=seed == 2) for seed in range(3)]
    expected = [np.trace(rho @ dense.matrix_of(one)) for one in sums]
    order = np.random.default_rng(n).permutation(n).tolist()[: min(n, 2)]
    reduced, asked = dense.reduced(rho, order), tnplan.Circuit(circuit)
    for method in EXACT_IN_MIXED if kind in MIXED else ALL:
        run: Any = {"state": state, "method": method, **CPU}
        close(asked.expectation(sums, **run), expected)
        close(asked.expectation(sums[0], **run), expected[0].real)
        close(asked.reduced_density_matrix(order, **run), reduced)
        close(asked.probabilities(order, **run), np.diag(reduced).real.reshape((2,) * len(order)))
        single = asked.expectation(sums, precision="fp32", **run).value
        np.testing.assert_allclose(single, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", PURE)
@pytest.mark.parametrize("method", STATES)
@pytest.mark.parametrize("n", SIZES)
def test_amplitudes_and_overlaps(n: int, method: str, kind: str) -> None:
    circuit, other = (dense.circuit_of(n, 45, seed) for seed in (n, n + 20))
    state, rho = random_state(kind, n, 3 * n)
    start = vector_of(rho)
    final, second = (unitary(one.gates, n) @ start for one in (circuit, other))
    asked, run = tnplan.Circuit(circuit), {"state": state, "method": method, **CPU}
    texts = [f"{k:0{n}b}" for k in range(2**n)]
    found = asked.amplitudes(texts, **run).value
    np.testing.assert_allclose(np.outer(found, found.conj()), np.outer(final, final.conj()), atol=1e-10)
    table = asked.amplitudes(open_qubits=range(n), **run).value.ravel()
    np.testing.assert_allclose(table, found, atol=1e-10)
    close(asked.overlap(other, **run), np.vdot(second, final))
    close(asked.overlap(circuit, **run), 1)


@pytest.mark.parametrize("method", STATES)
def test_product_states_have_a_phase(method: str) -> None:
    """Bits have the amplitude 1, and other states of a qubit a real amplitude of 0."""
    run: Any = {"method": method, **CPU}
    nothing = tnplan.Circuit(tnplan.GateSequence(3, ()))
    assert nothing.amplitudes("101", state="101", **run).value == pytest.approx(1)
    found = nothing.amplitudes(["000", "010", "001", "011"], state="0rl", **run).value
    np.testing.assert_allclose(found, np.array([1, 1j, -1j, 1]) / 2, atol=1e-12)


@pytest.mark.parametrize("kind", [*PURE, *MIXED])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_traces(n: int, kind: str) -> None:
    circuit = dense.circuit_of(n, 45, 30 + n)
    state, rho = random_state(kind, n, 11 * n)
    a, b = (dense.random_sum(n, 3, seed, is_complex=True) for seed in (1, 2))
    expected = np.trace(rho @ dense.trace(circuit, a, b))
    for method in ("pauli",) if kind in MIXED else ALL:
        close(tnplan.Circuit(circuit).trace(a, b, state=state, method=method, **CPU), expected)


@pytest.mark.parametrize("kind", [*PURE, *MIXED])
def test_noise_comes_after_the_state(kind: str) -> None:
    circuit = dense.circuit_of(3, 25, 4)
    state, start = random_state(kind, 3, 5)
    operations = (*circuit.gates, Reset(1), Measurement(0, 0), *circuit.gates[:9], Measurement(2, 0))
    program = CircuitProgram(3, 1, operations)
    rho = dense.density(depolarized(program, 0.03).operations[:-1], 3, start)
    one = dense.random_sum(3, 4, 6)
    for method in EXACT_IN_MIXED:
        found = tnplan.Circuit(program).expectation(one, state=state, depolarizing=0.03, method=method, **CPU)
        close(found, np.trace(rho @ dense.matrix_of(one)).real)


@pytest.mark.parametrize("kind", [*PURE, *MIXED])
def test_samples_follow_the_probabilities(kind: str) -> None:
    from scipy.stats import chisquare

    circuit, (state, start) = dense.circuit_of(3, 40, 8), random_state(kind, 3, 9)
    matrix = unitary(circuit.gates, 3)
    chances = np.diag(matrix @ start @ matrix.conj().T).real
    for method in STATES:
        shots = 300 if kind in MIXED and method == "statevector" else 4000
        found = tnplan.Circuit(circuit).sample(shots, state=state, seed=2, method=method, **CPU)
        counts = np.array([found.value.get(f"{k:03b}", 0) for k in range(8)])
        assert chisquare(counts, chances * shots).pvalue > 1e-3


@pytest.mark.parametrize("kind", MIXED)
def test_a_mixed_state_by_trajectories(kind: str) -> None:
    circuit, (state, start) = dense.circuit_of(3, 30, 2), random_state(kind, 3, 3)
    matrix, one = unitary(circuit.gates, 3), dense.random_sum(3, 3, 1)
    expected = np.trace(matrix @ start @ matrix.conj().T @ dense.matrix_of(one)).real
    run: Any = {"method": "statevector", "trajectories": 200, "seed": 1, **CPU}
    found = tnplan.Circuit(circuit).expectation(one, state=state, **run)
    assert found.error_kind == "statistical"
    assert abs(found.value - expected) < 4.5 * found.error < 1


@pytest.mark.parametrize("kind", PURE)
def test_gradients_in_a_state(kind: str, tmp_path: Path) -> None:
    """By the contraction, the state vector and the words, against differences."""
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    (tmp_path / "ansatz.qasm").write_text(ANSATZ)
    ansatz = tnplan.Circuit(tmp_path / "ansatz.qasm", {"t": 0.3, "s": 1.1})
    state, _ = random_state(kind, 3, 6)
    run: Any = {"state": state, **CPU}

    def value(**angles: float) -> float:
        return float(ansatz.bind(angles).expectation("Z0 Y1 + X2", **run).value)

    step = 1e-5
    slopes = {
        name: (value(**{name: at + step}) - value(**{name: at - step})) / (2 * step)
        for name, at in (("t", 0.3), ("s", 1.1))
    }
    for method in ALL:
        found = ansatz.expectation("Z0 Y1 + X2", gradient=True, method=method, **run)
        assert found.value == pytest.approx(value(), abs=1e-10)
        assert found.gradient == pytest.approx(slopes, abs=1e-8)


def test_auto_and_estimates_know_the_state() -> None:
    asked = tnplan.Circuit(dense.circuit_of(3, 30, 2))
    assert asked.expectation("Z0", state="r+l", **CPU).method == "statevector"
    mixed = asked.expectation("Z0", state=["Z0 Z1"], **CPU)
    assert mixed.method in EXACT_IN_MIXED
    plan = asked.estimate(trace=("Z0", "Z1"), state=["Z0 Z1"], search_time=0)
    assert plan.method == "pauli"
    reasons = {row.method: row.reason for row in plan.rows}
    assert "the input state is mixed" in reasons["contraction"]


@pytest.mark.parametrize("kind", ["letters", *MIXED])
def test_gates_on_many_qubits_are_split(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    (tmp_path / "c.qasm").write_text(
        'include "stdgates.inc";\nqubit[5] q;\nbit[1] c;\nctrl(4) @ x q[0], q[1], q[2], q[3], q[4];\n'
        "h q[0];\nc[0] = measure q[4];\n"
    )
    state, start = random_state(kind, 5, 4)
    flip = np.eye(32)
    flip[30:, 30:] = [[0, 1], [1, 0]]
    matrix = unitary([gate("h", (0,))], 5) @ flip
    one = dense.random_sum(5, 4, 2)
    expected = np.trace(matrix @ start @ matrix.conj().T @ dense.matrix_of(one)).real
    asked = tnplan.Circuit(tmp_path / "c.qasm")
    for method in EXACT_IN_MIXED:
        close(asked.expectation(one, state=state, method=method, **CPU), expected)
    assert sum(asked.sample(20, state=state, seed=1, **CPU).value.values()) == 20


def test_long_registers() -> None:
    """Stabilizers and letters past the 64 bits of a word: a GHZ state, and a layer that undoes it."""
    n = 70
    ghz = [" ".join(f"X{q}" for q in range(n)), *(f"Z{q} Z{q + 1}" for q in range(n - 1))]
    nothing = tnplan.Circuit(tnplan.GateSequence(n, ()))
    for method in EXACT_IN_MIXED:
        run: Any = {"method": method, **CPU}
        found = nothing.expectation([ghz[0], "Z0 Z69", "Z3"], state=ghz, **run)
        np.testing.assert_allclose(found.value, [1, 1, 0], atol=1e-10)
        found = nothing.expectation(["X69", "Y68", "Z0"], state="1" + "+" * 67 + "l-", **run)
        np.testing.assert_allclose(found.value, [-1, -1, -1], atol=1e-10)


ANSATZ = """OPENQASM 3.0;
include "stdgates.inc";
input float t;
input float s;
qubit[3] q;
h q[0];
rx(t) q[0];
cx q[0], q[1];
rz(2 * s) q[1];
ry(t + s) q[2];
cx q[1], q[2];
"""


def test_circuit_program_keeps_its_bits() -> None:
    """A state in front changes neither the bits nor the place of the final measurements."""
    program = CircuitProgram(2, 2, (Measurement(1, 0),))
    assert tnplan.Circuit(program).sample(5, state="01", **CPU).value == {"10": 5}
