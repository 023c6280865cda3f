"""What a list couples to, shard by shard: each shard is a hash table of one thread, or of a GPU.

Determinants outside the list are split into shards by their hashes. Threads and ranks take whole shards, so
that no sum is shared. Shards are made smaller until the tables at work fit the memory.

Work for N determinants of c couplings above the threshold: N c entries visited for every shard, about ten
operations each, and N c insertions in all, which are random accesses to memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.executor.sbd.selected_ci.excitation_tables import ExcitationTables

if TYPE_CHECKING:
    from tnplan.executor.sbd.selected_ci.connections_kernel import HashTable

SHARDS_A_THREAD = 4
"""Shards of a thread at least, so that none waits long for the last one, where there are several threads."""
MOST_BITS = 24
"""Of a shard's number."""
SHORTEST = 5000
"""Members of a list that a GPU takes, at least."""
MOST_ELECTRONS = 64
"""Electrons of one spin that a GPU does not take: words of ones alone stand for free slots there."""
BESIDE = 1.5
"""Memory of a table that grows, in that of the larger one: the smaller one stands beside it."""
Reduce = Callable[["HashTable", int], Any]
"""A function of a shard's table and its number of determinants."""


class Couplings(Protocol):
    """What a list couples to, on a GPU. Shards are given as `number, bits`, for one of 2^bits.

    None where a shard is too large for the GPU's memory. Weights and limits are as in `Visit`.
    """

    def largest(self, weights: Array, limits: Array, shard: tuple[int, int]) -> tuple[Array, Array] | None:
        """Keys outside the list, and the largest |H_ai weights[i]| of each."""

    def correction(
        self, sources: Array, weights: Array, limits: Array, mode: int, energy: float, shard: tuple[int, int]
    ) -> tuple[float, int] | None:
        """A shard's part of `OutsideSum.of`, and how many determinants it is of."""

    def in_order(self, keys: Array, sizes: Array) -> tuple[Array, Array]:
        """Keys sorted, the last word counting most, and the sizes beside them."""


@dataclass(frozen=True)
class Workers:
    """The ranks of a job, the threads of each, and the bytes that each may take, the same on all.

    `on_gpu` puts the keys of a list and tables on this rank's GPU; None where CPUs select.
    """

    ranks: Communicator
    threads: int
    memory_bytes: float
    on_gpu: Callable[[Array, ExcitationTables], Couplings] | None = None

    def couplings(self, members: Array, tables: ExcitationTables) -> Couplings | None:
        """Those of a list on the GPU; None where CPUs are as fast, or the GPU cannot take them."""
        n_words = members.shape[1] // 2
        is_short = len(members) < SHORTEST
        filled = 0 if is_short else np.bitwise_count(members[0]).reshape(2, n_words).sum(1).max()
        if self.on_gpu is None or is_short or filled >= MOST_ELECTRONS:
            return None
        return self.on_gpu(members, tables)

    def beside(self, reserved_bytes: int) -> Workers:
        """The same with so many bytes less; InputError where that is all."""
        if reserved_bytes >= self.memory_bytes:
            raise InputError(
                "memory",
                f"is {size_text(self.memory_bytes)}, but the search for determinants outside the list needs "
                f"{size_text(reserved_bytes)}",
                "give more memory or a larger epsilon",
                topic="memory",
            )  # fmt: skip
        return replace(self, memory_bytes=self.memory_bytes - reserved_bytes)


class Visit(NamedTuple):
    """Which couplings are visited: |H_ai| > limits[i] for members i, by their keys.

    `mode` says what a table holds of them and `weights` (`connections_kernel`). `half` is 1 where one of a
    determinant and its spin flip stands for both. Kernels take it as it is.
    """

    members: Array
    weights: Array
    mode: int
    limits: Array
    tables: ExcitationTables
    half: int = 0

    @property
    def slot_bytes(self) -> int:
        """What a slot of a table takes, and its number where determinants are chosen."""
        return 8 * self.members.shape[1] + self._dtype.itemsize + 8

    @property
    def first_slots(self) -> int:
        """Slots of a table at first: couplings of one pair of orbitals have to fit."""
        from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

        return power_of_two(2 * self.tables.words.shape[1] ** 2 / kernel.FULLEST)

    @property
    def _dtype(self) -> Any:
        return np.result_type(self.weights, self.tables.opposite.value)

    def _empty(self, slots: int) -> HashTable:
        """A table that holds nothing."""
        from tnplan.executor.sbd.selected_ci.connections_kernel import HashTable

        keys = np.zeros((slots, self.members.shape[1]), np.uint64)
        return HashTable(keys, np.zeros(slots, self._dtype), self.tables.words, self.half)

    def shard(self, number: int, bits: int, max_slots: int) -> tuple[HashTable, int] | None:
        """The table of one of 2^bits shards, and how many determinants it has; None beyond `max_slots`."""
        from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

        table = self._empty(self.first_slots)
        cursor, count = np.zeros(2, np.int64), 0
        source = kernel.empty_source(self.tables.words.shape[1], self.members.shape[1])
        while True:
            count = int(kernel.collect((number, bits), self, table, count, cursor, source))
            if cursor[0] == len(self.members):
                return table, count
            if 2 * len(table.keys) > max_slots:
                return None
            larger = self._empty(2 * len(table.keys))
            kernel.move_all(table, larger)
            table = larger


