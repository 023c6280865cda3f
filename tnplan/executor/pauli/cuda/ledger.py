"""What launches on a GPU did, entered in the ledger: reads the columns of a log. Knows no array of terms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.pauli.cuda.layout import EVENT
from tnplan.executor.pauli.terms.ledger import Ledger, Loss, total_loss

CUT, SWEPT = ("l1", "squares", "gone"), ("swept_l1", "swept_squares", "swept")
"""The fields of what was lost in branches, and in sweeps."""
PLACES = {name: number for number, name in enumerate(EVENT.names or ())}
"""The places of the fields of an event, which has 8 bytes for each."""
COUNTED = [
    PLACES[name] for name in ("fresh", "revived", "passed", "hits", "merged", "swept", "zeros", "left")
]
LOSSES = [[PLACES[name] for name in names] for names in (CUT, SWEPT)]


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
        part = log[first : first + n]
        counts, sums = (part.view(kind).reshape(n, -1) for kind in (np.int64, np.float64))
        fresh, revived, passed, hits, merged, swept, zeros, left = counts[:, COUNTED].T
        more = fresh + revived + passed - hits * quarters
        after = np.cumsum(more - (swept + zeros) * (sweeps == 1)) + self.live
        # A sweep of all rows counts the terms anew.
        resets = np.maximum.accumulate(np.where(sweeps == 2, np.arange(n), -1))
        after += np.where(resets >= 0, (left - after)[resets], 0)
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
        own = log[event]
        if kind == "sweep":
            self.ledger.losses.append(_loss(own, SWEPT))
            self.live = int(own["left"])
            return
        loss = _loss(own, CUT)
        if kind == "part":
            self._lost.append(loss)
        elif kind == "scale":
            self.ledger.losses.append(total_loss(self._lost)._replace(may_merge=True))
            self._lost.clear()
        elif kind in ("turn", "quarter"):
            self.ledger.losses.append(loss)
        self.live += sum(int(own[name]) for name in ("added", "fresh", "revived", "passed"))
        self.live -= int(own["hits"]) if kind == "quarter" else 0
        self._step[1] = self.live
        self._step[2] += int(own["hits"])
        self._step[3] += int(own["merged"])


def _loss(event: Any, names: tuple[str, ...]) -> Loss:
    """What an event lost in branches or in its sweep."""
    l1, squares, terms = (event[name].item() for name in names)
    return Loss(l1, squares, terms)
