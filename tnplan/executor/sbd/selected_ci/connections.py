"""What a list of determinants couples to: determinants to select, and the energy that the others add.

Knows keys of determinants, tables of excitations and shards; nothing of solves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import DeterminantList, from_words
from tnplan.executor.sbd.selected_ci.excitation_tables import ExcitationTables
from tnplan.executor.sbd.selected_ci.shards import (
    Couplings,
    Visit,
    Workers,
    by_shards,
    on_gpus,
    table_of_members,
)

if TYPE_CHECKING:
    from tnplan.executor.sbd.selected_ci.connections_kernel import HashTable

AT_ONCE = 1 << 14
"""Candidates whose symmetry is found together: their bits take much more memory than their keys."""
ASYMMETRY = 1e-5
"""The norm of what a state has of the other parity, at most; the correction is off by its square."""
COPIES = 3
"""Of all candidates that are there at once: as shards have them, together, and in order."""


@dataclass(frozen=True)
class Candidates:
    """Determinants outside of a list: keys [determinant, word], alpha's words before beta's, rising.

    `sizes` are the largest |H_ai c_i| of each.
    """

    keys: Array
    sizes: Array

    def __len__(self) -> int:
        return len(self.keys)

    def of_irrep(self, irrep: int, labels: Sequence[int]) -> Candidates:
        """Those of an irreducible representation, from 1; `labels` are those of orbitals."""
        numbers, fits = np.array(labels, np.int16) - 1, np.empty(len(self), bool)
        for first in range(0, len(self), AT_ONCE):
            rows = slice(first, first + AT_ONCE)
            labels_of = np.where(unpacked_keys(self.keys[rows], len(labels)), numbers, 0)
            fits[rows] = np.bitwise_xor.reduce(labels_of, axis=(1, 2)) == irrep - 1
        return Candidates(self.keys[fits], self.sizes[fits])

    def largest(self, count: int) -> Candidates:
        """The `count` of largest sizes; of equal ones those whose keys come first."""
        chosen = np.sort(np.argsort(-self.sizes, kind="stable")[:count])
        return Candidates(self.keys[chosen], self.sizes[chosen])


@dataclass(frozen=True)
class Correction:
    """A second-order correction in Hartree, and of how many determinants outside the list it is.

    `error` is one standard error of the part that was sampled, in Hartree.
    """

    energy: float
    determinants: int
    error: float = 0.0


def member_keys(basis: DeterminantList) -> Array:
    """The keys of a list: uint64 [determinant, word]."""
    words = basis.alpha_strings.words[basis.alpha], basis.beta_strings.words[basis.beta]
    return np.ascontiguousarray(np.concatenate(words, 1))


def unpacked_keys(keys: Array, n_orbitals: int) -> Array:
    """What determinants fill: bool [determinant, spin, orbital]."""
    bits = np.unpackbits(np.ascontiguousarray(keys, "<u8").view(np.uint8), axis=1, bitorder="little")
    return bits.reshape(len(keys), 2, 32 * keys.shape[1])[:, :, :n_orbitals].astype(bool)


def from_keys(keys: Array, n_orbitals: int) -> DeterminantList:
    """The list of distinct determinants; `given` are their numbers in `keys`."""
    alpha, beta = np.split(keys, 2, axis=1)
    return from_words(alpha, beta, n_orbitals)


def with_keys(basis: DeterminantList, keys: Array) -> DeterminantList:
    """The list with more determinants; `given` numbers those of the list first."""
    return from_keys(np.concatenate([member_keys(basis), keys]), basis.alpha_strings.n_orbitals)


def select(
    basis: DeterminantList, weights: Array, epsilon: float, tables: ExcitationTables, workers: Workers
) -> Candidates:
    """All determinants a outside the list with |H_ai weights[i]| > epsilon for some i in it; collective.

    Equation 4 of Holmes, Tubman and Umrigar (2016). `weights` are real, largest over the states. InputError
    where the memory cannot hold them.
    """
    from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

    # A determinant a is selected if any |H_ai c_i| is above epsilon: no sum over i is taken, which
    # is what makes the search cheap (heat-bath configuration interaction).
    members, limits = member_keys(basis), limits_of(weights, epsilon)
    there = workers.couplings(members, tables)
    halved = replace(workers, memory_bytes=workers.memory_bytes / 2)
    if there is not None:
        shards = on_gpus(partial(there.largest, weights, limits), halved, _size)
        return _in_order(shards, there)
    member_table = table_of_members(members, tables)
    workers = workers.beside(members.nbytes + member_table.nbytes)

    def chosen(table: HashTable, count: int) -> tuple[Array, Array]:
        slots = np.empty(count, np.int64)
        slots = slots[: kernel.outside(table.keys, member_table, tables.words, slots)]
        return table.keys[slots], np.abs(table.values[slots])

    halved = replace(workers, memory_bytes=workers.memory_bytes / 2)
    visit = Visit(members, weights, kernel.LARGEST, limits, tables)
    return _in_order(by_shards(visit, halved, chosen, _size))


def _size(candidates: tuple[Array, Array]) -> int:
    """The memory of candidates of a shard until all are in order."""
    return COPIES * sum(array.nbytes for array in candidates)


def _in_order(shards: list[tuple[Array, Array]], there: Couplings | None = None) -> Candidates:
    """The candidates of all shards, which are emptied; a GPU may sort them."""
    keys, sizes = (np.concatenate([candidates[side] for candidates in shards]) for side in (0, 1))
    shards.clear()
    # Shards are chosen by hash; sorted keys make the list independent of the shards.
    if there is not None and len(keys):
        return Candidates(*there.in_order(keys, sizes))
    order = np.lexsort(keys.T)
    return Candidates(np.ascontiguousarray(keys[order]), sizes[order])


def second_order(
    basis: DeterminantList, state: Array, energy: float, epsilon: float, tables: ExcitationTables,
    workers: Workers,
) -> Correction:  # fmt: skip
    """Epstein and Nesbet's second-order correction of a state of a list, from outside it; collective.

    The sum over a of (sum over i of H_ai c_i)^2 / (E - H_aa), the inner one over terms above epsilon alone
    (equation 9 of Holmes, Tubman and Umrigar, 2016). `energy` is E without the core's.
    """
    members = member_keys(basis)
    outside = OutsideSum(members, energy, tables, workers)
    has_halves = tables.alpha is tables.beta and not outside.is_on_gpu
    even_or_odd = _with_parity(basis, state) if has_halves else None
    if even_or_odd is not None:
        state = even_or_odd
    return outside.of(members, state, limits_of(state, epsilon), half=even_or_odd is not None)


def _with_parity(basis: DeterminantList, state: Array) -> Array | None:
    """What of a state is even or odd under spin flips; None where more than ASYMMETRY is neither."""
    if not basis.alpha_strings.same_as(basis.beta_strings):
        return None
    alpha, beta = basis.alpha, basis.beta
    flips = np.argsort(beta * len(basis.beta_strings) + alpha)
    if not (np.array_equal(beta[flips], alpha) and np.array_equal(alpha[flips], beta)):
        return None
    for parity in (1, -1):
        part = (state + parity * state[flips]) / 2
        if np.linalg.norm(state - part) <= ASYMMETRY:
            return part
    return None


def limits_of(weights: Array, epsilon: float) -> Array:
    """|H_ai weights[i]| > epsilon as |H_ai| > limits[i]; infinite for weights of 0."""
    sizes = np.abs(weights)
    return np.divide(float(epsilon), sizes, out=np.full(len(sizes), np.inf), where=sizes > 0)


class OutsideSum:
    """Sums over determinants outside a list, over E - H_aa; collective.

    Parameters
    ----------
    members
        The keys of the list.
    energy
        E without the core's, in Hartree.
    """

    def __init__(self, members: Array, energy: float, tables: ExcitationTables, workers: Workers) -> None:
        self._energy, self._tables = float(energy), tables
        self._workers, self._there = workers, workers.couplings(members, tables)
        if self._there is None:
            self._inside = table_of_members(members, tables)
            self._workers = workers.beside(members.nbytes + self._inside.nbytes)

    @property
    def is_on_gpu(self) -> bool:
        """Whether a GPU sums."""
        return self._there is not None

    def of(
        self, sources: Array, weights: Array, limits: Array, of_squares: bool = False, half: bool = False
    ) -> Correction:
        """The sum over a of |sum over i of H_ai weights[i]|^2 / (E - H_aa), of elements above limits[i].

        Of squares: the sum over a and i of |H_ai|^2 weights[i] / (E - H_aa). `sources` are keys of members i.
        `half`: each a and its spin flip have equal terms, so that one of both is enough.
        """
        from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

        tables, n_words = self._tables, sources.shape[1]
        mode = kernel.SQUARES if of_squares else kernel.SUM

        def summed(table: HashTable, count: int) -> tuple[float, int]:
            scratch = kernel.empty_source(tables.words.shape[1], n_words)
            total, outside = kernel.correction(
                table, mode, self._inside, self._energy, tables, scratch
            )  # fmt: skip
            return float(total), int(outside)

        # All terms of one determinant a are in one shard, as shards divide determinants by their hash:
        # the square of the sum can be taken there. fsum adds the sums of shards with one rounding.
        if self._there is None:
            visit = Visit(sources, weights, mode, limits, tables, int(half))
            shards = by_shards(visit, self._workers, summed)
        else:
            there = partial(self._there.correction, sources, weights, limits, mode, self._energy)
            shards = on_gpus(there, self._workers)
        total = fsum(shard[0] for shard in shards)
        if not np.isfinite(total):
            raise InputError(
                "second-order correction",
                "is not finite: a determinant outside the list has the state's energy",
                "select more determinants, with a smaller epsilon",
            )  # fmt: skip
        return Correction(total, sum(shard[1] for shard in shards))
