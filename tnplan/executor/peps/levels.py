"""Gates on one and two qubits as levels of disjoint pairs, which a PEPS applies together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tnplan.common.arrays import Array

Pair = tuple[int, int]
Operation = tuple[tuple[int, ...], Array]
"""Qubits and the matrix of a gate, the first qubit most significant."""
DIAGONAL = 1e-14
"""An element beside the diagonal that counts as none."""


@dataclass
class DisjointGates:
    """Matrices on single qubits, and then on pairs that share none."""

    singles: dict[int, Array] = field(default_factory=dict)
    pairs: dict[Pair, Array] = field(default_factory=dict)


def levels_of(operations: Sequence[Operation]) -> list[DisjointGates]:
    """The gates in few levels; diagonal gates on pairs change places with each other.

    Gates that follow each other on a pair, with gates on its single qubits between them, become one.
    """
    levels: list[DisjointGates] = []
    qubits = {qubit for ends, _ in operations for qubit in ends}
    after = dict.fromkeys(qubits, 0)
    """The first level after all pairs of a qubit."""
    free = dict.fromkeys(qubits, 0)
    """The first level that a diagonal gate may take."""
    busy: dict[int, set[int]] = {qubit: set() for qubit in qubits}

    def level(number: int) -> DisjointGates:
        while len(levels) <= number:
            levels.append(DisjointGates())
        return levels[number]

    for ends, matrix in _merged(operations):
        is_diagonal = np.abs(matrix - np.diag(np.diagonal(matrix))).max() < DIAGONAL
        if len(ends) == 1:
            (qubit,) = ends
            singles = level(after[qubit]).singles
            singles[qubit] = matrix @ singles[qubit] if qubit in singles else matrix
            if not is_diagonal:
                free[qubit] = after[qubit]
            continue
        number = max(free[qubit] if is_diagonal else after[qubit] for qubit in ends)
        while any(number in busy[qubit] for qubit in ends):
            number += 1
        level(number).pairs[ends[0], ends[1]] = matrix
        for qubit in ends:
            busy[qubit].add(number)
            after[qubit] = max(after[qubit], number + 1)
            if not is_diagonal:
                free[qubit] = after[qubit]
    return levels


def _merged(operations: Sequence[Operation]) -> list[Operation]:
    """The same gates, those that act on the same qubits one after another multiplied."""
    merged: list[Operation] = []
    last: dict[int, int] = {}
    """Of a qubit the number of the last gate on a pair."""
    since: dict[int, Array] = {}
    """And the product of those on itself since then."""
    for ends, matrix in operations:
        if len(ends) == 1:
            since[ends[0]] = matrix @ since.get(ends[0], np.eye(2))
            continue
        numbers = {last.get(qubit, -1) for qubit in ends}
        (number, *others) = numbers
        before = [since.pop(qubit, None) for qubit in ends]
        if not others and number >= 0 and set(merged[number][0]) == set(ends):
            first = merged[number]
            swapped = first[1] if first[0] == ends else _swapped(first[1])
            between = np.kron(*(np.eye(2) if one is None else one for one in before))
            merged[number] = ends, matrix @ between @ swapped
            continue
        merged += [((qubit,), one) for qubit, one in zip(ends, before, strict=True) if one is not None]
        last.update(dict.fromkeys(ends, len(merged)))
        merged.append((ends, matrix))
    return merged + [((qubit,), one) for qubit, one in since.items()]


def _swapped(matrix: Array) -> Array:
    """The matrix of a gate on two qubits with these in the other order."""
    return matrix.reshape(2, 2, 2, 2).transpose(1, 0, 3, 2).reshape(4, 4)
