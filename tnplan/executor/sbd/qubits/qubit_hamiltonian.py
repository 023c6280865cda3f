"""A qubit Hamiltonian in a list of bit strings, on a CPU: the rows of one rank.

Work of a product of N strings with elements made for it: N lookups of each group of words, and where a string
is found about 4 operations a word of the group. Bytes: those of the strings, of the words and of the sieve,
nearly all from caches, and what is found of the table and the state. Elements that are kept take 12 bytes
each, 20 where they are complex.

Knows strings, words and arrays; nothing of solvers.
"""

from __future__ import annotations

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.host_facts import cores
from tnplan.executor.sbd.lists.listed_rows import ListedRows
from tnplan.executor.sbd.qubits.pauli_terms import PauliTerms
from tnplan.executor.sbd.qubits.string_table import StringTable, string_table
from tnplan.executor.sbd.sigma.row_partition import partition_rows

REAL_UNITS, COMPLEX_UNITS = np.array([1.0, 0.0]), np.array([1.0, 1j])
"""What real and imaginary words are multiplied by."""


class QubitHamiltonian(ListedRows):
    """The operator without its core among distinct strings in rising order, uint64 [string, W]."""

    def __init__(
        self, terms: PauliTerms, strings: Array | StringTable, *, threads: int | None = None,
        room_bytes: float = np.inf, rank_of: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        """`room_bytes` is the memory that elements may take; 0: they are not even counted.

        `rank_of` is this rank and how many there are.
        """
        self.terms = terms
        self.strings = strings if isinstance(strings, StringTable) else string_table(strings)
        dtype = np.dtype(np.complex128 if terms.is_complex else np.float64)
        partition = partition_rows(np.ones(len(self.strings.words)), rank_of[1])
        super().__init__(dtype, threads or cores(), partition, rank_of[0])
        self._units = COMPLEX_UNITS if terms.is_complex else REAL_UNITS
        self.store(room_bytes)

    def among(self, chosen: Array) -> QubitHamiltonian:
        """The same among the strings of these numbers, which rise; its elements are kept."""
        return QubitHamiltonian(self.terms, self.strings.words[chosen], threads=self.threads)

    def expectation(self, terms: PauliTerms, x: Array) -> float:
        """The expectation value of another operator in a whole normalized state."""
        other = QubitHamiltonian(terms, self.strings, threads=self.threads, room_bytes=0)
        # A real operator is symmetric: its value is the sum of those in the real and the imaginary part.
        parts = (x.real, x.imag) if x.dtype.kind == "c" and not other.is_complex else (x,)
        return terms.core + sum(float(np.vdot(part, other.apply(part)).real) for part in parts)

    @property
    def size_bytes(self) -> int:
        """The memory of words and strings, and of the elements that are kept."""
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
