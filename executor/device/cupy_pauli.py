"""Words, coefficients and the table that finds them on a GPU: arrays, and the launches of kernels/pauli.cu.

Knows arrays and events of the log (see pauli.cu); never gates, truncations or ranks. Launches do not wait.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime
from numpy.typing import NDArray

from executor.device.kernel_cache import load_kernel
from executor.device.launch import Launch
from planner.errors import InputError

Array = NDArray[Any]
Lists = tuple[Any, Any, Any]
"""Branches on the GPU: rows or numbers of rows, values, frequencies."""

SMALLEST = 1 << 16
FILL = 2
"""Entries of the table for each row, at least."""
LOG_EVENTS = 1024
THREADS = 256
BLOCKS_A_MULTIPROCESSOR = 8
MOST_ROWS = (1 << 32) - 2
KERNELS = ("split", "meet", "branches", "scale", "clifford", "sweep", "rebuild", "expect")
OF_ROWS = ("keys", "coefficients", "frequencies")
OF_LISTS = ("index", "values", "counts")
EVENT = np.dtype(
    [(name, np.uint64) for name in ("n", "added", "listed", "hits", "merged", "revived", "gone")]
    + [(name, np.float64) for name in ("l1", "squares")]
)
"""The kernels' struct Event."""
LIMITS = np.dtype(
    [("merged_cut", np.float64)]
    + [(name, np.int32) for name in ("max_weight", "max_xy", "max_frequency", "has_letters")]
    + [("event", np.int64)]
)
"""The kernels' struct Limits."""


def turn_type(words: int) -> np.dtype[Any]:
    """The kernels' struct Turn, for rows of `words` 64-bit words."""
    numbers = [(name, np.float64) for name in ("cosine", "sine", "cut")]
    return np.dtype([("generator", np.uint64, (words,)), *numbers, ("event", np.int64)])


def pauli_defines(words: int, dtype: str) -> dict[str, str | int]:
    """The definitions of pauli.cu: 64-bit words of a row, and the type of coefficients."""
    return {"WORDS": words, "REAL": {"float32": "float", "float64": "double"}[dtype]}


