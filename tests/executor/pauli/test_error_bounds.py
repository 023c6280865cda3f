"""What a propagation leaves out is counted, and bounds its error: against dense matrices."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tnplan
from tests.oracles.pauli import propagate_sorted
from tests.support.engines.pauli import Propagate, amplitude_damping, dense, pauli_channel
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import PauliSum, parse, pauli_sum
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.expectation import (
    error_in_state,
    error_of_overlap,
    error_of_state,
    forward,
    overlap,
    product_state,
    value_in,
)
from tnplan.executor.pauli.algebra.gates import (
    PauliStep,
    Rotation,
    TransferMatrix,
    depolarizing,
    gate_steps,
    local_words,
    word_masks,
)
from tnplan.executor.pauli.gradient import gradient
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.ledger import Dropped
from tnplan.executor.pauli.terms.truncation import Truncation

ROUNDING = 1e-11
ENGINES = (propagate, partial(propagate, resources=Resources(threads=2)), propagate_sorted)
ANGLES = st.one_of(
    st.sampled_from([0.0, math.pi / 2, math.pi, -math.pi / 2]), st.floats(-3, 3, allow_subnormal=False)
)
NAMES = ("h", "s", "t", "cnot", "cz", "is", "fs", "rx", "ry", "rz", "cp")


@st.composite
def gates(draw: st.DrawFn, n_qubits: int) -> Gate:
    """A gate of a name, on qubits that are there."""
    name = draw(st.sampled_from(NAMES if n_qubits > 1 else ("h", "s", "t", "rx", "ry", "rz")))
    size = 2 if name in ("cnot", "cz", "is", "fs", "cp") else 1
    qubits = draw(st.permutations(range(n_qubits)))[:size]
    angles = {"fs": 2, "rx": 1, "ry": 1, "rz": 1, "cp": 1}.get(name, 0)
    return gate(name, tuple(qubits), tuple(draw(ANGLES) for _ in range(angles)))


@st.composite
def any_steps(draw: st.DrawFn, n_qubits: int) -> list[PauliStep]:
    """Gates, rotations about any word, and channels, also one that is not unital."""
    steps: list[PauliStep] = []
    for _ in range(draw(st.integers(0, 10))):
        kind, qubit = draw(st.sampled_from("grrc")), draw(st.integers(0, n_qubits - 1))
        if kind == "g":
            steps += gate_steps(draw(gates(n_qubits)))
        elif kind == "r":
            word = st.integers(0, 2**n_qubits - 1)
            steps.append(Rotation(draw(word), draw(word), draw(ANGLES)))
        else:
            channels = (
                amplitude_damping(qubit, 0.3),
                pauli_channel(qubit, 0, 0, 0.3),
                depolarizing([qubit], 0.3),
            )
            steps.append(draw(st.sampled_from(channels)))
    return steps


@st.composite
def observables(draw: st.DrawFn, n_qubits: int) -> PauliSum:
    """Some words, also of coefficients below cuts."""
    mask = st.integers(0, 2**n_qubits - 1)
    numbers = st.sampled_from([1.0, -0.7, 0.3, 0.02, -0.003])
    words = draw(st.dictionaries(st.tuples(mask, mask), numbers, min_size=1, max_size=4))
    return pauli_sum([(x, z, c) for (x, z), c in words.items()], n_qubits)


@st.composite
def truncations(draw: st.DrawFn, n_qubits: int) -> Truncation:
    """Any of the limits, or none."""
    cut, limit = st.sampled_from([0.0, 0.0, 0.01, 0.2]), st.none() | st.integers(0, n_qubits)
    return Truncation(
        draw(cut), draw(cut), draw(limit), draw(limit), draw(limit), every=draw(st.integers(1, 3))
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[PauliStep], PauliSum, np.ndarray, Truncation]:
    """Steps, an observable, the Bloch vectors of a product state, and a truncation."""
    n = draw(st.integers(1, 4))
    vector = st.sampled_from([(0, 0, 1), (0, 0, -1), (0.6, 0, 0.8), (0.1, 0.2, -0.3), (0, 0, 0), (0, 1, 0)])
    bloch = np.array(draw(st.lists(vector, min_size=n, max_size=n)), np.float64)
    return draw(any_steps(n)), draw(observables(n)), bloch, draw(truncations(n))


def exact_value(steps: list[PauliStep], terms: PauliSum, bloch: np.ndarray) -> float:
    """tr(rho O), O taken back through the whole map of every step as a vector of all words' coefficients."""
    n = terms.n_qubits
    words = local_words(n)
    operator = dense(terms)
    for step in reversed(steps):
        if isinstance(step, Rotation):
            word = dense(pauli_sum([(step.x, step.z, 1.0)], n))
            turn = math.cos(step.angle / 2) * np.eye(2**n) - 1j * math.sin(step.angle / 2) * word
            operator = turn.conj().T @ operator @ turn
            continue
        shares = np.einsum("aij,ji->a", words, operator).real / 2**n
        new = np.zeros_like(operator)
        for a, share in enumerate(shares):
            for b, weight in enumerate(column(step, a)):
                new += share * weight * words[replaced(a, b, step.qubits)]
        operator = new
    rho = np.eye(1)
    for x, y, z in bloch:
        rho = np.kron(rho, np.einsum("a,aij->ij", (1, x, z, y), local_words(1)) / 2)
    return float(np.trace(rho @ operator).real)


