"""Given bit strings, and how many different pieces of them a tensor has to tell apart.

A tensor that carries some final qubits has a row for each distinct assignment of the given strings to these
qubits: at most as many as there are strings, and at most 2 to the number of the qubits. That is the sparse
state of Pan, Chen and Zhang, arXiv 2111.03011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tnplan.common.arrays import Array


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor.

    Parameters
    ----------
    of_strings
        The row of each string, int64 [string].
    first
        The first string of each row, int64 [row].
    """

    of_strings: Array
    first: Array

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.first)


def distinct_strings(bitstrings: Array) -> tuple[Array, Array]:
    """The distinct strings, uint8 [string, qubit], and the number of each given one among them."""
    packed = np.packbits(bitstrings, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return bitstrings[first], inverse.reshape(-1)


def rows_of_bits(bitstrings: Array) -> Rows:
    """The rows of a tensor whose final qubits are the columns of some bits, uint8 [string, qubit]."""
    packed = np.packbits(bitstrings, axis=1) if bitstrings.shape[1] else np.zeros((len(bitstrings), 1))
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return Rows(inverse.reshape(-1), first)


def rows_of_product(left: Rows, right: Rows) -> tuple[Rows, Array]:
    """The rows of the product of two tensors, and the rows of both that make each, int32 [row, 2]."""
    # A pair of rows as one number. Invariant: rows of the product are in the order of these numbers, so that
    # `divmod` of the distinct ones gives both rows back.
    pairs = left.of_strings * right.count + right.of_strings
    keys, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    return Rows(inverse.reshape(-1), first), np.stack(np.divmod(keys, right.count), axis=1).astype(np.int32)


def most_rows(n_strings: int, n_qubits: int) -> tuple[float, ...]:
    """The most rows that a tensor with 0, 1, ... n_qubits final qubits has for so many strings."""
    return tuple(float(min(2**bits, n_strings)) for bits in range(n_qubits + 1))
