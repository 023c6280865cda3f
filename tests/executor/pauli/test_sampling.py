"""Resampling is without bias: against exact means, dense states, and the norm that squares keep."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.circuits import state_vector
from tests.support.effort import repeats
from tests.support.engines.pauli import chain_edges, kicked_ising
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import KINDS, gate
from tnplan.circuits.pauli_sum import PauliSum, pack, parse, pauli_sum
from tnplan.executor.pauli.algebra.expectation import adjoint, overlap
from tnplan.executor.pauli.algebra.gates import PauliStep, circuit_steps, local_words, rotation
from tnplan.executor.pauli.algebra.states import ProductState
from tnplan.executor.pauli.estimate import (
    BIASED,
    EchoParts,
    echo_parts,
    estimate_of,
    student_quantile,
)
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.repetitions import (
    KEPT_SHARE,
    LinearTask,
    MonteCarlo,
    StratifiedResampler,
    check_sampling,
    echo_task,
    letter_factor,
    linear_task,
    repetition,
    threshold,
    xy_letters,
)
from tnplan.executor.pauli.terms.truncation import Truncation

sizes_of_terms = st.lists(st.sampled_from([0.0, 1e-9, 0.1, 0.5, 0.5, 1.0, 3.0]), min_size=1, max_size=40)


@given(sizes_of_terms, st.integers(1, 30), st.sampled_from([1, 2]), st.integers(0, 9))
def test_a_draw_keeps_the_large_and_no_more_than_allowed(
    given_sizes: list[float], most: int, power: int, seed: int
) -> None:
    sizes = np.array(given_sizes)
    resampler = StratifiedResampler(np.random.default_rng(seed), power)
    chosen, new = resampler.draw(sizes, most)
    assert len(chosen) == len(new) <= most
    assert np.all(np.diff(chosen) > 0)
    assert np.all(new > 0)
    assert np.sum(new**power) == pytest.approx(np.sum(sizes**power), rel=1e-9)
    if resampler.events:
        level = threshold(sizes**power, max(1, int(KEPT_SHARE * most)))
        assert set(np.flatnonzero(sizes**power > level * (1 + 1e-9))) <= set(chosen)


@pytest.mark.parametrize("power", [1, 2])
def test_the_mean_of_draws_is_what_is_drawn_from(power: int) -> None:
    random = np.random.default_rng(3)
    sizes, n, resampler = 0.1 + random.exponential(size=60), 4000, StratifiedResampler(random, power)
    total, squares = np.zeros(60), np.zeros(60)
    for _ in range(n):
        chosen, new = resampler.draw(sizes, 30)
        total[chosen] += new**power
        squares[chosen] += new ** (2 * power)
    mean = total / n
    error = np.sqrt(np.maximum(squares / n - mean**2, 0) / n)
    pulls = (mean - sizes**power)[error > 0] / error[error > 0]
    assert np.allclose(mean[error == 0], (sizes**power)[error == 0], rtol=1e-9)
    assert np.abs(pulls).max() < 4.5
    assert 0.5 < np.var(pulls) < 1.8


def word_values(circuit: GateSequence, terms: PauliSum) -> float:
    """<psi| terms |psi>."""
    state, total = state_vector(circuit), 0.0
    for x, z, coefficient in terms.masks():
        turned = state
        for q in range(terms.n_qubits):
            word = (x >> q & 1) + 2 * (z >> q & 1)
            turned = np.moveaxis(np.tensordot(local_words(1)[word], turned, (1, q)), 0, q)
        total += (coefficient * np.vdot(state, turned)).real
    return total


GATES = {"h": 1, "s": 1, "t": 1, "rx": 1, "ry": 1, "rz": 1, "cz": 2, "cnot": 2, "cp": 2}


@pytest.mark.parametrize("n_qubits", [3, 64, 127])
def test_letters_are_counted_in_every_bit(n_qubits: int) -> None:
    words = [(0, 1), (1, 0), (1, 1), (2**n_qubits - 1, 0), (1 << (n_qubits - 1), 2**n_qubits - 1)]
    words += [(int("5" * 15, 16) % 2**n_qubits, 3)]
    keys = np.array([pack(x, z, n_qubits) for x, z in words])
    assert xy_letters(keys).tolist() == [x.bit_count() for x, _ in words]


def test_words_of_many_letters_stay_less_often_and_with_larger_magnitudes() -> None:
    keys = np.array([pack(x, 0, 8) for x in (0, 1, 3)])
    resampler = StratifiedResampler(np.random.default_rng(0), 1, 0.3)
    assert np.allclose(resampler.importance(keys), [1, 0.3, 0.09])
    assert np.allclose(StratifiedResampler(resampler.random).importance(keys), 1)


def test_a_letter_weighs_the_less_the_smaller_the_angles() -> None:
    steps = kicked_ising(4, chain_edges(4), 0.3, 2)
    task = linear_task(steps, parse("Z1", 4), None, keep_cliffords=True)
    assert task.letter_factor == pytest.approx(0.6 * math.sin(0.3), rel=1e-12)
    assert letter_factor(np.array([0.3, -0.5])) == pytest.approx(
        0.6 * math.hypot(0.2955202, 0.4794255) / 2**0.5
    )
    assert (letter_factor(np.array([1e-9])), letter_factor(np.array([1.5])), letter_factor(np.zeros(0))) == (
        0.05,
        0.5,
        0.5,
    )


def pulls_by_letters(count: int, repetitions: int) -> list[float]:
    """Kicked Ising chains with random angles, in a random bit string, by letters with few terms."""
    pulls = []
    for seed in range(count):
        random = np.random.default_rng(seed)
        n_qubits, bits = 7, "".join(random.choice(["0", "1"], 7))
        steps = kicked_ising(n_qubits, chain_edges(n_qubits), float(random.uniform(0.3, 0.8)), 4)
        start = parse("Z3 + 0.5*Z1 Z5", n_qubits)
        exact = float(propagate(steps, start, state=bits).value.real)
        task = linear_task(steps, start, bits, keep_cliffords=True)
        plan = MonteCarlo(repetitions, seed, "letters")
        done = [repetition(task, plan, 60, r) for r in range(repetitions)]
        assert all(one.resampled for one in done)
        estimate = estimate_of([one.value for one in done], "unbiased")
        pulls.append((estimate.value - exact) / estimate.standard_error)
    return pulls


def test_resampling_by_letters_is_without_bias() -> None:
    check_pulls(pulls_by_letters(8, 16), 16)


def test_resampling_by_letters_has_less_noise_in_a_bit_string() -> None:
    errors = {}
    steps, start = kicked_ising(20, chain_edges(20), 0.3, 8), parse("Z10", 20)
    for by in ("magnitude", "letters"):
        task, plan = linear_task(steps, start, None, keep_cliffords=True), MonteCarlo(12, 5, by)
        values = [repetition(task, plan, 60, r).value for r in range(plan.repetitions)]
        errors[by] = estimate_of(values, "unbiased").standard_error
    assert 0 < 3 * errors["letters"] < errors["magnitude"]


def test_first_steps_in_the_state_leave_less_noise() -> None:
    steps, start = kicked_ising(20, chain_edges(20), 0.5, 6), parse("Z10", 20)
    exact = float(propagate(steps, start).value.real)
    errors = []
    for task in (LinearTask(steps, start, None), linear_task(steps, start, None, keep_cliffords=True)):
        done = [repetition(task, MonteCarlo(24, 3, "letters"), 60, r) for r in range(24)]
        assert all(one.resampled for one in done)
        estimate = estimate_of([one.value for one in done], "unbiased")
        assert abs(estimate.value - exact) < 4 * estimate.standard_error
        errors.append(estimate.standard_error)
    assert 0 < errors[1] < errors[0]


def rotating_circuit(n_qubits: int, n_gates: int, random: np.random.Generator) -> GateSequence:
    """Gates of which every one is a Clifford or rotations, and one that is not."""
    gates = [gate("fs", (0, 1), random.uniform(-3, 3, 2).tolist())]
    for name in random.choice(sorted(GATES), n_gates):
        qubits = random.choice(n_qubits, GATES[name], replace=False).tolist()
        angles = random.uniform(-3, 3, KINDS[name].n_params).tolist()
        gates.append(gate(str(name), qubits, angles))
    return GateSequence(n_qubits, tuple(gates))


def pull(seed: int, n_qubits: int, repetitions: int) -> float | None:
    """How many standard errors the mean of repetitions is from the dense value of a random circuit.

    The input is a product state in which every word has a value.
    """
    random = np.random.default_rng(seed)
    theta, phi = random.uniform(0.6, 1.2, n_qubits), random.uniform(0.6, 1.2, n_qubits)
    bloch = np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], axis=1)
    circuit, most = rotating_circuit(n_qubits, 12 * n_qubits, random), int(random.integers(60, 400))
    ready = [gate("ry", (q,), (theta[q],)) for q in range(n_qubits)]
    ready += [gate("rz", (q,), (phi[q],)) for q in range(n_qubits)]
    words = [[int(v) for v in random.integers(2**n_qubits, size=2)] for _ in range(3)]
    terms = pauli_sum([(x, z, float(random.normal())) for x, z in words], n_qubits)
    task = linear_task(circuit_steps(circuit), terms, ProductState(bloch))
    exact = word_values(GateSequence(n_qubits, (*ready, *circuit.gates)), terms)
    plan = MonteCarlo(repetitions, seed)
    first = repetition(task, plan, most, 0)
    if not first.resampled:
        assert first.value == pytest.approx(exact, abs=1e-10)
        return None
    values = [first.value, *(repetition(task, plan, most, r).value for r in range(1, repetitions))]
    estimate = estimate_of(values, "unbiased")
    return (estimate.value - exact) / estimate.standard_error


def check_pulls(pulls: list[float], repetitions: int) -> None:
    """Within four standard errors each, and of unit variance but for Student's tails and chance."""
    n, freedom = len(pulls), repetitions - 1
    assert np.abs(pulls).max() < 4
    expected = freedom / (freedom - 2)
    assert np.var(pulls) == pytest.approx(expected, abs=4 * expected * math.sqrt(2 / n) * 1.2)
    assert abs(np.mean(pulls)) < 4 * math.sqrt(expected / n)


