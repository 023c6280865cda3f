"""A list of distinct bit strings that rises as numbers do, and where each of them is found.

Strings are looked up in a hash table of open addressing. A sieve of bits tells at once of most strings that
they are not in the list: it is 16 times smaller than the table and stays in the caches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.basis.strings import from_occupied

ROOM = 2
"""Places of the hash table for a string, at least."""
SIEVE = 8
"""Bits of the sieve for a place of the table."""


class StringTable(NamedTuple):
    """Strings and their hash table.

    `words` are uint64 [string, W], qubit q at bit q % 64 of word q // 64. `places` int32 has the number of a
    string at its hash or one of the places after it, -1 where there is none. `sieve` is uint64.
    """

    words: Array
    places: Array
    sieve: Array

    @property
    def size_bytes(self) -> int:
        """The memory of the table."""
        return sum(part.nbytes for part in self)


def string_table(words: Array) -> StringTable:
    """The table of strings that are distinct and in their order, uint64 [string, W]."""
    from tnplan.executor.sbd.qubits import qubit_kernel

    size = 1 << int(ROOM * max(len(words), 32) - 1).bit_length()
    table = StringTable(
        np.ascontiguousarray(words), np.full(size, -1, np.int32), np.zeros(size * SIEVE // 64, np.uint64)
    )
    qubit_kernel.fill_table(table)
    return table


def words_of(bits: Array) -> Array:
    """Bits [string, qubit] as words, uint64 [string, W]."""
    return from_occupied(bits).words
