"""Samples by contraction follow the distribution of dense states, and say whether they are independent."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.support.chi_square import check_counts
from tests.support.circuit_families import FAMILIES, GRAPHS, graph
from tests.support.circuits import random_circuit, state_vector
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.slow import slow_after
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import CircuitProgram, depolarizing
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.workloads.lattice import edge_colours, lattice_circuit
from tnplan.questions.engines.task_list import linear_xeb
from tnplan.questions.tensor_networks import samples_by_gates
from tnplan.questions.tensor_networks.sample import METHODS, SampleOptions, sample

CPU = ContractionOptions(device="cpu", threads=1, search_s=0.3)
QUICK = ContractionOptions(device="cpu", threads=1)
DEVIATIONS = 5.0
"""How far a chi-square may be from its mean, in standard deviations; seeds are fixed."""


def chi_square(bits: np.ndarray, chances: np.ndarray) -> tuple[float, int]:
    """The statistic of strings against probabilities, and its degrees of freedom; rare values are one."""
    n_qubits = bits.shape[1]
    values = bits @ (1 << np.arange(n_qubits - 1, -1, -1))
    counts = np.bincount(values, minlength=2**n_qubits).astype(float)
    wanted = chances.reshape(-1) * len(bits)
    often = wanted >= 5
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(wanted[often], wanted[~often].sum())
    kept = expected > 1e-9
    assert observed[~kept].sum() == 0
    statistic = ((observed[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    return float(statistic), int(kept.sum()) - 1


def binned(bits: np.ndarray, chances: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Observed and expected counts of values in 256 bins: by halves of the qubits, and by probability."""
    n_qubits = bits.shape[1]
    weights = 1 << np.arange(n_qubits - 1, -1, -1)
    rows = np.arange(2**n_qubits)[:, None] >> np.arange(n_qubits - 1, -1, -1) & 1
    values, chances = bits @ weights, chances.reshape(-1)
    halves = [slice(0, 8), slice(n_qubits - 8, None), slice(0, 16, 2)]
    labels = [rows[:, half] @ (1 << np.arange(7, -1, -1)) for half in halves]
    order = np.argsort(chances, kind="stable")
    ranked = np.empty(len(order), np.int64)
    ranked[order] = np.minimum(np.cumsum(chances[order]) * 256, 255)
    return [
        (np.bincount(label[values], minlength=256), len(bits) * np.bincount(label, chances, 256))
        for label in (*labels, ranked)
    ]


def assert_follows(bits: np.ndarray, chances: np.ndarray) -> None:
    statistic, freedom = chi_square(bits, chances)
    assert freedom > 0
    assert abs(statistic - freedom) < DEVIATIONS * np.sqrt(2 * freedom)


@pytest.mark.parametrize("n_qubits", [1, 4, 8, 11])
def test_the_chain_follows_the_distribution(n_qubits: int) -> None:
    circuit = GateSequence(1, (gate("rx", (0,), (1.0,)),))
    if n_qubits > 1:
        circuit = random_circuit(n_qubits, 40, n_qubits)
    found = sample(circuit, 3000, 1, CPU, SampleOptions("chain"))
    assert (found.kind, found.exact) == ("independent", True)
    assert_follows(found.bitstrings, abs(state_vector(circuit)) ** 2)
    again = sample(circuit, 3000, 1, CPU, SampleOptions("chain"))
    np.testing.assert_array_equal(again.bitstrings, found.bitstrings)


def test_a_wrong_distribution_would_be_seen() -> None:
    circuit = random_circuit(8, 40, 8)
    found = sample(circuit, 3000, 1, CPU)
    chances = abs(state_vector(circuit)) ** 2
    statistic, freedom = chi_square(found.bitstrings, (chances + 0.2 / 2**8) / 1.2)
    assert statistic - freedom > DEVIATIONS * np.sqrt(2 * freedom)


def test_the_chain_takes_noise_into_account() -> None:
    plus = gate("h", (0,)), gate("cnot", (0, 1)), depolarizing((0, 1), 0.3)
    found = sample(CircuitProgram(2, 0, plus), 4000, 2, CPU)
    same, other = 0.5 * (0.7 + 0.3 * 7 / 15), 0.5 * 0.3 * 8 / 15
    assert_follows(found.bitstrings, np.array([same, other, other, same]))


@pytest.mark.parametrize("most", slow_after(1, [3, 10]))
@pytest.mark.parametrize("family", FAMILIES)
def test_samples_gate_by_gate_follow_the_distribution(
    family: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples_by_gates, "MOST_CHANGED", most)
    monkeypatch.setattr(samples_by_gates, "ROWS_AT_ONCE", 100 if most == 3 else 4096)
    random = np.random.default_rng(most)
    n_qubits, edges = graph(GRAPHS[list(FAMILIES).index(family) % len(GRAPHS)], 7, random)
    circuit = GateSequence(n_qubits, tuple(FAMILIES[family](n_qubits, edges, 4, random)))
    chances = abs(state_vector(circuit)) ** 2
    shots = 1000 if most == 3 else 3000
    found = sample(circuit, shots, 5, QUICK, SampleOptions("gates"))
    assert (found.kind, found.exact, found.method) == ("independent", True, "gates")
    texts = ["".join(map(str, row)) for row in found.bitstrings.tolist()]
    check_counts(Counter(texts), chances)
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities, chances[tuple(found.bitstrings.T)], rtol=0, atol=1e-10)
    again = sample(circuit, shots, 5, QUICK, SampleOptions("gates"))
    np.testing.assert_array_equal(again.bitstrings, found.bitstrings)


