"""The terms of a rank on its GPU, changed without waiting for it. Imports CuPy's adapter when it is made.

Has the methods of `ShardedTerms`. Every change is an event, launched at once; what it did stands in a log on
the GPU. `settle` waits, enters the log in the books, and where a list of branches found no room, makes room
and does the rest again. It is called when the log is full and wherever the host needs a number. With ranks,
each has one shard, and branches for another rank make the host wait for their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.device.communicator import Communicator
from executor.pauli.account import Account, Loss, Number, total_loss
from executor.pauli.frame import layer
from executor.pauli.sharding import Sharding
from executor.pauli.steps import Clifford, Transfer, word_masks
from executor.pauli.truncation import NO_LIMIT, Limits
from executor.pauli.words import PauliSum, pack
from planner.errors import InputError

Array = NDArray[Any]


class GpuTerms:
    """The terms of this rank on the current GPU, and the books of what happened to them.

    Coefficients are real. A term whose coefficient is 0 does not count as one.
    """

    def __init__(self, start: PauliSum, ranks: Communicator | None = None) -> None:
        from executor.device import cupy_pauli

        if np.iscomplexobj(start.coefficients):
            raise InputError("observable", "has complex coefficients", "give its two parts one by one")
        self.n_qubits, self.ranks = start.n_qubits, ranks
        self.rank, n_ranks = (0, 1) if ranks is None else (ranks.rank, ranks.size)
        if n_ranks & (n_ranks - 1):
            raise InputError("ranks", f"are {n_ranks}", "start a power of two")
        self.sharding = Sharding(start.n_qubits, n_ranks.bit_length() - 1)
        own = self.sharding.of(start.keys) == self.rank
        self.adapter = cupy_pauli
        self.table = cupy_pauli.GpuTable(start.keys[own], start.coefficients[own])
        self.books = Account()
        self.live, self.most = int(np.count_nonzero(own)), cupy_pauli.MOST_ROWS
        self.event = 0
        self.queue: list[tuple[int, Callable[[], None]]] = []
        """Launches since the log began, and their events."""
        self.notes: list[tuple[str, int]] = []
        """What the events since the log began were, and where steps end."""
        self._step = [self.live, self.live, 0, 0]
        self._lost: list[Loss] = []

    def close(self) -> None:
        """Give the memory back."""
        self.queue.clear()
        self.table.close()

    @property
    def n(self) -> int:
        """How many terms this rank has; waits."""
        self.settle()
        return self.live

    @property
    def size_bytes(self) -> int:
        """What this rank's arrays take."""
        return self.table.size_bytes

    def all_ranks(self, value: Number) -> Number:
        """The sum of a number over the ranks; collective."""
        return value if self.ranks is None else sum(self.ranks.gather_objects(value))

    def limit(self, n_terms: int) -> None:
        """Do not double arrays past so many terms."""
        self.most = min(n_terms, self.adapter.MOST_ROWS)

    def count(self, generator: Array) -> int:
        """At most how many terms of this rank a rotation would split: all."""
        return self.n

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about the packed word `generator`; branches below `cut` are dropped."""
        table, event = self.table, self._begin("quarter" if cosine == 0 else "turn")
        turn = table.turn(generator, cosine, sine, cut, event)
        self._do(lambda: table.split(turn))
        across = self.sharding.distance(generator)
        if not across:
            self._do(lambda: table.meet(turn))
            return
        self._catch_up()
        listed = int(table.read(event)["listed"])
        self._meet(table.packed(listed, generator), across)

    def transfer(self, step: Transfer, cut: float) -> None:
        """Apply a transfer; contributions below `cut` to other words are dropped."""
        n = self._settled()
        qubits, words, parts = np.array(step.qubits), np.arange(len(step.matrix)), []
        for d in words[1:]:
            weights = step.matrix[words ^ d, words]
            if not np.any(weights):
                continue
            rows, values, counts = self.table.branches(n, qubits, weights, cut, self._begin("part"))
            generator = pack(*word_masks(step.qubits, int(d)), self.n_qubits)
            parts.append((generator, (rows ^ self.table.to_gpu(generator)[0], values, counts)))
        event, splits = self._begin("scale"), np.count_nonzero(step.matrix, axis=0) > 1
        self._do(lambda: self.table.scale(qubits, np.diag(step.matrix), splits, event))
        for generator, lists in parts:
            self._catch_up()
            self._meet(lists, self.sharding.distance(generator))

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""
        done, event = layer(tuple(gates), self.n_qubits), self._begin("clifford")
        images, powers, touched = self.table.to_gpu(done.images, done.powers, done.touched)
        self._do(lambda: self.table.clifford(images, powers, touched, event))
        for gate in gates:
            self.sharding.carry(gate)

    def sweep(self, limits: Limits) -> None:
        """Drop terms past the limits."""
        frequency = -1 if limits.max_frequency == NO_LIMIT else limits.max_frequency
        event = self._begin("sweep")
        values = (
            limits.merged_cut, limits.max_weight, limits.max_xy, frequency, limits.has_letters, event,
        )  # fmt: skip
        past = np.array([values], self.adapter.LIMITS)[0]
        self._do(lambda: self.table.sweep(past))

    def keep_largest(self, count: int) -> None:
        """Keep the `count` largest magnitudes; of equal ones the least words. For one GPU."""
        if self.all_ranks(self.n) <= count:
            return
        if self.ranks is not None:
            raise InputError("max_terms", "is not there for several GPUs", "use a cut, or one GPU")
        chosen, l1, squares, dropped = self.table.largest(self._settled(), count)
        self.books.losses.append(Loss(l1, squares, dropped))
        self._keep(chosen)

    def end_step(self) -> None:
        """Enter the step in the books, when its numbers are known."""
        self.notes.append(("end", self.event))

    def own(self) -> PauliSum:
        """The terms of this rank, in rising order of their words."""
        return PauliSum(self.n_qubits, *self.table.terms(self._settled())).sorted()

    def in_bits(self, bits: str | None = None) -> float:
        """This rank's part of the value in a computational state; None is all 0."""
        ones = pack(int((bits or "0")[::-1], 2), 0, self.n_qubits)
        return self.table.in_bits(self._settled(), np.ascontiguousarray(ones[: len(ones) // 2]))

    def settle(self) -> None:
        """Wait for all events, and enter them in the books."""
        if not self.event and not self.notes:
            return
        self._catch_up()
        log = self.table.read_all()
        for kind, event in self.notes:
            self._enter(kind, log[event])
        n = int(log[self.event]["n"] + log[self.event]["added"])
        self.queue.clear()
        self.notes.clear()
        self.event = 0
        wasted = 2 * self.live < n and n > self.adapter.SMALLEST
        if wasted or (n > self.live and n + self.live > self.most):
            self._keep(self.table.alive(n))
        else:
            self.table.restart(n)

    def _begin(self, kind: str) -> int:
        """The number of a new event."""
        if self.event == self.adapter.LOG_EVENTS - 1:
            self.settle()
        self.event += 1
        self.notes.append((kind, self.event))
        return self.event

    def _do(self, launch: Callable[[], None]) -> None:
        """Launch for the newest event; again where an event before it found no room."""
        self.queue.append((self.event, launch))
        launch()

    def _meet(self, lists: Any, across: int) -> None:
        """Take branches to the rank that owns their words. All events before are done."""
        if across:
            lists = self._exchange(lists, self.rank ^ across)
        listed = len(lists[1])
        if not listed:
            return
        event = self._begin("meet")
        n = self._rows_after(event - 1)
        if n + listed > self.table.capacity:
            self._grow(n, 0, n + listed, event - 1)
        self.table.meet_rows(lists, event)

    def _exchange(self, lists: Any, peer: int) -> Any:
        """The peer's branches for this rank."""
        assert self.ranks is not None
        arrived = self.table.empty(self.ranks.gather_objects(len(lists[1]))[peer])
        sends, receives = (
            [(peer, array.reshape(-1)) for array in arrays if len(array)] for arrays in (lists, arrived)
        )
        self.ranks.exchange(sends, receives)
        return arrived

    def _catch_up(self) -> None:
        """Wait for all events; where one found no room, make room and launch it and what follows again."""
        while stalled := self.table.stalled_at():
            entry = self.table.read(stalled)
            n, listed = int(entry["n"]), int(entry["listed"])
            self._grow(n, listed, n + listed, stalled)
            again = [launch for event, launch in self.queue if event >= stalled][1:]
            for launch in again:
                launch()

    def _grow(self, n: int, listed: int, least: int, event: int) -> None:
        capacity = max(least, min(2 * self.table.capacity, self.most))
        self.table.grow(n, listed, capacity, event)

    def _rows_after(self, event: int) -> int:
        entry = self.table.read(event)
        return int(entry["n"] + entry["added"])

    def _settled(self) -> int:
        """The rows of the table, when all is done and the log is new."""
        self.settle()
        return self._rows_after(0)

    def _keep(self, chosen: Any) -> None:
        self.table.keep(chosen)
        self.live = len(chosen)

    def _enter(self, kind: str, entry: Any) -> None:
        """Follow an event, or the end of a step, in the books."""
        loss = Loss(float(entry["l1"]), float(entry["squares"]), int(entry["gone"]))
        if kind == "end":
            before, grown, branched, merged = self._step
            self.books.steps.append((before, grown, self.live, branched, merged))
            self._step = [self.live, self.live, 0, 0]
            return
        if kind == "sweep":
            self.live = int(entry["hits"])
            self.books.losses.append(loss)
            return
        if kind == "part":
            self._lost.append(loss)
        elif kind == "scale":
            self.books.losses.append(replace(total_loss(self._lost), may_merge=True))
            self._lost.clear()
        elif kind in ("turn", "quarter"):
            self.books.losses.append(loss)
        self.live += int(entry["added"] + entry["revived"])
        self.live -= int(entry["hits"]) if kind == "quarter" else 0
        self._step[1] = self.live
        self._step[2] += int(entry["hits"])
        self._step[3] += int(entry["merged"])
