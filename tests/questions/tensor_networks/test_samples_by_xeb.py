"""Samples of a linear cross-entropy: exact probabilities say what is predicted, or it is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import ceil, prod
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import rotations_and
from tests.support.circuits import random_circuit, state_vector
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.workloads.lattice import lattice_circuit
from tnplan.planner.workloads.sycamore import sycamore_circuit
from tnplan.questions.engines.task_list import linear_xeb
from tnplan.questions.tensor_networks.samples_by_xeb import (
    ChosenStrings,
    cheapest_precision,
    draw_along,
    is_porter_thomas,
    plan_bunches,
    predicted_xeb,
    raised_by,
    spread_slices,
)
from tnplan.questions.tensor_networks.sparse_state import SparseState

CPU = ContractionOptions(device="cpu", threads=1, precision="fp32")
PLUS = GateSequence(12, tuple(gate("h", (qubit,)) for qubit in range(12)))


def chances_of(circuit: GateSequence, bits: np.ndarray) -> np.ndarray:
    chances: np.ndarray = np.abs(state_vector(circuit).reshape(-1)) ** 2
    return chances[bits @ (1 << np.arange(circuit.n_qubits - 1, -1, -1))]


def drawn(circuit: GateSequence, shots: int, xeb: float, seed: int) -> ChosenStrings:
    """Samples of a share of slices, of which there are made more than a small circuit needs."""
    plan = plan_bunches(circuit, shots, xeb, np.random.default_rng(seed), CPU)
    assert plan is not None
    share = min(1.0, xeb / raised_by(2**plan.n_open))
    plan.state.slice_more(ceil(2 / share))
    return draw_along(replace(plan, n_slices=ceil(share * plan.state.plan.n_slices)), circuit, xeb)


@pytest.mark.parametrize("xeb", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("seed", slow_after(1, [501, 502]))
@pytest.mark.parametrize(
    ("rows", "columns", "layers"), [(3, 4, 24), pytest.param(4, 4, 24, marks=pytest.mark.slow)]
)
def test_the_cross_entropy_of_unseen_circuits_is_as_predicted(
    rows: int, columns: int, layers: int, seed: int, xeb: float
) -> None:
    circuit = lattice_circuit("rectangular", rows, columns, layers, seed)
    found = drawn(circuit, 400, xeb, seed)
    assert len(np.unique(found.bitstrings, axis=0)) == 400
    value, _ = linear_xeb(chances_of(circuit, found.bitstrings), rows * columns)
    assert abs(value - found.xeb) < 3 * found.error
    assert found.xeb > xeb - 3 * found.error


def test_fewer_slices_have_a_smaller_cross_entropy() -> None:
    """The prediction is not one that holds for any strings."""
    circuit = lattice_circuit("rectangular", 4, 4, 24, 503)
    tenth, whole = drawn(circuit, 2000, 0.1, 1), drawn(circuit, 2000, 1.0, 1)
    assert tenth.share < 0.4 < 0.8 < whole.share
    value, error = linear_xeb(chances_of(circuit, tenth.bitstrings), 16)
    assert whole.xeb - value > 10 * error


@pytest.mark.parametrize("size", [2, 4, 16])
def test_the_likeliest_of_exponential_values(size: int) -> None:
    """E max = H_K; with a fidelity f the exact probability follows r with the slope f."""
    random, f, count = np.random.default_rng(size), 0.3, 100_000
    a, b = (random.normal(size=(2, count, size, 2)) @ np.array([1, 1j])) / np.sqrt(2)
    r, p = f * np.abs(a) ** 2, np.abs(np.sqrt(f) * a + np.sqrt(1 - f) * b) ** 2
    best = r.argmax(axis=1)[:, None]
    of_best, exact = np.take_along_axis(r, best, 1)[:, 0], np.take_along_axis(p, best, 1)[:, 0]
    found, error = predicted_xeb(of_best, f)
    assert abs(exact.mean() - 1 - found) < 4 * error
    assert abs(found - f * raised_by(size)) < 4 * error
    assert error == pytest.approx(exact.std() / np.sqrt(count), rel=0.02)


def test_what_is_exponentially_distributed() -> None:
    random = np.random.default_rng(0)
    kept = sum(is_porter_thomas(random.exponential(2.0, 2000)) for _ in range(100))
    assert kept >= 98
    values = random.exponential(1.0, 2000)
    assert not is_porter_thomas(values * (np.arange(2000) % 2))
    assert not is_porter_thomas(np.ones(2000))
    assert not is_porter_thomas(np.zeros(2000))
    # A spread of the means that the largest distance of the distribution lets pass.
    means = 1 + 0.2 * random.choice([-1, 1], 200_000)
    assert not is_porter_thomas(random.exponential(means))
    assert not is_porter_thomas(random.exponential(1.0, 2000) * random.exponential(1.0, 2000))


def test_few_slices_have_all_values_of_each_three_indices() -> None:
    """16 of 256: the extended Hamming code, an orthogonal array of strength 3."""
    bits = np.array(spread_slices((2,) * 8, 16))[:, None] >> np.arange(8) & 1
    for three in combinations(range(8), 3):
        _, counts = np.unique(bits[:, three], axis=0, return_counts=True)
        assert counts.tolist() == [2] * 8


@pytest.mark.parametrize("extents", [(), (2,), (3, 2, 5), (2,) * 10, (2,) * 40, (3,) * 9 + (2,) * 3])
def test_spread_slices_are_different_ones(extents: tuple[int, ...]) -> None:
    for count in {1, min(prod(extents), 700), min(prod(extents), 1 << 10)}:
        chosen = spread_slices(extents, count)
        assert len({*chosen}) == len(chosen) == count
        assert min(chosen) >= 0
        assert max(chosen) < prod(extents)


@pytest.mark.parametrize("seed", [621, 622])
def test_slices_in_turn_are_not_mixed_where_spread_ones_are(seed: int) -> None:
    """Eight qubits of a scrambled state are fixed, and four layers follow: exact sums of 16 slices of 256."""
    scrambled = state_vector(lattice_circuit("rectangular", 4, 4, 24, seed)).reshape(-1)
    last = lattice_circuit("rectangular", 4, 4, 4, seed + 100)
    strings = np.arange(1 << 16)
    cuts = (0, 2, 5, 7, 8, 10, 13, 15)
    slice_of = sum((strings >> 15 - qubit & 1) << 7 - place for place, qubit in enumerate(cuts))

    def is_mixed(slices: Sequence[int]) -> bool:
        state = np.where(np.isin(slice_of, list(slices)), scrambled, 0).reshape((2,) * 16)
        for item in last.gates:
            q = len(item.qubits)
            matrix = item.matrix.reshape((2,) * (2 * q))
            state = np.tensordot(matrix, state, (range(q, 2 * q), item.qubits))
            state = np.moveaxis(state, range(q), item.qubits)
        return is_porter_thomas(np.abs(state.reshape(-1)) ** 2)

    assert is_mixed(spread_slices((2,) * 8, 16))
    assert not is_mixed(range(16))


@pytest.mark.parametrize("gates", ["haar", "cz"])
def test_a_share_of_a_shallow_circuit_is_refused(gates: str) -> None:
    if gates == "haar":
        circuit = lattice_circuit("rectangular", 3, 4, 3, 504)
    else:
        circuit = rotations_and("cz", 3, 4, 3, 504)
    with pytest.raises(tnplan.InputError, match="not exponentially distributed"):
        drawn(circuit, 300, 0.05, 0)


def test_a_circuit_that_has_even_probabilities_is_refused() -> None:
    with pytest.raises(tnplan.InputError, match=r"xeb: is 0.5, and the likeliest of 4 strings reach"):
        tnplan.Circuit(PLUS).sample(100, xeb=0.5, seed=0, device="cpu", threads=1)


@pytest.mark.parametrize("shots", [100, 1e26])
@pytest.mark.parametrize("seed", slow_after(1, range(601, 605)))
def test_the_precision_is_the_cheapest_that_the_samples_do_not_show(seed: int, shots: float) -> None:
    """On a GPU, of which a plan needs the profile alone."""
    circuit, random = lattice_circuit("rectangular", 5, 6, 14, seed), np.random.default_rng(seed)
    use = ContractionOptions(device="gpu", hardware="h200-nvlink", memory=1e9, precision="fp32", search_s=1.0)
    strings = random.integers(0, 2, (4000, 30), dtype=np.uint8)
    state = SparseState(circuit, np.unique(strings, axis=0), use)
    state.slice_more(64)
    slices = spread_slices(state.extents, 8)
    chosen = cheapest_precision(state, slices, 0.5, shots)
    for precision in ("fp32", "fp16x3", "tf32"):
        other = state.in_precision(precision)
        shows = other.rounding**2 * 0.5 > 0.25 / np.sqrt(shots)
        is_out = shows and precision != chosen.precision
        assert is_out or chosen.seconds_of(slices) <= other.seconds_of(slices)
    every = range(state.plan.n_slices)
    assert cheapest_precision(state, every, 0.5, shots).precision == "fp32"


@pytest.mark.parametrize("seed", slow_after(2, range(700, 712)))
def test_rounding_is_no_more_than_estimated(seed: int) -> None:
    rows, columns = ((3, 4), (4, 5))[seed % 2]
    circuit = lattice_circuit("rectangular", rows, columns, 8 + seed % 7 * 2, seed)
    strings = np.random.default_rng(seed).integers(0, 2, (500, rows * columns), dtype=np.uint8)
    states = [
        SparseState(circuit, np.unique(strings, axis=0), CPU.changed(precision=precision, search_s=0.3))
        for precision in ("fp32", "fp64")
    ]
    found, exact = (state.amplitudes() for state in states)
    assert 0 < np.linalg.norm(found - exact) < states[0].rounding * np.linalg.norm(exact)


def test_the_answer_says_what_the_samples_are() -> None:
    circuit = tnplan.Circuit(lattice_circuit("rectangular", 3, 4, 16, 0))
    answer = circuit.sample(200, xeb=0.5, seed=1, device="cpu", threads=1)
    told = answer.details
    assert told["samples"] == "independent"
    assert not told["exact_distribution"]
    assert told["predicted_xeb"] == pytest.approx(0.5, abs=0.8)
    assert told["best_of"] >= 4
    assert told["precision"] == "fp32"
    assert 0 < told["share_of_slices"] <= 1
    assert sum(answer.value.values()) == 200
    again = circuit.sample(3000, xeb=0.5, seed=1, device="cpu", threads=1).details
    assert (again["sampling"], again["best_of"], again["share_of_slices"]) == ("rejection", 1, 1.0)
    costs = {row.method: row.cost for row in circuit.estimate(sample=200, xeb=0.5, threads=1).rows}
    assert [method for method, cost in costs.items() if cost is not None] == ["contraction"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    circuit = tmp_path / "c.qsim"
    save_qsim(sycamore_circuit(14, 0, 9), circuit)
    assert run(f"sample {circuit} --shots 50 --xeb 0.5 --seed 1 --device cpu --threads 1".split()) == 0
    assert re.search(r"predicted XEB: \S+.* \(an estimate\); independent samples", capsys.readouterr().out)


CIRCUIT = tnplan.Circuit(random_circuit(4, 20, 0))
# fmt: off
REFUSED: list[Row] = [
    (lambda: CIRCUIT.sample(5, xeb=0), "--xeb", "is 0", "more than 0 and at most 1"),
    (lambda: CIRCUIT.sample(5, xeb=1.5), "--xeb", "is 1.5", "more than 0 and at most 1"),
    (lambda: CIRCUIT.sample(5, xeb=float("nan")), "--xeb", "is nan", "more than 0 and at most 1"),
    (lambda: CIRCUIT.sample(5, xeb="much"), "--xeb", "is 'much'", "more than 0 and at most 1"),
    (lambda: CIRCUIT.sample(5, xeb=0.1, fidelity=0.5), "--xeb", "chooses how samples are", "leave out"),
    (lambda: CIRCUIT.sample(5, xeb=0.1, sampling="chain"), "--xeb", "chooses how samples are", "leave out"),
    (lambda: CIRCUIT.sample(5, xeb=0.1, open_qubits=2), "--xeb", "chooses how samples are", "leave out"),
    (lambda: CIRCUIT.sample(5, xeb=0.1, method="statevector"), "--xeb", "is given, but 'statevector'", ""),
]
# fmt: on


@table(REFUSED)
def test_what_does_not_go_together_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)
