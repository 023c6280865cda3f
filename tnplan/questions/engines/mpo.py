"""Expectation values and traces in the Heisenberg picture: quimb takes observables, as matrix product
operators, through the gates from the last to the first.

The operator is sum_a A_0[a_0] A_1[a_1] ... A_{n-1}[a_{n-1}] P_a over all words P_a of I, X, Y and Z, with
matrices of at most `max_bond` rows and columns (Hartmann, Prior, Clark and Plenio, PRL 102, 057202, 2009).
U^dagger P_b U = sum_a T[a, b] P_a with T[a, b] = Tr(P_a U^dagger P_b U) / 2^k: T is real and orthogonal, so
that the sum of the squares of all coefficients stays the same but for what truncation drops. Gates outside of
the light cone of the words change nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from importlib import import_module
from math import sqrt
from time import perf_counter
from types import ModuleType
from typing import Any
from warnings import catch_warnings, filterwarnings

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import PAULI_MATRICES, letters_of
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.questions.engines.mps import CHECKED_GROWTH, EXACT_CUTOFF, TELL_S, check_memory
from tnplan.questions.engines.task_list import ESTIMATE, EXACT, Outcome, TaskCheckpoint
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues, Trace

WORDS_AT_ONCE = 64
"""Words of a sum that one operator has: each adds 1 to the bonds before they are compressed."""
IN_ZERO_STATE = np.array([1, 0, 0, 1])
"""<0|P|0> of I, X, Y and Z."""


def answer_by_mpo(
    query: CircuitQuery, options: QuestionOptions, checkpoint: TaskCheckpoint | None
) -> Outcome:
    """The values of the question's sums of words, or its trace, on one device."""
    question = query.question
    assert isinstance(question, ExpectationValues | Trace)

    def work(rank: Rank, _: None) -> Outcome:
        with rank.on_stream(), catch_warnings():
            # Where quimb's first way to singular values does not converge, it takes another one.
            filterwarnings("ignore", ".*falling back to scipy")
            evolution = _Evolution(query, options, rank)
            sums = (question.b,) if isinstance(question, Trace) else question.sums
            results = [*map(evolution.value, sums)]
        values: Any = np.array([value for value, _ in results])
        errors: Any = np.array([error for _, error in results])
        if isinstance(question, Trace) or question.is_single:
            values, errors = values[0].item(), errors[0].item()
        is_exact = options.max_bond is None and options.cutoff is None
        details = {"device": rank.device.name, "ranks": 1, "max_bond": evolution.max_bond}
        return Outcome(values, 0.0 if is_exact else errors, EXACT if is_exact else ESTIMATE, details)

    return run_job(Job(prepare=lambda: None, work=work, needs=lambda *_: Needs()), options)


