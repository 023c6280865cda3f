"""Propagation: an observable taken backwards through steps, from the last to the first. Reads no file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, pack, pack_all
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.common.kernels.ahead import compile_soon
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.pauli.algebra.expectation import value_in
from tnplan.executor.pauli.algebra.gates import (
    Clifford,
    PauliStep,
    Rotation,
    TransferMatrix,
    acted_mask,
    quarter_turns,
    simple_steps,
)
from tnplan.executor.pauli.algebra.states import State
from tnplan.executor.pauli.algebra.symmetry import QubitSymmetry
from tnplan.executor.pauli.algebra.tableau import absorb
from tnplan.executor.pauli.cuda.terms import GpuTerms
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.batched_rotations import Bound, rotate_all
from tnplan.executor.pauli.terms.kernel_samples import rotation_kernels
from tnplan.executor.pauli.terms.ledger import Dropped, Record, total
from tnplan.executor.pauli.terms.protocol import RotationBatch, Terms
from tnplan.executor.pauli.terms.selection import Resampler, TermCap
from tnplan.executor.pauli.terms.sharded import ShardedTerms
from tnplan.executor.pauli.terms.truncation import TermLimits, Truncation

MOVED_ABOVE = 1 << 11
"""Terms above which a GPU is the faster, as measured."""
CAPPED_AT_ONCE = 16
"""Rotations after which they are counted, where the next may pass their cap."""


class FewTerms(ShardedTerms):
    """The terms of a lone rank on one core; `moved` gives those of its GPU when there are many.

    Complex coefficients stay here, for a GPU has real ones.
    """

    def __init__(self, start: PauliSum) -> None:
        super().__init__(start)
        self.moved_above = None if np.iscomplexobj(start.coefficients) else MOVED_ABOVE

    def rotate_many(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations one after another, each a step, until there are many terms; how many are done."""
        cap = self.term_cap
        if self.moved_above is None or (cap is not None and cap.n_terms <= self.moved_above):
            return super().rotate_many(rotations, cut, limits)
        max_terms = self.moved_above if cap is None else min(self.moved_above, cap.n_terms // 2)
        if self.n > max_terms:
            return super().rotate_many(rotations.between(0, CAPPED_AT_ONCE), cut, limits)
        local = rotations._replace(distances=np.zeros(len(rotations.due), np.int64))
        bound = Bound(max_terms, self.most_terms)
        return rotate_all(self.shards, local, cut, limits, self.ledger, bound=bound)

    def moved(self) -> Terms:
        """The terms on the GPU, if they are many."""
        n = self.n
        if self.moved_above is None or n <= self.moved_above:
            return self
        keys, coefficients, frequencies = self.shards[0].leave(np.arange(n))
        terms = GpuTerms(PauliSum(self.n_qubits, keys, coefficients))
        terms.continue_from(self.ledger, frequencies)
        self.close()
        return terms


KEEP = ("all", "own", "none")
"""Which of the final terms a rank may ask for."""
PROGRESS_INTERVAL_S = 1.0
"""Seconds between two reports of progress, at least."""
ROTATIONS_AHEAD = 512
"""Rotations ahead for which terms are distributed over ranks, at most."""
QUARTERS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
"""Cosine and sine of 0, 1, 2 and 3 times pi/2."""


@dataclass(frozen=True)
class Progress:
    """Where a propagation stands: steps done of all; terms of this rank and bytes of its arrays."""

    step: int
    steps: int
    terms: int
    size_bytes: int


class FullMemoryError(InputError):
    """A sum may have more terms than the memory holds."""


@dataclass(frozen=True)
class Propagation:
    """U^dagger O U as a sum of words, what was dropped on the way, and how much work it was.

    `result` has the terms of all ranks, of this one, or none, as `keep` says; `n_terms` counts all, and
    `value` is theirs in the state. Steps are those done on terms: where Cliffords could be
    absorbed, the rotations alone. `size_bytes` is the largest of this rank; `full` counts how often the
    memory was full and terms were dropped for it.
    """

    result: PauliSum
    n_terms: int
    value: complex
    dropped: Dropped
    record: Record
    size_bytes: int
    full: int
    time_s: float

    @property
    def steps(self) -> int:
        """How many steps were done."""
        return len(self.record.terms)

    @property
    def visits(self) -> int:
        """The sum over steps of the terms before each."""
        return sum(self.record.before)

    @property
    def largest(self) -> int:
        """The most terms at any time."""
        return max((*self.record.grown, *self.record.before[:1]), default=self.n_terms)


def propagate(
    steps: Sequence[PauliStep], observable: PauliSum, truncation: Truncation | None = None,
    resources: Resources | None = None, **options: Any,
) -> Propagation:  # fmt: skip
    """Take `observable` through `steps`, which act in this order: `propagate_all` of one piece."""
    return propagate_all([steps], observable, truncation, resources, **options)[0]


def propagate_all(
    pieces: Sequence[Sequence[PauliStep]], observable: PauliSum, truncation: Truncation | None = None,
    resources: Resources | None = None, *, keep_cliffords: bool = False, stop_above: int | None = None,
    state: str | State | None = None, keep: str = "all", progress: Callable[[Progress], None] | None = None,
    symmetry: QubitSymmetry | None = None,
) -> list[Propagation]:  # fmt: skip
    """Take `observable` through the steps of pieces; how it stands after each, and all that was done so far.

    The first piece acts last on the state. In each, steps have the order in which they act on the state.
    Cliffords are moved to the end of the circuit first, unless a truncation looks at letters, a step is a
    transfer, or `keep_cliffords`. More terms than `stop_above` raise InputError. With ranks the call is
    collective. Of the terms at the end every rank gets `keep`: all, its own, or none. `value` is that in
    `state`, a bit string, None for all 0, or a `State`. `progress` is called at most once a second. Words
    that a `symmetry` of the state and of each piece takes to each other are merged: on CPUs, of a lone rank.
    """
    # Heisenberg picture: O -> U^dagger O U, step by step from the last; a rotation splits each term
    # that anticommutes with it in two, a Clifford maps term to term.
    limits, allowed = truncation or Truncation(), resources or Resources()
    if keep not in KEEP:
        raise InputError("keep", f"is {keep!r}", f"use {', '.join(KEEP)}")

    def check() -> int | None:
        value_in(observable, state)
        for piece in pieces:
            check_steps(piece, observable.n_qubits)
        check_term_limits(observable, limits, stop_above)
        return allowed.max_terms(allowed.converted(observable))

    # Every rank checks; if one refuses, all do.
    memory_terms = check() if allowed.ranks is None else agree(allowed.ranks, check)
    begin, keep_cliffords = perf_counter(), keep_cliffords or limits.needs_letters
    # Cliffords moved through rotations change only their generators and the observable: no pass over terms.
    if symmetry is not None:
        observable = PauliSum(observable.n_qubits, *symmetry.merged(observable.keys, observable.coefficients))
    rotations, start = prepared(pieces[0], observable, keep_cliffords)
    start = allowed.converted(start)
    todo = [rotations, *(cliffords_last(each, observable.none(), keep_cliffords) for each in pieces[1:])]
    done, terms = [], open_terms(start, allowed)
    try:
        work = Propagator(terms, limits, stop_above, memory_terms, allowed.when_full)
        work.n_batches = sum(len(fused(piece)) for piece in todo)
        for piece in todo:
            try:
                work.run(piece, progress)
            finally:
                terms = work.terms
            if symmetry is not None:
                assert isinstance(terms, ShardedTerms)
                terms.replace(symmetry.merged)
            done.append(_so_far(work, state, keep, start.none(), begin))
    finally:
        terms.close()
    return done


def _so_far(
    work: Propagator, state: str | State | None, keep: str, none: PauliSum, begin_s: float
) -> Propagation:  # fmt: skip
    """How the terms stand now; collective."""
    terms, ranks = work.terms, work.terms.ranks
    # In bits the value is summed where the terms lie; other states need the terms on the host.
    is_bits = state is None or isinstance(state, str)
    rank_terms = none if keep == "none" and is_bits else terms.local_terms()
    rank_value = terms.in_bits(state) if is_bits else value_in(rank_terms, state)  # type: ignore[arg-type]
    n_terms, value = terms.all_ranks(terms.n), terms.all_ranks(rank_value)
    ledgers, rank_sums = [terms.ledger], [none if keep == "none" else rank_terms]
    if ranks is not None:
        ledgers = ranks.gather_objects(terms.ledger)
        rank_sums = ranks.gather_objects(rank_terms) if keep == "all" else rank_sums
    ledger = total(ledgers)
    return Propagation(
        joined(rank_sums), n_terms, value, ledger.dropped(), ledger.record(),
        max(work.size_bytes, terms.size_bytes), work.full, perf_counter() - begin_s,
    )  # fmt: skip


def prepared(
    steps: Sequence[PauliStep], observable: PauliSum, keep_cliffords: bool
) -> tuple[Sequence[PauliStep], PauliSum]:
    """Steps and observable with Cliffords absorbed where nothing is against it."""
    simple = simple_steps(steps)
    if keep_cliffords or any(isinstance(step, TransferMatrix) for step in simple):
        return simple, observable
    absorbed = absorb(simple, observable)
    return absorbed.rotations, absorbed.observable


def cliffords_last(steps: Sequence[PauliStep], none: PauliSum, keep_cliffords: bool) -> Sequence[PauliStep]:
    """The steps with all Cliffords at their end, where nothing is against it: one pass over terms."""
    simple = simple_steps(steps)
    if keep_cliffords or any(isinstance(step, TransferMatrix) for step in simple):
        return simple
    absorbed = absorb(simple, none)
    turned = set(absorbed.origins)
    return (*absorbed.rotations, *(step for number, step in enumerate(simple) if number not in turned))


def open_terms(start: PauliSum, allowed: Resources) -> Terms:
    """The store of this rank's terms."""
    is_few = allowed.few_on_cpu and allowed.ranks is None
    if allowed.device == "gpu" and not is_few:
        return GpuTerms(start, allowed.ranks)
    # Processes of every rank would take each other's cores.
    if allowed.ranks is None or allowed.ranks.rank == 0:
        compile_soon(rotation_kernels(start.coefficients.dtype.name))
    return FewTerms(start) if allowed.device == "gpu" else ShardedTerms(start, allowed.threads, allowed.ranks)


def joined(sums: Sequence[PauliSum]) -> PauliSum:
    """The terms of all ranks, in rising order of their words; each rank's are so already."""
    if len(sums) == 1:
        return sums[0]
    keys = np.concatenate([terms.keys for terms in sums])
    coefficients = np.concatenate([terms.coefficients for terms in sums])
    return PauliSum(sums[0].n_qubits, keys, coefficients).sorted()


def cosine_and_sine(angle: float) -> tuple[float, float]:
    """Cosine and sine, exact at multiples of pi/2."""
    quarters = quarter_turns(angle)
    return (math.cos(angle), math.sin(angle)) if quarters is None else QUARTERS[quarters]


def fused(steps: Sequence[PauliStep]) -> list[Rotation | TransferMatrix | list[Clifford]]:
    """The steps from the last to the first, Cliffords in a row as one batch."""
    batches: list[Rotation | TransferMatrix | list[Clifford]] = []
    for step in reversed(steps):
        if not isinstance(step, Clifford):
            batches.append(step)
        elif batches and isinstance(batches[-1], list):
            batches[-1].append(step)
        else:
            batches.append([step])
    return batches


def first_rotations(batches: Sequence[Rotation | TransferMatrix | list[Clifford]]) -> list[Rotation]:
    """The rotations that come first."""
    return list(takewhile(lambda batch: isinstance(batch, Rotation), batches))  # type: ignore[arg-type]


def check_steps(steps: Sequence[PauliStep], n_qubits: int) -> None:
    """Refuse steps on qubits that the observable's circuit does not have, and angles that are not finite."""
    for number, step in enumerate(steps):
        if isinstance(step, Rotation) and not math.isfinite(step.angle):
            raise InputError(f"step {number}", f"has the angle {step.angle}", "give finite angles in radians")
        last = acted_mask(step).bit_length() - 1
        if last >= n_qubits:
            raise InputError(f"step {number}", f"acts on qubit {last}", f"use qubits 0 to {n_qubits - 1}")


def check_term_limits(observable: PauliSum, limits: Truncation, stop_above: int | None) -> None:
    """Refuse limits of terms below those that the observable has."""
    for name, limit in (("max_terms", limits.max_terms), ("stop_above", stop_above)):
        if limit is not None and check_count(name, limit, 0) < observable.n_terms:
            raise InputError(
                name,
                f"is {limit}, and the observable has {observable.n_terms} terms",
                "allow that many or more",
            )


class Propagator:
    """What is done to the terms at each step."""

    def __init__(
        self, terms: Terms, limits: Truncation, stop_above: int | None = None,
        memory_terms: int | None = None, when_full: str = "stop", resampler: Resampler | None = None,
    ) -> None:  # fmt: skip
        self.limits = limits
        self.stop_above = stop_above
        self.resampler = resampler
        self.rank_memory_terms = memory_terms
        self.memory_terms = None if memory_terms is None else terms.all_ranks(memory_terms)
        self.when_full = when_full
        self.max_terms = limits.max_terms or 0
        self.full = self.number = 0
        self.n_done = self.n_batches = 0
        """Batches of Cliffords, and other steps: those of earlier runs, and of all runs that are to come."""
        self.size_bytes = terms.size_bytes
        self.since_truncation = 0
        self.has_zeros = False
        self.sweeps = replace(limits, every=1, branch_cut=0.0, max_terms=None) != Truncation()
        self._set_terms(terms)

    def _set_terms(self, terms: Terms) -> None:
        """Go on with these terms."""
        self.terms, max_terms = terms, self.limits.max_terms
        is_capped = max_terms is None or terms.cap(TermCap(max_terms, self.limits.limits, self.resampler))
        self.keeps_largest = not is_capped
        """Whether terms past `max_terms` are to be dropped here."""
        self.is_batched = self.stop_above is None and is_capped
        """Whether rotations may be done in batches: nothing is looked at between them."""
        if self.rank_memory_terms is not None:
            terms.limit(self.rank_memory_terms)

    def run(self, steps: Sequence[PauliStep], progress: Callable[[Progress], None] | None = None) -> None:
        """All steps, from the last to the first."""
        batches, reported_s = fused(steps), perf_counter()
        number, sharded = 0, 0 if self.terms.n_ranks > 1 else len(batches)
        while number < len(batches):
            # Shards are chosen anew so that the rotations ahead leave branches on their rank, see
            # `sharding.resharding`.
            if number == sharded:
                ahead = first_rotations(batches[number : number + ROTATIONS_AHEAD])
                sharded += max(1, self.terms.reshard(self._packed(ahead)))
            # Many rotations are one kernel call where nothing has to be looked at between them.
            batch_limit = self.terms.batch_limit(self.memory_terms) if self.is_batched else 0
            batch = first_rotations(batches[number : min(number + batch_limit, sharded)])
            n_done = self._rotate(batch, last=number + len(batch) == len(batches)) if batch else 0
            number += max(1, n_done)
            if not n_done:
                self.do(batches[number - 1], last=number == len(batches))
            # Few terms stay on a CPU until they are many; then they go to the GPU.
            terms = self.terms.moved()
            if terms is not self.terms:
                self._set_terms(terms)
            if progress is not None and perf_counter() - reported_s >= PROGRESS_INTERVAL_S:
                reported_s = perf_counter()
                n_batches = max(self.n_batches, len(batches))
                progress(Progress(self.n_done + number, n_batches, terms.n, terms.size_bytes))
        self.n_done += len(batches)

    def do(self, batch: Rotation | TransferMatrix | list[Clifford], *, last: bool) -> None:
        """One step, and the truncation that is due after it."""
        self.number += 1
        self._ensure_memory(batch)
        self._apply(batch)
        self.size_bytes = max(self.size_bytes, self.terms.size_bytes)
        self.since_truncation += len(batch) if isinstance(batch, list) else 1
        if last or self.since_truncation >= self.limits.every:
            self._truncate(last)
        elif self.keeps_largest and self.terms.all_ranks(self.terms.n) > self.max_terms:
            self.terms.sweep(self.limits.limits)
            self.terms.keep_largest(self.max_terms)
        self.terms.end_step()
        if self.stop_above is not None:
            n_terms = self.terms.all_ranks(self.terms.n)
            if n_terms > self.stop_above:
                raise InputError(
                    f"step {self.number}", f"leaves {n_terms} terms, more than {self.stop_above}",
                    "allow more terms, or drop some (--min-coefficient, --max-weight)",
                )  # fmt: skip

    def _packed(self, rotations: Sequence[Rotation]) -> Array:
        """The packed words of rotations."""
        return pack_all([(rotation.x, rotation.z) for rotation in rotations], self.terms.n_qubits)

    def _rotate(self, rotations: Sequence[Rotation], *, last: bool) -> int:
        """Rotations, and the truncations that are due after them; how many were done."""
        due, counters = [], [(self.since_truncation, self.has_zeros)]
        angles = [cosine_and_sine(rotation.angle) for rotation in rotations]
        for number, (cosine, _) in enumerate(angles, start=1):
            self.since_truncation += 1
            # cos t = 0 makes the terms that split 0: they are swept even where nothing else is to be dropped.
            self.has_zeros |= cosine == 0
            is_last = last and number == len(angles)
            is_due = is_last or self.since_truncation >= self.limits.every
            due.append(is_last or (is_due and (self.sweeps or self.has_zeros)))
            if is_due:
                self.since_truncation, self.has_zeros = 0, False
            counters.append((self.since_truncation, self.has_zeros))
        cosines, sines = np.array(angles).T.copy()
        batch = RotationBatch(
            self._packed(rotations), cosines, sines, np.array(due), np.zeros(len(due), np.int64)
        )
        n_done = self.terms.rotate_many(batch, self.limits.branch_cut, self.limits.limits)
        self.since_truncation, self.has_zeros = counters[n_done]
        self.number += n_done
        self.size_bytes = max(self.size_bytes, self.terms.size_bytes)
        return n_done

    def _ensure_memory(self, batch: Rotation | TransferMatrix | list[Clifford]) -> None:
        """Stop or truncate where the terms after a step may not fit in the memory of all ranks."""
        if self.memory_terms is None or isinstance(batch, list):
            return
        # The worst case first, 2 n terms; only where that does not fit the anticommuting terms are counted.
        n, factor = self.terms.all_ranks(self.terms.n), 2
        new = n
        if isinstance(batch, TransferMatrix):
            factor = int(np.count_nonzero(batch.matrix, axis=0).max())
            new = n * (factor - 1)
        elif 2 * n > self.memory_terms:
            new = self.terms.all_ranks(self.terms.count(pack(batch.x, batch.z, self.terms.n_qubits)))
        if n + new <= self.memory_terms:
            return
        if self.when_full == "stop":
            raise FullMemoryError(
                f"step {self.number}", f"may make {n + new} terms, and the memory holds {self.memory_terms}",
                "give more memory, drop terms (--min-coefficient, --max-terms), or use --when-full truncate",
                topic="memory",
            )  # fmt: skip
        self.full += 1
        self.terms.keep_largest(max(1, self.memory_terms // factor))

    def _apply(self, batch: Rotation | TransferMatrix | list[Clifford]) -> None:
        if isinstance(batch, list):
            self.terms.clifford(batch)
        elif isinstance(batch, TransferMatrix):
            self.has_zeros = True
            self.terms.transfer(batch, self.limits.branch_cut)
        else:
            cosine, sine = cosine_and_sine(batch.angle)
            self.has_zeros |= cosine == 0
            generator = pack(batch.x, batch.z, self.terms.n_qubits)
            self.terms.rotate(generator, cosine, sine, self.limits.branch_cut)

    def _truncate(self, last: bool) -> None:
        self.since_truncation = 0
        if self.sweeps or self.has_zeros or last:
            self.terms.sweep(self.limits.limits)
            self.has_zeros = False
        if self.keeps_largest:
            self.terms.keep_largest(self.max_terms)
