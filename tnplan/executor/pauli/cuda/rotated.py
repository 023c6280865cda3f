"""Rotations that stay on a GPU, many in a launch, also under limits of terms and of memory.

Under a limit a launch ends where the next group may pass it, and the host looks at the terms.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tnplan.circuits.observables.pauli_sum import PauliSum, commuting_groups
from tnplan.common.arrays import Array
from tnplan.executor.pauli.cuda.layout import limits_struct
from tnplan.executor.pauli.cuda.logged import LoggedTerms
from tnplan.executor.pauli.terms.ledger import Loss
from tnplan.executor.pauli.terms.protocol import RotationBatch
from tnplan.executor.pauli.terms.selection import TermCap
from tnplan.executor.pauli.terms.truncation import NO_LIMIT, TermLimits

ANY_FREQUENCY = TermLimits(0.0, NO_LIMIT, NO_LIMIT, NO_LIMIT - 1, False)
"""No limit, where frequencies must be followed since it is not known whether they are one."""


class RotatedTerms(LoggedTerms):
    """Terms on one GPU that are rotated, swept, and held under their limits."""

    def __init__(self, start: PauliSum) -> None:
        super().__init__(start)
        self.room: int | None = None
        """Terms that the memory holds, if that is bounded."""
        self.term_cap: TermCap | None = None
        self.may_be_past = False
        """Whether there may be more terms than the cap allows."""

    def cap(self, cap: TermCap) -> bool:
        """Have no more terms than `cap` allows after any step, on one GPU."""
        if self.ranks is not None:
            return False
        self.term_cap, self.most = cap, min(self.most, 2 * cap.n_terms)
        return True

    def limit(self, n_terms: int) -> None:
        """Do not double arrays past so many terms."""
        self.room, self.most = n_terms, min(n_terms, self.most)

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits."""
        event = self._begin("sweep")
        past = limits_struct(limits, event)
        self._do(lambda *_: self.table.sweep(past))
        self.within = limits

    def _launch_rotations(self, rotations: RotationBatch, cut: float, limits: TermLimits | None) -> None:
        """Launch rotations at once; the log has room for them."""
        table, first, sweeps = self.table, self.event + 1, self._sweeps(rotations, limits)
        self.within = limits if rotations.due[-1] else None
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
        is_within = np.concatenate([[self.within == limits], rotations.due[:-1]])
        return np.where(rotations.due, np.where(is_within, 1, 2), 0)

    def _rotate_bounded(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations while the terms fit in the memory if the next one doubles them; holds the cap."""
        done = 0
        while done < len(rotations.due):
            rows = self._settled()
            bounds = [self.term_cap.n_terms] if self.term_cap is not None else []
            bounds += [self.room // 2] if self.room is not None else []
            least = min(bounds)
            if self.room is not None and 2 * self.event_ledger.live > self.room:
                assert done, "at_once allows none then"
                break
            if rows > least:
                self._close_gaps(rows)
                rows = self.event_ledger.live
            done += self._launch_bounded(rotations.between(done), cut, limits, rows, least)
            self._hold_cap()
        return done

    def _launch_bounded(
        self, rotations: RotationBatch, cut: float, limits: TermLimits, rows: int, most: int
    ) -> int:
        """Rotations of so many rows until there are more than `most` after one; how many. The log is new.

        Groups are so short that they do not lead past twice as many.
        """
        table = self.table
        self._refresh()
        rotations = rotations.between(0, self.adapter.LOG_EVENTS - 1)
        sweeps, past = self._sweeps(rotations, limits), limits_struct(limits, 0)
        count, first, resumed = len(sweeps), 0, 0
        members = min(table.members, max(1, (2 * most // max(1, rows)).bit_length() - 1))
        groups = commuting_groups(rotations.generators, members, sweeps == 2)
        structs = table.rotation_structs(rotations, cut, sweeps, groups)
        while True:
            table.rotate_all(structs, first, 1, resumed, past, 2 * most >> members)
            stalled, log = table.read_all(count + 1)
            wanted, there = int(log["n"][stalled]), table.capacity
            if not stalled or wanted <= there:
                break
            self._grow(there, wanted, wanted - there)
            first, resumed = stalled - 1, there
        self.event = stalled - 1 if stalled else count
        self.within = limits if rotations.due[self.event - 1] else None
        self.event_ledger.note("steps", 1, rotations.cosines[: self.event] == 0, sweeps[: self.event])
        done = self.event
        self._enter(log)
        return done

    def _hold_cap(self) -> None:
        """Where there are too many terms, drop those past the limits, then the smallest, or resample."""
        from tnplan.executor.pauli.cuda.selection import resample

        cap, self.may_be_past = self.term_cap, False
        if cap is None or self.event_ledger.live <= cap.n_terms:
            return
        if self.within != cap.limits:
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

        chosen, l1, squares, dropped = largest(self.table, self._settled(), count)
        self.ledger.losses.append(Loss(l1, squares, dropped))
        self._keep(chosen)
