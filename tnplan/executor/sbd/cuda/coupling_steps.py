"""What a list of determinants couples to, on a GPU; couplings.cu says how it is found.

Knows CuPy and launches, keys of determinants and tables of excitations. Everything runs on one stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import cupy
import numpy as np

from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.sbd.selected_ci.excitation_tables import Doubles, ExcitationTables

Array = Any
"""A cupy.ndarray."""
Host = np.ndarray[Any, Any]
P = ParamSpec("P")
Result = TypeVar("Result")

FILE = Path(__file__).parent / "couplings.cu"
THREADS = 256
"""Threads of a block."""
SUM_BLOCKS = 2048
"""Blocks of kernels that go through all slots."""
MEMBERS_AT_ONCE = 1 << 19
"""Members of a launch; between two launches it is seen whether the table is full."""
SUM, LARGEST, SQUARES = 0, 1, 2
"""What a table holds, as in `connections_kernel`."""
FULLEST = 0.6
"""The share of a table's slots that are filled at most."""
FIRST_SLOTS, SLOTS_OF_MEMBER = 1 << 16, 32
"""Slots of a table at first, at least, and for each member."""
LARGER = 4
"""How many times more slots a table gets that was too small."""
USABLE = 0.9
"""The share of the free memory that a table takes."""
WORD_BITS, HALF_BITS = 64, 32
SUM_BITS, LOW_BITS = 61, 31
"""Bits of sums, and of what they leave out (couplings.cu)."""
REACH_ROUNDING = 1e-12
ONES = 255
"""A byte of a free slot's key."""


def coupling_defines(key_words: int, mode: int) -> dict[str, int]:
    """The definitions of couplings.cu for keys of so many words on the GPU."""
    stride = HALF_BITS if key_words == 1 else WORD_BITS * key_words // 2
    return {"WORDS": key_words, "STRIDE": stride, "THREADS": THREADS, "MODE": mode}


def _from_the_gpu(method: Callable[P, Result]) -> Callable[P, Result]:
    """A method whose arrays come from the GPU itself and go back to it at once.

    They are large and of many sizes.
    """

    @wraps(method)
    def work(*given: P.args, **named: P.kwargs) -> Result:
        with cupy.cuda.using_allocator(None):
            return method(*given, **named)

    return work


def _electrons(members: Host) -> tuple[int, int]:
    """Electrons of both spins: all members have as many."""
    alpha, beta = np.split(np.bitwise_count(members[0]), 2)
    return int(alpha.sum()), int(beta.sum())