def by_shards(
    visit: Visit, workers: Workers, reduce: Reduce, size: Callable[[Any], int] = lambda result: 0
) -> list[Any]:
    """The results of `reduce` for every shard, in the order of shards, on every rank; collective.

    `size` tells the bytes of a result. The memory of `workers` is that of tables; all results may take as
    much besides, and InputError says where they need more.
    """
    max_slots = int(workers.memory_bytes / (BESIDE * visit.slot_bytes * workers.threads))
    if visit.first_slots > max_slots:
        raise InputError(
            "memory", f"has {size_text(workers.memory_bytes)} for tables of determinants outside the list",
            "give more memory or fewer threads",
            topic="memory",
        )  # fmt: skip
    n_threads = workers.threads * workers.ranks.size
    first_bits = power_of_two(SHARDS_A_THREAD * n_threads if n_threads > 1 else 1).bit_length() - 1

    def made(number: int, bits: int) -> Any:
        table = visit.shard(number, bits, max_slots)
        return None if table is None else reduce(*table)

    return all_shards(made, workers, first_bits, size)


def all_shards(
    made: Callable[[int, int], Any], workers: Workers, first_bits: int,
    size: Callable[[Any], int] = lambda result: 0,
) -> list[Any]:  # fmt: skip
    """The same of what is made of every shard `number, bits`, which is None where the shard is too large."""
    ranks = workers.ranks
    for bits in range(first_bits, MOST_BITS):
        bounded = _Bounded(made, size, workers.memory_bytes / ranks.size)
        own_shards = agree(ranks, partial(_of_rank, bounded, bits, workers))
        gathered = ranks.gather_objects(own_shards)
        if all(shards is not None for shards in gathered):
            by_number = {number: result for shards in gathered for number, result in shards.items()}
            return [by_number[number] for number in range(1 << bits)]
    raise InputError(
        "memory", "is too small for the determinants outside the list", "give more memory", topic="memory",
    )  # fmt: skip


def on_gpus(
    made: Callable[[tuple[int, int]], Any], workers: Workers, size: Any = lambda result: 0
) -> list[Any]:
    """The same where each rank makes shards on its GPU, one after another."""
    first_bits = (workers.ranks.size - 1).bit_length()
    return all_shards(
        lambda number, bits: made((number, bits)), replace(workers, threads=1), first_bits, size
    )


class _Bounded:
    """Makes the shards of one rank, and counts the memory that is left for the results."""

    def __init__(self, made: Callable[[int, int], Any], size: Callable[[Any], int], max_bytes: float) -> None:
        self._made, self._size, self._lock = made, size, Lock()
        self._free_bytes = self._max_bytes = max_bytes

    def __call__(self, number: int, bits: int) -> Any:
        """The result for a shard, by any thread; InputError where the memory is full."""
        result = self._made(number, bits)
        if result is None:
            return None
        with self._lock:
            self._free_bytes -= self._size(result)
            if self._free_bytes < 0:
                raise InputError(
                    "memory", f"has {size_text(self._max_bytes)} for determinants that a rank selects",
                    "give more memory or a larger epsilon",
                    topic="memory",
                )  # fmt: skip
        return result


class _LargeShardError(Exception):
    """A shard is too large for the memory: no other one is begun."""


def _of_rank(made: _Bounded, bits: int, workers: Workers) -> dict[int, Any] | None:
    """The results of this rank's shards by number; None where a shard is too large."""
    numbers = range(workers.ranks.rank, 1 << bits, workers.ranks.size)
    results: dict[int, Any] = {}

    def work(first: int, last: int) -> None:
        for number in numbers[first:last]:
            result = made(number, bits)
            if result is None:
                raise _LargeShardError
            results[number] = result

    try:
        over_rows(len(numbers), workers.threads, work, 1)
    except _LargeShardError:
        return None
    return results


def table_of_members(members: Array, tables: ExcitationTables) -> Array:
    """The keys of a table of all members."""
    from tnplan.executor.sbd.selected_ci import connections_kernel as kernel

    keys = np.zeros((power_of_two(len(members) / kernel.FULLEST), members.shape[1]), np.uint64)
    kernel.fill_table(members, tables.words, keys)
    return keys


def power_of_two(count: float) -> int:
    """The smallest power of two that is at least `count`, and 2."""
    return 1 << max(1, int(np.ceil(np.log2(max(count, 2)))))
