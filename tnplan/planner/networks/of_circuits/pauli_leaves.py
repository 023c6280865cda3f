"""Pauli words as tensors between a ket and a bra: for each qubit a matrix, or a diagonal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.circuits.gates import I2, X, Y, Z

MATRICES = (I2, X, Z, Y)
"""By x + 2 z of a letter."""


@dataclass(frozen=True)
class Support:
    """The qubits of a word, and those of them that carry Z, both rising."""

    qubits: tuple[int, ...]
    diagonal: tuple[int, ...]


def support_of(x: int, z: int) -> Support:
    """The support of the word with these masks."""
    both = x | z
    qubits = tuple(qubit for qubit in range(both.bit_length()) if both >> qubit & 1)
    return Support(qubits, tuple(qubit for qubit in qubits if not x >> qubit & 1))


def by_support(words: Iterable[tuple[int, int, complex]]) -> dict[Support, dict[tuple[int, int], complex]]:
    """The coefficients of words (x, z, coefficient) by their support, and there by their masks."""
    groups: dict[Support, dict[tuple[int, int], complex]] = {}
    for x, z, coefficient in words:
        groups.setdefault(support_of(x, z), {})[x, z] = coefficient
    return groups


def leaves(masks: Sequence[tuple[int, int]], support: Support) -> list[np.ndarray]:
    """For each qubit of the support the matrices of some words on it, complex128 [word, row, column].

    On a diagonal qubit the diagonals, [word, value].
    """
    found = []
    for qubit in support.qubits:
        letters = [MATRICES[(x >> qubit & 1) + 2 * (z >> qubit & 1)] for x, z in masks]
        matrices = np.array(letters, np.complex128)
        found.append(
            np.ascontiguousarray(matrices.diagonal(axis1=1, axis2=2))
            if qubit in support.diagonal
            else matrices
        )
    return found