class GpuCouplings:
    """A list on the GPU and the stream that are current at first. See `shards.Couplings`."""

    @_from_the_gpu
    def __init__(self, members: Host, tables: ExcitationTables, memory_bytes: float) -> None:
        """`memory_bytes` is what all may take on the GPU, besides what is there."""
        self._n, counts = tables.words.shape[1], _electrons(members)
        self._host_words = members.shape[1]
        self._is_packed = self._n <= HALF_BITS and max(counts) < HALF_BITS
        self._words = 1 if self._is_packed else self._host_words
        room_bytes = self.room_bytes(memory_bytes)
        self._kernel = cache(
            lambda entry, mode: load_kernel(FILE, entry, coupling_defines(self._words, mode))
        )
        singles, doubles, row = _flat(tables, counts)
        self._row = row
        self._excitations = *map(self.copy, singles), *map(self.copy, doubles)
        energies = tables.energies
        self._energies = tuple(
            self.copy(np.stack(both)) for both in (energies[:2], energies[2:4], energies[4:])
        )
        self._given, self._members = members, self.copy(self._keys(members))
        self._state = self.new(6, np.int64)
        taken = sum(array.nbytes for array in (*self._excitations, *self._energies, self._members))
        # A table, and the keys and values that are taken out of it.
        slot_bytes = (8 * self._words + 8) * (1 + FULLEST)
        self._room_bytes, self._slot_bytes, self._slots = USABLE * (room_bytes - taken), slot_bytes, 0

    @_from_the_gpu
    def largest(self, weights: Host, limits: Host, shard: tuple[int, int]) -> tuple[Host, Host] | None:
        """Keys outside the list of shard `number` of 2^`bits`, and their largest |H_ai weights[i]|."""
        table = self._collected(self._given, weights, limits, LARGEST, shard)
        if table is None:
            return None
        keys, values = table
        count = int(self.get(self._state)[0])
        chosen, sizes = self.new((count, self._words), np.uint64), self.new(count, np.int64)
        arguments = np.int64(len(keys)), keys, values, self._state, chosen, sizes
        self.launch("extract", LARGEST, _blocks(len(keys)), *arguments)
        count = int(self.get(self._state)[2])
        return self._host_keys(self.get(chosen[:count])), self.get(sizes[:count]).view(np.float64)

    @_from_the_gpu
    def correction(
        self, sources: Host, weights: Host, limits: Host, mode: int, energy: float, shard: tuple[int, int],
    ) -> tuple[float, int] | None:  # fmt: skip
        """The part of `OutsideSum.of` from a shard, and how many determinants it is of."""
        table = self._collected(sources, weights, limits, mode, shard)
        if table is None:
            return None
        keys, values = table
        sizes, scale = np.int64(len(keys)), self._scale(weights, mode)
        blocks = min(SUM_BLOCKS, _blocks(len(keys)))
        self.launch(
            "terms", mode, blocks, np.int32(self._n), sizes, np.float64(scale), np.float64(energy),
            *self._energies, keys, values, self._state,
        )  # fmt: skip
        count, largest = (int(value) for value in self.get(self._state)[2:4])
        most = float(np.int64(largest).view(np.float64))
        # So many terms of at most `most` stay below 2^SUM_BITS.
        unit = 2.0 ** (SUM_BITS - count.bit_length() - np.frexp(most)[1])
        self.launch("add_up", mode, blocks, sizes, np.float64(unit), values, self._state)
        high, low = (int(value) for value in self.get(self._state)[4:6])
        return ((high << LOW_BITS) + low) / 2**LOW_BITS / unit if np.isfinite(most) else most, count

    @_from_the_gpu
    def in_order(self, keys: Host, sizes: Host) -> tuple[Host, Host]:
        """Keys sorted, the last word counting most, and the sizes beside them."""
        packed = self.copy(self._keys(keys))
        order = self.order(packed)
        return self._host_keys(self.get(packed[order])), self.get(self.copy(sizes)[order])

    def order(self, keys: Array) -> Array:
        """What sorts keys on the GPU."""
        return cupy.argsort(keys[:, 0]) if self._is_packed else cupy.lexsort(keys.T)

    def _collected(
        self, sources: Host, weights: Host, limits: Host, mode: int, shard: tuple[int, int]
    ) -> tuple[Array, Array] | None:
        """The table of a shard with its members marked; None where the memory does not hold it."""
        own = sources is self._given
        members = self._members if own else self.copy(self._keys(sources))
        given = members, self.copy(weights), self.copy(limits)
        room_bytes = self._room_bytes - sum(array.nbytes for array in given[own:])
        most_slots = int(room_bytes / self._slot_bytes)
        where, scale = (np.uint64(shard[0]), np.uint64(1 << shard[1])), self._scale(weights, mode)
        self._slots = max(self._slots, FIRST_SLOTS, SLOTS_OF_MEMBER * len(sources))
        while most_slots >= 1:
            slots = np.int64(min(self._slots, most_slots))
            keys, values = self.new((slots, self._words), np.uint64), self.new(slots, np.int64)
            for array, byte in ((keys, ONES), (values, 0), (self._state, 0)):
                self.set_bytes(array, byte)
            table = slots, np.int64(FULLEST * slots), keys, values, self._state
            for first in range(0, len(sources), MEMBERS_AT_ONCE):
                last = min(first + MEMBERS_AT_ONCE, len(sources))
                self.launch(
                    "collect", mode, -(-(last - first) * HALF_BITS // THREADS), np.int32(self._n),
                    np.int64(first), np.int64(last), *given, *self._excitations, np.float64(scale), *where,
                    *table,
                )  # fmt: skip
                if self.get(self._state)[1]:
                    break
            else:
                n_members = len(self._members)
                self.launch(
                    "mark", mode, _blocks(n_members), np.int64(n_members), self._members, *where, slots,
                    *table[2:],
                )  # fmt: skip
                return keys, values
            del keys, values, table
            if slots == most_slots:
                break
            self._slots = int(slots) * LARGER
        return None

    def _scale(self, weights: Host, mode: int) -> float:
        """A power of two; sums times it fit 63 bits."""
        # |sum over i of H_ai w_i| is at most the root of the sum of H_ai^2, times that of w_i^2.
        bound = self._row * (
            self._row * float(np.abs(weights).max()) if mode == SQUARES else float(np.linalg.norm(weights))
        )
        return 1.0 if mode == LARGEST or not bound > 0 else float(2.0 ** (SUM_BITS - np.frexp(bound)[1]))

    def _keys(self, keys: Host) -> Host:
        """Keys as the GPU takes them."""
        return keys[:, :1] | keys[:, 1:] << np.uint64(HALF_BITS) if self._is_packed else keys

    def _host_keys(self, keys: Host) -> Host:
        """Keys as the host has them."""
        if not self._is_packed:
            return keys
        return np.concatenate([keys & np.uint64(2**HALF_BITS - 1), keys >> np.uint64(HALF_BITS)], 1)

    def room_bytes(self, memory_bytes: float) -> float:
        """What is left of so many bytes, and is free, when CuPy's pool has given back what nothing uses."""
        pool = cupy.get_default_memory_pool()
        pool.free_all_blocks()
        return min(memory_bytes - pool.used_bytes(), float(cupy.cuda.runtime.memGetInfo()[0]))

    def copy(self, array: Host) -> Array:
        """A copy on the GPU."""
        return cupy.asarray(np.ascontiguousarray(array))

    def get(self, array: Array) -> Host:
        """A copy on the host."""
        return cupy.asnumpy(array)

    def new(self, shape: Any, dtype: Any) -> Array:
        """An array on the GPU, not set."""
        return cupy.empty(shape, dtype)

    def set_bytes(self, array: Array, byte: int) -> None:
        """Set all bytes of an array."""
        stream = cupy.cuda.get_current_stream()
        cupy.cuda.runtime.memsetAsync(array.data.ptr, byte, array.nbytes, stream.ptr)

    def launch(self, entry: str, mode: int, blocks: int, *arguments: Any) -> None:
        """Run a kernel in so many blocks."""
        self._kernel(entry, mode)((blocks,), (THREADS,), arguments)


def _blocks(count: int) -> int:
    return -(-count // THREADS)


def _flat(
    tables: ExcitationTables, counts: tuple[int, int]
) -> tuple[list[Host], tuple[Host, Host, Host], float]:
    """The arrays of singles and of doubles as couplings.cu has them.

    With a bound of the root of the sum of H_ai^2 over all i.
    """
    spins = tables.alpha, tables.beta
    reach = [
        _reach(spin.one, (spin.same, spin.other), both)
        for spin, both in zip(spins, (counts, counts[::-1]), strict=True)
    ]
    singles = [np.stack([getattr(spin, name) for spin in spins]) for name in ("one", "same", "other")]
    own = (
        (tables.alpha.doubles,)
        if tables.alpha is tables.beta
        else (tables.alpha.doubles, tables.beta.doubles)
    )
    lists: list[Doubles] = [*own, tables.opposite]
    bases = np.cumsum([0, *(len(each.value) for each in lists)])
    starts = [each.start + base for each, base in zip(lists, bases, strict=False)]
    start = np.concatenate([starts[0], starts[len(own) - 1], starts[-1]])
    value, create = (np.concatenate([getattr(each, name) for each in lists]) for name in ("value", "create"))
    pairs = counts[0] * (counts[0] - 1) / 2, counts[1] * (counts[1] - 1) / 2, counts[0] * counts[1]
    squares = sum(
        count * _largest_row(each)
        for count, each in zip(pairs, (own[0], own[-1], tables.opposite), strict=True)
    )
    squares += sum(count * float((r**2).sum(0).max()) for count, r in zip(counts, reach, strict=True))
    return [*singles, np.stack(reach)], (start, create, value), float(np.sqrt(squares))


def _reach(one: Host, added: tuple[Host, Host], counts: tuple[int, int]) -> Host:
    """What no element of a single excitation exceeds, whichever orbitals are filled [p, q]."""
    # As many of the largest terms of one sign as there are electrons; a little more, as sums are rounded.
    ends = []
    for sign in (1, -1):
        most = sign * one
        for terms, count in zip(added, counts, strict=True):
            falling = -np.sort(-np.maximum(sign * terms, 0), axis=2)
            most = most + falling[:, :, :count].sum(2)
        ends.append(most)
    return np.maximum(np.maximum(*ends), 0) * (1 + REACH_ROUNDING)


def _largest_row(doubles: Doubles) -> float:
    """The largest sum of squares of elements from one pair of orbitals."""
    sums = np.concatenate([[0.0], np.cumsum(doubles.value**2)])
    return float((sums[doubles.start[1:]] - sums[doubles.start[:-1]]).max())
