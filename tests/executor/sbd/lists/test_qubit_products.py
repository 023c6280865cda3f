"""Products of qubit Hamiltonians in lists of bit strings, on threads, ranks and GPUs; slow references."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engines.sbd_qubits import (
    as_text,
    bits_of,
    chain_terms,
    random_terms,
    reference_among,
    walk,
)
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tnplan.circuits.pauli_sum import given_sum, parse
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.lists.qubit_hamiltonian import PauliTerms, QubitHamiltonian, pauli_terms, words_of
from tnplan.executor.sbd.sigma.distributed import DistributedHamiltonian

CASES = {
    "real": (8, "real", 60, 150),
    "complex": (8, "complex", 60, 150),
    "every string": (5, "complex", 30, 32),
    "one string": (6, "complex", 20, 1),
    "63 qubits": (63, "complex", 80, 120),
    "64 qubits": (64, "complex", 80, 120),
    "65 qubits": (65, "complex", 80, 120),
    "128 qubits": (128, "complex", 120, 120),
    "150 qubits": (150, "complex", 120, 120),
    "hundreds of flips": (10, "complex", 400, 200),
}


def emulated(hamiltonian: QubitHamiltonian, memory_bytes: float) -> Any:
    pytest.importorskip("cupy", reason="needs CuPy")
    from tests.support.kernels.qubit_emulator import EmulatedQubits

    return EmulatedQubits(hamiltonian, memory_bytes)


def on_gpu(hamiltonian: QubitHamiltonian, memory_bytes: float) -> Any:
    from tnplan.executor.sbd.cuda.qubit_steps import GpuQubits

    return GpuQubits(hamiltonian, memory_bytes)


ROWS = [
    pytest.param(emulated, id="emulated", marks=needs_compiler),
    pytest.param(on_gpu, id="gpu", marks=needs_gpus(1)),
]


def operator(terms: Any, n: int) -> PauliTerms:
    return pauli_terms(parse(as_text(terms), n), "hamiltonian")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[PauliTerms, np.ndarray, np.ndarray]:
    """An operator, the words of strings, and the operator among them by a slow reference."""
    n, kind, n_terms, count = CASES[request.param]
    terms = random_terms(n, n_terms, kind)
    strings = walk(terms, (1 << n - 1) | 5, count)
    return operator(terms, n), words_of(bits_of(strings, n)), reference_among(terms, strings)


def random_state(h: QubitHamiltonian) -> np.ndarray:
    chance = np.random.default_rng(0)
    x = chance.standard_normal(h.shape)
    return x + 1j * chance.standard_normal(h.shape) if h.is_complex else x


def test_elements_kept_or_made_again_equal_the_reference(case: Any) -> None:
    terms, words, matrix = case
    kept = QubitHamiltonian(terms, words, threads=2)
    again = QubitHamiltonian(terms, words, threads=2, memory_bytes=0)
    assert (kept.elements_bytes > 0, again.elements_bytes) == (True, 0)
    scale = np.abs(matrix).max()
    np.testing.assert_allclose(kept.dense() + terms.core * np.eye(len(words)), matrix, atol=1e-13 * scale)
    np.testing.assert_allclose(again.diagonal() + terms.core, matrix.diagonal().real, atol=1e-13 * scale)
    x = random_state(kept)
    products = [h.apply(x) for h in (kept, again, QubitHamiltonian(terms, words, threads=1))]
    np.testing.assert_allclose(products[0] + terms.core * x, matrix @ x, atol=1e-12 * scale)
    np.testing.assert_allclose(products[1] + terms.core * x, matrix @ x, atol=1e-12 * scale)
    assert np.array_equal(products[0], products[2])
    assert kept.pairs_contributing >= np.count_nonzero(matrix)


@pytest.mark.parametrize("make", ROWS)
@pytest.mark.parametrize("memory_bytes", [0, np.inf])
def test_kernels_equal_the_reference(make: Any, memory_bytes: float, case: Any) -> None:
    terms, words, matrix = case
    h = QubitHamiltonian(terms, words, threads=1, memory_bytes=0)
    made = make(h, memory_bytes)
    assert (made.size_bytes > make(h, 0).size_bytes) == (memory_bytes > 0)
    x = random_state(h)
    y = made.put(np.zeros(h.shape))
    made.add_rows(None, made.put(x), made.put(x), y, False)
    expected = matrix @ x - terms.core * x
    np.testing.assert_allclose(made.get(y), expected, atol=1e-12 * np.abs(matrix).max())
    assert made.pairs_contributing == h.pairs_contributing
    np.testing.assert_array_equal(made.get(made.diagonal()), h.diagonal())


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("way", ["kept", "again", "emulated"])
def test_ranks_give_the_bits_of_one(size: int, way: str) -> None:
    terms = random_terms(70, 60, "complex")
    strings = walk(terms, 1, 90)
    words, made = words_of(bits_of(strings, 70)), operator(terms, 70)
    memory_bytes = np.inf if way == "kept" else 0
    x = random_state(QubitHamiltonian(made, words, threads=1))
    if way == "emulated" and shutil.which("g++") is None:
        pytest.skip("needs g++")

    def work(ranks: Communicator) -> Any:
        rank_of = ranks.rank, ranks.size
        h = QubitHamiltonian(made, words, threads=1, memory_bytes=memory_bytes, rank_of=rank_of)
        rows: Any = emulated(h, np.inf) if way == "emulated" else h
        return DistributedHamiltonian(rows, h.partition, ranks).apply(x[slice(*h.rows)].copy(), 0)

    found = np.concatenate(run_ranks(size, work))
    expected = QubitHamiltonian(made, words, threads=3, memory_bytes=memory_bytes).apply(x)
    if way == "emulated":
        np.testing.assert_allclose(found, expected, atol=1e-12)
    else:
        assert np.array_equal(found, expected)


@settings(deadline=None)
@given(st.data())
def test_random_operators_and_lists(data: st.DataObject) -> None:
    """Any words on any lists of up to 70 qubits, also without words, without partners, of equal words."""
    n = data.draw(st.sampled_from([1, 2, 3, 6, 64, 70]))
    letters = st.lists(st.tuples(st.integers(0, n - 1), st.sampled_from("XYZ")), max_size=min(n, 4))
    factors = data.draw(st.lists(letters, min_size=1, max_size=8))
    terms = []
    for number, factor in enumerate(factors):
        distinct = dict(factor)
        terms.append(("".join(distinct.values()), tuple(distinct), 0.5 + number))
    strings = sorted(data.draw(st.sets(st.integers(0, 2**n - 1), min_size=1, max_size=12)))
    h = QubitHamiltonian(operator(terms, n), words_of(bits_of(strings, n)), threads=1)
    matrix = reference_among(terms, strings)
    np.testing.assert_allclose(h.dense() + h.terms.core * np.eye(len(strings)), matrix, atol=1e-12)


def test_operators_of_qiskit() -> None:
    qiskit = pytest.importorskip("qiskit.quantum_info", reason="needs Qiskit")
    terms = random_terms(6, 40, "complex", 3)
    whole = qiskit.SparsePauliOp.from_sparse_list(terms, 6)
    strings = walk(terms, 3, 40)
    made = QubitHamiltonian(pauli_terms(given_sum(whole, 6), "hamiltonian"), words_of(bits_of(strings, 6)))
    expected = whole.to_matrix()[np.ix_(strings, strings)]
    np.testing.assert_allclose(made.dense() + made.terms.core * np.eye(40), expected, atol=1e-12)


@pytest.mark.slow
def test_operators_of_openfermion() -> None:
    """Slow: to import it takes ten seconds."""
    openfermion = pytest.importorskip("openfermion", reason="needs OpenFermion")
    terms = random_terms(6, 40, "complex", 3)
    strings = walk(terms, 3, 40)
    other = openfermion.QubitOperator()
    for letters, qubits, value in terms:
        other += openfermion.QubitOperator(tuple(zip(qubits, letters, strict=True)), value)
    made = QubitHamiltonian(pauli_terms(given_sum(other, 6), "hamiltonian"), words_of(bits_of(strings, 6)))
    # OpenFermion's qubit 0 is the highest bit of a row.
    turned = [int(f"{string:06b}"[::-1], 2) for string in strings]
    expected = openfermion.get_sparse_operator(other, 6).toarray()[np.ix_(turned, turned)]
    np.testing.assert_allclose(made.dense() + made.terms.core * np.eye(40), expected, atol=1e-12)


def test_words_that_cancel_and_constants_leave_nothing() -> None:
    terms = pauli_terms(parse("X0 X1 - X0 X1 + 2*I + 0*Z0", 2), "hamiltonian")
    assert (terms.core, terms.n_terms, terms.is_complex) == (2.0, 0, False)
    h = QubitHamiltonian(terms, words_of(bits_of([0, 3], 2)))
    assert np.array_equal(h.apply(np.ones(2)), np.zeros(2))


def test_a_sum_that_is_not_hermitian_is_refused() -> None:
    qiskit = pytest.importorskip("qiskit.quantum_info", reason="needs Qiskit")
    whole = given_sum(qiskit.SparsePauliOp(["XX", "ZI"], [1.0, 0.5j]), 2)
    with pytest.raises(InputError, match=r"h: is not Hermitian: it has the term 0.5j Z1; give real coef"):
        pauli_terms(whole, "h")
    rounded = given_sum(qiskit.SparsePauliOp(["XX", "ZI"], [1.0, 0.5 + 1e-16j]), 2)
    assert pauli_terms(rounded, "h").n_terms == 2


def test_a_ring_has_twice_its_bonds_as_words_of_few_flips() -> None:
    terms = operator(chain_terms(12), 12)
    assert (len(terms.groups.flips), len(terms.groups.value), len(terms.diagonal.value)) == (12, 24, 12)
    assert not terms.is_complex
