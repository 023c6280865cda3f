"""The Hamiltonian over all products of alpha and beta half-strings: its tables, and its product on a CPU.

A state is a matrix x[alpha string, beta string]. With E_pq restricted to the selected strings the mixed-spin
part is exact, since the space is a product:

    y = H_aa x + x H_bb + sum over p, q, r, s of (pq|rs) E^a_pq x (E^b_rs)^T

For each alpha string the singles Ja give held[rs, Jb] = sum over Ja of +-(pq|rs) x[Ja, Jb] as a matrix
product, which is scattered over the singles of beta. For pairs rs with few singles these are visited
directly. With equal sets of strings and x equal to +-its transpose, the terms of pairs pq that come before rs
are formed, and those that come after follow as the transpose. Pairs stand in rising order of their singles,
so that most alpha singles meet few pairs rs.

Knows strings, integrals and arrays; nothing of solvers and files.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.device.host import cores
from executor.sbd import cost
from executor.sbd.excitations import Matching, Singles, find_singles, match_pairs
from executor.sbd.integrals import Integrals
from executor.sbd.same_spin import SpinMatrix, own_energies, same_spin
from executor.sbd.shares import share_rows
from executor.sbd.strings import StringSet
from executor.sbd.work import over_rows
from planner.errors import InputError

Array = NDArray[Any]

EVEN, ODD, NEITHER = 1, -1, 0
"""How a state behaves under exchange of its strings: x^T = x, x^T = -x, or neither."""
TRANSPOSED_AT_ONCE = 128


@dataclass(frozen=True)
class Spin:
    """What one spin contributes: its strings, their excitations, and the Hamiltonian within the spin.

    `energies` is the diagonal of that Hamiltonian, `matrix` has the rows that are held here.
    """

    strings: StringSet
    filled: Array
    singles: Singles
    matching: Matching
    energies: Array
    matrix: SpinMatrix


@dataclass(frozen=True)
class SourceBlock:
    """What rows first .. last-1 of a state contribute from: excitations from these alpha strings, and their
    columns of the alpha matrix, both numbered from 0."""

    first: int
    last: int
    singles: Singles
    matrix: SpinMatrix

    def place(self, i: int) -> int | None:
        """The row of the block that alpha string i has, if any."""
        return i - self.first if self.first <= i < self.last else None


class ProductHamiltonian:
    """H, without the core energy, over alpha x beta strings.

    `apply` gives the same bits whenever it is called with the same number of threads. A Hamiltonian that
    holds a range of rows alone makes only these, by `add_rows`.
    """

    dtype = "float64"

    def __init__(
        self, integrals: Integrals, alpha: StringSet, beta: StringSet | None = None, *,
        threads: int | None = None, dense: bool | None = None, gather: bool | None = None,
        room_bytes: float = np.inf, rank: int = 0, size: int = 1, rates: cost.Rates = cost.CPU,
    ) -> None:  # fmt: skip
        """`dense` and `gather` force the way of the same-spin and of the mixed part (None: the faster ones).

        `room_bytes` is the memory that same-spin matrices may take. Beta strings default to those of alpha.
        Of `size` ranks, this one is `rank` and makes the rows that `shares` gives it.
        """
        for name, strings in (("alpha", alpha), ("beta", beta)):
            if strings is not None and strings.n_orbitals != integrals.n_orbitals:
                raise InputError(
                    f"{name} strings", f"have {strings.n_orbitals} orbitals, not {integrals.n_orbitals}",
                    "give strings of the integrals' orbitals",
                )  # fmt: skip
        self.threads = threads or cores()
        self.integrals = integrals
        self.symmetric = beta is None or beta.same_as(alpha)
        other = alpha if self.symmetric or beta is None else beta
        singles = find_singles(alpha, self.threads)
        others = singles if self.symmetric else find_singles(other, self.threads)
        self.shares = share_rows(row_costs(singles, others, other, self.symmetric, rates), size)
        self.rows = self.shares.rows(rank)
        share = room_bytes if self.symmetric else room_bytes / 2

        def spin(strings: StringSet, found: Singles, rows: tuple[int, int]) -> Spin:
            chosen = dense
            if chosen is None:
                chosen = cost.dense_is_faster(len(strings), int(found.linked.sum()), rates)
                chosen = chosen and cost.dense_bytes(rows[1] - rows[0], len(strings)) <= share
            matrix = same_spin(strings, integrals, found.linked, chosen, self.threads, rows)
            filled, energies = strings.occupied.astype(np.float64), own_energies(strings, integrals)
            return Spin(strings, filled, found, match_pairs(found), energies, matrix)

        self.alpha = spin(alpha, singles, self.rows)
        self.beta = self.alpha if self.symmetric else spin(other, others, (0, len(other)))
        self.shape: tuple[int, int] = (len(self.alpha.strings), len(self.beta.strings))
        self.parities: tuple[int, ...] = (EVEN, ODD) if self.symmetric and len(alpha) > 1 else (NEITHER,)
        n, pairs = integrals.n_orbitals, self.beta.matching.pairs
        self.two = np.ascontiguousarray(integrals.two[:, np.concatenate([np.arange(n), pairs])])
        self.gathered = self._gathered() if gather is None else len(pairs) * gather
        order = self.beta.singles.rank
        above = (order[pairs][None, :] > order[:, None]).astype(np.float64)
        above[pairs, np.arange(len(pairs))] = 0.5
        self.two_above = integrals.two[:, pairs] * above
        self._whole = self.block(0, self.shape[0])

    def as_type(self, dtype: str) -> ProductHamiltonian:
        """The same with products in "float32" or "float64"."""
        other = copy.copy(self)
        other.dtype = dtype
        matrix = self.alpha.matrix.as_type(dtype)
        other.alpha = replace(self.alpha, filled=self.alpha.filled.astype(dtype), matrix=matrix)
        other.beta = other.alpha
        if not self.symmetric:
            matrix = self.beta.matrix.as_type(dtype)
            other.beta = replace(self.beta, filled=self.beta.filled.astype(dtype), matrix=matrix)
        other.two, other.two_above = self.two.astype(dtype), self.two_above.astype(dtype)
        other._whole = other.block(0, self.shape[0])
        return other

    def block(self, first: int, last: int) -> SourceBlock:
        """What rows first .. last-1 of a state contribute from."""
        if (first, last) == (0, self.shape[0]):
            return SourceBlock(first, last, self.alpha.singles, self.alpha.matrix)
        singles = self.alpha.singles.within(first, last)
        return SourceBlock(first, last, singles, self.alpha.matrix.columns(first, last))

    def _gathered(self) -> int:
        """So many active pairs, which have the fewest excitations, are faster without a matrix product."""
        start = self.beta.matching.start[::2]
        singles = len(self.alpha.singles.other) / self.shape[0]
        return sum(cost.gather_is_faster(self.shape[1], singles, int(count)) for count in np.diff(start))

    @property
    def pairs_contributing(self) -> int:
        """Pairs of determinants whose element is not zero by the rules of Slater and Condon."""
        alpha, beta = self.alpha.singles, self.beta.singles
        singles = len(alpha.other) * len(beta.other)
        rows, columns = self.shape
        return int(alpha.linked.sum()) * columns + int(beta.linked.sum()) * rows + singles - rows * columns

    def diagonal(self) -> Array:
        """The diagonal of H over the rows held here."""
        alpha, beta, n = self.alpha, self.beta, self.integrals.n_orbitals
        held = slice(*self.rows)
        filled, numbers = alpha.filled[held], self.integrals.two[:n, :n]
        mixed = (filled @ numbers) @ beta.filled.T
        if self.symmetric:
            mixed = (mixed + ((beta.filled @ numbers) @ filled.T).T) / 2
        mixed += alpha.energies[held, None] + beta.energies[None, :]
        return np.asarray(mixed, self.dtype)

    def empty(self, *shape: int) -> Array:
        """An array of its precision, not set."""
        return np.empty(shape, self.dtype)

    def put(self, array: Array) -> Array:
        """The array in its precision."""
        return np.ascontiguousarray(array, self.dtype)

    def get(self, array: Array) -> Array:
        """The array itself: it is on the host."""
        return array

    def parity_of(self, x: Array) -> int:
        """EVEN or ODD where the sets are equal and x equals plus or minus its transpose to the last bit."""
        if not self.symmetric:
            return NEITHER
        if np.array_equal(x, x.T):
            return EVEN
        return ODD if np.array_equal(x, -x.T) else NEITHER

    def project(self, x: Array, parity: int) -> Array:
        """The part of x that has a parity."""
        return x if parity == NEITHER else (x + parity * x.T) / 2

    def total(self, values: Array) -> Array:
        """Sums over all elements of a state: those given, since all elements are here."""
        return values

    def same(self, values: Array) -> Array:
        """The values, since there is one rank."""
        return values

    def apply(self, x: Array, parity: int | None = None, out: Array | None = None) -> Array:
        """H x, a new array or `out`. `parity` is that of x (None: looked up)."""
        x = np.ascontiguousarray(x, self.dtype)
        if x.shape != self.shape:
            raise ValueError(f"a state of shape {x.shape} where {self.shape} is expected")
        parity = self.parity_of(x) if parity is None else parity
        y = np.empty_like(x) if out is None else out
        y[:] = 0.0
        self.add_rows(self._whole, x, x, y, parity != NEITHER)
        if parity != NEITHER:
            _add_transpose(y, parity, self.threads)
        return y

    def add_rows(self, block: SourceBlock, x: Array, own: Array, y: Array, half: bool) -> None:
        """Add to y, the rows held here, what the rows x of a block contribute.

        `own` are the rows held here of the state; where they lie in the block, the beta matrix acts on them.
        With `half`, what the transpose of all rows gives is left out.
        """
        inside = block.place(self.rows[0]) is not None

        def rows(first: int, last: int) -> None:
            block.matrix.add_product(first, last, x, y)
            if inside and not half:
                self.beta.matrix.add_transposed(first, last, own, y)
            self._mixed_rows(block, first, last, x, y, half)

        over_rows(len(y), self.threads, rows)

    def _mixed_rows(self, block: SourceBlock, first: int, last: int, x: Array, y: Array, half: bool) -> None:
        """Add the mixed-spin part to rows first .. last-1; with `half`, what the transpose does not give."""
        from executor.sbd import sigma_kernel

        n, match = self.integrals.n_orbitals, self.beta.matching
        n_beta, n_pairs = self.shape[1], len(match.pairs)
        tables = match.start, match.upper, match.lower
        at_once = cost.held_rows(n_beta, n_pairs) if n_pairs else 1
        values = np.empty((block.singles.most + 1, n_beta), self.dtype)
        held = np.empty((max(at_once, n), n_beta), self.dtype)
        for row in range(first, last):
            i = row + self.rows[0]
            span = slice(int(block.singles.start[i]), int(block.singles.start[i + 1]))
            own = block.singles.pairs[span]
            count = len(own) + 1
            place = block.place(i)
            values[0] = 0.0 if place is None else x[place]
            np.take(x, block.singles.other[span], axis=0, out=values[1:count], mode="clip")
            numbers, weights = self._weights(i, block.singles.sign[span], own, half)
            if half:
                y[row] += (self.beta.filled @ numbers[0]) * (0.5 * values[0])
            else:
                np.matmul(numbers.T, values[:count], out=held[:n])
                y[row] += np.einsum("rb,br->b", held[:n], self.beta.filled)
            if not n_pairs:
                continue
            begin = np.zeros(count, np.int64)
            if half:
                begin[1:] = match.active[own]
            if self.gathered:
                sigma_kernel.gather_pairs(weights, begin, self.gathered, values[:count], *tables, y[row])
            for at in range(self.gathered, n_pairs, at_once):
                stop = min(n_pairs, at + at_once)
                used = int(np.searchsorted(begin, stop)) if half else count
                part = held[: stop - at]
                np.matmul(weights[:used, at:stop].T, values[:used], out=part)
                sigma_kernel.scatter_pairs(part, at, *tables, y[row])

    def _weights(self, i: int, signs: Array, own: Array, half: bool) -> tuple[Array, Array]:
        """Coefficients of x[i] (row 0) and of its singles, by number operator and by active pair of beta."""
        n = self.integrals.n_orbitals
        sign = signs[:, None].astype(self.dtype)
        filled = np.flatnonzero(self.alpha.strings.occupied[i])
        numbers = self.two[filled].sum(0)[None, :]
        if half:
            return numbers[:, :n], np.concatenate([numbers[:, n:], sign * self.two_above[own]])
        whole = np.concatenate([numbers, sign * self.two[own]])
        return whole[:, :n], np.ascontiguousarray(whole[:, n:])


def row_costs(alpha: Singles, beta: Singles, strings: StringSet, symmetric: bool, rates: cost.Rates) -> Array:
    """The work of every alpha row for one beta string; with equal sets, that of states with a parity."""
    active = np.unique(beta.pairs)
    columns = strings.n_orbitals + len(active)
    singles = np.diff(alpha.start)
    products = columns * (singles + 1)
    if symmetric:
        after = len(active) - np.searchsorted(np.sort(alpha.rank[active]), alpha.rank[alpha.pairs])
        products = columns + np.diff(np.concatenate([[0], np.cumsum(after)])[alpha.start])
    entries = strings.n_electrons + len(beta.other) / len(strings)
    made = cost.row_seconds(alpha.linked, singles, products, len(singles), columns, entries, rates)
    return np.asarray(made)


def _add_transpose(y: Array, parity: int, threads: int) -> None:
    """y += parity y^T, in place, tile by tile; no two rows of tiles touch the same elements."""
    step = TRANSPOSED_AT_ONCE

    def tiles(first: int, last: int) -> None:
        for i in range(first * step, min(len(y), last * step), step):
            rows = slice(i, i + step)
            for j in range(0, i + 1, step):
                columns = slice(j, j + step)
                below, above = y[rows, columns].copy(), y[columns, rows].copy()
                y[rows, columns] = below + parity * above.T
                y[columns, rows] = above + parity * below.T

    over_rows(-(-len(y) // step), threads, tiles)