def column(step: PauliStep, a: int) -> np.ndarray:
    """What a Clifford or a channel makes of the local word that word `a` has on its qubits."""
    assert not isinstance(step, Rotation)
    local = sum((a >> 2 * q & 3) << 2 * j for j, q in enumerate(step.qubits))
    if isinstance(step, TransferMatrix):
        return np.asarray(step.matrix[:, local])
    return np.where(np.arange(len(step.images)) == step.images[local], step.signs[local], 0)


def replaced(a: int, local: int, qubits: tuple[int, ...]) -> int:
    """Word `a` with another local word on some qubits."""
    for j, q in enumerate(qubits):
        a = a & ~(3 << 2 * q) | (local >> 2 * j & 3) << 2 * q
    return a


def agrees(dropped: Dropped, error: float, bound: float) -> None:
    """The error is within its bound, and counts are 0 where nothing was dropped and nowhere else."""
    assert error <= bound + ROUNDING
    assert (dropped.terms == 0) == (dropped.l1 == 0) == (dropped.l2 == 0)
    if not dropped.terms:
        assert error <= ROUNDING


@pytest.mark.parametrize("run", ENGINES, ids=("hash", "threads", "sort"))
@given(problems())
def test_the_error_of_an_observable_is_within_its_bound(
    run: Propagate, problem: tuple[list[PauliStep], PauliSum, np.ndarray, Truncation]
) -> None:
    steps, terms, bloch, limits = problem
    exact = exact_value(steps, terms, bloch)
    done = run(steps, terms, limits)
    agrees(done.dropped, abs(value_in(done.result, bloch) - exact), done.dropped.l1)
    whole = run(steps, terms)
    if not done.dropped.terms:
        assert overlap(done.result, done.result) == pytest.approx(overlap(whole.result, whole.result))
    with_largest = replace(limits, max_terms=terms.n_terms)
    done = run(steps, terms, with_largest)
    agrees(done.dropped, abs(value_in(done.result, bloch) - exact), done.dropped.l1)


@pytest.mark.parametrize("run", ENGINES, ids=("hash", "threads", "sort"))
@given(problems())
def test_the_error_of_a_state_is_within_its_bound(
    run: Propagate, problem: tuple[list[PauliStep], PauliSum, np.ndarray, Truncation]
) -> None:
    steps, terms, bloch, limits = problem
    start, left_out = product_state(bloch, limits.max_weight)
    done = run(forward(steps), start, limits)
    value, dropped = overlap(done.result, terms), left_out + done.dropped
    is_unital = all(not isinstance(step, TransferMatrix) or step.is_unital for step in steps)
    bound = error_of_state(dropped, terms, value, is_unital=is_unital).bound
    agrees(dropped, abs(value - exact_value(steps, terms, bloch)), bound)


@given(problems(), st.data())
def test_the_error_of_an_overlap_is_within_its_bound(
    problem: tuple[list[PauliStep], PauliSum, np.ndarray, Truncation], data: st.DataObject
) -> None:
    steps, terms, _, limits = problem
    other = data.draw(observables(terms.n_qubits))
    is_unital = all(not isinstance(step, TransferMatrix) or step.is_unital for step in steps)
    exact, done = overlap(other, propagate(steps, terms).result), propagate(steps, terms, limits)
    value = overlap(other, done.result)
    error = error_of_overlap(done.dropped, terms, other, value, is_unital=is_unital)
    agrees(done.dropped, abs(value - exact), error.bound)
    assert error.estimate <= error.bound + ROUNDING or error.is_vacuous
    nearest = error_in_state(done.dropped, terms, 0.0)
    assert nearest.bound <= np.abs(terms.coefficients).sum() * (1 + 1e-12)
    assert nearest.is_vacuous == (nearest.bound == np.abs(terms.coefficients).sum())


