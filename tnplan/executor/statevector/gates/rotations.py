"""Gates as real rotations, phases, and matrices of several bits. Knows matrices and bits.

A unitary matrix of one bit is a real matrix between phases of its rows and of its columns. The phases of the
rows commute with all diagonals and move on to the next matrix on this bit. A gate that one bit controls is a
diagonal in another basis of its target. So circuits become few multiplications an amplitude.
"""

from __future__ import annotations

import cmath
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate, WordSum, word_sum
from tnplan.executor.statevector.gates.one_bit import (
    ONE,
    ROUNDING,
    Elements,
    OneBitGate,
    diagonal_of,
    elements_of,
    product,
    real_between_phases,
)

BASES_KEPT = 4096
"""Distinct controlled gates whose bases, or signs, are remembered."""
CONTROLLED_PHASE = np.array([1, 1, 1, -1], np.complex128).reshape(4, 1, 1)
"""The controlled Z as a diagonal of two selectors."""
PAULIS = {
    (True, False): np.array([[0, 1], [1, 0]], np.complex128),
    (True, True): np.array([[0, -1j], [1j, 0]]),
    (False, True): np.diag([1.0 + 0j, -1]),
}
"""X, Y and Z: whether they flip a bit, and whether they sign it."""


def as_rotations(gates: Sequence[MultiplexedGate], n_bits: int) -> list[MultiplexedGate]:
    """The same product of diagonals, real matrices of one bit, and what cannot be taken apart.

    Matrices of one bit that follow each other are one. Those before a matrix of several bits are part of it.
    A sum of a word on one bit goes along as far as it stays one of a word.
    """
    rotations = _Rotations(n_bits)
    for gate in _without_signs(gates):
        bits = (*gate.targets, *gate.selectors)
        if isinstance(gate, WordSum):
            rotations.take(gate)
        elif len(bits) == 1:
            rotations.multiply(bits[0], elements_of(gate))
        elif len(gate.targets) == len(gate.selectors) == 1:
            parts = diagonal_in_a_basis(gate.matrices.tobytes())
            if parts is None:
                rotations.act(gate)
                continue
            before, diagonal, after = parts
            rotations.multiply(gate.targets[0], before)
            rotations.act(MultiplexedGate((), (*gate.selectors, *gate.targets), diagonal))
            rotations.multiply(gate.targets[0], after)
        else:
            rotations.act(gate)
    return rotations.end()


def _without_signs(gates: Sequence[MultiplexedGate]) -> Iterator[MultiplexedGate]:
    """The gates, where selectors that only change signs are controlled phases before and after."""
    # X Z ... Z Y of a Jordan-Wigner string: CZ(s, t) X_t CZ(s, t) = Z_s X_t. Phases of two bits cost
    # next to nothing, and those between two gates of the same string cancel.
    for gate in gates:
        if not (gate.targets and gate.selectors) or isinstance(gate, WordSum):
            yield gate
            continue
        signs, matrices = _sign_selectors(gate.matrices.tobytes(), len(gate.targets))
        pairs = [(gate.selectors[selector], gate.targets[target]) for selector, target in signs]
        phases = [MultiplexedGate((), pair, CONTROLLED_PHASE) for pair in pairs]
        if not phases:
            yield gate
            continue
        changing = {selector for selector, _ in pairs}
        selectors = tuple(bit for bit in gate.selectors if bit not in changing)
        yield from phases
        yield MultiplexedGate(gate.targets, selectors, matrices)
        yield from phases


@lru_cache(BASES_KEPT)
def _sign_selectors(matrices: bytes, n_targets: int) -> tuple[tuple[tuple[int, int], ...], Array]:
    """The numbers of selectors that only change signs, each with that of its target, and the other matrices.

    Such a selector s has a target t with U[s = 1] = Z_t U[s = 0] Z_t, whatever the other selectors are.
    """
    side = 1 << n_targets
    left = np.frombuffer(matrices, np.complex128).reshape(-1, side, side)
    n_selectors = len(left).bit_length() - 1
    signs = []
    # From the last selector on, so that a selector's number is its axis as long as it is not looked at.
    for selector in reversed(range(n_selectors)):
        halves = left.reshape(1 << selector, 2, -1, side, side)
        for target in range(n_targets):
            rows = 1 - 2.0 * (np.arange(side) >> (n_targets - 1 - target) & 1)
            if np.all(np.abs(halves[:, 1] - rows[:, None] * halves[:, 0] * rows) <= EXACT):
                signs.append((selector, target))
                left = np.ascontiguousarray(halves[:, 0]).reshape(-1, side, side)
                break
    return tuple(signs), left


