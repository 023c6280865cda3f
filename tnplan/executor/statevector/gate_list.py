"""A list of gates as flat tables, for states that are so small that scheduling would take longer than they.

Knows gates, words and numbers; no file and no circuit of another library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.trigonometric_gate import TrigonometricGate
from tnplan.common.arrays import Array
from tnplan.executor.statevector.cpu.word_table import WordTable, word_scratch, word_table
from tnplan.executor.statevector.gates.multiplexed_gate import (
    LARGEST_TARGETS,
    MultiplexedGate,
    from_gate,
    from_matrix,
    of_same_form,
)

SWEEP_BYTES = 1 << 26
"""What the states of observables that are swept back together may take."""


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

    Parameters
    ----------
    n_qubits, n_parameters
        How many there are.
    gates
        The gates in their order, unitary.
    words
        Of each observable: masks x and z of bits, and factors, as `Simulator.words_on_bits` has them.
    """

    def __init__(
        self, n_qubits: int, n_parameters: int, gates: Sequence[Gate | TrigonometricGate],
        words: Sequence[Sequence[tuple[int, int, complex]]],
    ) -> None:  # fmt: skip
        self._size, self.n_parameters = 1 << n_qubits, n_parameters
        self._words: list[WordTable] = [word_table(sum_words, self._size) for sum_words in words]
        forms = [_form(gate) for gate in gates]
        acting = [
            (gate, form) for gate, form in zip(gates, forms, strict=True)
            if isinstance(gate, TrigonometricGate) or not form.is_identity
        ]  # fmt: skip
        elements = [form.matrices.ravel() for _, form in acting]
        self._elements = np.concatenate([np.zeros(0, np.complex128), *elements])
        self._table = _table(n_qubits, acting)
        varied = [gate for gate, _ in acting if isinstance(gate, TrigonometricGate)]
        # Phases of all terms are a sparse matrix times the parameters, by rows.
        rows = [(t, gate) for gate in varied for t in range(len(gate.frequencies))]
        self._columns = np.array([p for _, gate in rows for p in gate.parameters], np.int64)
        self._frequencies = np.concatenate([np.zeros(0), *(gate.frequencies.ravel() for gate in varied)])
        counts = [len(gate.parameters) for _, gate in rows]
        self._row_starts = np.cumsum([0, *counts])[:-1]
        self._rows = np.repeat(np.arange(len(rows)), counts)

    def values(self, parameters: Array) -> Array:
        """The values of all observables, complex128."""
        return self._observed(self.state(parameters))

    def state(self, parameters: Array) -> Array:
        """The amplitudes, complex128, qubit 0 the most significant bit."""
        return self._run(parameters)[0]

    def gradients(self, parameters: Array) -> tuple[Array, Array]:
        """The values of all observables, and their derivatives, float64 [observable, parameter]."""
        from tnplan.executor.statevector.cpu.gate_list_kernel import sweep_back
        from tnplan.executor.statevector.cpu.word_sum_kernel import write_word_sum

        final, elements, factors, scratch = self._run(parameters)
        overlaps = np.empty(max(np.diff(self._table.element_ends), default=0), np.complex128)
        gradients, block = np.zeros((len(self._words), self.n_parameters)), word_scratch(self._size)
        together = max(1, SWEEP_BYTES // final.nbytes)
        for start in range(0, len(self._words), together):
            group = self._words[start : start + together]
            state, lefts = final.copy(), np.empty((len(group), self._size), np.complex128)
            for left, words in zip(lefts, group, strict=True):
                write_word_sum(left, final, words, block, 0, self._size // len(block.re))
            by_terms = np.zeros((len(group), len(factors)))
            sweep_back(
                state.view(np.float64), lefts.view(np.float64), self._table, elements, factors, scratch,
                overlaps, by_terms,
            )  # fmt: skip
            for row, terms in zip(gradients[start:], by_terms, strict=False):
                row += np.bincount(self._columns, terms[self._rows] * self._frequencies, len(row))
        return self._observed(final), gradients

    def _run(self, parameters: Array) -> tuple[Array, Array, Array, Array]:
        """The final state, and what made it."""
        from tnplan.executor.statevector.cpu.gate_list_kernel import run_gates, write_elements

        factors, elements = np.zeros(0, np.complex128), self._elements
        if len(self._columns):
            phases = np.add.reduceat(self._frequencies * parameters[self._columns], self._row_starts)
            factors, elements = np.exp(1j * phases), elements.copy()
            write_elements(self._table, factors, elements)
        state, scratch = np.zeros(self._size, np.complex128), np.empty(2**LARGEST_TARGETS, np.complex128)
        state[0] = 1
        run_gates(state.view(np.float64), self._table, elements, scratch)
        return state, elements, factors, scratch

    def _observed(self, state: Array) -> Array:
        from tnplan.executor.statevector.cpu.word_sum_kernel import word_sum_value

        block, sums = word_scratch(self._size), np.zeros((1, 2))
        values = np.empty(len(self._words), np.complex128)
        for number, words in enumerate(self._words):
            word_sum_value(state, words, block, 0, 1, sums)
            values[number] = complex(*sums[0])
        return values


def _form(gate: Gate | TrigonometricGate) -> MultiplexedGate:
    """The targets and selectors of a gate; where parameters change it, with a matrix of the same zeros."""
    if isinstance(gate, Gate):
        return from_gate(gate)
    # A sum with random weights has an element that is zero, or two that are equal, where all terms have.
    weights = np.random.default_rng(0).normal(size=len(gate.coefficients)) + 1j
    return from_matrix(gate.qubits, np.tensordot(weights, gate.coefficients, 1))


def _table(
    n_qubits: int, gates: Sequence[tuple[Gate | TrigonometricGate, MultiplexedGate]]
) -> GateTable:  # fmt: skip
    """The tables; qubit q is bit n_qubits - 1 - q."""
    bits = range(n_qubits - 1, -1, -1)
    on_bits = [form.on(bits) for _, form in gates]
    offsets = [_offsets(form.targets) for form in on_bits]
    varied = [k for k, (gate, _) in enumerate(gates) if isinstance(gate, TrigonometricGate)]
    coefficients = [
        np.array([of_same_form(form, gate.qubits, term) for term in gate.coefficients])
        for gate, form in gates if isinstance(gate, TrigonometricGate)
    ]  # fmt: skip
    return GateTable(
        np.array([form.target_mask for form in on_bits], np.int64),
        np.array([form.mask & -form.mask for form in on_bits], np.int64),
        np.array([bit for form in on_bits for bit in form.selectors], np.int64),
        _ends([len(form.selectors) for form in on_bits]),
        np.array([offset for row in offsets for offset in row], np.int64), _ends([*map(len, offsets)]),
        _ends([form.matrices.size for form in on_bits]),
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