def test_the_mean_of_repetitions_is_the_dense_value() -> None:
    pulls = [drawn for seed in range(6) if (drawn := pull(seed, 5 + seed % 3, 12)) is not None]
    assert len(pulls) >= 4
    check_pulls(pulls, 12)


@pytest.mark.slow
def test_the_mean_of_repetitions_is_the_dense_value_of_many_circuits() -> None:
    count = repeats(12, 200)
    found = [pull(1000 + seed, 5 + seed % 10, 48) for seed in range(count)]
    pulls = [one for one in found if one is not None]
    assert len(pulls) >= count // 2
    check_pulls(pulls, 48)


def echo(n_qubits: int, layers: int, angle: float) -> list[PauliStep]:
    """A kicked Ising circuit, a rotation of some qubits, and the circuit back."""
    there = kicked_ising(n_qubits, chain_edges(n_qubits), 0.6, layers)
    middle = [rotation("Z", (q,), angle) for q in range(0, n_qubits, 2)]
    return [*there, *middle, *(adjoint(step) for step in reversed(there))]


def parts_of(steps: Sequence[PauliStep]) -> EchoParts:
    """The parts of what is an echo."""
    parts = echo_parts(steps)
    assert parts is not None
    return parts


def test_what_does_not_end_with_the_inverse_of_its_begin_is_no_echo() -> None:
    assert echo_parts([rotation("X", (0,), 0.3)] * 2) is None