@given(problems())
def test_the_tape_of_gradients_counts_what_it_drops(
    problem: tuple[list[PauliStep], PauliSum, np.ndarray, Truncation],
) -> None:
    steps, terms, bloch, limits = problem
    found = gradient(steps, terms, limits, state=bloch)
    agrees(found.dropped, abs(found.value - exact_value(steps, terms, bloch)), found.dropped.l1)


@given(st.data())
def test_reports_of_circuits_bound_their_errors(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 4))
    circuit = GateSequence(n, tuple(data.draw(st.lists(gates(n), max_size=8))))
    terms, limits = data.draw(observables(n)), data.draw(truncations(n))
    bits, depolarize = (
        data.draw(st.text("01", min_size=n, max_size=n)),
        data.draw(st.sampled_from([0.0, 0.1])),
    )
    noise = [depolarizing(item.qubits, depolarize) for item in circuit.gates]
    steps = [
        step
        for item, struck in zip(circuit.gates, noise, strict=True)
        for step in (*gate_steps(item), struck)
    ]
    bloch = np.array([[0, 0, 1 - 2 * int(bit)] for bit in bits])
    exact = exact_value(steps, terms, bloch)
    for picture in ("heisenberg", "schroedinger"):
        found = tnplan.propagate(circuit, terms, limits, state=bits, depolarize=depolarize, picture=picture)
        agrees(Dropped(**found.report["dropped"]), abs(found.value - exact), found.report["error_bound"])


@given(st.data())
def test_a_product_state_says_what_it_leaves_out(data: st.DataObject) -> None:
    _, _, bloch, limits = data.draw(problems())
    whole, nothing = product_state(bloch)
    assert nothing == Dropped(0.0, 0.0, 0)
    part, left_out = product_state(bloch, limits.max_weight)
    most = len(bloch) if limits.max_weight is None else limits.max_weight
    gone = np.abs(whole.coefficients[whole.weights > most])
    assert np.array_equal(part.keys, whole.keys[whole.weights <= most])
    assert left_out.terms == len(gone)
    assert left_out.l1 == pytest.approx(gone.sum(), rel=1e-12)
    assert left_out.l2 == pytest.approx(np.linalg.norm(gone), rel=1e-12)


def test_words_that_a_state_starts_without_are_counted() -> None:
    circuit = GateSequence(6, ())
    for weight, terms, value in ((4, 7, 0), (5, 1, 1), (6, 0, 1)):
        limits = Truncation(max_weight=weight)
        found = tnplan.propagate(circuit, "Z0 Z1 Z2 Z3 Z4", limits, picture="schroedinger")
        assert (found.value, found.report["dropped"]["terms"]) == (value, terms)
        assert found.report["error_bound"] == min(math.sqrt(terms), value + 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_qubits", [40, 2000])
def test_a_state_of_more_words_than_numbers_hold_has_a_bound(n_qubits: int) -> None:
    limits = Truncation(max_weight=1)
    found = tnplan.propagate(GateSequence(n_qubits, ()), "Z3", limits, picture="schroedinger")
    assert (found.value, found.report["error_bound"]) == (1.0, 2.0)
    assert found.propagation.dropped.terms == 2**n_qubits - n_qubits - 1
    assert (found.report["dropped"]["l1"] is None) == (n_qubits > 1024)


def test_branches_that_are_0_are_not_dropped() -> None:
    steps = [Rotation(*word_masks((0, 1, 2), 0b010101), math.pi)]
    for run in ENGINES:
        dropped = run(steps, parse("Z0", 3), Truncation(0.1, max_weight=3)).dropped
        assert dropped == Dropped(0.0, 0.0, 0)
    assert gradient(steps, parse("Z0", 3), Truncation(0.1)).dropped == Dropped(0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("precision", "coefficient"), [("fp32", "1e-60"), ("fp32", "1e-40"), ("fp64", "1e-310")]
)
def test_coefficients_below_the_normal_range_are_refused(precision: str, coefficient: str) -> None:
    problem = f"has the coefficient {coefficient}, below the range of {precision}"
    with pytest.raises(InputError, match=problem):
        propagate([], parse(f"Z0 + {coefficient}*X0", 1), None, Resources(precision=precision))