class GpuTable:
    """Distinct rows 0 .. n-1 and their table on the current GPU; n is in the log.

    keys: uint64 [capacity, words]; coefficients: float32 or float64; frequencies: int32. Where a coefficient
    is 0 there is no term. `index`, `values` and `counts` are the list of branches of the last `split`.
    """

    def __init__(self, keys: Array, coefficients: Array) -> None:
        self.words, self.dtype = keys.shape[1], coefficients.dtype
        defines = pauli_defines(self.words, self.dtype.name)
        self.kernels = {name: load_kernel("pauli.cu", name, defines) for name in KERNELS}
        self.stream = cupy.cuda.get_current_stream()
        properties = runtime.getDeviceProperties(runtime.getDevice())
        self.blocks = properties["multiProcessorCount"] * BLOCKS_A_MULTIPROCESSOR
        self.log, self.stalled = cupy.zeros(LOG_EVENTS * EVENT.itemsize, np.uint8), cupy.zeros(1, np.int64)
        n = len(keys)
        capacity = max(SMALLEST, 2 * n)
        self.keys = cupy.empty((capacity, self.words), np.uint64)
        self.coefficients = cupy.empty(capacity, self.dtype)
        self.frequencies = cupy.zeros(capacity, np.int32)
        self.keys[:n], self.coefficients[:n] = cupy.asarray(keys), cupy.asarray(coefficients)
        self.index, self.values, self.counts = self.lists(capacity)
        self.slots: Any = None
        self.restart(n)
        self._bind()

    @property
    def capacity(self) -> int:
        """How many rows there is room for."""
        return len(self.coefficients)

    @property
    def size_bytes(self) -> int:
        """What the arrays take."""
        return sum(int(getattr(self, name).nbytes) for name in (*OF_ROWS, *OF_LISTS, "slots", "log"))

    def turn(self, generator: Array, cosine: float, sine: float, cut: float, event: int) -> Any:
        """The struct Turn."""
        return np.array([(generator, cosine, sine, cut, event)], turn_type(self.words))[0]

    def split(self, turn: Any) -> None:
        """The first half of a rotation."""
        self._launches[0].at(8, turn)

    def meet(self, turn: Any) -> None:
        """The second half of a rotation whose branches stay here."""
        self._launches[1].at(12, turn)

    def meet_rows(self, lists: Lists, event: int) -> None:
        """Add values to words, and append the words not there; there is room. `lists` have rows first."""
        rows, values, counts = lists
        at = event * EVENT.itemsize + EVENT.fields["listed"][1]  # type: ignore[index]
        self.log[at : at + 8] = cupy.asarray(np.array([len(values)], np.uint64).view(np.uint8))
        turn = self.turn(np.zeros(self.words, np.uint64), 1.0, 0.0, 0.0, event)
        self._launch(
            "meet", self.keys, self.coefficients, self.frequencies, self.slots,
            np.uint64(self.slots.size - 1), rows, np.uint64(0), values, counts, self.log, self.stalled,
            np.int64(self.capacity), turn,
        )  # fmt: skip

    def branches(self, n: int, qubits: Array, weights: Array, cut: float, event: int) -> Lists:
        """List the branches of a transfer's part; waits. Rows are not yet multiplied by anything."""
        index, values, counts = self.lists(n)
        self._launch(
            "branches", self.keys, self.coefficients, self.frequencies, cupy.asarray(qubits, np.int32),
            np.int32(len(qubits)), cupy.asarray(weights), index, values, counts, self.log, self.stalled,
            np.float64(cut), np.int64(event),
        )  # fmt: skip
        listed = int(self.read(event)["listed"])
        return self.keys[index[:listed].astype(np.int64)], values[:listed], counts[:listed]

    def scale(self, qubits: Array, factors: Array, splits: Array, event: int) -> None:
        """Multiply rows by the factors of their local words."""
        self._launch(
            "scale", self.keys, self.coefficients, cupy.asarray(qubits, np.int32), np.int32(len(qubits)),
            cupy.asarray(np.ascontiguousarray(factors)), cupy.asarray(splits, np.int32), self.log,
            self.stalled, np.int64(event),
        )  # fmt: skip

    def clifford(self, images: Any, powers: Any, touched: Any, event: int) -> None:
        """Map all rows, and enter them into the table anew; the arrays are on the GPU."""
        self._launch(
            "clifford", self.keys, self.coefficients, images, powers, touched, self.log, self.stalled,
            np.int64(event),
        )  # fmt: skip
        self.rebuild(event)

    def sweep(self, limits: Any) -> None:
        """Set coefficients past the limits, a LIMITS, to 0."""
        self._launch("sweep", self.keys, self.coefficients, self.frequencies, self.log, self.stalled, limits)

    def rebuild(self, event: int) -> None:
        """Enter all rows that are there after an event into the table."""
        self.slots.fill(0)
        self._launch(
            "rebuild", self.keys, self.slots, np.uint64(self.slots.size - 1), self.log, self.stalled,
            np.int64(event + 1),
        )  # fmt: skip

    def in_bits(self, n: int, ones: Array) -> float:
        """The value in a computational state; `ones`, uint64 [words / 2], has the qubits in 1. Waits."""
        total = cupy.zeros(1, np.float64)
        self._launch("expect", self.keys, self.coefficients, cupy.asarray(ones), total, np.int64(n))
        return float(total[0])

    def packed(self, listed: int, generator: Array) -> Lists:
        """The branches of the last `split` with their words."""
        rows = self.keys[self.index[:listed].astype(np.int64)] ^ cupy.asarray(generator)
        return rows, self.values[:listed], self.counts[:listed]

    def empty(self, n: int) -> Lists:
        """Room for lists that begin with rows."""
        return cupy.empty((n, self.words), np.uint64), *self.lists(n)[1:]

    def lists(self, n: int) -> Lists:
        """Room for lists that begin with numbers of rows."""
        return cupy.empty(n, np.uint32), cupy.empty(n, self.dtype), cupy.empty(n, np.int32)

    def read(self, event: int) -> Any:
        """An event; waits."""
        return self.read_all()[event]

    def read_all(self) -> Array:
        """The log; waits."""
        return np.asarray(cupy.asnumpy(self.log).view(EVENT))

    def stalled_at(self) -> int:
        """The event that found no room, or 0; waits."""
        return int(self.stalled[0])

    def restart(self, n: int) -> None:
        """Begin the log anew with n rows."""
        first = np.zeros(1, EVENT)
        first["n"] = n
        self.log.fill(0)
        self.log[: EVENT.itemsize] = cupy.asarray(first.view(np.uint8))
        self.stalled.fill(0)

    def grow(self, n: int, listed: int, capacity: int, event: int) -> None:
        """Make room for `capacity` rows, after an event that left n rows and a list."""
        if capacity > MOST_ROWS:
            raise InputError(
                "GPU", f"would need {capacity} rows", f"truncate to {MOST_ROWS}, or use more GPUs"
            )
        self.slots = None
        try:
            for names, length in ((OF_ROWS, n), (OF_LISTS, listed)):
                for name in names:
                    old = getattr(self, name)
                    new = cupy.empty((capacity, *old.shape[1:]), old.dtype)
                    new[:length] = old[:length]
                    setattr(self, name, new)
                    del old
                    cupy.get_default_memory_pool().free_all_blocks()
            self.stalled.fill(0)
            self._bind(event)
        except cupy.cuda.memory.OutOfMemoryError:
            raise InputError(
                "GPU", f"has no memory for {capacity} terms", "truncate, set --memory, or use more GPUs"
            ) from None

    def keep(self, chosen: Any) -> None:
        """Keep the rows of these numbers, an array of the GPU that rises, and begin the log anew."""
        n = len(chosen)
        for name in OF_ROWS:
            array = getattr(self, name)
            array[:n] = array[chosen]
        self.restart(n)
        self.rebuild(0)

    def alive(self, n: int) -> Any:
        """The numbers of the rows that are terms, on the GPU."""
        return cupy.flatnonzero(self.coefficients[:n])

    def largest(self, n: int, count: int) -> tuple[Any, float, float, int]:
        """The numbers of the `count` largest magnitudes, of equal ones the least words; the others' sums.

        Returns also the sums of |c| and |c|^2 and the number of the terms that are not among them.
        """
        sizes = cupy.abs(self.coefficients[:n]).astype(np.float64)
        least = cupy.partition(sizes, n - count)[n - count]
        ties = cupy.flatnonzero(sizes == least)
        kept = sizes > least
        room = count - int(cupy.count_nonzero(kept))
        order = np.lexsort(cupy.asnumpy(self.keys[ties]).T)[:room]
        kept[ties[cupy.asarray(order)]] = True
        gone = sizes[~kept & (sizes > 0)]
        return cupy.flatnonzero(kept), float(gone.sum()), float((gone**2).sum()), int(gone.size)

    def terms(self, n: int) -> tuple[Array, Array]:
        """Keys and coefficients of the terms, on the host."""
        alive = self.alive(n)
        return cupy.asnumpy(self.keys[alive]), cupy.asnumpy(self.coefficients[alive])

    def to_gpu(self, *arrays: Array) -> tuple[Any, ...]:
        """Copies on the GPU."""
        return tuple(cupy.asarray(array) for array in arrays)

    def close(self) -> None:
        """Give the memory back."""
        for name in (*OF_ROWS, *OF_LISTS, "slots", "log"):
            setattr(self, name, None)
        cupy.get_default_memory_pool().free_all_blocks()

    def _bind(self, event: int = 0) -> None:
        """The table and the two launches of a rotation, for arrays that are new."""
        self.slots = cupy.empty(1 << (FILL * self.capacity - 1).bit_length(), np.uint64)
        rows = [np.uint64(getattr(self, name).data.ptr) for name in OF_ROWS]
        lists = [np.uint64(getattr(self, name).data.ptr) for name in OF_LISTS]
        shared = [np.uint64(array.data.ptr) for array in (self.log, self.stalled)]
        slots = [np.uint64(self.slots.data.ptr), np.uint64(self.slots.size - 1)]
        turn = self.turn(np.zeros(self.words, np.uint64), 1.0, 0.0, 0.0, 0)
        meet = [*rows, *slots, rows[0], *lists, *shared, np.int64(self.capacity), turn]
        split = self._prepared("split", [*rows, *lists, *shared, turn])
        self._launches = (split, self._prepared("meet", meet))
        self.rebuild(event)

    def _prepared(self, kernel: str, arguments: list[Any]) -> Launch:
        return Launch(self.kernels[kernel], self.blocks, THREADS, arguments, 0, self.stream)

    def _launch(self, kernel: str, *arguments: Any) -> None:
        """Launch once; arrays of the GPU are passed as their addresses."""
        values = [np.uint64(a.data.ptr) if isinstance(a, cupy.ndarray) else a for a in arguments]
        self._prepared(kernel, values)()
