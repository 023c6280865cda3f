"""Rotations that stay on a GPU, many in a launch, also under limits of terms and of memory.

Under a limit a launch ends where the next group may pass it, and the host looks at the terms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, commuting_groups
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.tableau import CliffordLayer
from tnplan.executor.pauli.cuda.layout import EVENT, limits_struct
from tnplan.executor.pauli.terms.ledger import Ledger, Loss, total_loss
from tnplan.executor.pauli.terms.protocol import RotationBatch, Terms
from tnplan.executor.pauli.terms.selection import TermCap
from tnplan.executor.pauli.terms.truncation import NO_LIMIT, TermLimits

CUT, SWEPT = ("l1", "squares", "gone"), ("swept_l1", "swept_squares", "swept")
"""The fields of what was lost in branches, and in sweeps."""
FIELD_NUMBERS = {name: number for number, name in enumerate(EVENT.names or ())}
"""The numbers of the fields of an event, which has 8 bytes for each."""
COUNTED = [
    FIELD_NUMBERS[name] for name in ("fresh", "revived", "passed", "hits", "merged", "swept", "zeros", "left")
]
LOSSES = [[FIELD_NUMBERS[name] for name in names] for names in (CUT, SWEPT)]


class EventLedger:
    """The ledger of terms on a GPU, `live` of them, and notes of what is to be entered.

    A term whose coefficient is 0 does not count as one.
    """

    def __init__(self, live: int) -> None:
        self.ledger, self.live = Ledger(), live
        self.notes: list[tuple[Any, ...]] = []
        """What the events since the log began were, and where steps end."""
        self._step = [live, live, 0, 0]
        self._lost: list[Loss] = []

    def note(self, kind: str, event: int, *rotations: Array) -> None:
        """Note an event, or that a step ends with it.

        "steps" are rotations from this event on, each a step: whether by pi/2, and which sweep followed.
        """
        self.notes.append((kind, event, *rotations))

    def enter(self, log: Array) -> None:
        """Enter all that is noted; `log` has an element an event, with the fields of Event (table.cuh)."""
        for kind, event, *rotations in self.notes:
            if kind == "steps":
                self._enter_steps(log, event, *rotations)
            else:
                self._enter(kind, event, log)
        self.notes.clear()

    def amend(self) -> None:
        """Say of the newest step that there are `live` terms after it."""
        newest = self.ledger.steps
        if newest:
            newest[-1] = (*newest[-1][:2], self.live, *newest[-1][3:])
        else:
            self.ledger.blocks[-1][0][-1, 2] = self.live
        self._step = [self.live, self.live, 0, 0]

    def _enter_steps(self, log: Array, first: int, quarters: Array, sweeps: Array) -> None:
        """Enter rotations, each of them a step, and their sweeps."""
        n = len(sweeps)
        rows = log[first : first + n]
        counts, sums = (rows.view(kind).reshape(n, -1) for kind in (np.int64, np.float64))
        fresh, revived, passed, hits, merged, swept, zeros, live = counts[:, COUNTED].T
        more = fresh + revived + passed - hits * quarters
        # Terms after each step: new rows, revived and passed ones come in. A quarter turn moves the
        # words that it hits, and a sweep of changed rows takes away what it drops and zeros.
        after = np.cumsum(more - (swept + zeros) * (sweeps == 1)) + self.live
        # A sweep of all rows counts the terms anew.
        resets = np.maximum.accumulate(np.where(sweeps == 2, np.arange(n), -1))
        after += np.where(resets >= 0, (live - after)[resets], 0)
        steps, losses = np.empty((n, 5), np.int64), np.zeros((2, n, 4))
        steps[0, 0], steps[1:, 0] = self.live, after[:-1]
        steps[:, 1], steps[:, 2], steps[:, 3], steps[:, 4] = steps[:, 0] + more, after, hits, merged
        for loss, (*summed, counted) in zip(losses, LOSSES, strict=True):
            loss[:, :2], loss[:, 2] = sums[:, summed], counts[:, counted]
        self.ledger.enter(steps, losses.reshape(-1, 4))
        self.live = int(after[-1])
        self._step = [self.live, self.live, 0, 0]

    def _enter(self, kind: str, event: int, log: Array) -> None:
        """Follow an event, or the end of a step."""
        if kind == "end":
            before, grown, branched, merged = self._step
            self.ledger.steps.append((before, grown, self.live, branched, merged))
            self._step = [self.live, self.live, 0, 0]
            return
        outcome = log[event]
        if kind == "sweep":
            self.ledger.losses.append(_loss(outcome, SWEPT))
            self.live = int(outcome["left"])
            return
        loss = _loss(outcome, CUT)
        if kind == "branches":
            self._lost.append(loss)
        elif kind == "scale":
            self.ledger.losses.append(total_loss(self._lost)._replace(may_merge=True))
            self._lost.clear()
        elif kind in ("turn", "quarter"):
            self.ledger.losses.append(loss)
        self.live += sum(int(outcome[name]) for name in ("added", "fresh", "revived", "passed"))
        self.live -= int(outcome["hits"]) if kind == "quarter" else 0
        self._step[1] = self.live
        self._step[2] += int(outcome["hits"])
        self._step[3] += int(outcome["merged"])


def _loss(event: Any, names: tuple[str, ...]) -> Loss:
    """What an event lost in branches or in its sweep."""
    l1, squares, terms = (event[name].item() for name in names)
    return Loss(l1, squares, terms)


# The terms of a GPU and the log of what happens to them: launches that wait for nothing.
#
# Every change is an event, launched at once, Cliffords in a row when something else follows; what it did
# stands in a log on the GPU. `settle` waits, enters the log in the ledger, and where rows were lacking,
# enlarges the arrays and launches the rest again. It is called when the log is full and where the host
# needs a number. Knows no step of a propagation, and no other rank.


Again = Callable[[int, int], None]
"""A launch; from an event on, if it is not 0, where a first attempt lacked rows and left so many."""

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
        self.ledger, self.max_rows = self.event_ledger.ledger, table_module.MOST_ROWS
        self.event = self.moved_bytes = 0
        self.queue: list[tuple[int, Again]] = []
        """Launches since the log began, and their last events."""
        self.maps: list[CliffordLayer] = []
        """Cliffords of the newest event that are not launched yet."""
        self.is_stale = False
        """Whether rows have changed since they were entered into the table."""
        self.limits_met: TermLimits | None = None
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
        if wasted or (n > live and n + live > self.max_rows):
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
        """Launch for the newest event; again where an event before it lacked rows."""
        self.queue.append((self.event, launch))
        launch(0, 0)

    def _launch_maps(self) -> None:
        """Launch the Cliffords that are not launched yet."""
        if not self.maps:
            return
        distinct = list({id(layer): layer for layer in self.maps}.values())
        numbers = {id(layer): number for number, layer in enumerate(distinct)}
        order = np.array([numbers[id(layer)] for layer in self.maps], np.int32)
        stacks = (
            np.stack([getattr(layer, name) for layer in distinct]) for name in ("images", "powers", "touched")
        )
        *maps, order = self.table.to_gpu(*stacks, order)
        event = self.event
        self._do(lambda *_: self.table.clifford(maps, order, event))
        self.maps.clear()
        self.is_stale, self.limits_met = True, None

    def _refresh(self) -> None:
        """Enter all rows into the table, if they have changed."""
        if self.is_stale:
            event = self.event
            self._do(lambda *_: self.table.rebuild(event))
            self.is_stale = False

    def _catch_up(self, last: int = 0) -> Array:
        """Wait for all events; where one lacked rows, enlarge the arrays and launch it and later ones again.

        So too where rotations wait for the form that is for more rows. Returns the log before event `last`.
        """
        while True:
            stalled, log = self.table.read_all(last)
            if not stalled:
                return log
            needed, capacity = int(self.table.read(stalled)["n"]), self.table.capacity
            if needed > capacity:
                self._grow(capacity, needed, needed - capacity)
            else:
                self.table.choose_form(needed)
                self.table.resume()
            # Invariant: events after a stalled one have done nothing, so that they are launched
            # again in their order.
            launches = [launch for event, launch in self.queue if event >= stalled]
            launches[0](stalled, capacity if needed > capacity else 0)
            for launch in launches[1:]:
                launch(0, 0)

    def _grow(self, n: int, least: int, failures: int = 0) -> None:
        capacity = self.table.capacity
        factor = 2 if capacity >= FOURFOLD_BELOW else 4
        self.table.grow(n, max(least, min(factor * capacity, self.max_rows)), failures)

    def _rows_after(self, event: int) -> int:
        return rows_after(self.table.read(event))

    def _settled(self) -> int:
        """The rows of the table, when all is done and the log is new."""
        self.settle()
        return self._rows_after(0)

    def _close_gaps(self, n: int) -> None:
        self.event_ledger.live = self.table.close_gaps(n)
        self.is_stale = False

    def _keep(self, rows: Any) -> None:
        self.table.keep(rows)
        self.event_ledger.live = len(rows)
        self.is_stale = False


def rows_after(event: Any) -> int:
    """How many rows an event left."""
    return int(event["n"] + event["added"] - event["packed"])


ANY_FREQUENCY = TermLimits(0.0, NO_LIMIT, NO_LIMIT, NO_LIMIT - 1, False)
"""No limit; frequencies are followed, since later steps may limit them."""


class RotatedTerms(LoggedTerms):
    """Terms on one GPU that are rotated, swept, and cut where they pass their limits."""

    def __init__(self, start: PauliSum) -> None:
        super().__init__(start)
        self.memory_terms: int | None = None
        """Terms that the memory holds, if that is bounded."""
        self.term_cap: TermCap | None = None
        self.may_be_past = False
        """Whether there may be more terms than the cap allows."""

    def cap(self, cap: TermCap) -> bool:
        """Have no more terms than `cap` allows after any step, on one GPU."""
        if self.ranks is not None:
            return False
        self.term_cap, self.max_rows = cap, min(self.max_rows, 2 * cap.n_terms)
        return True

    def limit(self, n_terms: int) -> None:
        """Do not double arrays past so many terms."""
        self.memory_terms, self.max_rows = n_terms, min(n_terms, self.max_rows)

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits."""
        event = self._begin("sweep")
        struct = limits_struct(limits, event)
        self._do(lambda *_: self.table.sweep(struct))
        self.limits_met = limits

    def _launch_rotations(self, rotations: RotationBatch, cut: float, limits: TermLimits | None) -> None:
        """Launch rotations at once; the log has enough elements."""
        table, first, sweeps = self.table, self.event + 1, self._sweeps(rotations, limits)
        self.limits_met = limits if rotations.due[-1] else None
        quarters = rotations.cosines == 0
        self.event += len(sweeps)
        if limits is None:
            self.event_ledger.note("quarter" if quarters[0] else "turn", first)
        else:
            self.event_ledger.note("steps", first, quarters, sweeps)
        past = limits_struct(limits or ANY_FREQUENCY, 0)

        @cache
        def structs(members: int) -> Array:
            groups = commuting_groups(rotations.generators, members, sweeps == 2)
            return table.rotation_structs(rotations, cut, sweeps, groups)

        self._do(
            lambda event, rows: table.rotate_all(
                structs(table.members), max(event - first, 0), first, rows, past
            )
        )

    def _sweeps(self, rotations: RotationBatch, limits: TermLimits | None) -> Array:
        """Which sweep follows each rotation, as the kernel numbers them."""
        is_within = np.concatenate([[self.limits_met == limits], rotations.due[:-1]])
        return np.where(rotations.due, np.where(is_within, 1, 2), 0)

    def _rotate_bounded(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations while the terms fit in the memory if the next one doubles them; holds the cap."""
        n_done = 0
        while n_done < len(rotations.due):
            rows = self._settled()
            limits_of_terms = [self.term_cap.n_terms] if self.term_cap is not None else []
            limits_of_terms += [self.memory_terms // 2] if self.memory_terms is not None else []
            bound = min(limits_of_terms)
            # A rotation doubles the terms at most: each anticommuting word gives one branch.
            if self.memory_terms is not None and 2 * self.event_ledger.live > self.memory_terms:
                assert n_done, "batch_limit allows none then"
                break
            if rows > bound:
                self._close_gaps(rows)
                rows = self.event_ledger.live
            n_done += self._launch_bounded(rotations.between(n_done), cut, limits, rows, bound)
            self._hold_cap()
        return n_done

    def _launch_bounded(
        self, rotations: RotationBatch, cut: float, limits: TermLimits, rows: int, max_rows: int
    ) -> int:
        """Rotations of so many rows until there are more than `max_rows` after one; how many. The log is new.

        Groups are so short that they do not lead past twice as many.
        """
        table = self.table
        self._refresh()
        rotations = rotations.between(0, self.adapter.LOG_EVENTS - 1)
        sweeps, past = self._sweeps(rotations, limits), limits_struct(limits, 0)
        count, first, resumed = len(sweeps), 0, 0
        # k commuting rotations in one pass make 2^k times the terms at most: k is such that this
        # stays within 2 * most.
        members = min(table.members, max(1, (2 * max_rows // max(1, rows)).bit_length() - 1))
        groups = commuting_groups(rotations.generators, members, sweeps == 2)
        structs = table.rotation_structs(rotations, cut, sweeps, groups)
        while True:
            table.rotate_all(structs, first, 1, resumed, past, 2 * max_rows >> members)
            stalled, log = table.read_all(count + 1)
            needed, capacity = int(log["n"][stalled]), table.capacity
            if not stalled or needed <= capacity:
                break
            self._grow(capacity, needed, needed - capacity)
            first, resumed = stalled - 1, capacity
        self.event = stalled - 1 if stalled else count
        self.limits_met = limits if rotations.due[self.event - 1] else None
        self.event_ledger.note("steps", 1, rotations.cosines[: self.event] == 0, sweeps[: self.event])
        n_done = self.event
        self._enter(log)
        return n_done

    def _hold_cap(self) -> None:
        """Where there are too many terms, drop those past the limits, then the smallest, or resample."""
        from tnplan.executor.pauli.cuda.selection import resample

        cap, self.may_be_past = self.term_cap, False
        if cap is None or self.event_ledger.live <= cap.n_terms:
            return
        # What the limits cut goes first, and only then the smallest.
        if self.limits_met != cap.limits:
            self.sweep(cap.limits)
            self.settle()
        if self.event_ledger.live > cap.n_terms:
            if cap.resampler is None:
                self._keep_largest(cap.n_terms)
            else:
                self._keep(resample(self.table, self._settled(), cap.resampler, cap.n_terms))
        self.event_ledger.amend()

    def _keep_largest(self, count: int) -> None:
        from tnplan.executor.pauli.cuda.selection import largest

        rows, l1, squares, dropped = largest(self.table, self._settled(), count)
        self.ledger.losses.append(Loss(l1, squares, dropped))
        self._keep(rows)
