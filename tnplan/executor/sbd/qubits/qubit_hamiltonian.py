"""A qubit Hamiltonian in a list of bit strings, on a CPU: the rows of one rank.

Work of a product of N strings with elements computed for it: N lookups of each group of words, and where the
string is in the list about 4 operations a word of the group. Bytes: those of the strings, of the words and of
the sieve, nearly all from caches, and what is read of the table and the state. Stored elements take 12 bytes
each, 20 where they are complex.

Knows strings, words and arrays; nothing of solvers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.host_memory import cores
from tnplan.executor.sbd.basis.strings import from_occupied
from tnplan.executor.sbd.lists.listed_rows import ListedRows
from tnplan.executor.sbd.qubits.pauli_terms import PauliTerms
from tnplan.executor.sbd.sigma.row_partition import partition_rows

# A list of distinct bit strings that rises as numbers do, and where each of them is found.
#
# Strings are looked up in a hash table of open addressing. A sieve of bits tells at once of most strings that
# they are not in the list: it is 16 times smaller than the table and stays in the caches.


SLOTS_A_STRING = 2
"""Slots of the hash table for a string, at least."""
SIEVE = 8
"""Bits of the sieve for a slot of the table."""


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
    from tnplan.executor.sbd.qubits import qubit_kernel

    size = 1 << int(SLOTS_A_STRING * max(len(words), 32) - 1).bit_length()
    table = StringTable(
        np.ascontiguousarray(words), np.full(size, -1, np.int32), np.zeros(size * SIEVE // 64, np.uint64)
    )
    qubit_kernel.fill_table(table)
    return table


def words_of(bits: Array) -> Array:
    """Bits [string, qubit] as words, uint64 [string, W]."""
    return from_occupied(bits).words


# A qubit Hamiltonian in a list of bit strings, on a CPU: the rows of one rank.


REAL_UNITS, COMPLEX_UNITS = np.array([1.0, 0.0]), np.array([1.0, 1j])
"""What real and imaginary words are multiplied by."""


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
        self._units = COMPLEX_UNITS if terms.is_complex else REAL_UNITS
        self.store(memory_bytes)

    def among(self, chosen: Array) -> QubitHamiltonian:
        """The same among the strings of these numbers, which rise; its elements are stored."""
        return QubitHamiltonian(self.terms, self.strings.words[chosen], threads=self.threads)

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

    def _count(self, counts: Array) -> None:
        from tnplan.executor.sbd.qubits import qubit_kernel

        self._over_rows(qubit_kernel.count_rows, self.strings, self.terms.groups, counts)

    def _fill(self, start: Array, column: Array) -> Array:
        from tnplan.executor.sbd.qubits import qubit_kernel

        value = np.empty(start[-1], self.dtype)
        tables = self.strings, self.terms.groups, self._units, self._diagonal
        self._over_rows(qubit_kernel.fill_rows, *tables, start, column, value)
        return value

    def _fill_diagonal(self, energies: Array) -> None:
        from tnplan.executor.sbd.qubits import qubit_kernel

        self._over_rows(qubit_kernel.fill_diagonal, self.strings, self.terms.diagonal, energies)

    def _add_again(self, x: Array, y: Array) -> None:
        from tnplan.executor.sbd.qubits import qubit_kernel

        tables = self.strings, self.terms.groups, self._units, self._diagonal
        self._over_rows(qubit_kernel.add_rows, *tables, x, y)
