"""A Hermitian sum of Pauli words, its words grouped by the qubits that they flip.

All words of a group lead from a bit string to the same one. The element of a word P = i^(x.z) X^x Z^z between
the strings s and s ^ x is <s| P |s ^ x> = i^(x.z) (-1)^(z.(s ^ x)), where a.b counts the bits that both have.
It is +-1 where the word has an even number of Y, and +-i where it has an odd one.

Knows words and coefficients; no list of strings.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, bit_counts, merge
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError

HERMITIAN = 1e-12
"""Imaginary parts of coefficients are left out up to this share of the largest coefficient."""


class WordGroups(NamedTuple):
    """Words grouped by their flips: group g flips the bits flips[g] and has words start[g] .. start[g+1]-1.

    Those from middle[g] on are imaginary. Word t gives value[t] (-1)^(signs[t].s) in the row of string s, of
    the imaginary part from middle on. `flips` and `signs` are uint64 [group or word, W].
    """

    flips: Array
    start: Array
    middle: Array
    signs: Array
    value: Array


@dataclass(frozen=True, eq=False)
class PauliTerms:
    """A Hermitian operator on qubits: its constant part `core`, words of I and Z alone, and the others."""

    n_qubits: int
    core: float
    diagonal: WordGroups
    groups: WordGroups

    @property
    def is_complex(self) -> bool:
        """Whether elements are complex numbers."""
        return bool((self.groups.middle < self.groups.start[1:]).any())

    @property
    def n_terms(self) -> int:
        """How many words there are, the identity not counted."""
        return len(self.diagonal.value) + len(self.groups.value)

    @property
    def size_bytes(self) -> int:
        """The memory of all words."""
        return sum(table.nbytes for groups in (self.diagonal, self.groups) for table in groups)

    @cached_property
    def identity(self) -> str:
        """What tells this operator from others."""
        digest = hashlib.sha256(f"{self.n_qubits} {self.core!r}".encode())
        for groups in (self.diagonal, self.groups):
            for table in groups:
                digest.update(np.ascontiguousarray(table).tobytes())
        return digest.hexdigest()


def pauli_terms(operator: PauliSum, place: str) -> PauliTerms:
    """The grouped words of a sum; InputError where a coefficient is not real: the sum is not Hermitian."""
    coefficients = operator.coefficients
    if not np.isfinite(coefficients).all():
        raise InputError(place, "has coefficients that are no finite numbers", "bind its parameters")
    keys, merged = merge(operator.keys, coefficients)
    off = np.abs(merged.imag)
    if len(merged) and off.max() > HERMITIAN * np.abs(merged).max():
        at = int(np.argmax(off))
        word = PauliSum(operator.n_qubits, keys[at : at + 1], merged[at : at + 1]).lines()[0]
        raise InputError(place, f"is not Hermitian: it has the term {word}", "give real coefficients")
    is_nonzero = merged.real != 0
    keys, values = keys[is_nonzero], merged.real[is_nonzero]
    half = keys.shape[1] // 2
    flips, signs = keys[:, :half], keys[:, half:]
    is_identity = ~keys.any(axis=1)
    is_diagonal = ~flips.any(axis=1) & ~is_identity
    others = ~is_diagonal & ~is_identity
    return PauliTerms(
        operator.n_qubits, float(values[is_identity].sum()),
        _grouped(flips[is_diagonal], signs[is_diagonal], values[is_diagonal]),
        _grouped(flips[others], signs[others], values[others]),
    )  # fmt: skip


def _grouped(flips: Array, signs: Array, values: Array) -> WordGroups:
    """Words in rising order of their flips, those of real elements first, with values as rows take them."""
    n_y = bit_counts(flips & signs)
    # i^(n_y) (-1)^(z.x) with z.x = n_y: 1, -i, -1, i.
    values = values * np.array([1.0, -1.0, -1.0, 1.0])[n_y % 4]
    order = np.lexsort((*signs.T, n_y % 2, *flips.T))
    flips, signs, values, is_odd = flips[order], signs[order], values[order], n_y[order] % 2
    is_new = np.ones(len(flips), bool)
    is_new[1:] = (flips[1:] != flips[:-1]).any(axis=1)
    first = np.flatnonzero(is_new)
    start = np.append(first, len(flips))
    n_real = np.add.reduceat(1 - is_odd, first) if len(first) else np.zeros(0, np.int64)
    tables = (np.ascontiguousarray(flips[first]), start, first + n_real, np.ascontiguousarray(signs), values)
    return WordGroups(*tables)
