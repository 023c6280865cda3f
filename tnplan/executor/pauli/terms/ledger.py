"""What happened to the terms of a propagation: how many there were, and what was dropped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from tnplan.common.arrays import Array

Number = TypeVar("Number", int, complex)


class Loss(NamedTuple):
    """What one event dropped: the sums of |c| and of |c|^2, and the number of terms that were not 0.

    `may_merge`: several of them may have been of one word, as a transfer's contributions are; then `l1`
    bounds the normalized Frobenius norm of what was dropped, else that is the root of `squares`, or `l1`
    where squares are past all numbers.
    """

    l1: float
    squares: float
    terms: int
    may_merge: bool = False


@dataclass(frozen=True)
class Dropped:
    """The sums of norms of what was dropped, event by event.

    `l1` is the sum of |coefficient|; without channels and with them it bounds the error of every expectation
    value. `l2` is the sum over events of the bounds of their norms; without channels that are not unital it
    bounds the normalized Frobenius norm of the error, sqrt(tr(E^dagger E) / 2^n). `terms` counts what was not
    0. Of states see `errors.error_of_state`. `norm` is the root of the sum of squares: that norm where
    what was dropped at different times is orthogonal, an estimate.
    """

    l1: float
    l2: float
    terms: int
    norm: float = 0.0

    def __add__(self, other: Dropped) -> Dropped:
        """What two ranks or runs dropped together."""
        return Dropped(
            self.l1 + other.l1, self.l2 + other.l2, self.terms + other.terms,
            math.hypot(self.norm, other.norm),
        )  # fmt: skip


@dataclass(frozen=True)
class Record:
    """What happened at each step.

    `before`: terms before it, `grown`: after it and before its truncation (on a CPU a limit
    on the number of terms acts before that), `terms`: after its truncation;
    `branched`: terms that it split, `merged`: contributions that met a term.
    """

    before: tuple[int, ...]
    grown: tuple[int, ...]
    terms: tuple[int, ...]
    branched: tuple[int, ...]
    merged: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Record({len(self.terms)} steps)"


@dataclass
class Ledger:
    """What happened on one rank: a line a step, and every loss in order."""

    steps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """The fields of `Record`, in order; those of the newest steps."""
    losses: list[Loss] = field(default_factory=list)
    """The newest losses."""
    blocks: list[tuple[Array, Array]] = field(default_factory=list)
    """Steps and losses before those, as `rows` gives them."""

    def enter(self, steps: Array, losses: Array) -> None:
        """Enter many steps and losses at once, as `rows` gives them."""
        self.blocks += [_rows(self.steps, self.losses), (steps, losses)]
        self.steps.clear()
        self.losses.clear()

    def rows(self) -> tuple[Array, Array]:
        """All steps, int64 [n, 5], and all losses, float64 [m, 4]; a line has the fields in order."""
        steps, losses = zip(*self.blocks, _rows(self.steps, self.losses), strict=True)
        return np.concatenate(steps), np.concatenate(losses)

    def record(self) -> Record:
        """The steps, field by field."""
        steps, _ = self.rows()
        return Record(*(tuple(column.tolist()) for column in steps.T))

    def dropped(self) -> Dropped:
        """The sums of all losses."""
        _, losses = self.rows()
        l1, squares, terms, may_merge = losses.T
        norms = np.where(may_merge != 0, l1, np.minimum(l1, np.sqrt(squares)))
        root = math.hypot(*norms.tolist())
        return Dropped(float(l1.sum()), float(norms.sum()), int(terms.sum()), root)


def _rows(steps: Sequence[tuple[int, ...]], losses: Sequence[Loss]) -> tuple[Array, Array]:
    """Steps and losses as arrays, a line each."""
    return np.array(steps, np.int64).reshape(-1, 5), np.array(losses, np.float64).reshape(-1, 4)


def loss_of(sizes: Array) -> Loss:
    """One event that dropped terms of these magnitudes, float64; squares past all numbers are infinite."""
    with np.errstate(over="ignore"):
        return Loss(float(sizes.sum()), float((sizes**2).sum()), int(np.count_nonzero(sizes)))


def total_loss(losses: Sequence[Loss]) -> Loss:
    """The losses of several shards as one event."""
    if len(losses) == 1:
        return losses[0]
    return Loss(
        sum(loss.l1 for loss in losses), sum(loss.squares for loss in losses),
        sum(loss.terms for loss in losses), any(loss.may_merge for loss in losses),
    )  # fmt: skip


def total(accounts: Sequence[Ledger]) -> Ledger:
    """The ledgers of all ranks as one; each has the same steps and events."""
    steps, losses = zip(*(account.rows() for account in accounts), strict=True)
    return Ledger(blocks=[(np.sum(steps, axis=0), np.sum(losses, axis=0))])
