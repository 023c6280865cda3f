"""Pauli propagation against dense matrices and known values, by every engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.oracles.pauli import propagate_sorted
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines.pauli import (
    ENGINES,
    ON_CPU,
    Propagate,
    amplitude_damping,
    chain_edges,
    dense,
    eagle_edges,
    ising_trotter,
    kicked_ising,
    pauli_channel,
)
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import KINDS, gate
from tnplan.circuits.pauli_sum import PauliSum, parse, pauli_sum
from tnplan.executor.pauli.algebra.expectation import overlap, value_in
from tnplan.executor.pauli.algebra.gates import (
    Clifford,
    PauliStep,
    Rotation,
    TransferMatrix,
    circuit_steps,
    depolarizing,
    gate_steps,
    heisenberg_matrix,
    kraus_channel,
    local_words,
    quarter_turns,
    rotation,
    word_masks,
)
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.terms.truncation import Truncation


def random_sum(n_qubits: int, n_terms: int, seed: int) -> PauliSum:
    """Random words with random coefficients."""
    generator = np.random.default_rng(seed)
    masks = [[int(v) for v in generator.integers(2**n_qubits, size=2)] for _ in range(n_terms)]
    return pauli_sum([(x, z, float(generator.normal())) for x, z in masks], n_qubits)


def dense_value(circuit: object, terms: PauliSum) -> float:
    """<psi| terms |psi> with the state as one axis a qubit."""
    state = state_vector(circuit)  # type: ignore[arg-type]
    total = 0.0
    for x, z, coefficient in terms.masks():
        turned = state
        for q in range(terms.n_qubits):
            word = (x >> q & 1) + 2 * (z >> q & 1)
            turned = np.moveaxis(np.tensordot(local_words(1)[word], turned, (1, q)), 0, q)
        total += (coefficient * np.vdot(state, turned)).real
    return total


@pytest.mark.parametrize("run", ENGINES)
@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_gate_maps_every_word_as_its_matrix(name: str, run: Propagate) -> None:
    kind = KINDS[name]
    item = gate(name, range(kind.n_qubits), [0.3, 0.7][: kind.n_params])
    expected = heisenberg_matrix([item.matrix])
    words = local_words(kind.n_qubits)
    for a in range(len(words)):
        start = pauli_sum([(*word_masks(range(kind.n_qubits), a), 1.0)], kind.n_qubits)
        image = item.matrix.conj().T @ words[a] @ item.matrix
        np.testing.assert_allclose(np.einsum("b,bij->ij", expected[:, a], words), image, atol=1e-14)
        for keep in (False, True):
            done = run(gate_steps(item), start, None, keep_cliffords=keep)
            np.testing.assert_allclose(dense(done.result), image, atol=1e-14)


def test_the_steps_of_a_circuit_are_those_of_its_gates() -> None:
    """Bit by bit, also near multiples of pi/2 and under a phase of the whole gate."""
    rng, gates = np.random.default_rng(3), []
    for name in sorted(KINDS) * 8:
        kind, turns = KINDS[name], np.pi / 2 * rng.integers(-4, 5)
        choices = (rng.uniform(-7, 7), turns, turns + 1e-13 * rng.normal(), 1e-9 * rng.normal())
        params = tuple(rng.choice(choices, kind.n_params).tolist())
        matrix = np.exp(1j * rng.choice([0.0, 0.3])) * gate(name, range(kind.n_qubits), params).matrix
        qubits = tuple(rng.choice(70, kind.n_qubits, replace=False).tolist())
        gates.append(Gate(name, qubits, matrix, params))
    steps = circuit_steps(GateSequence(70, tuple(gates)))
    expected = [step for item in gates for step in gate_steps(item)]
    for step, other in zip(steps, expected, strict=True):
        assert type(step) is type(other)
        if isinstance(step, Rotation):
            assert step == other
            continue
        assert step.qubits == other.qubits
        for array in ("images", "signs") if isinstance(step, Clifford) else ("matrix",):
            np.testing.assert_array_equal(getattr(step, array), getattr(other, array))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_gate_is_prepared_once_for_all_its_qubits(name: str) -> None:
    """On scattered qubits it maps every word as its matrix does, and shares the arrays of the first one."""
    kind, places = KINDS[name], (3, 0, 4)[: KINDS[name].n_qubits]
    angles = [0.3, 0.7][: kind.n_params]
    first = gate_steps(gate(name, range(kind.n_qubits), angles))
    other = gate_steps(gate(name, places, angles))
    for one, moved in zip(first, other, strict=True):
        if not isinstance(one, Rotation):
            assert not isinstance(moved, Rotation)
            shared = "images" if isinstance(one, Clifford) else "matrix"
            assert getattr(moved, shared) is getattr(one, shared)
    words, matrix = local_words(kind.n_qubits), gate(name, range(kind.n_qubits), angles).matrix
    for a, word in enumerate(words):
        start = pauli_sum([(*word_masks(places, a), 1.0)], 5)
        image = matrix.conj().T @ word @ matrix
        parts = np.einsum("bij,ji->b", words, image).real / len(matrix)
        expected = pauli_sum(
            [(*word_masks(places, b), c) for b, c in enumerate(parts.tolist()) if abs(c) > 1e-14], 5
        )
        found = {(x, z): c for x, z, c in propagate(other, start, keep_cliffords=True).result.masks()}
        assert found == pytest.approx({(x, z): c for x, z, c in expected.masks()}, abs=1e-14)


def test_the_conventions_are_those_of_textbooks() -> None:
    cases = (
        ("cnot", (0, 1), "Z0 Y1", "1.0 Y1"), ("s", (0,), "X0", "-1.0 Y0"), ("h", (0,), "X0", "1.0 Z0"),
    )  # fmt: skip
    for name, qubits, before, after in cases:
        done = propagate(gate_steps(gate(name, qubits)), parse(before, 2))
        assert done.result.lines() == [after]
    half = math.sqrt(0.5)
    t = {(x, z): c for x, z, c in propagate(gate_steps(gate("t", (0,))), parse("X0", 1)).result.masks()}
    assert t == {(1, 0): pytest.approx(half, abs=1e-15), (1, 1): pytest.approx(-half, abs=1e-15)}
    done = propagate([rotation("Y", (0,), math.pi / 3)], parse("X0", 1))
    assert value_in(done.result) == pytest.approx(math.sqrt(0.75), abs=1e-15)


def one_qubit_cliffords() -> list[np.ndarray]:
    """The 24 products of H and S that differ by more than a phase."""
    known = [np.eye(2, dtype=np.complex128)]
    for matrix in known:
        for generator in (gate("h", (0,)).matrix, gate("s", (0,)).matrix):
            new = generator @ matrix
            if all(abs(np.vdot(old, new)) < 1.9 for old in known):
                known.append(new)
    return known


def test_cliffords_of_every_class_map_every_word_as_their_matrices() -> None:
    local, rng = one_qubit_cliffords(), np.random.default_rng(6)
    assert len(local) == 24
    swap = np.eye(4)[[0, 2, 1, 3]]
    classes = [np.eye(4), gate("cnot", (0, 1)).matrix, gate("is", (0, 1)).matrix, swap]
    pairs = [(a, local[k], b) for a in local for k, b in zip(rng.permutation(24), local, strict=True)]
    start = pauli_sum([(x, z, 1.0 + x + 4 * z) for x in range(4) for z in range(4)], 2)
    for number, (a, middle, b) in enumerate(pairs):
        matrix = np.kron(middle, b) @ classes[number % 4] @ np.kron(a, b)
        (step,) = gate_steps(Gate("product", (0, 1), matrix))
        assert isinstance(step, Clifford)
        done = propagate([step], start, keep_cliffords=True)
        np.testing.assert_allclose(
            dense(done.result), matrix.conj().T @ dense(start) @ matrix, rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("run", ENGINES)
@pytest.mark.parametrize("letters", ["X", "YZ", "ZXY", "XYZZ"])
def test_rotations_of_every_word(letters: str, run: Propagate) -> None:
    n = len(letters)
    word = dense(parse(letters, n))
    start = random_sum(n, 4**n, 3)
    for angle in (0.4, math.pi / 2, math.pi, -math.pi / 2):
        unitary = math.cos(angle / 2) * np.eye(2**n) - 1j * math.sin(angle / 2) * word
        for keep in (False, True):
            turn = [rotation(letters, range(n), angle)]
            done = run(turn, start, None, keep_cliffords=keep)
            expected = unitary.conj().T @ dense(start) @ unitary
            np.testing.assert_allclose(dense(done.result), expected, atol=1e-12)


@pytest.mark.parametrize("run", ENGINES)
@pytest.mark.parametrize(("n_qubits", "n_gates"), [(3, 60), (5, 60), (8, 60), (12, 45)])
def test_random_circuits_equal_the_state_vector(n_qubits: int, n_gates: int, run: Propagate) -> None:
    circuit = random_circuit(n_qubits, n_gates, n_qubits)
    terms = random_sum(n_qubits, 5, 1)
    done = run(circuit_steps(circuit), terms)
    assert value_in(done.result) == pytest.approx(dense_value(circuit, terms), abs=1e-12)
    assert done.dropped.l1 == 0


@pytest.mark.parametrize("run", ENGINES)
def test_channels_equal_dense_matrices(run: Propagate) -> None:
    rng = np.random.default_rng(5)
    isometry = np.linalg.qr(rng.normal(size=(12, 4)) + 1j * rng.normal(size=(12, 4)))[0]
    kraus = list(isometry.reshape(3, 4, 4))
    start = random_sum(2, 12, 2)
    done = run([kraus_channel((0, 1), kraus)], start)
    np.testing.assert_allclose(
        dense(done.result), sum(k.conj().T @ dense(start) @ k for k in kraus), atol=1e-13
    )
    for channel, expected in (
        (amplitude_damping(0, 0.3), {"Z": 0.7, "I": 0.3}),
        (pauli_channel(0, 0.1, 0.2, 0.05), {"Z": 0.4}),
        (depolarizing((0,), 0.3), {"Z": 0.6}),
    ):
        found = run([channel], parse("Z0", 1)).result
        names = {"I": (0, 0), "Z": (0, 1)}
        values = {(x, z): c for x, z, c in found.masks()}
        assert values == {names[k]: pytest.approx(v, abs=1e-15) for k, v in expected.items()}
    found = run([pauli_channel(0, 0, 0, 0.2)], parse("X0 + 2*Z0", 1)).result
    assert {(x, z): c for x, z, c in found.masks()} == {(0, 1): 2, (1, 0): pytest.approx(0.6, abs=1e-15)}


def test_probabilities_past_their_ends_by_rounding() -> None:
    for given, exact in ((1 + 1e-13, 1), (-1e-16, 0)):
        assert np.array_equal(depolarizing([0], given).matrix, depolarizing([0], exact).matrix)


def test_angles_near_multiples_of_a_quarter_turn() -> None:
    assert [quarter_turns(k * math.pi / 2) for k in range(-5, 6)] == [3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert quarter_turns(math.pi / 2 + 9e-15) == 1
    for angle in (math.pi / 2 + 2e-14, 1072500000268.25, 1e16):
        assert quarter_turns(angle) is None
        done = propagate([rotation("X", [0], angle)], parse("Z0", 1))
        assert done.value == pytest.approx(math.cos(angle), rel=1e-12)


def noisy_value(operations: list[tuple[Sequence[int], list[np.ndarray]]], terms: PauliSum) -> float:
    """tr(rho terms) after channels [qubits, Kraus operators] on |0...0>; rho has an axis a qubit and side."""
    n = terms.n_qubits
    rho = np.zeros([2] * (2 * n), np.complex128)
    rho[(0,) * (2 * n)] = 1
    for qubits, kraus in operations:
        k = len(qubits)
        total = np.zeros_like(rho)
        for operator in kraus:
            part = rho
            for factor, axes in ((operator, qubits), (operator.conj(), [n + q for q in qubits])):
                part = np.tensordot(factor.reshape([2] * (2 * k)), part, (range(k, 2 * k), axes))
                part = np.moveaxis(part, range(k), axes)
            total += part
        rho = total
    value = 0.0
    for x, z, coefficient in terms.masks():
        turned = rho
        for q in range(n):
            word = local_words(1)[(x >> q & 1) + 2 * (z >> q & 1)]
            turned = np.moveaxis(np.tensordot(word, turned, (1, q)), 0, q)
        value += (coefficient * np.trace(turned.reshape(2**n, 2**n))).real
    return value


def kraus_of(probabilities: Sequence[float], k: int) -> list[np.ndarray]:
    """Words that strike k qubits with these probabilities."""
    return [math.sqrt(p) * word for p, word in zip(probabilities, local_words(k), strict=True)]


@pytest.mark.parametrize("run", ENGINES)
def test_random_noisy_circuits_equal_the_density_matrix(run: Propagate) -> None:
    n, rng = 6, np.random.default_rng(9)
    damped = [np.diag([1, math.sqrt(0.8)]), np.array([[0, math.sqrt(0.2)], [0, 0]])]
    words = [word_masks((0,), word) for word in range(4)]
    strikes = {(0, 0): 0.8, (1, 0): 0.1, (1, 1): 0.04, (0, 1): 0.06}
    steps: list[PauliStep] = []
    operations: list[tuple[Sequence[int], list[np.ndarray]]] = []
    for number, item in enumerate(random_circuit(n, 36, 4).gates):
        steps += gate_steps(item)
        operations.append((item.qubits, [item.matrix]))
        if number % 3:
            continue
        a, b = (int(q) for q in rng.choice(n, 2, replace=False))
        channel, struck, kraus = (
            (amplitude_damping(a, 0.2), (a,), damped),
            (depolarizing((a, b), 0.15), (a, b), kraus_of([0.85] + [0.01] * 15, 2)),
            (
                pauli_channel(a, 0, 0, 0.06),
                (a,),
                [math.sqrt(0.94) * np.eye(2), math.sqrt(0.06) * np.diag([1, -1])],
            ),
            (pauli_channel(a, 0.1, 0.04, 0.06), (a,), kraus_of([strikes[word] for word in words], 1)),
        )[number // 3 % 4]
        steps.append(channel)
        operations.append((struck, kraus))
    terms = random_sum(n, 300, 3)
    expected = noisy_value(operations, terms)
    assert abs(expected) > 0.05
    assert value_in(run(steps, terms).result) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("run", ENGINES)
def test_known_values(run: Propagate) -> None:
    limits = Truncation(merged_cut=1e-4, max_weight=6)
    done = run(ising_trotter(32, 0.1, 32), parse("Z15", 32), limits)
    assert done.result.n_terms == 1671
    assert value_in(done.result) == pytest.approx(0.15459672824142, abs=1e-14)
    done = run(kicked_ising(12, chain_edges(12), 0.7, 5), parse("Z6", 12), None)
    assert value_in(done.result) == pytest.approx(0.6261696139611728, abs=1e-13)
    both = Truncation(branch_cut=2**-12, merged_cut=2**-12)
    done = run(kicked_ising(127, eagle_edges(), 0.3, 20), parse("Z62", 127), both)
    assert done.result.n_terms == 2846
    assert value_in(done.result) == pytest.approx(0.9138663270908, abs=1e-12)
    for theta, value in ((0.0, 1.0), (math.pi / 2, 0.0)):
        steps = kicked_ising(127, eagle_edges(), theta, 20)
        assert value_in(run(steps, parse("Z62", 127), None).result) == value


@pytest.mark.parametrize("run", [ENGINES[0], ENGINES[2]])
@pytest.mark.parametrize(
    "limits",
    [
        Truncation(branch_cut=2e-3), Truncation(merged_cut=2e-3), Truncation(max_weight=3),
        Truncation(max_xy=2), Truncation(max_frequency=12), Truncation(max_terms=40),
        Truncation(merged_cut=1e-3, max_weight=4, every=7),
    ],
)  # fmt: skip
def test_engines_truncate_alike_and_the_bound_holds(limits: Truncation, run: Propagate) -> None:
    steps = kicked_ising(8, chain_edges(8), 0.7, 4)
    steps += [rotation("XYZ", (1, 3, 5), 0.3), depolarizing((2, 3), 0.1), amplitude_damping(4, 0.2)]
    steps += ising_trotter(8, 0.4, 2)
    exact = value_in(propagate(steps, parse("Z4 + 0.5*X1", 8)).result)
    start = parse("Z4 + 0.5*X1", 8)
    fast, slow = (engine(steps, start, limits) for engine in (run, propagate_sorted))
    assert np.array_equal(fast.result.keys, slow.result.keys)
    np.testing.assert_allclose(fast.result.coefficients, slow.result.coefficients, atol=1e-13)
    assert slow.dropped.terms > 0
    assert fast.dropped.l1 == pytest.approx(slow.dropped.l1, rel=1e-9)
    assert fast.dropped.l2 == pytest.approx(slow.dropped.l2, rel=1e-9)
    if run is ON_CPU:  # a GPU does not count terms that are 0 before they are swept
        assert fast.dropped.terms == slow.dropped.terms
        assert fast.record == slow.record
    assert abs(value_in(fast.result) - exact) <= fast.dropped.l1


def test_states_and_overlaps() -> None:
    terms = parse("0.5*X0 Y1 - 2 Z1 + 3 I + Z0 Z2", 3)
    assert value_in(terms, "110") == 2 + 3 - 1
    bloch = np.array([[0.6, 0, 0.8], [0, 1, 0], [0, 0, -1]])
    assert value_in(terms, bloch) == pytest.approx(0.5 * 0.6 + 3 - 0.8)
    assert overlap(terms, parse("X0 Y1 + Z1 + X2", 3)) == pytest.approx(0.5 - 2)


def test_complex_coefficients_and_many_qubits() -> None:
    start = pauli_sum([(1 << 200, 0, 1j), (0, 1 << 3, 2.0)], 201)
    done = propagate([rotation("ZZ", (200, 70), 0.3)], start)
    values = {(x, z): c for x, z, c in done.result.masks()}
    assert values[1 << 200, 0] == pytest.approx(1j * math.cos(0.3))
    assert values[1 << 200, 1 << 200 | 1 << 70] == pytest.approx(-1j * math.sin(0.3))


# fmt: off
BAD_INPUT: list[Row] = [
    (lambda: parse("Q3", 4), "--observable", "is not a Pauli word", "write a sum such as"),
    (lambda: parse("Z4", 4), "--observable", "names qubit 4", "use qubits 0 to 3"),
    (lambda: parse("Z0 X0", 4), "--observable", "names qubit 0 twice", "name each qubit once"),
    (lambda: parse("ZZ", 4), "--observable", "has a word of 2 letters", "give one letter for each"),
    (lambda: parse(" ", 4), "--observable", "is empty", "write a sum such as"),
    (lambda: parse("Z0 +", 4), "--observable", "is not a Pauli word", "write a sum such as"),
    (lambda: rotation("X", (0,), math.nan), "rotation", "has the angle nan", "give a finite angle"),
    (lambda: propagate([Rotation(1, 0, math.inf)], parse("Z0", 1)), "step 0",
     "has the angle inf", "give finite angles in radians"),
    (lambda: propagate([rotation("X", (5,), 0.1)], parse("Z0", 2)), "step 0",
     "acts on qubit 5", "use qubits 0 to 1"),
    (lambda: depolarizing([0], -0.1), "channel", "probability is -0.1", "give a number from 0"),
    (lambda: depolarizing([0], 1.5), "channel", "probability is 1.5", "give a number from 0"),
    (lambda: kraus_channel((0,), [np.eye(2) * 0.5]), "channel",
     "does not keep the trace", "give K with sum of"),
    (lambda: kraus_channel((0,), ["x"]), "channel",
     "has no operators for 1 qubits", "give 2 x 2 matrices for"),
    (lambda: kraus_channel((0, 0), [np.eye(4)]), "channel", "acts on qubits (0, 0)", "name each qubit once"),
    (lambda: kraus_channel(0, [np.eye(2)]), "channel", "acts on 0", "give a list of qubits"),
    (lambda: depolarizing([0, 0], 0.1), "channel", "acts on qubits (0, 0)", "name each qubit once"),
    (lambda: depolarizing([-1], 0.1), "channel: qubit", "is -1", "give an integer from 0"),
    (lambda: depolarizing([0.0], 0.1), "channel: qubit", "is 0.0", "give an integer from 0"),
    (lambda: depolarizing([0], "x"), "channel", "probability is 'x'", "give a number from 0"),
    (lambda: rotation("X", (0,), "x"), "rotation", "has the angle 'x'", "give a finite angle in radians"),
    (lambda: rotation("X", (0.0,), 1), "rotation: qubit", "is 0.0", "give an integer from 0"),
    (lambda: parse(5, 1), "--observable", "is of type int", "give a text such as"),
    (lambda: pauli_sum([(1, 0, 1e308), (1, 0, 1e308)], 1), "--observable",
     "magnitudes add up to inf", "give at most 1.79769e+308 in"),
    (lambda: propagate([], parse("Z0 + X0", 1), Truncation(max_terms=1)), "max_terms",
     "the observable has 2 terms", "allow that many or more"),
    (lambda: propagate([rotation("X", (0,), 1)], parse("Z0", 1), stop_above=1), "step 1",
     "leaves 2 terms", "allow more terms, or drop"),
    (lambda: gate_steps(Gate("odd", (0,), 2 * np.eye(2, dtype=np.complex128))), "gate",
     "is not unitary", "give a unitary matrix"),
    (lambda: Truncation(merged_cut=-1), "--min-coefficient (merged_cut)", "is -1", "give a finite number, 0"),
    (lambda: Truncation(branch_cut=math.inf), "--branch-cut", "is inf", "give a finite number, 0"),
    (lambda: Truncation(max_weight="2"), "max_weight", "is '2'", "give an integer from 0"),
    (lambda: Truncation(max_weight=2.5), "max_weight", "is 2.5", "give an integer from 0"),
    (lambda: Truncation(every=1.5), "every", "is 1.5", "give an integer from 1"),
    (lambda: Truncation(branch_cut="x"), "--branch-cut", "is 'x'", "give a finite number, 0"),
    (lambda: Truncation(max_terms=0), "max_terms", "is 0", "give an integer from 1"),
]
# fmt: on


@table(BAD_INPUT)
def test_bad_input_is_one_line(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)


def test_gates_are_recognized() -> None:
    kinds = {
        name: type(gate_steps(gate(name, range(KINDS[name].n_qubits), [0.3, 0.7][: KINDS[name].n_params]))[0])
        for name in KINDS
    }
    assert {name for name, kind in kinds.items() if kind is TransferMatrix} == {"rxy", "fs", "hz_1_2"}
    assert {name for name, kind in kinds.items() if kind is Rotation} == {"t", "rx", "ry", "rz", "cp"}
    assert kinds["is"] is kinds["cnot"] is kinds["x_1_2"] is Clifford
