"""H over products of half-strings by batches of alpha strings: the form that a GPU takes.

The strings of a batch have nearly as many singles as each other; they are padded to the same number, so that
one batched matrix product makes all of their half-transformed rows. Number operators of beta are columns like
pairs of orbitals. Knows the tables of a `ProductHamiltonian`; where arrays lie is up to `BatchSteps`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from executor.sbd.product import NEITHER, ProductHamiltonian
from executor.sbd.same_spin import DenseMatrix
from planner.errors import InputError

Array = Any
"""An array where the steps work."""
Host = NDArray[Any]

SCRATCH_BYTES = 1 << 30


class BatchSteps(Protocol):
    """The steps of a batch on one device."""

    def put(self, array: Host) -> Array:
        """A copy where the steps work."""
        ...

    def empty(self, *shape: int) -> Array:
        """An array of doubles there, not set."""
        ...

    def weigh(
        self, rows: Array, start: Array, pairs: Array, sign: Array, two: Array, numbers: Array, weights: Array
    ) -> None:
        """weights[b, column, place] = numbers[row, column] at place 0, then +-two[pair, column]; else 0."""
        ...

    def take(self, rows: Array, start: Array, other: Array, x: Array, values: Array) -> None:
        """values[b, place, j] = x[row, j] at place 0, then x[other, j]; else 0."""
        ...

    def multiply(self, weights: Array, values: Array, held: Array) -> None:
        """held[b] = weights[b] values[b]."""
        ...

    def collect(
        self, rows: Array, start: Array, source: Array, column: Array, sign: Array, held: Array, y: Array
    ) -> None:
        """y[row, j] += the sum over e in start[j] .. start[j+1]-1 of +-held[b, column[e], source[e]]."""
        ...


class BatchedHamiltonian:
    """H, without the core energy, applied where `steps` work; states are arrays there."""

    def __init__(
        self, hamiltonian: ProductHamiltonian, steps: BatchSteps, scratch_bytes: int = SCRATCH_BYTES
    ) -> None:
        """`scratch_bytes` limits what a batch holds at once, one string at least."""
        alpha, beta = hamiltonian.alpha, hamiltonian.beta
        if not isinstance(alpha.matrix, DenseMatrix) or not isinstance(beta.matrix, DenseMatrix):
            raise InputError("same-spin matrices", "are sparse", "make the Hamiltonian with dense=True")
        self._hamiltonian, self._steps = hamiltonian, steps
        self.shape, self.parities = hamiltonian.shape, hamiltonian.parities
        n, match = hamiltonian.integrals.n_orbitals, beta.matching
        columns = np.concatenate([np.arange(n), match.pairs])
        two = np.ascontiguousarray(hamiltonian.integrals.two[:, columns])
        self._matrices = [steps.put(spin.matrix.values) for spin in (alpha, beta)]  # type: ignore[union-attr]
        singles = alpha.singles
        self._start, self._other, self._pairs, self._sign = (
            steps.put(table) for table in (singles.start, singles.other, singles.pairs, singles.sign)
        )
        self._two, self._numbers = steps.put(two), steps.put(alpha.filled @ two[:n])
        self._collected = tuple(steps.put(table) for table in _entries(hamiltonian))
        self._batches = [
            (steps.put(rows), len(rows), k)
            for rows, k in _batches(np.diff(alpha.singles.start), self.shape[1], len(columns), scratch_bytes)
        ]
        sizes = np.array([[b * len(columns) * k, b * k * self.shape[1]] for _, b, k in self._batches])
        most = max(b for _, b, _ in self._batches)
        self._scratch = [steps.empty(int(size)) for size in sizes.max(0)]
        self._held = steps.empty(most, len(columns), self.shape[1])
        self._diagonal = steps.put(hamiltonian.diagonal())

    def diagonal(self) -> Array:
        """The diagonal of H, of the state's shape."""
        return self._diagonal

    def project(self, x: Array, parity: int) -> Array:
        """The part of x that has a parity."""
        return self._hamiltonian.project(x, parity)

    def apply(self, x: Array, parity: int = NEITHER) -> Array:
        """H x, a new array; x is contiguous. With a parity, the part of the product that has it."""
        steps, n_columns, n_beta = self._steps, self._held.shape[1], self.shape[1]
        start, source, column, sign = self._collected
        y = self._matrices[0] @ x
        y += x @ self._matrices[1]
        for rows, count, k in self._batches:
            weights = self._scratch[0][: count * n_columns * k].reshape(count, n_columns, k)
            values = self._scratch[1][: count * k * n_beta].reshape(count, k, n_beta)
            held = self._held[:count]
            steps.weigh(rows, self._start, self._pairs, self._sign, self._two, self._numbers, weights)
            steps.take(rows, self._start, self._other, x, values)
            steps.multiply(weights, values, held)
            steps.collect(rows, start, source, column, sign, held, y)
        return self.project(y, parity)


def _batches(singles: Host, n_beta: int, n_columns: int, scratch_bytes: int) -> list[tuple[Host, int]]:
    """Alpha strings in batches of rising numbers of singles, and the places that a string of each takes."""
    order = np.argsort(singles, kind="stable")
    batches = []
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order):
            k = int(singles[order[last]]) + 1
            if 8 * (last + 1 - first) * (k * (n_columns + n_beta) + n_columns * n_beta) > scratch_bytes:
                break
            last += 1
        batches.append((order[first:last].astype(np.int64), int(singles[order[last - 1]]) + 1))
        first = last
    return batches


def _entries(hamiltonian: ProductHamiltonian) -> tuple[Host, Host, Host, Host]:
    """What beta string j collects: start[j], and for every entry its source string, column and sign.

    The number operators of its filled orbitals come first, then its singles.
    """
    beta, n = hamiltonian.beta, hamiltonian.integrals.n_orbitals
    string, orbital = np.nonzero(beta.strings.occupied)
    own = np.repeat(np.arange(len(beta.strings)), np.diff(beta.singles.start))
    rows = np.concatenate([string, own])
    source = np.concatenate([string, beta.singles.other])
    column = np.concatenate([orbital, n + beta.matching.active[beta.singles.pairs]])
    sign = np.concatenate([np.ones(len(string), np.int8), beta.singles.sign])
    order = np.argsort(rows, kind="stable")
    start = np.searchsorted(rows[order], np.arange(len(beta.strings) + 1))
    return start.astype(np.int64), source[order].astype(np.int32), column[order].astype(np.int32), sign[order]
