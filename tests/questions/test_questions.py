"""Every question by every method against dense matrices, on random circuits with every gate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support import dense_answers as dense
from tests.support.circuits import state_vector
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.compose import pauli_word_gates
from tnplan.circuits.program import (
    CircuitProgram,
    Measurement,
    Reset,
    circuit_program,
    depolarized,
    depolarizing,
)

TOLERANCE = {"fp64": 1e-10, "fp32": 1e-5}
SIZES = (1, 2, 3, 6, 10)
ALL = ("statevector", "contraction", "pauli", "mps")
STATES = ("statevector", "contraction", "mps")
TRACES = ("statevector", "contraction", "pauli")
CPU: Any = {"device": "cpu", "threads": 1}


def close(found: tnplan.CircuitAnswer, expected: Any, precision: str = "fp64", scale: float = 1.0) -> None:
    """The value is exact and says so."""
    assert found.error_kind == "exact"
    assert found.error == 0
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=TOLERANCE[precision] * scale)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("method", STATES)
@pytest.mark.parametrize("n", SIZES)
def test_amplitudes(n: int, method: str, precision: str) -> None:
    circuit = dense.circuit_of(n, 45, n)
    asked, state = tnplan.Circuit(circuit), state_vector(circuit)
    rows = np.random.default_rng(n).integers(0, 2, (5, n))
    texts = ["".join(map(str, row)) for row in rows.tolist()]
    expected = np.array([state[tuple(row)] for row in rows])
    for given in (texts, rows, rows.astype(bool)):
        close(asked.amplitudes(given, method=method, precision=precision, **CPU), expected, precision)
    close(asked.amplitudes(texts[0], method=method, precision=precision, **CPU), expected[0], precision)


@pytest.mark.parametrize("method", STATES)
@pytest.mark.parametrize("n", SIZES)
def test_open_amplitudes(n: int, method: str) -> None:
    circuit = dense.circuit_of(n, 45, n)
    asked, state = tnplan.Circuit(circuit), state_vector(circuit)
    qubits = np.random.default_rng(n).permutation(n)[: max(1, n // 2)].tolist()
    pattern = ["1" if q % 2 else "0" for q in range(n)]
    for text in (None, "".join("." if q in qubits else bit for q, bit in enumerate(pattern))):
        index = tuple(slice(None) if q in qubits else int((text or "0" * n)[q]) for q in range(n))
        order = [sorted(qubits).index(q) for q in qubits]
        found = asked.amplitudes(text, open_qubits=qubits, method=method, **CPU)
        close(found, state[index].transpose(order))


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("n", SIZES)
def test_expectation(n: int, method: str, precision: str) -> None:
    circuit = dense.circuit_of(n, 45, 100 + n)
    sums = [dense.random_sum(n, 3, seed, is_complex=seed == 2) for seed in range(3)]
    expected = [dense.expectation(circuit, one) for one in sums]
    asked = tnplan.Circuit(circuit)
    found = asked.expectation(sums, method=method, precision=precision, **CPU)
    close(found, expected, precision, 10)
    single = asked.expectation(sums[0], method=method, precision=precision, **CPU)
    assert isinstance(single.value, float)
    close(single, expected[0].real, precision, 10)


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("n", SIZES)
def test_probabilities_and_density_matrices(n: int, method: str) -> None:
    circuit = dense.circuit_of(n, 45, 200 + n)
    asked, state = tnplan.Circuit(circuit), state_vector(circuit).ravel()
    rho = np.outer(state, state.conj())
    order = np.random.default_rng(n).permutation(n).tolist()
    most = 2 if method == "pauli" and n > 3 else 3
    for m in range(1, min(most, n) + 1):
        expected = dense.reduced(rho, order[:m])
        close(asked.reduced_density_matrix(order[:m], method=method, **CPU), expected)
        table = asked.probabilities(order[:m], method=method, **CPU)
        close(table, np.diag(expected).real.reshape((2,) * m))
    if n <= (3 if method == "pauli" else 7):
        close(asked.probabilities(method=method, **CPU), (abs(state) ** 2).reshape((2,) * n))


@pytest.mark.parametrize("method", STATES)
@pytest.mark.parametrize("n", SIZES)
def test_overlap(n: int, method: str) -> None:
    first, second = (dense.circuit_of(n, 45, seed) for seed in (n, 50 + n))
    expected = np.vdot(state_vector(second), state_vector(first))
    close(tnplan.Circuit(first).overlap(second, method=method, **CPU), expected)
    close(tnplan.Circuit(first).overlap(tnplan.Circuit(first), method=method, **CPU), 1)


@pytest.mark.parametrize("method", TRACES)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_trace(n: int, method: str) -> None:
    circuit = dense.circuit_of(n, 45, 300 + n)
    a, b = (dense.random_sum(n, 3, seed, is_complex=True) for seed in (1, 2))
    product = dense.trace(circuit, a, b)
    asked = tnplan.Circuit(circuit)
    close(asked.trace(a, b, method=method, **CPU), np.trace(product) / 2**n, scale=10)
    state = "".join("10"[q % 2] for q in range(n))
    one = int(state, 2)
    close(asked.trace(a, b, state=state, method=method, **CPU), product[one, one], scale=10)


@pytest.mark.parametrize("method", TRACES)
def test_echoes_and_correlators_are_traces_of_composed_circuits(method: str) -> None:
    v, w = (dense.circuit_of(3, 30, seed) for seed in (1, 2))
    o, p = tnplan.PauliSum(3, *one_word("XIZ")), tnplan.PauliSum(3, *one_word("IYI"))
    forward, other = tnplan.Circuit(v), tnplan.Circuit(w)
    mv, mw, mo, mp = (*(dense.unitary(c.gates, 3) for c in (v, w)), dense.matrix_of(o), dense.matrix_of(p))
    echo = forward.inverse().compose(other).trace(o, o, method=method, **CPU)
    c = mw @ mv.conj().T
    close(echo, np.trace(mo @ c.conj().T @ mo @ c) / 8)
    word = GateSequence(3, pauli_word_gates(0b010, 0b010))
    late = forward.compose(word).compose(forward.inverse())
    moved = mv.conj().T @ mp @ mv
    close(late.trace(o, o, method=method, **CPU), np.trace(mo @ moved @ mo @ moved) / 8)


def one_word(word: str) -> tuple[Any, Any]:
    """The packed key and the coefficient of a dense word."""
    x = sum(1 << q for q, letter in enumerate(word) if letter in "XY")
    z = sum(1 << q for q, letter in enumerate(word) if letter in "YZ")
    return np.array([[x, z]], np.uint64), np.ones(1)


@pytest.mark.parametrize("method", ["contraction", "pauli"])
def test_noise_is_exact(method: str) -> None:
    circuit = dense.circuit_of(3, 30, 7)
    program = depolarized(circuit_program(circuit), 0.02)
    rho = dense.density(program.operations, 3)
    asked, sums = tnplan.Circuit(circuit), [dense.random_sum(3, 3, seed) for seed in range(2)]
    noisy: Any = {"depolarizing": 0.02, "method": method, **CPU}
    close(asked.expectation(sums, **noisy), [np.trace(rho @ dense.matrix_of(one)).real for one in sums])
    close(asked.reduced_density_matrix([2, 0], **noisy), dense.reduced(rho, [2, 0]))
    close(asked.probabilities([1], **noisy), np.diag(dense.reduced(rho, [1])).real)


def program_on_its_way() -> CircuitProgram:
    """Gates, channels, a measurement and a reset on the way, and a final measurement."""
    first, second = (dense.circuit_of(3, 25, seed).gates for seed in (1, 2))
    middle = (depolarizing((0, 2), 0.3), Measurement(0, 0), Reset(1))
    return CircuitProgram(3, 2, (*first, *middle, *second, Measurement(2, 1)))


@pytest.mark.parametrize("method", ["contraction", "pauli"])
def test_measurements_and_resets_on_the_way_are_exact(method: str) -> None:
    program = program_on_its_way()
    rho = dense.density(program.operations[:-1], 3)
    asked, one = tnplan.Circuit(program), dense.random_sum(3, 3, 5)
    close(asked.expectation(one, method=method, **CPU), np.trace(rho @ dense.matrix_of(one)).real)
    close(asked.reduced_density_matrix([0, 1], method=method, **CPU), dense.reduced(rho, [0, 1]))


def test_trajectories_agree_within_their_error() -> None:
    program = program_on_its_way()
    rho = dense.density(program.operations[:-1], 3)
    asked, sums = tnplan.Circuit(program), [dense.random_sum(3, 2, seed) for seed in range(2)]
    run: Any = {"method": "statevector", "trajectories": 100, "seed": 3, **CPU}
    for found, expected in (
        (asked.expectation(sums, **run), [np.trace(rho @ dense.matrix_of(one)).real for one in sums]),
        (asked.probabilities([0, 2], **run), np.diag(dense.reduced(rho, [0, 2])).real.reshape(2, 2)),
        (asked.reduced_density_matrix([1], **run), dense.reduced(rho, [1])),
    ):
        assert found.error_kind == "statistical"
        assert np.all(np.abs(found.value - expected) < 4.5 * found.error)
        assert 0 < np.max(found.error) < 0.2


def test_trajectories_follow_the_seed() -> None:
    asked = tnplan.Circuit(program_on_its_way())
    found = [asked.expectation("Z0", trajectories=20, seed=seed, **CPU).value for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_a_noisy_trace_by_words() -> None:
    """In the Heisenberg picture: tr(A E^*(B)) = tr(E(A) B), E being linear."""
    circuit = dense.circuit_of(2, 20, 5)
    program = depolarized(circuit_program(circuit), 0.1)
    a, b = (dense.random_sum(2, 3, seed) for seed in (1, 2))
    found = tnplan.Circuit(circuit).trace(a, b, depolarizing=0.1, **CPU)
    rho = dense.density(program.operations, 2)
    assert found.method == "pauli"
    expected = tnplan.Circuit(circuit).expectation(b, depolarizing=0.1, **CPU).value
    assert expected == pytest.approx(np.trace(rho @ dense.matrix_of(b)).real, abs=1e-10)
    first = tnplan.PauliSum(2, np.array([[0, 0], [0, 1], [0, 2], [0, 3]], np.uint64), np.full(4, 1.0))
    projected = tnplan.Circuit(circuit).trace(first, b, depolarizing=0.1, **CPU).value
    assert projected == pytest.approx(expected, abs=1e-10), "the projector on 00, times 4"
    assert found.value.imag == 0


def test_a_truncation_bounds_its_error() -> None:
    circuit = dense.circuit_of(6, 60, 3)
    one = dense.random_sum(6, 2, 1)
    limits = tnplan.Truncation(merged_cut=0.02)
    for ask, exact in (
        ("expectation", tnplan.Circuit(circuit).expectation(one, **CPU).value),
        ("trace", tnplan.Circuit(circuit).trace(one, one, **CPU).value),
    ):
        given = (one,) if ask == "expectation" else (one, one)
        found = getattr(tnplan.Circuit(circuit), ask)(*given, truncation=limits, method="pauli", **CPU)
        assert found.error_kind == "truncation"
        assert 0 < abs(found.value - exact) <= found.error


def test_a_bound_is_no_larger_than_any_value_is_wrong() -> None:
    observables = [dense.random_sum(6, 2, 1), dense.random_sum(6, 3, 2)]
    circuit = tnplan.Circuit(dense.circuit_of(6, 60, 3))
    cuts = {"method": "pauli", "truncation": tnplan.Truncation(merged_cut=0.5), **CPU}
    found = circuit.expectation(observables, **cuts)
    for one, value, error in zip(observables, found.value, found.error, strict=True):
        largest = np.abs(one.coefficients).sum() + abs(value)
        assert error == pytest.approx(largest)
        told = tnplan.propagate(circuit, one, cuts["truncation"], device="cpu").report
        assert told["error_bound"] == pytest.approx(error)
        assert told["error_bound_is_vacuous"]
    assert found.details["error_bound_is_vacuous"]
    assert "(truncation, vacuous)" in repr(found)
    cuts["truncation"] = tnplan.Truncation(merged_cut=1e-4)
    assert "(truncation)" in repr(circuit.expectation(observables, **cuts))


@pytest.mark.parametrize("method", STATES)
def test_samples_follow_the_probabilities(method: str) -> None:
    from scipy.stats import chisquare

    circuit, shots = dense.circuit_of(4, 60, 9), 10_000
    found = tnplan.Circuit(circuit).sample(shots, seed=5, method=method, **CPU)
    expected = np.abs(state_vector(circuit).ravel()) ** 2 * shots
    counts = np.array([found.value.get(f"{k:04b}", 0) for k in range(16)])
    possible = expected > 1e-6
    assert counts[possible].sum() == shots
    assert chisquare(counts[possible], expected[possible]).pvalue > 1e-3
    again = tnplan.Circuit(circuit).sample(shots, seed=5, method=method, **CPU)
    assert again.value == found.value


@pytest.mark.slow
def test_samples_of_sixteen_qubits() -> None:
    from scipy.stats import chisquare

    circuit, shots = dense.circuit_of(16, 120, 1), 400_000
    found = tnplan.Circuit(circuit).sample(shots, seed=5, method="statevector", **CPU)
    weights = np.abs(state_vector(circuit).ravel()) ** 2 * shots
    counts = np.zeros(2**16)
    for text, number in found.value.items():
        counts[int(text, 2)] = number
    often = weights > 10
    rest = [counts[~often].sum()], [weights[~often].sum()]
    assert chisquare(np.append(counts[often], rest[0]), np.append(weights[often], rest[1])).pvalue > 1e-3


def test_noisy_samples_by_contraction_and_by_trajectories_agree() -> None:
    from scipy.stats import chisquare

    circuit = dense.circuit_of(3, 40, 2)
    program = CircuitProgram(3, 1, (*circuit.gates, Measurement(2, 0)))
    rho = dense.density(depolarized(circuit_program(circuit), 0.05).operations, 3)
    expected = np.diag(dense.reduced(rho, [2])).real
    for method, shots in (("contraction", 5000), ("statevector", 150)):
        found = tnplan.Circuit(program).sample(shots, depolarizing=0.05, seed=1, method=method, **CPU)
        assert chisquare([found.value["0"], found.value["1"]], expected * shots).pvalue > 1e-3


def test_samples_by_rejection_say_what_they_are() -> None:
    random = dense.circuit_of(6, 150, 2)
    found = tnplan.Circuit(random).sample(200, sampling="rejection", open_qubits=2, seed=1, **CPU)
    assert (found.method, found.details["samples"]) == ("contraction", "correlated")
    assert sum(found.value.values()) == 200


def test_samples_are_of_the_bits_that_are_measured() -> None:
    flip = dense.gate("x", (0,))
    program = CircuitProgram(3, 2, (flip, Measurement(0, 1), Measurement(2, 0)))
    assert tnplan.Circuit(program).sample(7, **CPU).value == {"01": 7}
    assert tnplan.Circuit(GateSequence(3, (flip,))).sample(7, **CPU).value == {"100": 7}
