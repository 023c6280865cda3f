"""Arithmetic of sums of Pauli words against dense matrices, and identities that hold exactly in integers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from time import process_time
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.slow import slow_after
from tnplan import InputError, PauliSum
from tnplan.circuits.pauli_sum import PAIRS_AT_ONCE

MATRICES = {
    "I": np.eye(2), "X": np.array([[0, 1], [1, 0]]), "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.diag([1, -1]),
}  # fmt: skip
MOST_QUBITS = 6


def dense(words: dict[str, complex]) -> np.ndarray:
    """The matrix of {word of a letter a qubit: coefficient}, by Kronecker products."""
    return sum(value * reduce(np.kron, [MATRICES[a] for a in word]) for word, value in words.items())


def random_words(random: Any, n_qubits: int, *, is_integer: bool = False) -> dict[str, complex]:
    """Up to 8 distinct words, the identity and neighbours among them, with real or complex coefficients."""
    count = int(random.integers(1, 9))
    words = {"".join(random.choice(list("IXYZ"), n_qubits)) for _ in range(count)}
    if is_integer:
        return {word: float(random.integers(-9, 10)) for word in sorted(words)}
    is_complex = random.random() < 0.5
    values = random.normal(size=(len(words), 2)) @ [1, 1j if is_complex else 0]
    return dict(zip(sorted(words), values.tolist(), strict=True))


@pytest.mark.parametrize("seed", slow_after(80, range(200)))
def test_arithmetic_equals_that_of_matrices(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 1 + seed % MOST_QUBITS
    words = [random_words(random, n) for _ in range(2)]
    (a, b), (dense_a, dense_b) = (PauliSum.of(one, n) for one in words), map(dense, words)
    factor = complex(*random.normal(size=2)) if seed % 3 else random.normal()
    pairs = [
        (a, dense_a), (b, dense_b), (a + b, dense_a + dense_b), (a - b, dense_a - dense_b), (-a, -dense_a),
        (factor * a, factor * dense_a), (a * factor, factor * dense_a), (a / factor, dense_a / factor),
        (a + factor, dense_a + factor * np.eye(2**n)), (factor - a, factor * np.eye(2**n) - dense_a),
        (a @ b, dense_a @ dense_b), (a.commutator(b), dense_a @ dense_b - dense_b @ dense_a),
        (a.anticommutator(b), dense_a @ dense_b + dense_b @ dense_a), (a.adjoint(), dense_a.conj().T),
    ]  # fmt: skip
    for made, wanted in pairs:
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(made.to_matrix(), wanted, rtol=0, atol=1e-13 * scale)
        rounding = 1e-12 * scale  # of the matrices: sums have exact zeros where products commute
        assert made.norm() == pytest.approx(np.linalg.norm(wanted) / 2 ** (n / 2), abs=rounding)
        assert made.one_norm() >= np.linalg.norm(wanted, 2) - rounding
        assert len(np.unique(made.keys, axis=0)) == len(made)
    assert a.is_hermitian == np.array_equal(dense_a, dense_a.conj().T)
    assert (a + a.adjoint()).is_hermitian


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("n_qubits", [3, 64, 65, 200])
def test_identities_hold_exactly_in_integers(seed: int, n_qubits: int) -> None:
    random = np.random.default_rng(seed)
    used = np.sort(random.choice(n_qubits, 3, replace=False))  # few qubits, so that words meet
    sums = []
    for _ in range(3):
        words = random_words(random, 3, is_integer=True).items()
        spread = {"".join(f"{a}{q}" for a, q in zip(word, used, strict=True)): v for word, v in words}
        sums.append(PauliSum.of(spread, n_qubits))
    a, b, c = sums
    jacobi = [x.commutator(y.commutator(z)) for x, y, z in ((a, b, c), (b, c, a), (c, a, b))]
    assert len(sum(jacobi)) == 0
    assert (a @ b) @ c == a @ (b @ c)
    assert a @ (b + c) == a @ b + a @ c
    assert a.commutator(b) == a @ b - b @ a
    assert a.anticommutator(b) == a @ b + b @ a
    assert (a @ b).adjoint() == b.adjoint() @ a.adjoint()
    assert a.commutator(b @ c) == a.commutator(b) @ c + b @ a.commutator(c)


def test_words_square_to_one_and_have_exact_phases() -> None:
    for letters, product in (("XY", "Z"), ("YZ", "X"), ("ZX", "Y")):
        first, second = (PauliSum.of(f"{letter}99") for letter in letters)
        assert first @ second == 1j * PauliSum.of(f"{product}99") == -(second @ first)
        assert first @ first == PauliSum.of("I", 100)


def test_results_are_sums_of_distinct_words_without_zeros() -> None:
    a = PauliSum.of("X0 - 2 Z1 + 0.5")
    assert (len(a), list(a)) == (3, [("I", 0.5), ("X0", 1.0), ("Z1", -2.0)])
    assert len(a - a) == len(0 * a) == len((a - a) @ a) == len(a @ (a - a)) == 0
    assert (a - a).norm() == (a - a).one_norm() == 0
    assert (a - a).to_dict() == {}
    assert a + 1e-17 * PauliSum.of("Y0 Y1") != a
    assert (a + (1 + 1j) * 1e-17 * PauliSum.of("Y0 Y1")).simplify(1e-15) == a
    rounded = a + 1e-17j * PauliSum.of("X0", 2)
    assert not rounded.is_hermitian
    assert rounded.simplify(1e-15) == a
    assert rounded.simplify(1e-15).coefficients.dtype == np.float64
    assert sum([a, a]) == 2 * a == a / Fraction(1, 2) == np.float64(2) * a == np.int64(2) * a
    assert (1j * a).coefficients.dtype == np.complex128
    assert (1j * (1j * a)).coefficients.dtype == np.float64


def test_equality_does_not_depend_on_order_or_zeros() -> None:
    keys = np.array([[1, 0], [0, 1], [1, 1]], np.uint64)
    a = PauliSum(1, keys, np.array([1.0, 2.0, 0.0]))
    assert a == PauliSum(1, keys[[1, 0]], np.array([2.0, 1.0], np.complex128))
    assert a != PauliSum(1, keys, np.array([1.0, 2.0, 3.0]))
    assert a != PauliSum(2, keys, np.array([1.0, 2.0, 0.0]))
    assert a != "X0 + 2 Z0"


def random_sum(random: Any, n_terms: int, n_qubits: int, n_used: int = 48) -> PauliSum:
    """Words of any letters on the first qubits of each 64."""
    keys = random.integers(0, 2**n_used, (n_terms, 2 * -(-n_qubits // 64)), np.uint64)
    return PauliSum(n_qubits, keys, random.normal(size=n_terms)).simplify()


@pytest.mark.parametrize("n_qubits", slow_after(1, [112, 48]))
def test_large_products_have_no_loop_over_pairs(n_qubits: int) -> None:
    random = np.random.default_rng(1)
    a, b = random_sum(random, 10**4, n_qubits), random_sum(random, 40, n_qubits)
    begin = process_time()
    product = a @ b
    assert process_time() - begin < 10  # half a second or so alone; a loop in Python takes 25 s
    chosen = random.choice(len(b), 3, replace=False)
    few = PauliSum(n_qubits, b.keys[chosen], b.coefficients[chosen])
    assert len(product) == 4 * 10**5
    assert product == a @ (b - few) + a @ few
    assert product.norm() == pytest.approx(a.norm() * b.norm(), rel=1e-12)  # no two words are equal


def test_products_in_blocks_equal_those_at_once() -> None:
    random = np.random.default_rng(2)
    a, b = (random_sum(random, 3000, 6, n_used=6) for _ in range(2))
    assert len(a) * len(b) > PAIRS_AT_ONCE
    dense_a, dense_b = a.to_matrix(), b.to_matrix()
    found = (a @ b).to_matrix()
    np.testing.assert_allclose(found, dense_a @ dense_b, rtol=0, atol=1e-12 * np.abs(found).max())


def test_an_empty_sum_is_an_observable() -> None:
    circuit = tnplan.Circuit(tnplan.GateSequence(2, ()))
    nothing = PauliSum.of("XI") - PauliSum.of("XI")
    for method in ("statevector", "pauli", "contraction"):
        found = circuit.expectation([nothing, PauliSum.of("Z1")], method=method, device="cpu")
        np.testing.assert_array_equal(found.value, [0, 1])


A = PauliSum.of("X0 X1")
BAD: dict[str, tuple[Callable[[], object], str]] = {
    "qubits": (lambda: A + PauliSum.of("X0"), "a sum on 1 qubits; give a sum on 2"),
    "product": (lambda: A @ PauliSum.of("X2"), "a sum on 3 qubits; give a sum on 2"),
    "commutator": (lambda: A.commutator("X0"), "of type str; give a PauliSum"),
    "infinite": (lambda: A * float("inf"), "is inf; give a finite number"),
    "not a number": (lambda: A + complex("nanj"), "give a finite number"),
    "large integer": (lambda: A * 10**400, "give a finite number"),
    "zero": (lambda: A / 0, "is 0; divide by another number"),
    "overflow": (lambda: A * 1e300 * 1e300, "give at most .* in all"),
    "overflow of a product": (lambda: (A * 1e200) @ (A * 1e200), "give at most .* in all"),
    "tolerance": (lambda: A.simplify(-1), "give 0 or more"),
    "large": (lambda: PauliSum.of("X12").to_matrix(), "is of 13 qubits; use at most 12"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_operands_are_refused_in_one_line(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [lambda: A + "X0", lambda: A * A, lambda: A @ 2, lambda: np.ones(2) * A])
def test_other_types_are_type_errors(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        call()
