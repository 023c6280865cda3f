"""Terms on a GPU with a tape of what every step did to them, and the backward pass along it; see tape.cu.

A rotation makes the host wait once, for the number of terms that it splits; the backward pass never does.
Rows are the numbers of terms on the tape. A term that was dropped leaves its row, and where its word comes
back, the tape says that it was none before. Imports CuPy's adapter when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, pack
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.pauli.algebra.expectation import state_values
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix
from tnplan.executor.pauli.algebra.tableau import clifford_layer
from tnplan.executor.pauli.cuda.layout import limits_struct, pauli_defines, rotation_type
from tnplan.executor.pauli.terms.ledger import Ledger, Loss
from tnplan.executor.pauli.terms.protocol import Terms
from tnplan.executor.pauli.terms.truncation import TRUNCATE, TermLimits

FIRST_ENTRIES, BLOCK_ENTRIES = 1 << 18, 1 << 22
"""Entries of the first block, and of others at least."""
KEPT_FREE = 0.25
"""The share of the free memory of a GPU that is left to terms, where no limit of memory is set."""


class Entries(NamedTuple):
    """Entries of the tape, as tape.cu says: arrays of the GPU, or of the host."""

    first: Any
    second: Any
    both: Any
    kinds: Any

    @property
    def size_bytes(self) -> int:
        """What the arrays take."""
        return sum(int(array.nbytes) for array in self)


class EntryRange(NamedTuple):
    """So many entries of a block, from `first` on."""

    block: int
    first: int
    n_entries: int


class TapeStore:
    """Blocks of entries, the last of which is written."""

    memory_bytes: float | None = None
    """What blocks on the GPU may take; None: what is free when one is allocated."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.blocks: list[Entries] = []
        self.used = self.on_host = 0
        """Entries of the last block; how many of the first blocks are on the host."""

    @property
    def gpu_bytes(self) -> int:
        """What the blocks on the GPU take."""
        return sum(block.size_bytes for block in self.blocks[self.on_host :])

    @property
    def size_bytes(self) -> int:
        """What all blocks take."""
        return sum(block.size_bytes for block in self.blocks)

    def reserve(self, n: int) -> tuple[Entries, int]:
        """A block with n free entries, and the number of the first of them."""
        if not self.blocks or self.used + n > len(self.blocks[-1].kinds):
            self._add_block(max(n, BLOCK_ENTRIES if self.blocks else FIRST_ENTRIES))
        return self.blocks[-1], self.used

    def take(self, count: int) -> EntryRange:
        """The range of the entries that were written after the last `reserve`."""
        entries = EntryRange(len(self.blocks) - 1, self.used, count)
        self.used += count
        return entries

    def _add_block(self, n: int) -> None:
        needed = n * (9 + 2 * self.dtype.itemsize)
        # The oldest blocks go first: the backward pass needs them last.
        while self.on_host < len(self.blocks) and needed > self._free():
            self.spill(self.on_host + 1)
        while (block := self._new_block(n)) is None:
            on_gpu = len(self.blocks) - self.on_host
            if not on_gpu:
                raise InputError(
                    "GPU", f"has no memory for {size_text(needed)} of the record (tape) of a gradient",
                    f"{TRUNCATE}, or choose --device cpu",
                    topic="memory",
                )  # fmt: skip
            self.spill(self.on_host + -(-on_gpu // 2))
        self.blocks.append(block)
        self.used = 0

    def _new_block(self, n: int) -> Entries | None:
        """A block of n entries; None where the GPU has no memory for it."""
        try:
            return Entries(
                cupy.empty(n, np.uint32), cupy.empty(n, np.uint32), cupy.empty(2 * n, self.dtype),
                cupy.empty(n, np.uint8),
            )  # fmt: skip
        except cupy.cuda.memory.OutOfMemoryError:
            return None

    def _free(self) -> float:
        """What another block may take."""
        if self.memory_bytes is not None:
            return self.memory_bytes - self.gpu_bytes
        pool = cupy.get_default_memory_pool()
        return (1 - KEPT_FREE) * (cupy.cuda.Device().mem_info[0] + pool.free_bytes())

    def spill(self, count: int) -> None:
        """Have the first `count` blocks on the host."""
        for number in range(self.on_host, min(count, len(self.blocks))):
            block = self.blocks[number]
            free = host_memory()[1]
            if block.size_bytes > free:
                raise InputError(
                    "gradient", f"has a tape of {size_text(self.size_bytes)}, and the host has no room for "
                    f"{size_text(block.size_bytes - free)} of it", f"{TRUNCATE}, or give more memory",
                    topic="memory",
                )  # fmt: skip
            self.blocks[number] = Entries(*map(cupy.asnumpy, block))
            self.on_host = number + 1
            del block
        cupy.get_default_memory_pool().free_all_blocks()

    def spill_all(self) -> None:
        """Have all blocks on the host; what is written next goes to a new one."""
        self.spill(len(self.blocks))
        if self.blocks:
            self.used = len(self.blocks[-1].kinds)

    def on_gpu(self, block: int) -> Entries:
        """A block, to be read in the backward pass; those after it are freed."""
        del self.blocks[block + 1 :]
        if block < self.on_host:
            self.blocks[block] = Entries(*map(cupy.asarray, self.blocks[block]))
            self.on_host = block
        return self.blocks[block]


TAPE_FILE = Path(__file__).parent / "kernels" / "tape.cu"
COUNT = np.dtype(
    [(name, np.uint64) for name in ("n", "hits", "entries", "added", "revived", "merged", "gone", "swept")]
    + [(name, np.float64) for name in ("l1", "squares", "swept_l1", "swept_squares")]
)
"""The kernels' struct Count."""
LOG_EVENTS = 4096
"""Elements of the log."""
THREADS, BLOCKS_A_MULTIPROCESSOR = 256, 8
LEAST_GAPS = 1 << 16
"""Gaps are closed where they are more than this, and than half of the rows."""
ROW_BYTES = 40
"""What a row takes besides its words, at most: numbers, and entries of the table."""


class TapedTurn(NamedTuple):
    """A rotation: where its entries are."""

    entries: Any
    cosine: float
    sine: float


class TapedSigns(NamedTuple):
    """Cliffords: the signs that they brought to the terms."""

    signs: Any


class TapedGaps(NamedTuple):
    """Gaps closed: the rows that stayed, of so many."""

    rows: Any
    n: int


class GpuTapedTerms(Terms):
    """The terms of one GPU with a tape. Coefficients are real; terms that are 0 stay."""

    def __init__(self, start: PauliSum, memory_bytes: float | None = None) -> None:
        from tnplan.executor.pauli.cuda import table as table_module

        self.adapter, self.cupy = table_module, table_module.cupy
        self.n_qubits, self.ledger, self.ranks = start.n_qubits, Ledger(), None
        self.table = table_module.GpuTable(start.keys, start.coefficients)
        defines = pauli_defines(self.table.words, self.table.dtype.name)
        self._kernel = cache(lambda entry: table_module.load_kernel(TAPE_FILE, entry, defines))
        self.memory_bytes = memory_bytes
        self.store = TapeStore(self.table.dtype)
        self.tape: list[TapedTurn | TapedSigns | TapedGaps] = []
        self.rows = self.live = start.n_terms
        """Rows and terms, as far as the log was read."""
        self.alive = self.cupy.zeros(self.table.capacity, np.uint8)
        self.alive[: self.rows].set(np.ones(self.rows, np.uint8))
        self.hits = self.cupy.empty(self.table.capacity, np.uint32)
        self.log = self.cupy.zeros(LOG_EVENTS * COUNT.itemsize, np.uint8)
        self.pending: list[tuple[str, int, Any]] = []
        self.slopes: Any = None
        self._restart()

    def close(self) -> None:
        """Give the memory back."""
        self.table.close()
        for name in ("alive", "hits", "log", "slopes", "store"):
            setattr(self, name, None)
        self.tape.clear()
        self.cupy.get_default_memory_pool().free_all_blocks()

    @property
    def n(self) -> int:
        """How many terms there are; waits."""
        self._enter(self.event)
        return self.live

    @property
    def tape_bytes(self) -> int:
        """What the tape takes, on the GPU and on the host."""
        others = (step[0].nbytes for step in self.tape if not isinstance(step, TapedTurn))
        return self.store.size_bytes + sum(map(int, others))

    @property
    def size_bytes(self) -> int:
        """What the arrays of terms and the tape on the GPU take."""
        arrays = (self.alive, self.hits, self.log)
        return self.table.size_bytes + sum(int(array.nbytes) for array in arrays) + self.store.gpu_bytes

    def count(self, generator: Array) -> int:
        """At most how many terms a rotation would split: all."""
        return self.n

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about the packed word `generator`; branches below `cut` are dropped."""
        if self.rows - self.live > max(LEAST_GAPS, self.rows // 2):
            self._close_gaps()
        event, table = self._begin(), self.table
        turn = np.array([(generator, cosine, sine, cut)], rotation_type(table.words, ()))[0]
        self._launch("find", table.keys, self.alive, turn, self.hits, self.log, event)
        # The one wait: new rows and entries of the tape are allocated before the terms are split.
        counts = self._enter(event - 1, event)
        n, n_hits = int(counts["n"]), int(counts["hits"])
        self._reserve_rows(n, n_hits)
        self.store.memory_bytes = None if self.memory_bytes is None else self.memory_bytes - table.size_bytes
        entries, first = self.store.reserve(n_hits)
        self._launch(
            "turn_pairs", table.keys, table.coefficients, table.frequencies, self.alive, table.slots,
            np.uint64(table.slots.size - 1), n, self.hits, n_hits, turn, *entries, first, self.log, event,
        )  # fmt: skip
        self.pending.append(("turn", event, (cosine, sine)))

    def transfer(self, step: TransferMatrix, cut: float) -> None:
        """Refused: see `gradient.on_cpu_alone`."""
        raise InputError(
            "gradient", "passes a transfer matrix (a noise channel), which needs the CPU",
            "choose --device cpu",
            topic="GPUs",
        )

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another."""
        n, table = self._settled(), self.table
        layer = clifford_layer(tuple(gates), self.n_qubits)
        *maps, order = table.to_gpu(
            *(getattr(layer, name)[None] for name in ("images", "powers", "touched")), np.zeros(1, np.int32)
        )
        before = table.coefficients[:n].copy()
        # A Clifford takes each word to a word with a sign: coefficients of 1 become the signs,
        # which the tape keeps.
        table.coefficients[:n].fill(1)
        table.restart(n)
        table.clifford(maps, order, 1)
        signs = self.cupy.empty(n, np.int8)
        self._launch("take_signs", table.coefficients, before, n, signs)
        table.rebuild(0, n)
        self.tape.append(TapedSigns(signs))
        self.pending.append(("clifford", 0, None))

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits."""
        event, table = self._begin(), self.table
        past = limits_struct(limits, event)
        self._launch("drop", table.keys, table.coefficients, table.frequencies, self.alive, past, self.log)
        self.pending.append(("drop", event, None))

    def keep_largest(self, count: int) -> None:
        """Keep the `count` largest magnitudes; of equal ones the least words."""
        from tnplan.executor.pauli.cuda.selection import largest_mask

        if self.n <= count:
            return
        n, cupy, table = self._settled(), self.cupy, self.table
        alive = self.alive[:n] != 0
        sizes = cupy.where(alive, cupy.abs(table.coefficients[:n]).astype(np.float64), -1.0)
        is_largest = largest_mask(sizes, table.keys, count)
        dropped = sizes[alive & ~is_largest]
        self.ledger.losses.append(
            Loss(float(dropped.sum()), float((dropped**2).sum()), int(cupy.count_nonzero(dropped)))
        )
        self.alive[:n] = is_largest
        table.coefficients[:n] *= is_largest
        self.live = count

    def end_step(self) -> None:
        """Enter the step in the ledger, when its numbers are known."""
        self.pending.append(("end", self.event, None))

    def in_bits(self, bits: str | None = None) -> complex:
        """The value in a computational state; None is all 0."""
        return self.weigh(bits)

    def local_terms(self) -> PauliSum:
        """The terms, in rising order of their words."""
        n, cupy = self._settled(), self.cupy
        rows = cupy.flatnonzero(self.alive[:n])
        arrays = (cupy.asnumpy(array[rows]) for array in (self.table.keys, self.table.coefficients))
        return PauliSum(self.n_qubits, *arrays).sorted()

    def weigh(self, state: Any) -> float:
        """Begin the backward pass with the value of each word in a state; the value of all terms."""
        n, cupy, table = self._settled(), self.cupy, self.table
        # The value is sum_k c_k <P_k>, so that its slope by the coefficient c_k is <P_k>.
        self.slopes = cupy.zeros(n, np.float64)
        if state is None or isinstance(state, str):
            ones = pack(int((state or "0")[::-1], 2), 0, self.n_qubits)
            ones = cupy.asarray(np.ascontiguousarray(ones[: len(ones) // 2]))
            self._launch("weigh", table.keys, self.alive, ones, n, self.slopes)
        else:
            rows = PauliSum(self.n_qubits, *map(cupy.asnumpy, (table.keys[:n], table.coefficients[:n])))
            values = state_values(rows, state)
            if np.iscomplexobj(values):
                raise InputError("gradient", "has complex values, which need the CPU", "use --device cpu")
            self.slopes.set(values * (cupy.asnumpy(self.alive[:n]) != 0))
        total = cupy.zeros(1, np.float64)
        self._launch("value", self.slopes, table.coefficients, n, total)
        return float(total.get()[0])

    def back(self) -> Array:
        """Take the slopes back to before all steps; the derivatives by the angles of rotations, in the order
        of the steps, float64."""
        cupy = self.cupy
        derivatives = cupy.zeros(max(1, sum(isinstance(step, TapedTurn) for step in self.tape)), np.float64)
        number = 0
        # Reverse mode: from slopes by coefficients after a step to those before it. At a rotation
        # the angle's derivative is the sum over all pairs of words that it mixes.
        for step in reversed(self.tape):
            if isinstance(step, TapedSigns):
                self._launch("give_signs", self.slopes, step.signs, len(step.signs))
            elif isinstance(step, TapedGaps):
                before = cupy.zeros(step.n, np.float64)
                self._launch("spread", self.slopes, step.rows, len(step.rows), before)
                self.slopes = before
            else:
                block, first, n_entries = step.entries
                if n_entries:
                    self._launch(
                        "back", self.slopes, *self.store.on_gpu(block), first, n_entries,
                        np.float64(step.cosine), np.float64(step.sine), derivatives, number,
                    )  # fmt: skip
                number += 1
        return np.asarray(derivatives.get()[:number])

    def start_values(self, n_terms: int) -> Array:
        """The slopes of the terms of the start, after the backward pass."""
        return np.asarray(self.slopes[:n_terms].get())

    def _begin(self) -> int:
        """The number of a new event."""
        if self.event == LOG_EVENTS - 1:
            self._settled()
        self.event += 1
        return self.event

    def _restart(self) -> None:
        """Begin the log anew; all events are entered."""
        first = np.zeros(1, COUNT)
        first["n"] = self.rows
        self.log.fill(0)
        self.log[: COUNT.itemsize].set(first.view(np.uint8))
        self.event = self.entered = 0

    def _settled(self) -> int:
        """The number of rows, when all events are entered and the log is new; waits."""
        self._enter(self.event)
        self._restart()
        return self.rows

    def _enter(self, last: int, number: int | None = None) -> Any:
        """Wait, enter events up to `last` in ledger and tape; the counts of event `number`."""
        number = last if number is None else number
        if not self.pending and number == self.entered:
            return None
        new_events = self.log[self.entered * COUNT.itemsize : (number + 1) * COUNT.itemsize]
        log = self.cupy.asnumpy(new_events).view(COUNT)
        for kind, event, turned in self.pending:
            counts = log[max(0, event - self.entered)]
            if kind == "turn":
                before, hits, merged = self.live, int(counts["hits"]), int(counts["merged"])
                self.rows += int(counts["added"])
                self.live += int(counts["added"] + counts["revived"])
                self.step_counts = (before, self.live, hits, merged)
                sums = float(counts["l1"]), float(counts["squares"])
                self.ledger.losses.append(Loss(*sums, int(counts["gone"])))
                self.tape.append(TapedTurn(self.store.take(int(counts["entries"])), *turned))
            elif kind == "drop":
                self.live -= int(counts["swept"])
                sums = float(counts["swept_l1"]), float(counts["swept_squares"])
                self.ledger.losses.append(Loss(*sums, int(counts["gone"])))
            elif kind == "clifford":
                self.step_counts = (self.live, self.live, 0, 0)
            else:
                before, grown, branched, merged = self.step_counts
                self.ledger.steps.append((before, grown, self.live, branched, merged))
        self.pending.clear()
        self.entered = last
        return log[-1]

    def _reserve_rows(self, n: int, more: int) -> None:
        """Have at least so many more than n rows."""
        table, capacity = self.table, self.table.capacity
        if n + more <= capacity:
            return
        new_capacity = max(n + more, 2 * capacity)
        needed = (new_capacity + capacity) * (8 * table.words + ROW_BYTES)
        pool = self.cupy.get_default_memory_pool()
        if needed > self.cupy.cuda.Device().mem_info[0] + pool.free_bytes():
            self.store.spill_all()
        table.grow(n, new_capacity)
        for name in ("alive", "hits"):
            old = getattr(self, name)
            new = self.cupy.zeros(new_capacity, old.dtype)
            new[:capacity] = old
            setattr(self, name, new)

    def _close_gaps(self) -> None:
        """Give terms the first rows, in their order."""
        n = self._settled()
        rows = self.cupy.flatnonzero(self.alive[:n])
        self.table.keep(rows)
        self.alive.fill(0)
        self.alive[: len(rows)].fill(1)
        self.tape.append(TapedGaps(rows.astype(np.uint32), n))
        self.rows = self.live
        self._restart()

    def _launch(self, entry: str, *arguments: Any) -> None:
        """Launch a kernel of tape.cu once."""
        blocks = self.table.processors * BLOCKS_A_MULTIPROCESSOR
        addresses = self.adapter.typed(arguments)
        self.adapter.BoundKernel(self._kernel(entry), blocks, THREADS, addresses, 0, self.table.stream)()
