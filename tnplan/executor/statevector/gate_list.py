"""A list of gates as flat tables, for states that are so small that scheduling would take longer than they.

Knows gates, words and numbers; no file and no circuit of another library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.trigonometric_gate import TrigonometricGate
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.executor.statevector.cpu.vector_tables import WordTable, word_scratch, word_table
from tnplan.executor.statevector.gates.multiplexed_gate import (
    LARGEST_TARGETS,
    MultiplexedGate,
    from_gate,
    from_matrix,
    of_same_form,
)
from tnplan.executor.statevector.simulator import words_on_bits

SWEEP_BYTES = 1 << 26
"""What the states of observables that are swept back together may take."""

Acting = tuple[Gate | TrigonometricGate, tuple[int, ...], MultiplexedGate]
"""A gate, its bits, and its targets and selectors among them."""


class GateTable(NamedTuple):
    """Gates in their order. Of each: the mask of its targets, and the length of a run of neighbouring indices
    that it treats alike. Lists with `ends` begin with 0: gate g has entries ends[g] .. ends[g + 1] - 1.

    `selectors` are bits, the most significant first. `offsets` are those of the values of the targets.
    `varied` has the gates that parameters change; the coefficients of each begin at `coefficient_starts`,
    [term, element], and its terms are counted by `term_ends`.
    """

    target_masks: Array
    runs: Array
    selectors: Array
    selector_ends: Array
    offsets: Array
    offset_ends: Array
    element_ends: Array
    varied: Array
    term_ends: Array
    coefficients: Array
    coefficient_starts: Array


class GateList:
    """The state after some gates, and values in it, for values of parameters. Calls may come from any thread.

    Qubit q is bit n_qubits - 1 - q of the index. Observables are tables of words on these bits.

    - `n_qubits`, `n_parameters`: How many there are.
    - `gates`: The gates in their order, unitary.
    """

    def __init__(self, n_qubits: int, n_parameters: int, gates: Iterable[Gate | TrigonometricGate]) -> None:
        self.n_qubits, self.n_parameters, self._size = n_qubits, n_parameters, 1 << n_qubits
        acting: list[Acting] = []
        for gate in gates:
            bits = tuple([n_qubits - 1 - qubit for qubit in gate.qubits])
            form = _form(gate, bits)
            if isinstance(gate, TrigonometricGate) or not form.is_identity:
                acting.append((gate, bits, form))
        elements = [form.matrices.ravel() for _, _, form in acting]
        self._elements = np.concatenate([np.zeros(0, np.complex128), *elements])
        self._table = _table(acting)
        varied = [gate for gate, _, _ in acting if isinstance(gate, TrigonometricGate)]
        # Phases of all terms are a sparse matrix times the parameters, by rows.
        rows = [(t, gate) for gate in varied for t in range(len(gate.frequencies))]
        self._columns = np.array([p for _, gate in rows for p in gate.parameters], np.int64)
        self._frequencies = np.concatenate([np.zeros(0), *(gate.frequencies.ravel() for gate in varied)])
        counts = [len(gate.parameters) for _, gate in rows]
        self._row_starts = np.cumsum([0, *counts])[:-1]
        self._rows = np.repeat(np.arange(len(rows)), counts)

    def words(self, sums: Sequence[PauliSum]) -> list[WordTable]:
        """The tables of observables."""
        bits = range(self.n_qubits - 1, -1, -1)
        return [word_table(words_on_bits(observable, bits), self._size) for observable in sums]

    def values(self, parameters: Array, words: Sequence[WordTable]) -> Array:
        """The values of all observables, complex128."""
        return self._observed(self.state(parameters), words)

    def state(self, parameters: Array, start: Array | None = None) -> Array:
        """The amplitudes, complex128, qubit 0 the most significant bit; `start`: before, not |0...0>."""
        return self._run(parameters, start)[0]

    def gradients(self, parameters: Array, words: Sequence[WordTable]) -> tuple[Array, Array]:
        """The values of all observables, and their derivatives, float64 [observable, parameter]."""
        from tnplan.executor.statevector.cpu.gate_list_kernel import sweep_back
        from tnplan.executor.statevector.cpu.measure_kernel import write_word_sum

        final, elements, factors, scratch = self._run(parameters)
        overlaps = np.empty(max(np.diff(self._table.element_ends), default=0), np.complex128)
        gradients, block = np.zeros((len(words), self.n_parameters)), word_scratch(self._size)
        together = max(1, SWEEP_BYTES // final.nbytes)
        for start in range(0, len(words), together):
            group = words[start : start + together]
            state, lefts = final.copy(), np.empty((len(group), self._size), np.complex128)
            for left, table in zip(lefts, group, strict=True):
                write_word_sum(left, final, table, block, 0, self._size // len(block.re))
            by_terms = np.zeros((len(group), len(factors)))
            sweep_back(
                state.view(np.float64), lefts.view(np.float64), self._table, (elements, factors),
                (scratch, overlaps), by_terms,
            )  # fmt: skip
            for row, terms in zip(gradients[start:], by_terms, strict=False):
                row += np.bincount(self._columns, terms[self._rows] * self._frequencies, len(row))
        return self._observed(final, words), gradients

    def _run(self, parameters: Array, start: Array | None = None) -> tuple[Array, Array, Array, Array]:
        """The final state, and what made it."""
        from tnplan.executor.statevector.cpu.gate_list_kernel import run_gates, write_elements

        factors, elements = np.zeros(0, np.complex128), self._elements
        if len(self._columns):
            phases = np.add.reduceat(self._frequencies * parameters[self._columns], self._row_starts)
            factors, elements = np.exp(1j * phases), elements.copy()
            write_elements(self._table, factors, elements)
        state, scratch = np.zeros(self._size, np.complex128), np.empty(2**LARGEST_TARGETS, np.complex128)
        state[0] = 1
        if start is not None:
            state[:] = start
        run_gates(state.view(np.float64), self._table, elements, scratch)
        return state, elements, factors, scratch

    def _observed(self, state: Array, words: Sequence[WordTable]) -> Array:
        from tnplan.executor.statevector.cpu.measure_kernel import word_sum_value

        block, sums = word_scratch(self._size), np.zeros((1, 2))
        values = np.empty(len(words), np.complex128)
        for number, table in enumerate(words):
            word_sum_value(state, table, block, 0, 1, sums)
            values[number] = complex(*sums[0])
        return values


def _form(gate: Gate | TrigonometricGate, bits: tuple[int, ...]) -> MultiplexedGate:
    """A gate on bits; where parameters change it, with a matrix of the same zeros."""
    if isinstance(gate, Gate):
        return from_gate(gate, bits=bits)
    # A sum with random weights has an element that is zero, or two that are equal, where all terms have.
    return from_matrix(bits, np.tensordot(_weights(len(gate.coefficients)), gate.coefficients, 1))


@lru_cache(64)
def _weights(count: int) -> Array:
    return np.random.default_rng(0).normal(size=count) + 1j


def _table(acting: Sequence[Acting]) -> GateTable:
    """The tables of gates on bits."""
    forms = [form for _, _, form in acting]
    offsets = [_offsets(form.targets) for form in forms]
    varied = [k for k, (gate, _, _) in enumerate(acting) if isinstance(gate, TrigonometricGate)]
    coefficients = [
        np.array([of_same_form(form, bits, term) for term in gate.coefficients])
        for gate, bits, form in acting if isinstance(gate, TrigonometricGate)
    ]  # fmt: skip
    return GateTable(
        np.array([form.target_mask for form in forms], np.int64),
        np.array([form.mask & -form.mask for form in forms], np.int64),
        np.array([bit for form in forms for bit in form.selectors], np.int64),
        _ends([len(form.selectors) for form in forms]),
        np.array([offset for row in offsets for offset in row], np.int64), _ends([*map(len, offsets)]),
        _ends([form.matrices.size for form in forms]),
        np.array(varied, np.int64), _ends([len(terms) for terms in coefficients]),
        np.concatenate([np.zeros(0, np.complex128), *(terms.ravel() for terms in coefficients)]),
        _ends([terms.size for terms in coefficients])[:-1],
    )  # fmt: skip


def _offsets(bits: Sequence[int]) -> list[int]:
    """The masks of all values of some bits, the first most significant."""
    offsets = [0]
    for bit in bits:
        offsets = [offset | value << bit for offset in offsets for value in (0, 1)]
    return offsets


def _ends(counts: Sequence[int]) -> Array:
    return np.cumsum([0, *counts], dtype=np.int64)
