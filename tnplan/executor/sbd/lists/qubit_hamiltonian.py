"""A qubit Hamiltonian in a list of bit strings, on a CPU: the rows of one rank.

The Hamiltonian is a Hermitian sum of Pauli words, grouped by the qubits that they flip.

Work of a product of N strings with elements computed for it: N lookups of each group of words, and where the
string is in the list about 4 operations a word of the group. Bytes: those of the strings, of the words and of
the sieve, nearly all from caches, and what is read of the table and the state. Stored elements take 12 bytes
each, 20 where they are complex.

Knows strings, words and arrays; nothing of solvers.
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
from tnplan.common.system_calls import cores
from tnplan.executor.sbd.basis.strings import from_occupied
from tnplan.executor.sbd.lists.listed_rows import ListedRows
from tnplan.executor.sbd.sigma.cost_model import partition_rows
from tnplan.executor.sbd.sigma.same_spin import SparseMatrix

# A list of distinct bit strings that rises as numbers do, and where each of them is found.
#
# Strings are looked up in a hash table of open addressing. A sieve of bits tells at once of most strings that
# they are not in the list: it is 16 times smaller than the table and stays in the caches.


TOPIC = "qubit Hamiltonians"

SLOTS_A_STRING = 2
"""Slots of the hash table for a string, at least."""
SIEVE = 8
"""Bits of the sieve for a slot of the table."""
HERMITIAN = 1e-12
"""Imaginary parts of coefficients are left out up to this share of the largest coefficient."""


class StringTable(NamedTuple):
    """Strings and their hash table.

    `words` are uint64 [string, W], qubit q at bit q % 64 of word q // 64. `slots` int32 has the number of a
    string at its hash or one of the slots after it, -1 where there is none. `sieve` is uint64.
    """

    words: Array
    slots: Array
    sieve: Array

    @property
    def size_bytes(self) -> int:
        """The memory of the table."""
        return sum(array.nbytes for array in self)


def string_table(words: Array) -> StringTable:
    """The table of strings that are distinct and in their order, uint64 [string, W]."""
    from tnplan.executor.sbd.lists import qubit_kernel

    size = 1 << int(SLOTS_A_STRING * max(len(words), 32) - 1).bit_length()
    table = StringTable(
        np.ascontiguousarray(words), np.full(size, -1, np.int32), np.zeros(size * SIEVE // 64, np.uint64)
    )
    qubit_kernel.fill_table(table)
    return table


def words_of(bits: Array) -> Array:
    """Bits [string, qubit] as words, uint64 [string, W]."""
    return from_occupied(bits).words


REAL_UNITS, COMPLEX_UNITS = np.array([1.0, 0.0]), np.array([1.0, 1j])
"""What real and imaginary words are multiplied by."""


class QubitOperator(NamedTuple):
    """What rows are made from: strings, words, what real and imaginary words count, the local diagonal."""

    strings: StringTable
    groups: WordGroups
    units: Array
    diagonal: Array


def operator_of(terms: PauliTerms, strings: StringTable) -> QubitOperator:
    """What rows among strings are made from, but for the diagonal."""
    return QubitOperator(
        strings, terms.groups, COMPLEX_UNITS if terms.is_complex else REAL_UNITS, np.empty(0)
    )


class QubitHamiltonian(ListedRows):
    """The operator without its core among distinct strings in rising order, uint64 [string, W]."""

    def __init__(
        self, terms: PauliTerms, strings: Array | StringTable, *, threads: int | None = None,
        memory_bytes: float = np.inf, rank_of: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        """`memory_bytes` is the memory that elements may take; 0: they are not even counted.

        `rank_of` is this rank and how many there are.
        """
        self.terms = terms
        self.strings = strings if isinstance(strings, StringTable) else string_table(strings)
        dtype = np.dtype(np.complex128 if terms.is_complex else np.float64)
        partition = partition_rows(np.ones(len(self.strings.words)), rank_of[1])
        super().__init__(dtype, threads or cores(), partition, rank_of[0])
        self.store(memory_bytes)

    def among(self, chosen: Array) -> QubitHamiltonian:
        """The same among the strings of these numbers, which rise; its elements are stored."""
        return QubitHamiltonian(self.terms, self.strings.words[chosen], threads=self.threads)

    def identity_arrays(self) -> list[Array]:
        """Arrays that tell this space from others."""
        return [self.strings.words]

    def expectation(self, terms: PauliTerms, x: Array) -> float:
        """The expectation value of another operator in a whole normalized state."""
        other = QubitHamiltonian(terms, self.strings, threads=self.threads, memory_bytes=0)
        # A real operator is symmetric: its value is the sum of those in the real and the imaginary part.
        parts = (x.real, x.imag) if x.dtype.kind == "c" and not other.is_complex else (x,)
        return terms.core + sum(float(np.vdot(part, other.apply(part)).real) for part in parts)

    @property
    def size_bytes(self) -> int:
        """The memory of words and strings, and of the stored elements."""
        return self.strings.size_bytes + self.terms.size_bytes + self.elements_bytes

    @property
    def _operator(self) -> QubitOperator:
        """What the local rows are made from."""
        return operator_of(self.terms, self.strings)._replace(diagonal=self._diagonal)

    def _count(self, counts: Array) -> None:
        from tnplan.executor.sbd.lists import qubit_kernel

        self._over_rows(qubit_kernel.count_rows, self.strings, self.terms.groups, counts)

    def _fill(self, start: Array, column: Array) -> Array:
        from tnplan.executor.sbd.lists import qubit_kernel

        sparse = SparseMatrix(start, column, np.empty(start[-1], self.dtype))
        self._over_rows(qubit_kernel.fill_rows, self._operator, sparse)
        return sparse.value

    def _fill_diagonal(self, energies: Array) -> None:
        from tnplan.executor.sbd.lists import qubit_kernel

        self._over_rows(qubit_kernel.fill_diagonal, self.strings, self.terms.diagonal, energies)

    def _add_again(self, x: Array, y: Array) -> None:
        from tnplan.executor.sbd.lists import qubit_kernel

        self._over_rows(qubit_kernel.add_rows, self._operator, x, y)


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
        raise InputError(place, "has coefficients that are not finite numbers", "bind its parameters")
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