def test_an_echo_without_resampling_is_exact() -> None:
    steps, terms = echo(8, 3, 0.4), parse("Z3 Z4 + 0.5*X1", 8)
    assert (len(parts_of(steps).middle), len(parts_of(steps).back)) == (4, (len(steps) - 4) // 2)
    exact = overlap(terms, propagate(steps, terms).result)
    for by in ("magnitude", "square"):
        done = repetition(echo_task(parts_of(steps), terms), MonteCarlo(by=by), 1 << 14, 0)
        assert done.resampled == 0
        assert done.value == pytest.approx(exact, abs=1e-12)


@settings(max_examples=15)
@given(st.integers(1, 300), st.integers(0, 5))
def test_an_echo_of_nothing_keeps_the_norm(most: int, seed: int) -> None:
    there = kicked_ising(10, chain_edges(10), 0.7, 4)
    task = echo_task(parts_of([*there, *(adjoint(step) for step in reversed(there))]), parse("Z5", 10))
    done = repetition(task, MonteCarlo(seed=seed, by="square"), most, 0)
    assert done.value == pytest.approx(1, rel=1e-9)
    assert done.largest <= most


def test_an_echo_whose_words_never_meet_is_unbiased_also_by_squares() -> None:
    there = [rotation("X", (q,), 0.3 + 0.1 * q) for q in range(10)]
    middle = [rotation("Z", (q,), 0.9) for q in range(10)]
    steps = [*there, *middle, *(adjoint(step) for step in reversed(there))]
    terms = parse("ZZZZZZZZZZ", 10)
    exact = overlap(terms, propagate(steps, terms).result)
    task, plan = echo_task(parts_of(steps), terms), MonteCarlo(32, 5, "square")
    estimate = estimate_of([repetition(task, plan, 40, r).value for r in range(32)], "")
    assert 0 < estimate.standard_error < 0.05
    assert abs(estimate.value - exact) < 4 * estimate.standard_error


def test_intervals_are_students() -> None:
    known = {1: 12.70620474, 2: 4.30265273, 3: 3.18244631, 10: 2.22813885, 31: 2.03951345}
    for freedom, quantile in known.items():
        assert student_quantile(freedom) == pytest.approx(quantile, abs=1e-8)
    estimate = estimate_of([1.0, 2.0, 3.0])
    assert (estimate.value, estimate.standard_error) == (2, pytest.approx(3**-0.5))
    assert estimate.half_width == pytest.approx(4.30265273 * 3**-0.5, abs=1e-7)
    assert estimate_of([1.0, 3.0]).text == "unbiased, no interval: 2 repetitions are fewer than 3"


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ([0.4, 0.6, 0.5, 0.55, 0.45, 0.52], None),
        ([0.5, 0.5], 2),
        ([0.5, 0.5 + 1e-16, 0.5, 0.3], 3),
        ([1e-17, 0.0, -2e-17, 1e-18], 4),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.5], 2),
        ([0.0, 0.0, 0.3, 0.0, 0.2, 0.0], 4),
        ([0.0] * 20 + [0.1, -0.1] * 6, None),
        ([0.2] * 40 + [0.1, -0.1, 0.4] * 3, 40),
        ([0.2, 0.2, *(0.1 * k for k in range(3, 14))], None),
    ],
)
def test_values_that_are_mostly_the_same_have_no_interval(values: list[float], same: int | None) -> None:
    found = estimate_of(values, farthest=10.0)
    assert (found.low is None, found.high is None, found.half_width is None) == (same is not None,) * 3
    doubt = f"{same} of {len(values)} repetitions gave the same value"
    assert found.text == ("unbiased" if same is None else f"unbiased, no interval: {doubt}")
    assert found.text in repr(found)
    assert found.standard_error == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5)


