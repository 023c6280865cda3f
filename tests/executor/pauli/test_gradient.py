"""Gradients against differences of exact values, and the Schroedinger picture against the Heisenberg one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.circuits import random_circuit
from tests.support.engines.pauli import amplitude_damping, chain_edges, kicked_ising
from tests.support.slow import slow_unless
from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import gate, rz
from tnplan.circuits.pauli_sum import parse
from tnplan.circuits.qasm.gate_calls import INCLUDED
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra import expectation
from tnplan.executor.pauli.algebra.expectation import (
    bits_bloch,
    forward,
    overlap,
    product_state,
    state_values,
    value_in,
)
from tnplan.executor.pauli.algebra.gates import (
    NAMED_ROTATIONS,
    Clifford,
    PauliStep,
    Rotation,
    circuit_steps,
    depolarizing,
    gate_steps,
    heisenberg_matrix,
    kraus_channel,
    local_words,
    named_rotations,
    rotation,
)
from tnplan.executor.pauli.gradient import gradient
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.terms.truncation import Truncation

OBSERVABLE = parse("Z2 + 0.5*X0 Y3 - 0.25*Z1 Z4 + 0.1*X2", 5)
BLOCH = np.array([[0.6, 0, 0.8], [0, 1, 0], [0, 0, -1], [0.3, 0.2, 0.1], [1, 0, 0]])


def with_channels() -> list[PauliStep]:
    """Rotations among Cliffords, channels and a gate that is neither; some by multiples of pi/2."""
    steps: list[PauliStep] = [rotation("XZ", (0, 2), 0.4), *gate_steps(gate("cnot", (1, 3)))]
    steps += [rotation("Y", (q,), 0.2 + q) for q in range(5)]
    steps += [
        amplitude_damping(2, 0.2),
        *gate_steps(gate("fs", (1, 2), (0.3, 0.7))),
        depolarizing((0, 4), 0.1),
    ]
    steps += [rotation("ZZ", (2, 3), math.pi / 2), rotation("X", (2,), 0.0), rotation("XYZ", (2, 3, 4), -0.6)]
    return steps


def without_channels() -> list[PauliStep]:
    steps = list(circuit_steps(random_circuit(5, 40, 3)))
    return [*steps, rotation("ZZ", (2, 3), math.pi), *kicked_ising(5, chain_edges(5), 0.3, 2)]


@pytest.mark.parametrize(
    ("make", "limits", "state"),
    slow_unless(
        lambda *places: sum(places) % 2 == 0,
        [with_channels, without_channels], [Truncation(), Truncation(max_weight=5)], ["01101", BLOCH],
    ),
)  # fmt: skip
def test_gradients_equal_the_shift_rule(make: object, limits: Truncation, state: str | np.ndarray) -> None:
    """For a rotation exp(-i a P / 2): dE/da = (E(a + pi/2) - E(a - pi/2)) / 2, exactly."""
    steps: list[PauliStep] = make()  # type: ignore[operator]

    def value(changed: list[PauliStep]) -> float:
        done = propagate(changed, OBSERVABLE).result
        return float(done.coefficients @ state_values(done, state))

    found = gradient(steps, OBSERVABLE, limits, state=state)
    assert found.value == pytest.approx(value(steps), abs=1e-12)
    assert found.dropped.terms == 0
    seen = 0
    for k, step in enumerate(steps):
        expected = 0.0
        if isinstance(step, Rotation):
            up, down = (Rotation(step.x, step.z, step.angle + turn) for turn in (math.pi / 2, -math.pi / 2))
            expected = (
                value([*steps[:k], up, *steps[k + 1 :]]) - value([*steps[:k], down, *steps[k + 1 :]])
            ) / 2
            seen += abs(expected) > 1e-3
        assert found.derivatives[k] == pytest.approx(expected, abs=1e-12)
    assert seen > 5


@pytest.mark.parametrize(
    "limits", [Truncation(max_weight=3), Truncation(max_xy=2), Truncation(max_frequency=6)]
)
def test_gradients_of_truncated_values(limits: Truncation) -> None:
    """These truncations do not look at coefficients, so that the truncated value has differences."""
    steps = [rotation("X", (q,), 0.3 + 0.1 * q) for q in range(6)]
    steps += [rotation("ZZ", (q, q + 1), 0.5 + 0.1 * q) for q in range(5)]
    steps = steps * 3
    start, h = parse("Z2", 6), 1e-5

    def value(k: int, change: float) -> float:
        step = steps[k]
        turned = [*steps[:k], Rotation(step.x, step.z, step.angle + change), *steps[k + 1 :]]
        return float(value_in(propagate(turned, start, limits).result).real)

    found = gradient(steps, start, limits)
    assert found.dropped.terms > 0
    for k in range(len(steps)):
        difference = (8 * (value(k, h) - value(k, -h)) - (value(k, 2 * h) - value(k, -2 * h))) / (12 * h)
        assert found.derivatives[k] == pytest.approx(difference, abs=1e-9)


def test_gradients_with_cuts_are_those_of_the_whole_within_the_loss() -> None:
    steps, start = kicked_ising(12, chain_edges(12), 0.7, 4), parse("Z6", 12)
    wanted = [k for k, step in enumerate(steps) if isinstance(step, Rotation) and step.x]
    exact = gradient(steps, start, wanted=wanted)
    cut = gradient(steps, start, Truncation(branch_cut=1e-3, merged_cut=1e-3, max_terms=2000), wanted=wanted)
    assert cut.value == value_in(propagate(steps, start, Truncation(1e-3, 1e-3, max_terms=2000)).result)
    assert cut.dropped.terms > 0
    assert np.abs(cut.derivatives - exact.derivatives).max() < 0.05
    assert np.count_nonzero(exact.derivatives) > 10
    assert not np.any(np.delete(exact.derivatives, wanted))


def turned(words: list[tuple[str, float]]) -> np.ndarray:
    """The product of exp(-i angle P / 2) of letters P and angles."""
    total = np.eye(2 ** len(words[0][0]), dtype=np.complex128)
    for letters, angle in words:
        word = local_words(len(letters))[sum("IXZY".index(p) << 2 * j for j, p in enumerate(letters))]
        total = total @ (math.cos(angle / 2) * np.eye(len(word)) - 1j * math.sin(angle / 2) * word)
    return total


def maps(steps: tuple[PauliStep, ...], n_qubits: int) -> np.ndarray:
    """[b, a]: what steps make of word a."""
    columns = []
    for row in np.eye(4**n_qubits, dtype=int).tolist():
        word = local_words(n_qubits)[row.index(1)]
        for step in reversed(steps):
            assert isinstance(step, Rotation)
            letters = "".join("IXZY"[(step.x >> q & 1) + 2 * (step.z >> q & 1)] for q in range(n_qubits))
            unitary = turned([(letters, step.angle)])
            word = unitary.conj().T @ word @ unitary
        columns.append(np.einsum("bij,ji->b", local_words(n_qubits), word).real / 2**n_qubits)
    return np.array(columns).T


@pytest.mark.parametrize("angle", [0.0, math.pi / 2, math.pi, -math.pi / 2, 2 * math.pi, 0.3, 40.0])
@pytest.mark.parametrize("name", sorted(NAMED_ROTATIONS))
def test_gates_with_angles_are_rotations_for_gradients(name: str, angle: float) -> None:
    n = len(NAMED_ROTATIONS[name][0][0])
    for sign in (1, -1):
        matrix = np.exp(0.7j) * turned(
            [(letters, sign * part * angle) for letters, part in NAMED_ROTATIONS[name]]
        )
        steps = gate_steps(Gate(name, tuple(range(n)), matrix, (angle,)), rotations=True)
        assert len(steps) == len(NAMED_ROTATIONS[name])
        np.testing.assert_allclose(maps(steps, n), heisenberg_matrix([matrix]), atol=1e-13)


@pytest.mark.parametrize("name", sorted({*NAMED_ROTATIONS, "u", "u2", "u3"} & INCLUDED.keys()))
def test_gates_of_openqasm_are_the_rotations_of_their_names(name: str) -> None:
    """Angles of the rotations change with those of the gate; other gates of the table are qsim's."""
    kind = INCLUDED[name]
    params = (0.3, -1.2, 2.1)[: kind.n_params]
    item = Gate(name, tuple(range(kind.n_qubits)), np.asarray(kind.matrix(*params), complex), params)
    steps = named_rotations(item)
    assert len(steps) >= kind.n_params
    np.testing.assert_allclose(maps(steps, kind.n_qubits), heisenberg_matrix([item.matrix]), atol=1e-13)


