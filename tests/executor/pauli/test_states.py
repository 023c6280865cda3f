"""Values in product and stabilizer states, overlaps and values of each term, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.circuits import random_circuit, unitary
from tests.support.engines.pauli import chain_edges, dense, kicked_ising
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.pauli_sum import PauliSum, parse, pauli_sum
from tnplan.executor.pauli.algebra.expectation import value_in
from tnplan.executor.pauli.algebra.gates import circuit_steps
from tnplan.executor.pauli.algebra.states import given_overlap, given_state
from tnplan.executor.pauli.gradient import value_of_terms
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.terms.truncation import Truncation

VECTORS = {
    "0": [1, 0], "1": [0, 1], "+": [1, 1], "-": [1, -1], "r": [1, 1j], "l": [1, -1j],
}  # fmt: skip


def random_words(n: int, count: int, random: np.random.Generator) -> PauliSum:
    masks = [[int(v) for v in random.integers(2**n, size=2)] for _ in range(count)]
    return pauli_sum([(x, z, float(random.normal())) for x, z in masks], n)


@given(st.text("01+-rl", min_size=1, max_size=4), st.integers(0, 99))
def test_letters_are_product_states(letters: str, seed: int) -> None:
    n, psi = len(letters), np.ones(1)
    for letter in letters:
        vector = np.array(VECTORS[letter])
        psi = np.kron(psi, vector / np.linalg.norm(vector))
    terms = random_words(n, 12, np.random.default_rng(seed))
    state, expected = given_state(letters, n), np.vdot(psi, dense(terms) @ psi).real
    assert propagate([], terms, state=state).value == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 999))
def test_stabilizers_project(n: int, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    words: list[str] = []
    projector = np.eye(2**n, dtype=np.complex128)
    while len(words) < min(count, n):
        x, z = (int(v) for v in random.integers(2**n, size=2))
        one = pauli_sum([(x, z, float(random.choice([-1, 1])))], n)
        matrix = dense(one)
        after = projector @ (np.eye(2**n) + matrix) / 2
        commutes = all(np.allclose(matrix @ dense(parse(w, n)), dense(parse(w, n)) @ matrix) for w in words)
        if not commutes or not x | z or np.trace(after).real < 1e-9:
            random = np.random.default_rng(int(random.integers(1 << 30)))
            if random.random() < 0.1:
                break
            continue
        text = one.lines()[0]
        words.append(text.replace("-1.0 ", "-").replace("1.0 ", ""))
        projector = after
    terms = random_words(n, 20, random)
    expected = (np.trace(projector @ dense(terms)) / np.trace(projector)).real
    assert propagate([], terms, state=given_state(words, n)).value == pytest.approx(expected, abs=1e-12)


def test_wide_stabilizers() -> None:
    n = 130
    words = [f"X{q} X{q + 65}" for q in range(65)] + [f"-Z{q} Z{q + 65}" for q in range(65)]
    state = given_state(words, n)
    for text, value in (("X3 X68", 1), ("Z64 Z129", -1), ("Y64 Y129", 1), ("Z0", 0), ("Y1 Y66 Z2 Z67", -1)):
        assert propagate([], parse(text, n), state=state).value == value


def test_overlaps_are_traces() -> None:
    random = np.random.default_rng(4)
    circuit = random_circuit(4, 40, 9)
    first, second = random_words(4, 5, random), random_words(4, 5, random)
    matrix = unitary(circuit.gates, 4)
    expected = np.trace(dense(second).conj().T @ matrix.conj().T @ dense(first) @ matrix) / 16
    done = propagate(circuit_steps(circuit), first, state=given_overlap(second, 4))
    assert done.value == pytest.approx(expected.real, abs=1e-12)


@pytest.mark.parametrize("cliffords", [True, False])
def test_each_term_has_its_value(cliffords: bool) -> None:
    n, random = 5, np.random.default_rng(8)
    circuit = random_circuit(n, 40, 3)
    steps = list(circuit_steps(circuit)) if cliffords else kicked_ising(n, chain_edges(n), 0.6, 3)
    terms = random_words(n, 6, random)
    for state in (None, "01101", given_state("+-r01", n)):
        values = value_of_terms(steps, terms, state=state)
        for (x, z, _), value in zip(terms.masks(), values, strict=True):
            alone = propagate(steps, pauli_sum([(x, z, 1.0)], n), state=state).value
            assert value == pytest.approx(alone, abs=1e-12)
    cut = Truncation(merged_cut=1e-2)
    values = value_of_terms(steps, terms, cut)
    assert values @ terms.coefficients == pytest.approx(propagate(steps, terms, cut).value, abs=1e-12)


# fmt: off
NO_STATES: list[Row] = [
    ("0x", "--state", "'0x' is not a state", "give one of 0 1 + - r l"),
    (["X0", "Z0"], "--stabilizers", "anticommutes", "remove one of the two"),
    (["X0", "-X0"], "--stabilizers", "-I as a product", "change a sign"),
    (["X0 + Z0"], "--stabilizers", "is not a word with a sign", "write words with a sign"),
    ([3], "--state", "is [3]", "give letters, Bloch vectors"),
    (4, "--state", "is 4", "give letters, Bloch"),
    (np.ones((2, 3)), "product state", "no Bloch vector", "give [qubit, 3] with"),
]
# fmt: on


@table(NO_STATES)
def test_what_is_no_state_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: given_state(refusal.given, 2))


def test_an_overlap_gives_words_their_coefficients() -> None:
    other = pauli_sum([(1, 0, 2j), (0, 1, 3.0)], 1)
    assert value_in(parse("X0 + Z0 + 5*I", 1), given_overlap(other, 1)) == 3 - 2j