def test_only_what_is_unbiased_has_an_interval() -> None:
    found = estimate_of([0.1, 0.2, 0.4], BIASED)
    assert (found.low, found.high, found.text) == (None, None, "biased, no interval")


def test_an_interval_that_is_wider_than_what_is_possible_says_so() -> None:
    found = estimate_of([1e4, -2e3, 5e3], farthest=1.0)
    assert found.text == "unbiased; vacuous: no possible value is farther away"
    assert found.half_width is not None
    assert found.half_width > 1


# fmt: off
REFUSED: list[Row] = [
    (lambda: MonteCarlo(1), "--repetitions", "is 1", "give an integer from 2"),
    (lambda: MonteCarlo(seed=-1), "--seed", "is -1", "give an integer from 0"),
    (lambda: MonteCarlo(by="cube"), "--resample-by", "'cube' is unknown", "choose from magnitude"),
    (lambda: check_sampling(parse("Z0", 1), Truncation()), "--repetitions",
     "need a limit of terms", "give --max-terms"),
    (lambda: check_sampling(parse("Z0", 1), Truncation(1e-3, max_terms=9)), "--repetitions",
     "instead of cutting", "leave the cuts out"),
    (lambda: check_sampling(pauli_sum([(1, 0, 1j)], 1), Truncation(max_terms=9)), "--repetitions",
     "real coefficients", "give the two parts one"),
]
# fmt: on


@table(REFUSED)
def test_what_cannot_be_sampled_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)