class _Rotations:
    """The gates made, and on each bit the product of matrices that waits, with the sums after it."""

    def __init__(self, n_bits: int) -> None:
        self.gates: list[MultiplexedGate] = []
        self._waiting = [ONE] * n_bits
        self._sums: list[list[WordSum]] = [[] for _ in range(n_bits)]

    def multiply(self, bit: int, matrix: Elements) -> None:
        """A matrix of one bit."""
        if self._sums[bit]:
            moved = [_moved(word, matrix) for word in self._sums[bit]]
            sums = [word for word in moved if word is not None]
            if len(sums) < len(moved):
                self._settle(bit)
                sums = []
            self._sums[bit] = sums
        waiting = self._waiting[bit]
        self._waiting[bit] = matrix if waiting is ONE else product(matrix, waiting)

    def act(self, gate: MultiplexedGate) -> None:
        """A gate of several bits."""
        for bit in gate.selectors:
            self._settle(bit)
        if gate.targets:
            columns: Array | None = None
            for bit in gate.targets:
                if self._sums[bit]:
                    self._settle(bit)
            if any(self._waiting[bit] is not ONE for bit in gate.targets):
                for bit in gate.targets:
                    waiting = np.array(self._waiting[bit], np.complex128).reshape(2, 2)
                    columns = waiting if columns is None else np.kron(columns, waiting)
                    self._waiting[bit] = ONE
                gate = replace(gate, matrices=gate.matrices @ columns)
        self.gates.append(gate)

    def take(self, word: WordSum) -> None:
        """A sum."""
        bits = (*word.targets, *word.selectors)
        if len(bits) == 1:
            self._sums[bits[0]].append(word)
            return
        for bit in bits:
            self._settle(bit)
        for bit in word.targets:
            self._add_rows(bit)
        self.gates.append(word)

    def end(self) -> list[MultiplexedGate]:
        """All gates."""
        for bit in range(len(self._waiting)):
            self._settle(bit)
            self._add_rows(bit)
        return self.gates

    def _settle(self, bit: int) -> None:
        """What waits on a bit acts now, but for phases of its rows."""
        column, matrix, rows = real_between_phases(self._waiting[bit])
        if abs(column - 1) > EXACT:
            self.gates.append(diagonal_of(bit, 1, column))
        if matrix is not None:
            self.gates.append(OneBitGate(bit, matrix))
        self._waiting[bit] = (rows[0], 0, 0, rows[1])
        if any(word.targets for word in self._sums[bit]):
            self._add_rows(bit)
        self.gates += self._sums[bit]
        self._sums[bit] = []

    def _add_rows(self, bit: int) -> None:
        """The phases of a bit, which are all that waits."""
        upper, _, _, lower = self._waiting[bit]
        if max(abs(upper - 1), abs(lower - 1)) > EXACT:
            self.gates.append(diagonal_of(bit, upper, lower))
        self._waiting[bit] = ONE


def _moved(word: WordSum, elements: Elements) -> WordSum | None:
    """The sum after a matrix on its bit that is equal to this one before it; None where it is of no word."""
    letter = bool(word.target_mask), bool(word.z)
    if word.imaginary == all(letter):
        return None  # the real part of <lambda| P |psi>, which no gate needs
    matrix = np.array(elements, np.complex128).reshape(2, 2)
    image = matrix @ PAULIS[letter] @ matrix.conj().T
    for (has_x, has_z), other in PAULIS.items():
        factor = float(np.trace(image @ other).real) / 2
        if abs(abs(factor) - 1) <= ROUNDING:
            bits = word.mask
            moved = word_sum(bits * has_x, bits * has_z, word.number, not (has_x and has_z))
            return replace(moved, factor=word.factor * np.sign(factor))
    return None


@lru_cache(BASES_KEPT)
def diagonal_in_a_basis(matrices: bytes) -> tuple[Elements, Array, Elements] | None:
    """For a bit that chooses one of two unitary matrices: a matrix before, a diagonal [4, 1, 1], one after.

    The bit that chooses is the first of the diagonal, the target its second. None for other matrices.
    """
    # Controlled by a bit: |0><0| x A + |1><1| x B = (1 x V) diag(1, 1, l1, l2) (1 x V^dagger A),
    # where B A^dagger = V diag(l1, l2) V^dagger. So a controlled gate is a diagonal between
    # matrices of the target alone.
    first, second = np.frombuffer(matrices, np.complex128).reshape(2, 2, 2)
    relative = second @ first.conj().T
    for choice in (first, second):
        if np.any(np.abs(choice @ choice.conj().T - np.eye(2)) > ROUNDING):
            return None
    # Divided by the root of its determinant, B A^dagger is in SU(2) and equals cos + i sin (n . sigma): its
    # anti-Hermitian part has the same eigenvectors, and eigh gives them orthonormal, degenerate or not.
    special = relative / cmath.sqrt(np.linalg.det(relative))
    _, basis = np.linalg.eigh((special - special.conj().T) / 2j)
    values = np.diag(basis.conj().T @ relative @ basis)
    values = values / np.abs(values)
    before, after = (_elements(matrix) for matrix in (basis.conj().T @ first, basis))
    return before, np.array([1, 1, *values]).reshape(4, 1, 1), after


def _elements(matrix: Array) -> Elements:
    a, b, c, d = matrix.ravel().tolist()
    return a, b, c, d
