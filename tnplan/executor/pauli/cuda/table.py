"""Words, coefficients and the table that finds them on a GPU: arrays, and the launches of its kernels.

Knows arrays and events of the log (see table.cuh); never gates, truncations or ranks. Launches do not
wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime
from cupy_backends.cuda.api import driver

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import compile_ahead, load_kernel
from tnplan.executor.pauli.cuda.layout import (
    EVENT,
    ROTATION_FIELDS,
    most_members,
    pauli_defines,
    rotation_type,
    rotations_defines,
)
from tnplan.executor.pauli.terms.protocol import RotationBatch
from tnplan.executor.pauli.terms.truncation import TRUNCATE

Lists = tuple[Any, Any, Any]
"""Branches on the GPU: rows or numbers of rows, values, frequencies."""

TABLE_FILE, ROTATIONS_FILE = (
    Path(__file__).parent / "kernels" / name for name in ("table.cu", "rotations.cu")
)
SMALLEST_CAPACITY = 1 << 18
"""Rows of the first arrays, at least."""
SLOTS_A_ROW = 2
"""Entries of the table for each row, at least."""
LOG_EVENTS = 8192
"""Elements of the log."""
THREADS = 256
"""Threads of a block of table.cu."""
BLOCKS_A_MULTIPROCESSOR = 8
"""Blocks of table.cu that are launched for each multiprocessor."""
COOPERATIVE_THREADS = 512
"""Of a block where all blocks run at once, one on each multiprocessor."""
NO_BOUND = 1 << 62
"""More rows than there can be."""
CHANGING = (9, 11, 12, 13, 14, 15, 16, 17)
"""The arguments of the kernel of rotations that differ from launch to launch; see `rotate_all`."""
BY_PASSES_BELOW = 1 << 21
"""More rows than this rotate one by one: there memory takes the time, with fewer the waiting of blocks."""
MEETING_WORDS = 48
"""Of the kernels' Meeting."""
GAPS_KEPT_BELOW = 1 << 16
"""Gaps among so many rows or fewer are not closed between rotations."""
MOST_ROWS = (1 << 32) - 2
"""What the table and the numbers of rows have bits for."""
KEPT_SHARE = 2
"""CuPy's pool may keep free blocks of the size of the arrays over this; `term_bytes` counts them."""
ROW_ARRAYS = ("keys", "coefficients", "frequencies")
"""The arrays that have an element a row."""


POOLED_BYTES = 1 << 26
"""So much that is free stays in CuPy's pool in any case."""


def free_pool(kept_bytes: int = 0) -> None:
    """Free the blocks that CuPy's pool keeps, where they are more. A limit of memory counts them too."""
    pool = cupy.get_default_memory_pool()
    if pool.free_bytes() > max(kept_bytes, POOLED_BYTES):
        pool.free_all_blocks()