def test_the_matrix_of_a_gate_decides_where_its_name_is_wrong() -> None:
    assert gate_steps(Gate("rx", (0,), rz(0.3), (0.3,)), rotations=True) == (
        Rotation(0, 1, pytest.approx(0.3)),
    )
    for angle in (math.pi / 2, math.pi):
        (step,) = gate_steps(Gate("mine", (0,), gate("rx", (0,), (angle,)).matrix, (angle,)), rotations=True)
        assert step == Rotation(1, 0, pytest.approx(angle))
        steps = gate_steps(Gate("mine", (0,), rz(angle), (angle,)), rotations=True)
        assert steps == (Rotation(0, 1, pytest.approx(angle)),)
    for item in (gate("s", (0,)), gate("h", (0,)), Gate("mine", (0,), gate("h", (0,)).matrix, (0.3,))):
        assert isinstance(gate_steps(item, rotations=True)[0], Clifford)
    assert isinstance(gate_steps(gate("rx", (0,), (math.pi,)))[0], Clifford)


def test_only_rotations_have_derivatives() -> None:
    with pytest.raises(InputError, match="wanted: names 1; name rotations"):
        gradient(with_channels(), OBSERVABLE, wanted=[0, 1])


@pytest.mark.parametrize("make", [with_channels, without_channels])
def test_both_pictures_give_the_same_value(make: object) -> None:
    steps: list[PauliStep] = make()  # type: ignore[operator]
    rng = np.random.default_rng(2)
    isometry = np.linalg.qr(rng.normal(size=(8, 4)) + 1j * rng.normal(size=(8, 4)))[0]
    steps.append(kraus_channel((3, 0), list(isometry.reshape(2, 4, 4))))
    evolved = propagate(forward(steps), product_state(BLOCH)[0]).result
    backwards = propagate(steps, OBSERVABLE).result
    assert overlap(evolved, OBSERVABLE) == pytest.approx(value_in(backwards, BLOCH), abs=1e-13)
    found = propagate(forward(steps), product_state(bits_bloch("01101"))[0]).result
    assert overlap(found, OBSERVABLE) == pytest.approx(value_in(backwards, "01101"), abs=1e-13)


def test_operators_go_forward_and_back() -> None:
    steps = without_channels()
    there = propagate(forward(steps), OBSERVABLE).result
    back = propagate(steps, there, Truncation(merged_cut=1e-13)).result
    assert np.array_equal(back.keys, OBSERVABLE.keys)
    np.testing.assert_allclose(back.coefficients, OBSERVABLE.coefficients, rtol=0, atol=1e-12)
    y = propagate(forward(gate_steps(gate("s", (0,)))), parse("X0", 1)).result
    assert y.lines() == ["1.0 Y0"]


def test_states_have_the_words_of_their_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    assert product_state(BLOCH)[0].n_terms == 3 * 2 * 2 * 4 * 2
    assert product_state(bits_bloch("0101"), 2)[0].n_terms == 1 + 4 + 6
    monkeypatch.setattr(expectation, "MOST_WORDS", 1000)
    with pytest.raises(InputError, match="has more than 1000 words"):
        product_state(bits_bloch("0" * 40))
