"""The terms of a GPU and the log of what happens to them: launches that wait for nothing.

Every change is an event, launched at once, Cliffords in a row when something else follows; what it did stands
in a log on the GPU. `settle` waits, enters the log in the ledger, and where rows found no room, makes room
and does the rest again. It is called when the log is full and wherever the host needs a number. Knows no
step of a propagation, and no other rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tnplan.circuits.observables.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.tableau import CliffordLayer
from tnplan.executor.pauli.cuda.ledger import EventLedger
from tnplan.executor.pauli.terms.ledger import Ledger
from tnplan.executor.pauli.terms.protocol import Terms
from tnplan.executor.pauli.terms.truncation import TermLimits

Again = Callable[[int, int], None]
"""A launch; from an event on, if it is not 0, where a first attempt found no room and left so many rows."""

FOURFOLD_BELOW = 1 << 21
"""Rows below which arrays grow fourfold, else twofold."""


class LoggedTerms(Terms):
    """Terms on the current GPU, in a table, with their log and ledger. Coefficients are real."""

    def __init__(self, start: PauliSum) -> None:
        from tnplan.executor.pauli.cuda import table as table_module

        if np.iscomplexobj(start.coefficients):
            raise InputError("observable", "has complex coefficients", "give its two parts one by one")
        self.n_qubits, self.adapter = start.n_qubits, table_module
        self.table = table_module.GpuTable(start.keys, start.coefficients)
        self.event_ledger = EventLedger(start.n_terms)
        self.ledger, self.most = self.event_ledger.ledger, table_module.MOST_ROWS
        self.event = self.moved_bytes = 0
        self.queue: list[tuple[int, Again]] = []
        """Launches since the log began, and their last events."""
        self.maps: list[CliffordLayer] = []
        """Cliffords of the newest event that are not launched yet."""
        self.is_stale = False
        """Whether rows have changed since they were entered into the table."""
        self.within: TermLimits | None = None
        """All terms are within these limits."""

    def continue_from(self, ledger: Ledger, frequencies: Array) -> None:
        """Go on with a ledger, and with frequencies in the order in which the terms were given."""
        self.ledger = self.event_ledger.ledger = ledger
        self.table.frequencies[: len(frequencies)].set(np.ascontiguousarray(frequencies))

    def close(self) -> None:
        """Give the memory back."""
        self.queue.clear()
        self.table.close()

    @property
    def n(self) -> int:
        """How many terms this rank has; waits."""
        self.settle()
        return self.event_ledger.live

    @property
    def size_bytes(self) -> int:
        """What this rank's arrays take, and took while words moved."""
        return self.table.size_bytes + self.moved_bytes

    def settle(self) -> None:
        """Wait for all events, and enter them in the ledger."""
        if not self.event and not self.event_ledger.notes:
            return
        self._launch_maps()
        self._enter(self._catch_up(self.event + 1))

    def _enter(self, log: Array) -> None:
        """Enter the log in the ledger, and begin a new one."""
        self.event_ledger.enter(log)
        n, live = rows_after(log[self.event]), self.event_ledger.live
        self.queue.clear()
        self.event = 0
        wasted = 3 * n > 4 * live and n > self.adapter.SMALLEST_CAPACITY
        if wasted or (n > live and n + live > self.most):
            self._close_gaps(n)
        else:
            self.table.restart(n, max(0, n - live))

    def _begin(self, kind: str) -> int:
        """The number of a new event."""
        self._launch_maps()
        if self.event == self.adapter.LOG_EVENTS - 1:
            self.settle()
        self.event += 1
        self.event_ledger.note(kind, self.event)
        return self.event

    def _do(self, launch: Again) -> None:
        """Launch for the newest event; again where an event before it found no room."""
        self.queue.append((self.event, launch))
        launch(0, 0)

    def _launch_maps(self) -> None:
        """Launch the Cliffords that are not launched yet."""
        if not self.maps:
            return
        distinct = list({id(one): one for one in self.maps}.values())
        numbers = {id(one): number for number, one in enumerate(distinct)}
        order = np.array([numbers[id(one)] for one in self.maps], np.int32)
        *maps, order = self.table.to_gpu(
            *(np.stack([getattr(one, name) for one in distinct]) for name in ("images", "powers", "touched")),
            order,
        )  # fmt: skip
        event = self.event
        self._do(lambda *_: self.table.clifford(maps, order, event))
        self.maps.clear()
        self.is_stale, self.within = True, None

    def _refresh(self) -> None:
        """Enter all rows into the table, if they have changed."""
        if self.is_stale:
            event = self.event
            self._do(lambda *_: self.table.rebuild(event))
            self.is_stale = False

    def _catch_up(self, last: int = 0) -> Array:
        """Wait for all events; where one found no room, make room and launch it and what follows again.

        So too where rotations wait for the form that is for more rows. Returns the log before event `last`.
        """
        while True:
            stalled, log = self.table.read_all(last)
            if not stalled:
                return log
            wanted, there = int(self.table.read(stalled)["n"]), self.table.capacity
            if wanted > there:
                self._grow(there, wanted, wanted - there)
            else:
                self.table.choose_form(wanted)
                self.table.resume()
            again = [launch for event, launch in self.queue if event >= stalled]
            again[0](stalled, there if wanted > there else 0)
            for launch in again[1:]:
                launch(0, 0)

    def _grow(self, n: int, least: int, failures: int = 0) -> None:
        capacity = self.table.capacity
        times = 2 if capacity >= FOURFOLD_BELOW else 4
        self.table.grow(n, max(least, min(times * capacity, self.most)), failures)

    def _rows_after(self, event: int) -> int:
        return rows_after(self.table.read(event))

    def _settled(self) -> int:
        """The rows of the table, when all is done and the log is new."""
        self.settle()
        return self._rows_after(0)

    def _close_gaps(self, n: int) -> None:
        self.event_ledger.live = self.table.close_gaps(n)
        self.is_stale = False

    def _keep(self, chosen: Any) -> None:
        self.table.keep(chosen)
        self.event_ledger.live = len(chosen)
        self.is_stale = False


def rows_after(event: Any) -> int:
    """How many rows an event left."""
    return int(event["n"] + event["added"] - event["packed"])