@contextmanager
def memory_for(terms: int) -> Iterator[None]:
    """Arrays of so many terms are allocated within; InputError where the GPU has no memory for them."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError:
        raise InputError(
            "GPU", f"has no memory for {terms} terms", f"{TRUNCATE}, set --memory, or use more GPUs",
            topic="memory",
        ) from None


class CooperativeLaunch(BoundKernel):
    """A launch whose blocks all run at once, so that they can wait for each other."""

    def __call__(self) -> None:
        driver.launchCooperativeKernel(*self._call[:-1])


class GpuTable:
    """Distinct rows 0 .. n-1 and their table on the current GPU; n is in the log.

    keys: uint64 [capacity, words]; coefficients: float32 or float64; frequencies: int32. Where a coefficient
    is 0 there is no term. `lists` is what the last `split` listed; `spare`, uint32 [capacity], is for numbers
    of rows while a kernel runs, and `patterns`, [capacity], for bits of each: uint32 while rotations go
    `by_passes`, else uint8. `failed` numbers the rows whose branches found no free row.
    """

    def __init__(self, keys: Array, coefficients: Array) -> None:
        self.words, self.dtype = keys.shape[1], coefficients.dtype
        kind = self.words, self.dtype.name
        self.load = cache(lambda name: load_kernel(TABLE_FILE, name, pauli_defines(*kind)))
        self.load_rotations = cache(
            lambda by_passes: load_kernel(ROTATIONS_FILE, "turns", rotations_defines(*kind, by_passes))
        )
        compile_ahead(
            [(TABLE_FILE, pauli_defines(*kind)), (ROTATIONS_FILE, rotations_defines(*kind, by_passes=True))]
        )
        self.stream = cupy.cuda.get_current_stream()
        self.processors = runtime.deviceGetAttribute(
            runtime.cudaDevAttrMultiProcessorCount, runtime.getDevice()
        )
        # The event that stalled lies before the log, so that one copy brings both.
        self.outcome = cupy.zeros((1 + LOG_EVENTS) * EVENT.itemsize, np.uint8)
        self.stalled, self.log = self.outcome[:8].view(np.int64), self.outcome[EVENT.itemsize :]
        self.meeting = cupy.zeros(MEETING_WORDS, np.uint64)
        self.rotation_type = rotation_type(self.words, ROTATION_FIELDS)
        self.rotations = cupy.empty(0, np.uint8)
        """Those of the newest launch."""
        self._bound: tuple[Any, Any] = (None, None)
        """The kernel of rotations with the arrays that it has as arguments, and what tells these arrays."""
        with memory_for(len(keys)):
            self._begin_with(keys, coefficients)

    def _begin_with(self, keys: Array, coefficients: Array) -> None:
        n = len(keys)
        capacity = max(SMALLEST_CAPACITY, 2 * n)
        self.keys = cupy.empty((capacity, self.words), np.uint64)
        self.coefficients = cupy.empty(capacity, self.dtype)
        self.frequencies = cupy.zeros(capacity, np.int32)
        # Copies: CuPy would compile kernels for `keys[:n] = ...`.
        self.keys[:n].set(np.ascontiguousarray(keys))
        self.coefficients[:n].set(np.ascontiguousarray(coefficients))
        self.lists: Lists = self.number_lists(0)
        self.spare, self.patterns = cupy.empty(capacity, np.uint32), cupy.empty(0, np.uint32)
        self.failed = cupy.empty(0, np.uint32)
        self.slots = cupy.empty(0, np.uint64)
        self.restart(n)
        self.enter_all(n)

    @property
    def capacity(self) -> int:
        """How many rows the arrays have."""
        return len(self.coefficients)

    @property
    def _rows(self) -> tuple[Any, Any, Any]:
        return self.keys, self.coefficients, self.frequencies

    @property
    def _table(self) -> tuple[Any, np.uint64]:
        """The entries of the table, and the mask of their numbers."""
        return self.slots, np.uint64(self.slots.size - 1)

    @property
    def _events(self) -> tuple[Any, Any]:
        return self.log, self.stalled

    @property
    def by_passes(self) -> bool:
        """Whether rotations are done in passes over groups, or one by one."""
        return bool(self.patterns.dtype == np.uint32)

    @property
    def members(self) -> int:
        """How many rotations are a group now, at most."""
        return most_members(self.words, self.by_passes)

    @property
    def size_bytes(self) -> int:
        """What the arrays take."""
        names = (*ROW_ARRAYS, "spare", "patterns", "slots", "log")
        arrays = (*(getattr(self, name) for name in names), *self.lists)
        return sum(int(array.nbytes) for array in arrays)

    @property
    def listed_bytes(self) -> int:
        """What a term takes in a list that begins with rows, with the number of a row."""
        return 8 * self.words + int(self.dtype.itemsize) + 8

    def rotation_structs(
        self, rotations: RotationBatch, cut: float, sweeps: Any, groups: tuple[Array, Array]
    ) -> Any:  # fmt: skip
        """The structs Turn of rotations; `groups`: their `member` and `left`, see the kernel."""
        structs = np.empty(len(sweeps), self.rotation_type)
        structs["generator"], structs["cosine"], structs["sine"] = rotations[:3]
        structs["cut"], structs["sweep"] = cut, sweeps
        structs["member"], structs["left"] = groups
        return structs

    def rotate_all(
        self, structs: Array, first: int, event: int, resumed: int, limits: Any, max_rows: int = NO_BOUND
    ) -> None:  # fmt: skip
        """Do the rotations from number `first` on; number k is event `event` + k.

        `resumed`: see the kernel. Frequencies are followed where `limits`, a LIMITS, has one. More rows than
        `max_rows` after a group end the launch.
        """
        if self.rotations.nbytes < structs.nbytes:
            self.rotations = cupy.empty(structs.nbytes, np.uint8)
        self._to_gpu(self.rotations, structs)
        arrays = (self.keys, self.patterns, self.slots, self.rotations)
        layout = (self.capacity, *(array.data.ptr for array in arrays))
        # Packing all arguments takes longer than many launches: they are packed anew only where an
        # array has moved.
        if self._bound[0] != layout:
            arguments = typed((
                *self._rows, self.patterns, *self._table, self.capacity, self.spare, GAPS_KEPT_BELOW, 0,
                self.rotations, 0, 0, 0, self.failed, 0, 0, limits, *self._events, self.meeting,
            ))  # fmt: skip
            kernel = self.load_rotations(self.by_passes)
            self._bound = layout, self._cooperative(kernel, arguments)
        launch = self._bound[1]
        max_rows = min(max_rows, BY_PASSES_BELOW) if self.by_passes else max_rows
        for number, value in zip(
            CHANGING,
            (max_rows, first, len(structs), event, self.failed.data.ptr, len(self.failed), resumed, limits),
            strict=True,
        ):
            launch.put(number, value)
        # Invariant: blocks meet at counters that begin with 0, and all of them run at once (a
        # cooperative launch).
        runtime.memsetAsync(self.meeting.data.ptr, 0, self.meeting.nbytes, self.stream.ptr)
        launch()

    def split(self, generator: Array, cosine: float, sine: float, cut: float, event: int) -> Lists:
        """The first half of a rotation: its branches, their words, values and frequencies; waits."""
        if len(self.lists[0]) < self.capacity:
            self.lists = self.number_lists(self.capacity)
        struct = np.array(
            [(generator, cosine, sine, cut, event)], rotation_type(self.words, [("event", np.int64)])
        )[0]
        self._launch("split", *self._rows, *self.lists, *self._events, struct)
        listed = int(self.read(event)["listed"])
        index, values, counts = (array[:listed] for array in self.lists)
        return self.keys[index.astype(np.int64)] ^ cupy.asarray(generator), values, counts

    def merge_rows(self, lists: Lists, event: int) -> None:
        """Add values to words, and append new words; the arrays are large enough. `lists` have rows first."""
        self._launch("meet", *self._rows, *self._table, *lists, len(lists[1]), *self._events, event)

    def branches(self, n: int, qubits: Array, weights: Array, cut: float, event: int) -> Lists:
        """List the branches of a transfer by one local word; waits. Rows are not yet multiplied by it."""
        index, values, counts = self.number_lists(n)
        self._launch(
            "branches", *self._rows, cupy.asarray(qubits, np.int32), np.int32(len(qubits)),
            cupy.asarray(weights), index, values, counts, *self._events, np.float64(cut), event,
        )  # fmt: skip
        listed = int(self.read(event)["listed"])
        return self.keys[index[:listed].astype(np.int64)], values[:listed], counts[:listed]

    def scale(self, qubits: Array, factors: Array, splits: Array, event: int) -> None:
        """Multiply rows by the factors of their local words."""
        self._launch(
            "scale", self.keys, self.coefficients, cupy.asarray(qubits, np.int32), np.int32(len(qubits)),
            cupy.asarray(np.ascontiguousarray(factors)), cupy.asarray(splits, np.int32), *self._events, event,
        )  # fmt: skip

    def clifford(self, maps: Any, order: Any, event: int) -> None:
        """Map all rows by maps one after another; they are on the GPU. `rebuild` is due."""
        n_maps = np.int32(len(order))
        self._launch("clifford", self.keys, self.coefficients, *maps, order, n_maps, *self._events, event)

    def sweep(self, limits: Any) -> None:
        """Set coefficients past the limits, a LIMITS, to 0."""
        self._launch("sweep", *self._rows, *self._events, limits)

    def rebuild(self, event: int, n: int = -1) -> None:
        """Enter the first n rows into the table, or where n is -1 all that are there after an event."""
        self.slots.fill(0)
        self._launch("rebuild", self.keys, *self._table, *self._events, event, n)

    def in_bits(self, n: int, ones: Array) -> float:
        """The value in a computational state; `ones`, uint64 [words / 2], has the qubits in 1. Waits."""
        total = cupy.zeros(1, np.float64)
        self._launch("expect", self.keys, self.coefficients, cupy.asarray(ones), total, n)
        return float(total[0])

    def row_lists(self, n: int) -> Lists:
        """Empty lists that begin with rows."""
        return cupy.empty((n, self.words), np.uint64), *self.number_lists(n)[1:]

    def number_lists(self, n: int) -> Lists:
        """Empty lists that begin with numbers of rows."""
        return cupy.empty(n, np.uint32), cupy.empty(n, self.dtype), cupy.empty(n, np.int32)

    def read(self, event: int) -> Any:
        """An event; waits."""
        return self._outcomes(1 + event, 1)[0]

    def read_all(self, last: int = 0) -> tuple[int, Array]:
        """The event that lacked rows, or 0, and the events before `last`; waits."""
        both = self._outcomes(0, 1 + last)
        return int(both[:1].view(np.int64)[0]), both[1:]

    def _outcomes(self, first: int, count: int) -> Array:
        """So many elements of `outcome`; waits."""
        events = np.empty(count, EVENT)
        runtime.memcpyAsync(
            events.ctypes.data, self.outcome.data.ptr + first * EVENT.itemsize, events.nbytes,
            runtime.memcpyDeviceToHost, self.stream.ptr,
        )  # fmt: skip
        self.stream.synchronize()
        return events

    def restart(self, n: int, dead: int = 0) -> None:
        """Begin the log anew with n rows, `dead` of which are no terms."""
        both = np.zeros(2, EVENT)
        both["n"][1], both["dead"][1] = n, dead
        runtime.memsetAsync(self.outcome.data.ptr, 0, self.outcome.nbytes, self.stream.ptr)
        self._to_gpu(self.outcome, both)
        self.choose_form(n)

    def choose_form(self, n: int) -> None:
        """Go on with the form of rotations that is right for n rows, between two groups."""
        pattern = np.uint32 if n <= BY_PASSES_BELOW else np.uint8
        if self.patterns.dtype != pattern or len(self.patterns) != self.capacity:
            with memory_for(self.capacity):
                self.patterns = cupy.empty(self.capacity, pattern)
        if len(self.failed):
            self.failed = cupy.empty(0, np.uint32)

    def resume(self) -> None:
        """Let launches go on after one that stalled."""
        runtime.memsetAsync(self.stalled.data.ptr, 0, self.stalled.nbytes, self.stream.ptr)

    def grow(self, n: int, capacity: int, failures: int = 0) -> None:
        """Enlarge to `capacity` rows, when there are n, and `failures`, listed in `spare`, lacked a row."""
        if capacity > MOST_ROWS:
            raise InputError(
                "GPU", f"would need {capacity} rows", f"set --max-terms {MOST_ROWS}, or use more GPUs",
                topic="GPUs",
            )
        with memory_for(capacity):
            self.failed = self.spare[:failures].copy()
            self.slots, self.spare = cupy.empty(0, np.uint64), cupy.empty(0, np.uint32)
            self.lists = self.number_lists(0)
            # One array after the other, the old one freed in between: never two of them are there twice.
            for name in (*ROW_ARRAYS, "patterns"):
                old = getattr(self, name)
                new = cupy.empty((capacity, *old.shape[1:]), old.dtype)
                new[:n] = old[:n]
                setattr(self, name, new)
                del old
                free_pool()
            self.spare = cupy.empty(capacity, np.uint32)
            self.resume()
            self.enter_all(n)

    def enter_all(self, n: int) -> None:
        """A table for as many rows as the arrays have, with the n that are there."""
        size = 1 << (SLOTS_A_ROW * self.capacity - 1).bit_length()
        if self.slots.size != size:
            self.slots = cupy.empty(size, np.uint64)
        self.rebuild(0, n)

    def keep(self, rows: Any) -> None:
        """Keep the rows of these numbers, an array of the GPU, and begin the log anew."""
        n = len(rows)
        for name in ROW_ARRAYS:
            free_pool(self.size_bytes // KEPT_SHARE)
            array = getattr(self, name)
            array[:n] = array[rows]
        free_pool(self.size_bytes // KEPT_SHARE)
        self.restart(n)
        self.rebuild(0)

    def sample(self, n: int, step: int) -> Array:
        """The words of every `step`-th of n rows that is a term, on the host."""
        keys, coefficients = self.keys[:n:step], self.coefficients[:n:step]
        return np.asarray(cupy.asnumpy(keys))[np.asarray(cupy.asnumpy(coefficients)) != 0]

    def leave(self, n: int, masks: Array, shard: int, max_terms: int) -> tuple[list[Lists], list[Any], Array]:
        """Take out the terms of n rows that belong to other shards, at most so many for each shard; waits.

        Bit b of a word's shard is the parity of what it shares with masks[b]. Returns lists that begin with
        rows for every other shard in rising order, the numbers of the rows that are free then, shard by shard
        too, and how many terms belong to each shard, to this one 0.
        """
        shards = 1 << len(masks)
        n_rows = max_terms * (shards - 1)
        (rows, values, counts), free_rows = self.row_lists(n_rows), cupy.empty(n_rows, np.uint32)
        bits, shard_counts = np.int32(len(masks)), cupy.zeros(shards, np.uint64)
        self._launch(
            "leave", *self._rows, cupy.asarray(masks), bits, np.int32(shard), n, max_terms, rows, values,
            counts, free_rows, shard_counts,
        )  # fmt: skip
        n_of_shards = np.asarray(cupy.asnumpy(shard_counts)).astype(np.int64)
        sizes = np.minimum(np.delete(n_of_shards, shard), max_terms).tolist()
        ranges = [slice(max_terms * k, max_terms * k + size) for k, size in enumerate(sizes)]
        lists = [(rows[r], values[r], counts[r]) for r in ranges]
        return lists, [free_rows[r] for r in ranges], n_of_shards

    def join(self, n: int, lists: Lists, free_rows: Any) -> int:
        """Put terms whose words are not here in the rows of these numbers, and those left over past n rows.

        The arrays are large enough. Returns how many rows there are then. `close_gaps` is due.
        """
        arrived, n_free = len(lists[1]), len(free_rows)
        if arrived:
            self._launch("join", *self._rows, *lists, arrived, free_rows, n_free, n)
        return n + max(0, arrived - n_free)

    def close_gaps(self, n: int) -> int:
        """Move the terms among n rows to the first ones, begin the log anew, and return how many they are."""
        self.restart(n)
        self.meeting.fill(0)
        arguments = typed((*self._rows, *self._table, self.capacity, self.spare, n, self.log, self.meeting))
        self._cooperative(self.load("pack_rows"), arguments)()
        n -= int(self.read(0)["packed"])
        self.restart(n)
        return n

    def count(self, n: int, generator: Array) -> int:
        """How many of n rows are terms that anticommute with a word; waits."""
        total = cupy.zeros(1, np.uint64)
        self._launch("count_hits", self.keys, self.coefficients, cupy.asarray(generator), total, n)
        return int(total[0])

    def hash_rows(self, hashes: Any) -> None:
        """Hashes of the first rows, of 64 bits."""
        self._launch("hashes", self.keys, hashes, len(hashes))

    def to_gpu(self, *arrays: Array) -> tuple[Any, ...]:
        """Copies on the GPU."""
        return tuple(cupy.asarray(array) for array in arrays)

    def close(self) -> None:
        """Give the memory back; a little stays in CuPy's pool."""
        for name in (*ROW_ARRAYS, "lists", "spare", "patterns", "slots", "log", "stalled", "outcome"):
            setattr(self, name, None)
        self._bound = (None, None)
        free_pool()

    def _to_gpu(self, target: Any, source: Array) -> None:
        """Copy an array of the host to the beginning of one of the GPU."""
        runtime.memcpyAsync(
            target.data.ptr, source.ctypes.data, source.nbytes, runtime.memcpyHostToDevice, self.stream.ptr
        )

    def _cooperative(self, kernel: Any, arguments: list[Any]) -> CooperativeLaunch:
        """The launch of a kernel with a block on every multiprocessor."""
        return CooperativeLaunch(kernel, self.processors, COOPERATIVE_THREADS, arguments, 0, self.stream)

    def _launch(self, kernel: str, *arguments: Any) -> None:
        """Launch a kernel of table.cu once."""
        blocks = self.processors * BLOCKS_A_MULTIPROCESSOR
        BoundKernel(self.load(kernel), blocks, THREADS, typed(arguments), 0, self.stream)()


def typed(arguments: Sequence[Any]) -> list[Any]:
    """The arguments of a kernel: of arrays of the GPU their addresses, of Python's integers int64."""
    addresses = [np.uint64(a.data.ptr) if isinstance(a, cupy.ndarray) else a for a in arguments]
    return [np.int64(a) if isinstance(a, int) else a for a in addresses]
