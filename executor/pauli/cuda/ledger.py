"""What launches on a GPU did, entered in the ledger: reads the columns of a log. Knows no array of terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tnplan.executor.pauli.terms.ledger import Ledger, Loss, total_loss

Columns = dict[str, list[Any]]
"""The fields of the struct Event (table.cuh), an element an event."""
CUT, SWEPT = ("l1", "squares", "gone"), ("swept_l1", "swept_squares", "swept")
"""The columns of what was lost in branches, and in sweeps."""


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

    def note(self, kind: str, event: int, *rotations: Sequence[int]) -> None:
        """Note an event, or that a step ends with it.

        "steps" are rotations from this event on, each a step: whether by pi/2, and which sweep followed.
        """
        self.notes.append((kind, event, *rotations))

    def enter(self, log: Columns) -> None:
        """Enter all that is noted."""
        for kind, event, *rotations in self.notes:
            if kind == "steps":
                self._enter_steps(log, event, *rotations)
            else:
                self._enter(kind, event, log)
        self.notes.clear()

    def _enter_steps(self, log: Columns, first: int, quarters: Sequence[int], sweeps: Sequence[int]) -> None:
        """Enter rotations, each of them a step, and their sweeps."""
        part = slice(first, first + len(sweeps))
        names = ("fresh", "revived", "passed", "hits", "merged", "swept", "zeros", "left")
        live, steps = self.live, self.ledger.steps
        for is_quarter, sweep, fresh, revived, passed, hits, merged, swept, zeros, left in zip(
            quarters, sweeps, *(log[name][part] for name in names), strict=True
        ):
            grown = live + fresh + revived + passed - (hits if is_quarter else 0)
            after = grown if sweep == 0 else grown - swept - zeros if sweep == 1 else left
            steps.append((live, grown, after, hits, merged))
            live = after
        self.live = live
        self._step = [live, live, 0, 0]
        for losses in (CUT, SWEPT):
            self.ledger.losses.extend(map(Loss, *(log[name][part] for name in losses)))

    def _enter(self, kind: str, event: int, log: Columns) -> None:
        """Follow an event, or the end of a step."""
        if kind == "end":
            before, grown, branched, merged = self._step
            self.ledger.steps.append((before, grown, self.live, branched, merged))
            self._step = [self.live, self.live, 0, 0]
            return
        if kind == "sweep":
            self.ledger.losses.append(Loss(*(log[name][event] for name in SWEPT)))
            self.live = log["left"][event]
            return
        loss = Loss(*(log[name][event] for name in CUT))
        if kind == "part":
            self._lost.append(loss)
        elif kind == "scale":
            self.ledger.losses.append(total_loss(self._lost)._replace(may_merge=True))
            self._lost.clear()
        elif kind in ("turn", "quarter"):
            self.ledger.losses.append(loss)
        self.live += sum(log[name][event] for name in ("added", "fresh", "revived", "passed"))
        self.live -= log["hits"][event] if kind == "quarter" else 0
        self._step[1] = self.live
        self._step[2] += log["hits"][event]
        self._step[3] += log["merged"][event]
