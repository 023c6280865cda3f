"""The rows of a qubit Hamiltonian on a GPU; qubit_rows.cu says how they are made.

Knows CuPy and launches, and the tables of a `QubitHamiltonian`. Everything runs on one stream.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.sbd.basis.determinants import ListOfStates
from tnplan.executor.sbd.lists.qubit_hamiltonian import QubitHamiltonian

Array = Any
"""A cupy.ndarray."""

FILE = Path(__file__).parent / "qubit_rows.cu"
THREADS = 256
"""Threads of a block; 32 of them make a row."""


def qubit_defines(n_words: int, is_complex: bool) -> dict[str, int]:
    """The definitions of qubit_rows.cu for strings of so many 64-bit words."""
    return {"WORDS": n_words, "THREADS": THREADS, "COMPLEX": int(is_complex)}


class GpuQubits(ListOfStates):
    """The rows that a `QubitHamiltonian` holds, on the GPU and the stream that are current at first."""

    def __init__(self, hamiltonian: QubitHamiltonian, memory_bytes: float) -> None:
        """`memory_bytes` is the memory that elements may take."""
        h = hamiltonian
        self.shape, self.rows, self.parities, self.dtype = h.shape, h.rows, h.parities, h.dtype
        defines = qubit_defines(h.strings.words.shape[1], h.is_complex)
        self._kernel = cache(lambda entry: load_kernel(FILE, entry, defines))
        flips, *words = map(self.copy, h.terms.groups)
        self._diagonal = self.copy(h.diagonal())
        tables = *map(self.copy, h.strings), flips
        sizes = h.n_rows, h.rows[0], h.strings.slots.size, h.strings.sieve.size, len(flips)
        self._lookup = (*map(np.int64, sizes), *tables)
        self._words = *words, self._diagonal
        self._matrix: tuple[Array, Array, Array] | None = None
        counts = self.copy(np.zeros(h.n_rows, np.int64))
        # Two passes, as for sparse rows (CSR): count, sum up the starts, and fill where the
        # elements fit the memory. Else they are made again in every product.
        self.launch("count_rows", *self._lookup, counts)
        start = np.concatenate([[0], np.cumsum(self.get(counts))])
        self.pairs_contributing = int(start[-1])
        if h.element_bytes * start[-1] + start.nbytes <= memory_bytes:
            self._store(self.copy(start))
        matrix = () if self._matrix is None else self._matrix
        self.size_bytes = sum(table.nbytes for table in (*tables, *self._words, *matrix))

    def _store(self, start: Array) -> None:
        """Keep the elements."""
        column, value = self.new((self.pairs_contributing,), "int32"), self.empty(self.pairs_contributing)
        self.launch("fill_rows", *self._lookup, *self._words, start, column, value)
        self._matrix = start, column, value

    def empty(self, *shape: int) -> Array:
        """An array on the GPU, not set."""
        return self.new(shape, self.dtype)

    def put(self, array: np.ndarray) -> Array:
        """A copy on the GPU, in the elements' type."""
        return self.copy(np.asarray(array, self.dtype))

    def get(self, array: Array) -> np.ndarray:
        """A copy on the host."""
        return cupy.asnumpy(array)

    def diagonal(self) -> Array:
        """The diagonal over the local rows."""
        return self._diagonal

    def add_rows(self, block: None, x: Array, local: Array, y: Array, half: bool) -> None:
        """Add the local rows of the product with x, a whole state, to y. Allocates nothing."""
        if self._matrix is None:
            self.launch("add_rows", *self._lookup, *self._words, x, y)
        else:
            self.launch("add_sparse", self._lookup[0], *self._matrix, x, y)

    def copy(self, array: np.ndarray) -> Array:
        """A copy on the GPU."""
        return cupy.asarray(np.ascontiguousarray(array))

    def new(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array of a type on the GPU, not set."""
        return cupy.empty(shape, dtype)

    def launch(self, entry: str, *arguments: Any) -> None:
        """Run a kernel, 32 threads a row; nothing where there is no row."""
        blocks = -(-int(arguments[0]) * 32 // THREADS)
        if blocks:
            self._kernel(entry)((blocks,), (THREADS,), arguments)
