"""Repetitions on the threads of all ranks, and their checkpoint. Each rank calls `sample`; collective.

Changelog of `tnplan.pauli.checkpoint`:
1 (2026-11-26): first version.
2 (2026-11-29): as `tnplan.common.checkpoint`. Version 1 is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import Any

from tnplan.circuits.pauli_sum import PauliSum, n_words
from tnplan.common.checkpoint import CheckpointFile, identity_of_values
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.expectation import norms
from tnplan.executor.pauli.algebra.gates import PauliStep
from tnplan.executor.pauli.algebra.states import OverlapWith, State
from tnplan.executor.pauli.estimate import (
    BIASED,
    EQUAL,
    UNBIASED,
    Estimate,
    echo_parts,
    estimate_of,
    nothing_met,
)
from tnplan.executor.pauli.repetitions import (
    EchoTask,
    LinearTask,
    MonteCarlo,
    Repetition,
    check_sampling,
    echo_task,
    linear_task,
    repetition,
)
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.job import Needs, Rank
from tnplan.jobs.pauli_problem import PauliProblem, PauliRequest

TOPIC = "Pauli propagation"

Say = Callable[[int, int], None]
"""Called with the number of repetitions that are done, and of all."""
GPU_ABOVE = 100_000
"""Terms of a repetition from which `auto` takes a GPU."""
DRAWN_BYTES = 80
"""What a term takes while terms are drawn on a GPU, besides its own."""
SUM_BYTES = 24
"""What a term of 64 qubits takes in a sum on the host: its word and its coefficient."""
DOUBTS = {
    "letters": "by letters few words have most of the weight, and the standard error may miss them",
    "square": "words that were resampled apart do not interfere",
}
"""Why there is no interval, by what makes a term likely to stay."""


@dataclass(frozen=True, eq=False)
class SampledValue:
    """What repetitions estimate: the value in a state of a sum that is taken through steps.

    Raises InputError for a truncation and a sum that cannot be resampled.
    """

    steps: Sequence[PauliStep]
    terms: PauliSum
    state: str | State | None
    plan: MonteCarlo
    truncation: Truncation

    def __post_init__(self) -> None:
        assert self.most_terms

    @property
    def most_terms(self) -> int:
        """The terms that a repetition may have."""
        return check_sampling(self.terms, self.truncation)

    @property
    def kind(self) -> str:
        """Whether the mean of repetitions is the true value."""
        return BIASED if self.plan.by == "square" else UNBIASED

    @property
    def farthest(self) -> float:
        """The largest magnitude that the value may have."""
        largest, _ = norms(self.terms)
        return largest * (norms(self.state.other)[1] if isinstance(self.state, OverlapWith) else 1)


def sampled_value(problem: PauliProblem, request: PauliRequest) -> SampledValue:
    """What the repetitions of `propagate` estimate."""
    assert request.monte_carlo is not None
    return SampledValue(problem.steps, problem.terms, problem.state, request.monte_carlo, request.truncation)


def sampling_needs(sampled: SampledValue, threads: int, device: str) -> Needs:
    """What the repetitions of a rank take, known before they start. Few terms take no GPU of themselves."""
    most, threads = sampled.most_terms, min(threads, sampled.plan.repetitions)
    each_bytes = term_bytes(sampled.terms.n_qubits, 8)
    if isinstance(sampled.state, OverlapWith):
        each_bytes += 2 * SUM_BYTES * n_words(sampled.terms.n_qubits)  # an echo keeps two samples
    few = "repetitions of few terms" if device == "auto" and most < GPU_ABOVE else ""
    return Needs(
        2 * most * (each_bytes + DRAWN_BYTES), threads * most * (each_bytes + 2 * 16),
        "give fewer threads or a smaller --max-terms", few,
    )  # fmt: skip


def sampling_task(sampled: SampledValue, use: Resources) -> LinearTask | EchoTask:
    """What each repetition does; refuses what is no echo where that is asked."""
    start, state, by = use.converted(sampled.terms), sampled.state, sampled.plan.by
    if by == "letters" and not isinstance(state, str | None):
        raise InputError(
            "--resample-by letters", "is for states of 0 and 1", "resample by magnitude in other states"
        )
    # An echo: tr(A V^dagger A V) / 2^n, A being the observable taken back through U. Terms of U serve both A.
    is_of_own = isinstance(state, OverlapWith) and state.other.lines() == sampled.terms.lines()
    if by == "square" and not is_of_own:
        raise InputError(
            "--resample-by square", "is for the overlap of an echo with its own observable",
            "give --overlap the observable, or resample by magnitude",
        )  # fmt: skip
    parts = echo_parts(sampled.steps) if is_of_own else None
    if by == "square" and parts is None:
        raise InputError(
            "--resample-by square", "is for echoes, and the circuit's last step does not undo its first",
            "resample by magnitude, or give U, the perturbation, and U^dagger, its gates in reverse order",
        )  # fmt: skip
    # An echo pays off where what is undone is longer than what stands between.
    if parts is not None and (by == "square" or len(parts.back) > len(parts.middle)):
        return echo_task(parts, start, use.device)
    return linear_task(sampled.steps, start, state, use.device, keep_cliffords=by == "letters")


def sample(
    rank: Rank, sampled: SampledValue, use: Resources, checkpoint: SampleCheckpoint | None, say: Say
) -> tuple[Estimate, dict[str, Any]]:
    """All repetitions: the estimate, and the figures of how they went."""
    begin, most = perf_counter(), sampled.most_terms
    repeat = partial(repetition, sampling_task(sampled, use), sampled.plan, most)
    done = _in_batches(rank, repeat, sampled.plan.repetitions, checkpoint, say)
    resampled = sum(each.resampled for each in done)
    estimate = estimate_of_values([each.value for each in done], resampled > 0, sampled)
    work: dict[str, Any] = {
        "terms": most, "largest_terms": max(each.largest for each in done), "resampled": resampled,
        "repetitions": len(estimate.values),
    }  # fmt: skip
    return estimate, {**work, "time_s": perf_counter() - begin}


def estimate_of_values(values: Sequence[float], is_resampled: bool, sampled: SampledValue) -> Estimate:
    """The estimate from the values of repetitions; where nothing was resampled all are the same."""
    if not is_resampled:
        return estimate_of(values[:1], "exact")
    if max(map(abs, values)) <= EQUAL * sampled.farthest:
        return nothing_met(len(values), sampled.farthest)
    return estimate_of(values, sampled.kind, sampled.farthest, DOUBTS.get(sampled.plan.by, ""))


def _in_batches(
    rank: Rank, repeat: Callable[[int], Repetition], n: int, checkpoint: SampleCheckpoint | None, say: Say
) -> list[Repetition]:
    """The first n repetitions, shared by ranks and threads; stops where nothing was resampled.

    A GPU does one after another, on the stream of this thread.
    """
    world, is_gpu = rank.world, rank.device.name == "gpu"
    threads = 1 if is_gpu else min(rank.threads, n)
    # Invariant: rank 0 alone reads the checkpoint, and every rank calls this.
    stored = checkpoint.repetitions(True) if rank.is_first and checkpoint else []
    done: list[Repetition] = world.broadcast_object(stored, 0)[:n]
    with ThreadPoolExecutor(threads) as pool:
        spread = map if is_gpu else pool.map
        # Without resampling a repetition is exact, and all of them are equal.
        while len(done) < n and not (done and not done[0].resampled):
            # Invariant: repetition k has random numbers of its own, derived from the seed and k, so that the
            # values do not depend on the number of ranks and threads. Ranks take k = rank, rank + size, ...
            # of a batch, and the answers are put in order again.
            batch = range(len(done), min(n, len(done) + threads * world.size))
            own = list(spread(repeat, batch[world.rank :: world.size]))
            gathered = world.gather_objects(own)
            done = [*done, *(gathered[k % world.size][k // world.size] for k in range(len(batch)))]
            if rank.is_first and checkpoint is not None:
                checkpoint.write(done)
            say(len(done), n)
    return done


class SampleCheckpoint(CheckpointFile):
    """The repetitions that are done, in a file beside the result."""

    FORMAT, VERSION = "tnplan.pauli.checkpoint", 2
    OTHERS = "circuit, observable or options"

    def repetitions(self, resume: bool) -> list[Repetition]:
        """Those of an interrupted job; none where there is no file. Refuses the file of another job."""
        return self.restored(
            resume, lambda document, _: [
                Repetition(float(v), int(r), int(n)) for v, r, n in document["repetitions"]
            ],
        ) or []  # fmt: skip

    def write(self, done: list[Repetition]) -> None:
        """Replace the file."""
        self.replace({"repetitions": [list(each) for each in done]})


def identity(problem: PauliProblem, request: PauliRequest) -> str:
    """The identity of a job for its checkpoint; the number of repetitions is no part of it."""
    assert request.monte_carlo is not None
    plan = asdict(request.monte_carlo)
    del plan["repetitions"]
    return identity_of_values(
        problem.steps, problem.terms, problem.state, request.precision, asdict(request.truncation), plan
    )
