"""The tasks of a question, each with a row of numbers: ranks share them or do each together.

What is done is kept in a checkpoint beside the output, so that an interrupted job goes on from there.

Changelog of `tnplan.answer.checkpoint`:
1 (2026-11-26): first version.
2 (2026-11-29): as `tnplan.common.checkpoint`. Version 1 is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile, identity_of_values
from tnplan.common.errors import InputError
from tnplan.common.files import check_writable
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.peps.checkpoint import PepsCheckpoint
from tnplan.executor.statevector.measurement import outcomes
from tnplan.jobs.job import Rank
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues

# What an engine gives back for a question, before it becomes an answer.


EXACT, STATISTICAL, TRUNCATION = "exact", "statistical", "truncation"
"""Where an error comes from."""
ESTIMATE = "estimate"
"""The kind of an error that is estimated from what truncation was measured to drop."""
ROUNDING = "rounding"
"""The kind of an error that is bounded by what the amplitudes of a compressed state were rounded by."""
BIASED = "biased"
"""The kind of a standard error about a mean that is not the value itself."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A value, its error with its kind, and what the engine says of its work.

    `gradient` has the derivatives that were asked for, float64 [observable, parameter].
    """

    value: Any
    error: Any
    error_kind: str
    details: dict[str, Any] = field(default_factory=dict)
    gradient: Array | None = None


def series(outcomes: Sequence[Outcome]) -> Outcome:
    """The values after several parts of a circuit, which axis 0 counts, with their errors."""
    kinds = [each.error_kind for each in outcomes if each.error_kind != EXACT]
    errors = [np.broadcast_to(each.error, np.shape(each.value)) for each in outcomes]
    details, vacuous = dict(outcomes[-1].details), "error_bound_is_vacuous"
    if vacuous in details:
        details[vacuous] = all(each.details[vacuous] for each in outcomes)
    values = np.array([each.value for each in outcomes])
    return Outcome(values, np.array(errors) if kinds else 0.0, kinds[0] if kinds else EXACT, details)


def linear_xeb(probabilities: Array, n_qubits: int) -> tuple[float, float]:
    """The linear cross-entropy 2^n <p> - 1 of samples, and its standard error.

    - `probabilities`: The exact probability of each sampled string, two or more.
    - `n_qubits`: n, the length of the strings.
    - returns: About 1 for exact samples of a random circuit, 0 for uniform ones (Arute et al., Nature 574,
      505).
    """
    scaled = np.asarray(probabilities, np.float64) * 2.0**n_qubits
    return float(scaled.mean() - 1), float(scaled.std(ddof=1) / np.sqrt(len(scaled)))


def cross_entropy(probabilities: Array, n_qubits: int, is_independent: bool) -> dict[str, Any]:
    """What an answer says of the linear cross-entropy of samples, from the exact probability of each.

    The standard error is left out where samples are correlated.
    """
    if len(probabilities) < 2:
        return {}
    value, error = linear_xeb(probabilities, n_qubits)
    return {"linear_xeb": value, "linear_xeb_error": error if is_independent else None}


def counts_of(drawn: Array, program: CircuitProgram) -> dict[str, int]:
    """How often each outcome came, of strings of all qubits, uint8 [shot, qubit].

    Different strings may give the same classical bits: `outcomes` keeps the measured bits alone.
    """
    rows, numbers = np.unique(drawn, axis=0, return_counts=True)
    texts = ["".join(map(str, row)) for row in rows.tolist()]
    counts: Counter[str] = Counter()
    for text, number in zip(outcomes(texts, program), numbers.tolist(), strict=True):
        counts[text] += number
    return dict(sorted(counts.items()))


MEETING_S = 2.0
"""Seconds after which ranks meet, tell what they have done, and share what is left anew."""

Rows = dict[int, Array]
"""The numbers of each task that is done, float64."""


class TaskCheckpoint(CheckpointFile):
    """The tasks that are done, in a file beside the output. Rank 0 alone reads and writes it."""

    FORMAT, VERSION = "tnplan.answer.checkpoint", 2
    OTHERS = "circuit, question or method"

    def rows(self, widths: Sequence[int], resume: bool) -> Rows:
        """Those of an interrupted job; none where there is no file. Refuses the file of another job.

        `widths` says how many numbers each task gives.
        """
        check_writable(self.path)

        def rows_of(document: dict[str, Any], _: dict[str, Array]) -> Rows:
            rows = {int(task): np.array(row, np.float64) for task, row in document["tasks"].items()}
            if any(row.shape != (widths[task],) or not np.isfinite(row).all() for task, row in rows.items()):
                raise ValueError
            return rows

        return self.restored(resume, rows_of) or {}

    def write(self, done: Mapping[int, Array]) -> None:
        """Replace the file."""
        self.replace({"tasks": {str(task): row.tolist() for task, row in done.items()}})


def checkpoint_of(
    query: CircuitQuery, method: str, options: QuestionOptions
) -> TaskCheckpoint | PepsCheckpoint | None:
    """The checkpoint of a question; None where none is kept. Refuses to resume what has none."""
    question = query.question
    has_tasks = isinstance(question, ExpectationValues) and not (question.names or question.after)
    if not has_tasks or (method == "statevector" and query.is_random):
        if options.resume:
            raise InputError(
                "--resume", "is for expectation values without gradients, trajectories and --after",
                "leave it out", topic="checkpoints",
            )  # fmt: skip
        return None
    if options.checkpoint_file is None:
        return None
    truncation = None if options.truncation is None else asdict(options.truncation)
    plan = None if options.monte_carlo is None else asdict(options.monte_carlo)
    # Invariant: everything that a row of numbers depends on is in the identity. Devices, ranks and
    # threads are not: a job may go on with others.
    parts = [query.program, question, method, options.precision, truncation, plan]
    if method == "peps":
        identity = identity_of_values(*parts, options.max_bond, options.cutoff)
        return PepsCheckpoint(options.checkpoint_file, identity)
    return TaskCheckpoint(options.checkpoint_file, identity_of_values(*parts))


@dataclass(frozen=True, eq=False)
class TaskList:
    """Tasks that ranks share, or do each together. Its calls are collective.

    - `rank`: This rank, with what it says of its progress.
    - `n_tasks`: How many there are.
    - `row_of`: The numbers of a task.
    - `checkpoint`: Where rank 0 writes what is done.
    - `noun`: What progress calls a task; None where tasks say themselves how far they are.
    - `costs`: The predicted ones of the tasks, in any unit.
    """

    rank: Rank
    n_tasks: int
    row_of: Callable[[int], Array]
    checkpoint: TaskCheckpoint | None = None
    noun: str | None = None
    costs: Sequence[float] | None = None

    def shared(self, done: Rows) -> list[Array]:
        """The numbers of all tasks, each of which one rank does; those that are `done` are not done again."""
        world, done = self.rank.world, dict(done)
        self._tell(done)
        while left := [task for task in range(self.n_tasks) if task not in done]:
            # Ranks meet every MEETING_S seconds: each then takes every size-th task of those that are
            # left, so that a rank with long tasks does not keep the others waiting at the end.
            own = left[world.rank :: world.size]
            # Invariant: `left` is the same on every rank, since all have gathered the same rows.
            for rows in world.gather_objects(agree(world, partial(self._for_a_while, own))):
                done |= rows
            self._write(done)
            self._tell(done)
        return [done[task] for task in range(self.n_tasks)]

    def together(self, done: Rows) -> list[Array]:
        """The numbers of all tasks, each of which all ranks do together."""
        done, last = dict(done), perf_counter()
        self._tell(done)
        for task in range(self.n_tasks):
            if task in done:
                continue
            done[task] = self.row_of(task)
            # A clock may only decide what rank 0 does alone: writing is not collective.
            if self.rank.is_first and perf_counter() - last > MEETING_S:
                self._write(done)
                self._tell(done)
                last = perf_counter()
        return [done[task] for task in range(self.n_tasks)]

    def _for_a_while(self, tasks: Sequence[int]) -> Rows:
        """The first tasks, until it is time to meet."""
        begin, rows = perf_counter(), {}
        for task in tasks:
            rows[task] = self.row_of(task)
            if perf_counter() - begin > MEETING_S:
                break
        return rows

    def _write(self, done: Rows) -> None:
        if self.rank.is_first and self.checkpoint is not None:
            self.checkpoint.write(done)

    def _tell(self, done: Rows) -> None:
        """Say how far the job is."""
        if self.noun is not None:
            costs = self.costs
            share = None if costs is None else sum(costs[task] for task in done) / sum(costs)
            self.rank.say(len(done), self.n_tasks, f"{self.noun} {len(done)} of {self.n_tasks}", share=share)
