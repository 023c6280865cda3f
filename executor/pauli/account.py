"""What happened to the terms of a propagation: how many there were, and what was dropped. Knows no array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

Number = TypeVar("Number", int, complex)


class Loss(NamedTuple):
    """What one event dropped: the sums of |c| and of |c|^2, and the number of terms.

    `may_merge`: several of them may have been of one word, as a transfer's contributions are; then `l1`
    bounds the normalized Frobenius norm of what was dropped, else that is the root of `squares`.
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
    bounds the normalized Frobenius norm of the error, sqrt(tr(E^dagger E) / 2^n).
    """

    l1: float
    l2: float
    terms: int


@dataclass(frozen=True)
class Record:
    """What happened at each step.

    `before`: terms before it, `grown`: after it and before its truncation, `terms`: after its truncation;
    `branched`: terms that it split, `merged`: contributions that met a term.
    """

    before: tuple[int, ...]
    grown: tuple[int, ...]
    terms: tuple[int, ...]
    branched: tuple[int, ...]
    merged: tuple[int, ...]


@dataclass
class Account:
    """The books of one rank, kept while it works: a line a step, and every loss in order."""

    steps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """The fields of `Record`, in order."""
    losses: list[Loss] = field(default_factory=list)

    def record(self) -> Record:
        """The steps, field by field."""
        columns: list[tuple[int, ...]] = list(zip(*self.steps, strict=True)) or [()] * 5
        return Record(*columns)

    def dropped(self) -> Dropped:
        """The sums of all losses."""
        l1, squares, terms, may_merge = zip(*self.losses, strict=True) if self.losses else [()] * 4
        norms = np.where(np.array(may_merge, bool), l1, np.sqrt(squares))
        return Dropped(sum(l1, 0.0), float(norms.sum()), sum(terms))


def total_loss(losses: Sequence[Loss]) -> Loss:
    """One event that happened in several places."""
    return Loss(
        sum(loss.l1 for loss in losses),
        sum(loss.squares for loss in losses),
        sum(loss.terms for loss in losses),
        any(loss.may_merge for loss in losses),
    )


def total(accounts: Sequence[Account]) -> Account:
    """The books of all ranks as one; each has the same steps and events."""
    if len(accounts) == 1:
        return accounts[0]
    steps = [
        tuple(sum(column) for column in zip(*lines, strict=True))
        for lines in zip(*(account.steps for account in accounts), strict=True)
    ]
    losses = zip(*(account.losses for account in accounts), strict=True)
    return Account(steps, [total_loss(event) for event in losses])
