"""What a list of determinants couples to: determinants to select, and the energy that the others add.

Outside determinants are split into parts by their hashes. Threads and ranks take whole parts, each in a hash
table of its own, so that no sum is shared. Parts are made smaller until the tables at work fit the memory.

Work for N determinants of c couplings above the threshold: N c entries visited for every part, about ten
operations each, and N c insertions in all, which are random accesses to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from threading import Event
from typing import Any

import numpy as np

from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.determinants import DeterminantList, from_bits
from tnplan.executor.sbd.selected_ci.excitation_tables import ExcitationTables
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.units import size_text

PARTS_A_THREAD = 4
"""Parts of a thread at least, so that none waits long for the last one."""
MOST_BITS = 24
"""Of a part's number."""


@dataclass(frozen=True)
class Workers:
    """The ranks of a job, the threads of each, and the bytes that each may take."""

    ranks: Communicator
    threads: int
    memory_bytes: float


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
        bits = unpacked_keys(self.keys, len(labels))
        labels_of = np.where(bits, np.array(labels) - 1, 0)
        fits = np.bitwise_xor.reduce(labels_of, axis=(1, 2)) == irrep - 1
        return Candidates(self.keys[fits], self.sizes[fits])

    def largest(self, count: int) -> Candidates:
        """The `count` of largest sizes; of equal ones those whose keys come first."""
        chosen = np.sort(np.argsort(-self.sizes, kind="stable")[:count])
        return Candidates(self.keys[chosen], self.sizes[chosen])


@dataclass(frozen=True)
class Correction:
    """A second-order correction in Hartree, and of how many determinants outside the list it is."""

    energy: float
    determinants: int


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
    bits = unpacked_keys(keys, n_orbitals)
    return from_bits(bits[:, 0], bits[:, 1])


def with_keys(basis: DeterminantList, keys: Array) -> DeterminantList:
    """The list with more determinants; `given` numbers those of the list first."""
    return from_keys(np.concatenate([member_keys(basis), keys]), basis.alpha_strings.n_orbitals)


def select(
    basis: DeterminantList, weights: Array, epsilon: float, tables: ExcitationTables, workers: Workers
) -> Candidates:
    """All determinants a outside the list with |H_ai weights[i]| > epsilon for some i in it; collective.

    Equation 4 of Holmes, Tubman and Umrigar (2016). `weights` are real, largest over the states.
    """
    from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

    members = member_keys(basis)
    known = _known(members, tables)

    def chosen(keys: Array, values: Array, count: int) -> tuple[Array, Array]:
        slots = np.empty(count, np.int64)
        slots = slots[: kernel.outside(keys, known, tables.words, slots)]
        return keys[slots], np.abs(values[slots])

    found = _by_parts(members, weights, kernel.LARGEST, epsilon, tables, workers, chosen)
    keys, sizes = (np.concatenate([part[side] for part in found]) for side in (0, 1))
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
    from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

    members = member_keys(basis)
    known = _known(members, tables)

    def scratch() -> kernel.SourceDeterminant:
        return kernel.empty_source(tables.words.shape[1], members.shape[1])

    def summed(keys: Array, values: Array, count: int) -> tuple[float, int]:
        total, outside = kernel.correction(keys, values, known, float(energy), tables, scratch())
        return float(total), int(outside)

    found = _by_parts(members, state, kernel.SUM, epsilon, tables, workers, summed)
    total = fsum(part[0] for part in found)
    if not np.isfinite(total):
        raise InputError(
            "second-order correction", "is not finite: a determinant outside the list has the state's energy",
            "select more determinants, with a smaller epsilon",
        )  # fmt: skip
    return Correction(total, sum(part[1] for part in found))


def _known(members: Array, tables: ExcitationTables) -> Array:
    """A table of all members."""
    from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

    keys = np.zeros((_slots(len(members) / kernel.FULLEST), members.shape[1]), np.uint64)
    kernel.fill_table(members, tables.words, keys)
    return keys


def _slots(count: float) -> int:
    """A power of two that is at least `count`."""
    return 1 << max(1, int(np.ceil(np.log2(max(count, 2)))))


def _by_parts(
    members: Array, weights: Array, mode: int, epsilon: float, tables: ExcitationTables, workers: Workers,
    reduce: Callable[[Array, Array, int], Any],
) -> list[Any]:  # fmt: skip
    """What `reduce` makes of the table of every part, in the order of parts, on every rank."""
    ranks, n = workers.ranks, tables.words.shape[1]
    dtype = np.result_type(weights, tables.opposite.value)
    slot_bytes = 8 * members.shape[1] + dtype.itemsize
    # A table that grows stands beside the smaller one.
    room = int(workers.memory_bytes / (1.5 * slot_bytes * workers.threads))
    most = 1 << max(room.bit_length() - 1, 0)
    if _first_slots(n) > most:
        raise InputError(
            "memory", f"holds {size_text(workers.memory_bytes)} for tables of determinants outside the list",
            "give more memory or fewer threads",
        )  # fmt: skip
    for bits in range(_slots(PARTS_A_THREAD * workers.threads * ranks.size).bit_length() - 1, MOST_BITS):
        mine = range(ranks.rank, 1 << bits, ranks.size)
        done: dict[int, Any] = {}
        stop = Event()

        def work(begin: int, end: int) -> None:
            for part in mine[begin:end]:  # noqa: B023
                made = _part(part, bits, mode, epsilon, members, weights, tables, most)  # noqa: B023
                if made is None:
                    stop.set()  # noqa: B023
                if stop.is_set() or made is None:  # noqa: B023
                    return
                done[part] = reduce(*made)  # noqa: B023

        over_rows(len(mine), workers.threads, work, 1)
        gathered = ranks.gather_objects(None if stop.is_set() else done)
        if all(part is not None for part in gathered):
            found = {number: made for part in gathered for number, made in part.items()}
            return [found[number] for number in range(1 << bits)]
    raise InputError("memory", "is too small for the determinants outside the list", "give more memory")


def _part(
    part: int, bits: int, mode: int, epsilon: float, members: Array, weights: Array,
    tables: ExcitationTables, most: int,
) -> tuple[Array, Array, int] | None:  # fmt: skip
    """The table of a part and how many determinants it holds; None where it needs more than `most` slots."""
    from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

    dtype, n = np.result_type(weights, tables.opposite.value), tables.words.shape[1]
    keys, values = _empty_table(_first_slots(n), members.shape[1], dtype)
    cursor, count = np.zeros(2, np.int64), 0
    source = kernel.empty_source(n, members.shape[1])
    while True:
        count = int(kernel.collect(
            part, bits, mode, float(epsilon), members, weights, tables, keys, values, count, cursor, source
        ))  # fmt: skip
        if cursor[0] == len(members):
            return keys, values, count
        if 2 * len(keys) > most:
            return None
        larger = _empty_table(2 * len(keys), members.shape[1], dtype)
        kernel.move_all(keys, values, tables.words, *larger)
        keys, values = larger


def _empty_table(slots: int, n_words: int, dtype: Any) -> tuple[Array, Array]:
    """Keys and values of a table that holds nothing."""
    return np.zeros((slots, n_words), np.uint64), np.zeros(slots, dtype)


def _first_slots(n_orbitals: int) -> int:
    """Slots to begin with: one step of `collect` has to fit."""
    from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

    return _slots(2 * n_orbitals**2 / kernel.FULLEST)