def test_the_cheaper_way_is_taken() -> None:
    """A shallow circuit on a lattice has thin amplitudes and thick marginals; noise has marginals alone."""
    gates = [gate("h", (qubit,)) for qubit in range(36)]
    for layer in range(6):
        gates += [gate("fs", pair, (0.3, 0.4)) for pair in edge_colours("rectangular", 6, 6)[layer % 4]]
    assert samples_by_gates.cheaper_way(gates, 36, 4) == "gates"
    assert samples_by_gates.cheaper_way((*gates, depolarizing((0,), 0.1)), 36, 4) == "chain"
    assert sample(GateSequence(36, tuple(gates[:36])), 4, 1, QUICK).method == "chain"


@pytest.mark.parametrize("n_open", [0, 4])
def test_rejection_samples_a_random_circuit(n_open: int) -> None:
    circuit = lattice_circuit("rectangular", 3, 3, 16, 0)
    chances = abs(state_vector(circuit)) ** 2
    found = sample(circuit, 2000, 3, CPU, SampleOptions("rejection", n_open))
    assert found.kind == ("correlated" if n_open else "independent")
    assert found.clipped < 2e-3
    assert_follows(found.bitstrings, chances)
    wanted = 2**9 * (chances**2).sum() - 1
    value, error = linear_xeb(chances[tuple(found.bitstrings.T)], 9)
    assert abs(value - wanted) < 5 * error


def test_rejection_refuses_a_distribution_with_a_peak() -> None:
    """Its most likely string has 0.6 of the probability, and rejection can give it a hundredth."""
    turns = GateSequence(10, tuple(gate("ry", (qubit,), (0.45,)) for qubit in range(10)))
    with pytest.raises(InputError, match=r'rejection would leave out \d+% of the probability.*use "chain"'):
        sample(turns, 2000, 1, CPU, SampleOptions("rejection"))


def test_a_share_of_the_slices_has_that_fidelity() -> None:
    circuit = lattice_circuit("rectangular", 3, 4, 16, 0)
    chances = abs(state_vector(circuit)) ** 2
    how = SampleOptions("rejection", fidelity=0.25)
    found = sample(circuit, 2000, 4, CPU, how)
    value, error = linear_xeb(chances[tuple(found.bitstrings.T)], 12)
    assert found.fidelity == 0.25
    assert abs(value - 0.25 * (2**12 * (chances**2).sum() - 1)) < 0.1 + 5 * error


@pytest.mark.slow
@pytest.mark.parametrize("how", [*map(SampleOptions, METHODS[1:])], ids=METHODS[1:])
def test_samples_of_16_qubits_follow_the_distribution(how: SampleOptions) -> None:
    circuit = lattice_circuit("rectangular", 4, 4, 10, 6)
    chances = abs(state_vector(circuit)) ** 2
    shots = 20_000
    found = sample(circuit, shots, 11, CPU, how)
    assert found.bitstrings.shape == (shots, 16)
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities, chances[tuple(found.bitstrings.T)], rtol=1e-8)
    for observed, expected in binned(found.bitstrings, chances):
        assert expected.min() > 5
        statistic = ((observed - expected) ** 2 / expected).sum()
        deviation = abs(statistic - 255) / np.sqrt(2 * 255)
        assert deviation < DEVIATIONS
    uniform = np.full_like(chances, 2.0**-16)
    assert any(
        ((observed - expected) ** 2 / np.maximum(expected, 1)).sum() > 2 * 255
        for observed, expected in binned(found.bitstrings, uniform)
    )


NOISY = CircuitProgram(1, 0, (depolarizing((0,), 0.1),))
GROWING = GateSequence(1, (Gate("grow", (0,), 2 * np.eye(2)[::-1]),))
# fmt: off
REFUSED: list[Row] = [
    (lambda: sample(random_circuit(3, 20, 0), 0, 0), "shots", "is 0", "give an integer from 1"),
    (lambda: SampleOptions("guess"), "sampling method", "'guess' is unknown", "choose from auto"),
    (lambda: SampleOptions(fidelity=0.5), "fidelity", "is for samples by rejection", "leave it out, or use"),
    (lambda: SampleOptions("rejection", fidelity=0), "fidelity", "is 0", "give more than 0 and at"),
    (lambda: sample(NOISY, 1, 0, CPU, SampleOptions("gates")), "circuit", "and is sampled gate by gate", ""),
    (lambda: sample(GROWING, 1, 0, CPU, SampleOptions("gates")), "circuit", "a gate that is not unitary", ""),
    (lambda: sample(NOISY, 1, 0, CPU, SampleOptions("rejection")), "circuit", "noisy", "use only gates and"),
    (lambda: sample(GateSequence(20, ()), 1, 0, CPU, SampleOptions("rejection")), "sampling method",
     "rejection took 0 of", 'use "chain", or the'),
]
# fmt: on


@table(REFUSED)
def test_what_does_not_go_together_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)
