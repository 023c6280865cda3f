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
from tnplan.executor.statevector.cpu.word_table import WordTable, word_room, word_table
from tnplan.executor.statevector.gates.multiplexed_gate import (
    LARGEST_TARGETS,
    MultiplexedGate,
    from_gate,
    from_matrix,
    mask_of,
    of_same_form,
)


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
        self._words: list[WordTable] = [word_table(one, self._size) for one in words]
        forms = [_form(gate) for gate in gates]
        kept = [
            (gate, form) for gate, form in zip(gates, forms, strict=True)
            if isinstance(gate, TrigonometricGate) or not form.is_identity
        ]  # fmt: skip
        self._elements = np.concatenate([np.zeros(0, np.complex128), *(f.matrices.ravel() for _, f in kept)])
        self._table = _table(n_qubits, kept)
        varied = [gate for gate, _ in kept if isinstance(gate, TrigonometricGate)]
        # Phases of all terms are a sparse matrix times the parameters, by rows.
        rows = [(t, gate) for gate in varied for t in range(len(gate.frequencies))]
        self._columns = np.array([p for _, gate in rows for p in gate.parameters], np.int64)
        self._frequencies = np.concatenate([np.zeros(0), *(gate.frequencies.ravel() for gate in varied)])
        counts = [len(gate.parameters) for _, gate in rows]
        self._row_starts = np.cumsum([0, *counts])[:-1]
        self._rows = np.repeat(np.arange(len(rows)), counts)

    def values(self, parameters: Array) -> Array:
        """The values of all observables, complex128."""
        return self._observed(self._run(parameters)[0])

    def gradients(self, parameters: Array) -> tuple[Array, Array]:
        """The values of all observables, and their derivatives, float64 [observable, parameter]."""
        from tnplan.executor.statevector.cpu.gate_list_kernel import sweep_back
        from tnplan.executor.statevector.cpu.word_sum_kernel import write_word_sum

        state, elements, factors, scratch = self._run(parameters)
        values = self._observed(state)
        lefts, room = np.empty((len(self._words), self._size), np.complex128), word_room(self._size)
        for left, words in zip(lefts, self._words, strict=True):
            write_word_sum(left, state, words, room, 0, self._size // len(room.re))
        by_terms = np.zeros((len(lefts), len(factors)))
        overlaps = np.empty(4**LARGEST_TARGETS * self._size, np.complex128)
        sweep_back(state.view(np.float64), lefts.view(np.float64), self._table, elements, factors, scratch, overlaps, by_terms)
        gradients = [
            np.bincount(self._columns, row[self._rows] * self._frequencies, self.n_parameters)
            for row in by_terms
        ]  # fmt: skip
        return values, np.array(gradients)

    def probabilities(self, parameters: Array) -> Array:
        """The probability of every bit string, float64, qubit 0 most significant."""
        state = self._run(parameters)[0]
        return np.asarray(np.square(state.real) + np.square(state.imag))

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

        room, parts = word_room(self._size), np.zeros((1, 2))
        values = np.empty(len(self._words), np.complex128)
        for number, words in enumerate(self._words):
            word_sum_value(state, words, room, 0, 1, parts)
            values[number] = complex(*parts[0])
        return values


def _form(gate: Gate | TrigonometricGate) -> MultiplexedGate:
    """The targets and selectors of a gate; where parameters change it, with the matrices of any one."""
    if isinstance(gate, Gate):
        return from_gate(gate)
    # A sum with random weights has an element that is zero, or two that are equal, where all terms have.
    weights = np.random.default_rng(0).normal(size=len(gate.coefficients)) + 1j
    return from_matrix(gate.qubits, np.tensordot(weights, gate.coefficients, 1))


def _table(
    n_qubits: int, gates: Sequence[tuple[Gate | TrigonometricGate, MultiplexedGate]]
) -> GateTable:  # fmt: skip
    """The tables; qubit q is bit n_qubits - 1 - q."""
    target_masks, runs, selectors, offsets = [], [], [], []
    varied, terms, coefficients = [], [], []
    for number, (gate, form) in enumerate(gates):
        form = form.on([n_qubits - 1 - qubit for qubit in range(n_qubits)])
        target_masks.append(form.target_mask)
        runs.append(form.mask & -form.mask)
        selectors.append(form.selectors)
        values = range(1 << len(form.targets))
        offsets.append([mask_of([b for b, x in zip(form.targets[::-1], f"{v:032b}"[::-1]) if x == "1"]) for v in values])  # noqa
        if isinstance(gate, TrigonometricGate):
            own = gates[number][1]
            varied.append(number)
            terms.append(len(gate.coefficients))
            coefficients.append(
                np.concatenate([of_same_form(own, gate.qubits, c).ravel() for c in gate.coefficients])
            )
    return GateTable(
        np.array(target_masks, np.int64), np.array(runs, np.int64),
        np.array([bit for bits in selectors for bit in bits], np.int64), _ends(map(len, selectors)),
        np.array([offset for row in offsets for offset in row], np.int64), _ends(map(len, offsets)),
        _ends(form.matrices.size for _, form in gates),
        np.array(varied, np.int64), _ends(terms),
        np.concatenate([np.zeros(0, np.complex128), *coefficients]), _ends(map(len, coefficients))[:-1],
    )  # fmt: skip


def _ends(counts) -> Array:
    return np.cumsum([0, *counts], dtype=np.int64)
