"""The Hamiltonian over all products of alpha and beta half-strings, applied to a state on a CPU.

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

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.sbd import cost
from executor.sbd.excitations import Matching, Singles, find_singles, match_pairs
from executor.sbd.integrals import Integrals
from executor.sbd.same_spin import SpinMatrix, same_spin
from executor.sbd.strings import StringSet
from executor.sbd.work import cores, over_rows
from planner.errors import InputError

Array = NDArray[Any]

EVEN, ODD, NEITHER = 1, -1, 0
"""How a state behaves under exchange of its strings: x^T = x, x^T = -x, or neither."""
TRANSPOSED_AT_ONCE = 256


@dataclass(frozen=True)
class Spin:
    """What one spin contributes: its strings, their excitations, and the Hamiltonian within the spin."""

    strings: StringSet
    filled: Array
    singles: Singles
    matching: Matching
    matrix: SpinMatrix


def prepare_spin(
    strings: StringSet, integrals: Integrals, threads: int, dense: bool | None, room_bytes: float
) -> Spin:
    """Tables of one spin. `dense` is the form of its matrix (None: the faster that `room_bytes` holds)."""
    singles = find_singles(strings, threads)
    n, n_linked = len(strings), int(singles.linked.sum())
    if dense is None:
        dense = cost.dense_is_faster(n, n_linked) and cost.dense_bytes(n) <= room_bytes
    matrix = same_spin(strings, integrals, singles.linked, dense, threads)
    filled = strings.occupied.astype(np.float64)
    return Spin(strings, filled, singles, match_pairs(singles), matrix)


class ProductHamiltonian:
    """H, without the core energy, over alpha x beta strings.

    `apply` gives the same bits whenever it is called with the same number of threads.
    """

    def __init__(
        self, integrals: Integrals, alpha: StringSet, beta: StringSet | None = None, *,
        threads: int | None = None, dense: bool | None = None, gather: bool | None = None,
        room_bytes: float = np.inf,
    ) -> None:  # fmt: skip
        """`dense` and `gather` force the way of the same-spin and of the mixed part (None: the faster ones).

        `room_bytes` is the memory that same-spin matrices may take. Beta strings default to those of alpha.
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
        share = room_bytes if self.symmetric else room_bytes / 2
        self.alpha = prepare_spin(alpha, integrals, self.threads, dense, share)
        self.beta = self.alpha
        if not self.symmetric and beta is not None:
            self.beta = prepare_spin(beta, integrals, self.threads, dense, share)
        self.shape: tuple[int, int] = (len(self.alpha.strings), len(self.beta.strings))
        self.parities: tuple[int, ...] = (EVEN, ODD) if self.symmetric and len(alpha) > 1 else (NEITHER,)
        n, pairs = integrals.n_orbitals, self.beta.matching.pairs
        columns = np.concatenate([np.arange(n), pairs])
        self._two = np.ascontiguousarray(integrals.two[:, columns])
        self.gathered = self._gathered() if gather is None else len(pairs) * gather
        rank = self.beta.singles.rank
        above = (rank[pairs][None, :] > rank[:, None]).astype(np.float64)
        above[pairs, np.arange(len(pairs))] = 0.5
        self._two_above = integrals.two[:, pairs] * above
        self._two_numbers = np.ascontiguousarray(integrals.two[:n, :n])

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
        """The diagonal of H, of the state's shape."""
        alpha, beta = self.alpha, self.beta
        mixed = (alpha.filled @ self._two_numbers) @ beta.filled.T
        mixed += alpha.matrix.diagonal[:, None]
        mixed += beta.matrix.diagonal[None, :]
        return np.asarray((mixed + mixed.T) / 2 if self.symmetric else mixed)

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

    def apply(self, x: Array, parity: int | None = None) -> Array:
        """H x, a new array. `parity` is that of x (None: looked up)."""
        x = np.ascontiguousarray(x, np.float64)
        if x.shape != self.shape:
            raise ValueError(f"a state of shape {x.shape} where {self.shape} is expected")
        parity = self.parity_of(x) if parity is None else parity
        half = parity != NEITHER
        y = np.zeros_like(x)

        def rows(first: int, last: int) -> None:
            self.alpha.matrix.add_product(first, last, x, y)
            if not half:
                self.beta.matrix.add_transposed(first, last, x, y)
            self._mixed_rows(first, last, x, y, half)

        over_rows(self.shape[0], self.threads, rows)
        if half:
            _add_transpose(y, parity)
        return y

    def _mixed_rows(self, first: int, last: int, x: Array, y: Array, half: bool) -> None:
        """Add the mixed-spin part to rows first .. last-1; with `half`, what the transpose does not give."""
        from executor.sbd import sigma_kernel

        n, match = self.integrals.n_orbitals, self.beta.matching
        n_beta, n_pairs = self.shape[1], len(match.pairs)
        tables = match.start, match.upper, match.lower
        at_once = cost.held_rows(n_beta, n_pairs) if n_pairs else 1
        values = np.empty((self.alpha.singles.most + 1, n_beta))
        held = np.empty((max(at_once, n), n_beta))
        for i in range(first, last):
            singles, own = self._singles(i)
            count = len(own) + 1
            values[0] = x[i]
            np.take(x, self.alpha.singles.other[singles], axis=0, out=values[1:count], mode="clip")
            numbers, weights = self._weights(i, singles, own, half)
            if half:
                y[i] += (0.5 * numbers[0] @ self.beta.filled.T) * values[0]
            else:
                np.matmul(numbers.T, values[:count], out=held[:n])
                y[i] += np.einsum("rb,br->b", held[:n], self.beta.filled)
            if not n_pairs:
                continue
            begin = np.zeros(count, np.int64)
            if half:
                begin[1:] = match.active[own]
            if self.gathered:
                sigma_kernel.gather_pairs(weights, begin, self.gathered, values[:count], *tables, y[i])
            for at in range(self.gathered, n_pairs, at_once):
                stop = min(n_pairs, at + at_once)
                used = int(np.searchsorted(begin, stop)) if half else count
                part = held[: stop - at]
                np.matmul(weights[:used, at:stop].T, values[:used], out=part)
                sigma_kernel.scatter_pairs(part, at, *tables, y[i])

    def _singles(self, i: int) -> tuple[slice, Array]:
        """Where the singles of alpha string i stand, and their pairs."""
        start = self.alpha.singles.start
        span = slice(int(start[i]), int(start[i + 1]))
        return span, self.alpha.singles.pairs[span]

    def _weights(self, i: int, singles: slice, own: Array, half: bool) -> tuple[Array, Array]:
        """Coefficients of x[i] (row 0) and of its singles, by number operator and by active pair of beta."""
        n = self.integrals.n_orbitals
        sign = self.alpha.singles.sign[singles][:, None].astype(np.float64)
        filled = np.flatnonzero(self.alpha.strings.occupied[i])
        numbers = self._two[filled].sum(0)[None, :]
        if half:
            return numbers[:, :n], np.concatenate([numbers[:, n:], sign * self._two_above[own]])
        whole = np.concatenate([numbers, sign * self._two[own]])
        return whole[:, :n], np.ascontiguousarray(whole[:, n:])


def _add_transpose(y: Array, parity: int) -> None:
    """y += parity y^T, in place, tile by tile."""
    step = TRANSPOSED_AT_ONCE
    for i in range(0, len(y), step):
        rows = slice(i, i + step)
        for j in range(0, i + 1, step):
            columns = slice(j, j + step)
            below, above = y[rows, columns].copy(), y[columns, rows].copy()
            y[rows, columns] = below + parity * above.T
            y[columns, rows] = above + parity * below.T