class _Evolution:
    """The gates of a circuit, through which operators go backwards."""

    def __init__(self, query: CircuitQuery, options: QuestionOptions, rank: Rank) -> None:
        self._gates, self._options, self._rank = query.acting.gates, options, rank
        order = query.chain[0]
        self._position = tuple(sorted(range(len(order)), key=order.__getitem__))
        self._measured: Sequence[tuple[int, int, complex]] | None = None
        """Of a trace the words of A; None: the state |0...0>."""
        if isinstance(query.question, Trace):
            self._measured = [*query.question.a.masks()]
        self._xp: ModuleType = import_module("cupy" if rank.device.name == "gpu" else "numpy")
        cutoff = EXACT_CUTOFF[options.precision] if options.cutoff is None else options.cutoff
        self._truncation = {"max_bond": options.max_bond, "cutoff": cutoff, "cutoff_mode": "rsum2"}
        self.max_bond = 1

    def value(self, observable: PauliSum) -> tuple[float | complex, float]:
        """The value of a sum of words in the circuit's state, or of its trace with A, and an estimate of the
        error.

        That is the norm of what truncation drops: sqrt(sum c^2) times the root of the share of the squares
        that is lost; for a trace times the norm of A.
        """
        words = [*observable.masks()]
        total, error = 0.0, 0.0
        for first in range(0, len(words), WORDS_AT_ONCE):
            value, dropped = self._of_words(words[first : first + WORDS_AT_ONCE])
            total, error = total + value, error + dropped
        return total, error

    def _of_words(self, words: Sequence[tuple[int, int, complex]]) -> tuple[Any, float]:
        dtype = np.dtype(self._options.dtype)
        if all(not np.iscomplex(coefficient) for *_, coefficient in words):
            dtype = np.finfo(dtype).dtype
            words = [(x, z, coefficient.real) for x, z, coefficient in words]
        operator = self._operator(words, dtype)
        before = sqrt(sum(abs(coefficient) ** 2 for *_, coefficient in words))
        support = reduce(int.__or__, (x | z for x, z, _ in words))
        xp, orthogonal, counted, begin = self._xp, {"cur_orthog": "calc"}, 16, perf_counter()
        for number in range(len(self._gates) - 1, -1, -1):
            gate = self._gates[number]
            own = sum(1 << qubit for qubit in gate.qubits)
            if not own & support:  # U^dagger 1 U = 1
                continue
            support |= own
            counted = max(counted, self._apply(operator, gate, dtype, orthogonal, counted))
            if perf_counter() - begin > TELL_S:
                begin, n_gates = perf_counter(), len(self._gates)
                self._rank.say(n_gates - number, n_gates, f"gate {number}, bond {counted}")
        self.max_bond = max(self.max_bond, operator.max_bond())
        squares = xp.ones((1, 1), dtype)
        coefficients, vectors = self._rows(operator.L)
        vectors = xp.asarray(vectors.astype(dtype))
        left = xp.ones((len(vectors), 1), dtype)
        operator.permute_arrays("lpr")
        n_sites = operator.L
        for site in range(n_sites):
            tensor = operator[site].data
            tensor = tensor[None] if site == 0 else tensor[..., None] if site == n_sites - 1 else tensor
            left = xp.einsum("wb,wp,bpc->wc", left, vectors[:, site], tensor, optimize=True)
            half = xp.tensordot(squares, tensor, axes=(0, 0))
            squares = xp.tensordot(half, tensor.conj(), axes=((0, 1), (0, 1)))
        share = float(squares[0, 0].real) / before**2 if before else 1.0
        measured = left[:, 0].get() if hasattr(left, "get") else left[:, 0]
        error = before * sqrt(max(1.0 - share, 0.0))
        if self._measured is not None:  # |sum_a c_a d_a| is at most |c| |d|
            error *= float(np.linalg.norm(coefficients))
        return (coefficients @ measured).item(), error

    def _rows(self, n_sites: int) -> tuple[Array, Array]:
        """What is measured, as coefficients [w] and the values [w, site, 4] of I, X, Y and Z at each site."""
        if self._measured is None:
            return np.ones(1), np.tile(IN_ZERO_STATE, (1, n_sites, 1))
        letters = np.zeros((len(self._measured), n_sites), int)
        for row, (x, z, _) in zip(letters, self._measured, strict=True):
            for qubit, letter in letters_of(x, z).items():
                row[self._position[qubit]] = letter
        coefficients = np.array([coefficient for *_, coefficient in self._measured])
        return coefficients if coefficients.imag.any() else coefficients.real, np.eye(4)[letters]

    def _operator(self, words: Sequence[tuple[int, int, complex]], dtype: Any) -> Any:
        """The sum of words: bond k is for word k, whose coefficient is at the first site."""
        import quimb.tensor as qtn

        n_words = len(words)
        # A chain of one site is none for quimb: a second one has the letter I.
        tensors = [np.zeros((n_words, 4, n_words), dtype) for _ in range(max(len(self._position), 2))]
        for number, (x, z, _) in enumerate(words):
            letters = {self._position[qubit]: letter for qubit, letter in letters_of(x, z).items()}
            for site, tensor in enumerate(tensors):
                tensor[number, letters.get(site, 0), number] = 1
        coefficients = np.array([coefficient for *_, coefficient in words], dtype)
        tensors[0] = np.einsum("k,kpr->pr", coefficients, tensors[0])
        tensors[-1] = tensors[-1].sum(axis=2)
        operator = qtn.MatrixProductState([*map(self._xp.asarray, tensors)], shape="lpr")
        if n_words > 1:
            operator.compress(cutoff=EXACT_CUTOFF[self._options.precision], cutoff_mode="rsum2")
        return operator

    def _apply(self, operator: Any, gate: Gate, dtype: Any, orthogonal: dict[str, Any], counted: int) -> int:
        """Take the operator through a gate; the largest bond there."""
        matrix = self._xp.asarray(_of_gate(gate.matrix.tobytes(), len(gate.qubits)).astype(dtype))
        sites = [self._position[qubit] for qubit in gate.qubits]
        if len(sites) == 1:
            operator.gate_(matrix, sites[0], contract=True)
            return 1
        if len(sites) == 2:
            operator.gate_with_auto_swap(matrix, sites, info=orthogonal, inplace=True, **self._truncation)
        else:
            operator.gate_nonlocal_(matrix, sites, dims=4, info=orthogonal, **self._truncation)
        bond = max(operator.bond_size(k, k + 1) for k in range(min(sites), max(sites)))
        if bond > CHECKED_GROWTH * counted:
            where = f"gate {gate.name} on {gate.qubits}"
            check_memory(operator, 2 * bond, dtype, where, self._rank.memory_bytes)
            return int(bond)
        return 1


@lru_cache(1024)
def _of_gate(data: bytes, n_qubits: int) -> Array:
    """T of a gate, real [4^k, 4^k]; the first qubit is the most significant."""
    dimension = 2**n_qubits
    matrix = np.frombuffer(data, complex).reshape(dimension, dimension)
    words = reduce(lambda a, b: np.kron(a[:, None], b).reshape(-1, 2 * a.shape[1], 2 * a.shape[1]),
                   [PAULI_MATRICES] * n_qubits)  # fmt: skip
    changed = matrix.conj().T @ words @ matrix
    return np.einsum("aij,bji->ab", words, changed).real / dimension
