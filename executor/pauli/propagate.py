"""Propagation: an observable taken backwards through steps, from the last to the first. Reads no file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from executor.pauli.frame import absorb
from executor.pauli.hash_terms import HashTerms
from executor.pauli.sorted_terms import SortedTerms
from executor.pauli.steps import Clifford, Rotation, Step, Transfer, quarter_turns, simple_steps
from executor.pauli.truncation import Dropped, Record, Truncation
from executor.pauli.words import PauliSum, pack
from planner.errors import InputError

ENGINES: dict[str, Callable[[PauliSum], Any]] = {"hash": HashTerms, "sort": SortedTerms}
EXACT_TURNS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))


@dataclass(frozen=True)
class Progress:
    """Where a propagation stands: steps done of all, terms, bytes of the arrays."""

    step: int
    steps: int
    terms: int
    size_bytes: int


@dataclass(frozen=True)
class Propagation:
    """U^dagger O U as a sum of words, what was dropped on the way, and how much work it was.

    `steps` were done on terms: where Cliffords could be absorbed they are the rotations alone. `visits` is
    the sum over steps of the terms before each.
    """

    result: PauliSum
    dropped: Dropped
    record: Record
    steps: int
    visits: int
    largest: int
    size_bytes: int
    time_s: float


def propagate(
    steps: Sequence[Step],
    observable: PauliSum,
    truncation: Truncation | None = None,
    *,
    engine: str = "hash",
    keep_cliffords: bool = False,
    stop_above: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Propagation:
    """Take `observable` through `steps`, given in the order in which they act on the state.

    Cliffords are moved to the end of the circuit first, unless a truncation looks at letters, a step is a
    transfer, or `keep_cliffords`. `stop_above` terms raise InputError. `engine` is hash (numba) or sort
    (NumPy); both give the same terms, and the same values to rounding.
    """
    if engine not in ENGINES:
        raise InputError("engine", f"is {engine!r}", f"use {' or '.join(ENGINES)}")
    limits = truncation or Truncation()
    check_steps(steps, observable.n_qubits)
    _check_room(observable, limits, stop_above)
    begin = perf_counter()
    todo, start = simple_steps(steps), observable
    whole = any(isinstance(step, Transfer) for step in todo)
    if not (whole or limits.needs_letters or keep_cliffords):
        todo, start = absorb(todo, observable)
    work = _Work(ENGINES[engine](start), limits, stop_above)
    batches = fused(todo)
    for number, batch in enumerate(batches, start=1):
        work.do(batch, last=number == len(batches))
        if progress is not None:
            progress(Progress(number, len(batches), work.terms.n, work.terms.size_bytes))
    return Propagation(
        work.terms.sum(), work.dropped, work.record, len(batches), work.visits, work.largest,
        work.size_bytes, perf_counter() - begin,
    )  # fmt: skip


def fused(steps: Sequence[Step]) -> list[Rotation | Transfer | list[Clifford]]:
    """The steps from the last to the first, Cliffords in a row as one batch."""
    batches: list[Rotation | Transfer | list[Clifford]] = []
    for step in reversed(steps):
        if not isinstance(step, Clifford):
            batches.append(step)
        elif batches and isinstance(batches[-1], list):
            batches[-1].append(step)
        else:
            batches.append([step])
    return batches


def check_steps(steps: Sequence[Step], n_qubits: int) -> None:
    """Refuse steps on qubits that the observable's circuit does not have, and angles that are not finite."""
    for number, step in enumerate(steps):
        if isinstance(step, Rotation):
            last = (step.x | step.z).bit_length() - 1
            if not math.isfinite(step.angle):
                raise InputError(f"step {number}", f"has the angle {step.angle}", "give finite radians")
        else:
            last = max(step.qubits)
        if last >= n_qubits:
            raise InputError(f"step {number}", f"acts on qubit {last}", f"use qubits 0 to {n_qubits - 1}")


def _check_room(observable: PauliSum, limits: Truncation, stop_above: int | None) -> None:
    for name, room in (("max_terms", limits.max_terms), ("stop_above", stop_above)):
        if room is not None and room < observable.n_terms:
            raise InputError(
                name,
                f"is {room}, and the observable has {observable.n_terms} terms",
                "allow that many or more",
            )


class _Work:
    """The terms, and what has happened to them so far."""

    def __init__(self, terms: Any, limits: Truncation, stop_above: int | None) -> None:
        self.terms = terms
        self.limits = limits
        self.stop_above = stop_above
        self.dropped = Dropped()
        self.record = Record()
        self.visits = 0
        self.largest = terms.n
        self.size_bytes = terms.size_bytes
        self.since = 0
        self.has_zeros = False
        self.sweeps = replace(limits, every=1, branch_cut=0.0, max_terms=None) != Truncation()

    def do(self, batch: Rotation | Transfer | list[Clifford], *, last: bool) -> None:
        """One step, and the truncation that is due after it."""
        self.visits += self.terms.n
        branched, met = self._apply(batch)
        self.largest = max(self.largest, self.terms.n)
        self.size_bytes = max(self.size_bytes, self.terms.size_bytes)
        self.since += len(batch) if isinstance(batch, list) else 1
        if last or self.since >= self.limits.every:
            self._truncate()
        self.record.add(self.terms.n, branched, met)
        if self.stop_above is not None and self.terms.n > self.stop_above:
            raise InputError(
                f"step {len(self.record.terms)}",
                f"leaves {self.terms.n} terms, more than {self.stop_above}",
                "allow more terms or truncate",
            )

    def _apply(self, batch: Rotation | Transfer | list[Clifford]) -> tuple[int, int]:
        cut = self.limits.branch_cut
        if isinstance(batch, list):
            self.terms.clifford(batch)
            return 0, 0
        if isinstance(batch, Transfer):
            self.has_zeros = True
            counts: tuple[int, int] = self.terms.transfer(batch, cut, self.dropped)
            return counts
        turns = quarter_turns(batch.angle)
        cosine, sine = (math.cos(batch.angle), math.sin(batch.angle)) if turns is None else EXACT_TURNS[turns]
        if turns in (1, 3):
            self.has_zeros = True
        generator = pack(batch.x, batch.z, self.terms.n_qubits)
        counts = self.terms.rotate(generator, cosine, sine, cut, self.dropped)
        return counts

    def _truncate(self) -> None:
        self.since = 0
        if self.sweeps or self.has_zeros:
            self.terms.sweep(self.limits.limits, self.limits.needs_letters, self.dropped)
            self.has_zeros = False
        if self.limits.max_terms is not None:
            self.terms.keep_largest(self.limits.max_terms, self.dropped)
