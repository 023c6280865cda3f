"""Repetitions on the threads of all ranks, and their checkpoint. Each rank calls `sample`; collective.

Changelog of `tnplan.pauli.checkpoint`:
1 (2026-11-26): first version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tnplan.api.jobs.job import Needs, Rank
from tnplan.api.jobs.pauli.problem import PauliProblem, PauliRequest
from tnplan.executor.pauli.algebra.errors import norms
from tnplan.executor.pauli.algebra.gates import PauliStep, Rotation
from tnplan.executor.pauli.algebra.states import OverlapWith, State
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.sampling.echo import echo_parts
from tnplan.executor.pauli.sampling.estimate import Estimate, estimate_of, nothing_met
from tnplan.executor.pauli.sampling.repetitions import (
    EchoTask,
    LinearTask,
    Repetition,
    check_sampling,
    echo_task,
    linear_task,
    repetition,
)
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import identity_of, read_json, write_text

CHECKPOINT_FORMAT = "tnplan.pauli.checkpoint"
CHECKPOINT_VERSION = 1
GPU_ABOVE = 100_000
"""Terms of a repetition from which `auto` takes a GPU."""
DRAWN_BYTES = 80
"""What a term takes while terms are drawn on a GPU, besides its own."""
CHECK_SHARE = 8
"""Repetitions of an echo are done again with so many times fewer terms, to see what the limit does."""


def sampling_needs(problem: PauliProblem, asked: PauliRequest, threads: int, device: str) -> Needs:
    """What the repetitions of a rank take, known before they start. Few terms take no GPU of themselves."""
    most = check_sampling(problem.terms, asked.truncation)
    each_bytes = term_bytes(problem.circuit.n_qubits, 8)
    few = "repetitions of few terms" if device == "auto" and most < GPU_ABOVE else ""
    return Needs(
        2 * most * (each_bytes + DRAWN_BYTES), threads * most * (each_bytes + 2 * 16),
        "give fewer threads or a smaller --max-terms", few,
    )  # fmt: skip


def sampling_task(problem: PauliProblem, asked: PauliRequest, use: Resources) -> LinearTask | EchoTask:
    """What each repetition does; refuses what is no echo where that is asked."""
    assert asked.monte_carlo is not None
    start = use.converted(problem.terms)
    if asked.monte_carlo.by != "square":
        is_by_letters = asked.monte_carlo.by == "letters"
        if is_by_letters and not isinstance(problem.state, str | None):
            raise InputError(
                "--resample-by letters", "is for states of 0 and 1", "resample by magnitude in other states"
            )
        return linear_task(problem.steps, start, problem.state, use.device, keep_cliffords=is_by_letters)
    other = problem.state.other if isinstance(problem.state, OverlapWith) else None
    if other is None or other.lines() != problem.terms.lines():
        raise InputError(
            "--resample-by square", "is for the overlap of an echo with its own observable",
            "give --overlap the observable, or resample by magnitude",
        )  # fmt: skip
    return echo_task(echo_parts(problem.steps), start, use.device)


def sample(
    rank: Rank, problem: PauliProblem, asked: PauliRequest, use: Resources, checkpoint: Checkpoint | None
) -> tuple[Estimate, dict[str, Any]]:
    """All repetitions: the estimate, and the figures of how they went."""
    assert asked.monte_carlo is not None
    begin, task, plan = perf_counter(), sampling_task(problem, asked, use), asked.monte_carlo
    most = check_sampling(problem.terms, asked.truncation)
    done = rank.world.broadcast_object(checkpoint.read() if rank.is_first and checkpoint else [], 0)
    done = done[: plan.repetitions]
    one = partial(repetition, task, plan, most)
    done = _in_batches(rank, use, one, done, plan.repetitions, checkpoint)
    resampled = sum(each.resampled for each in done)
    kind = "without interference of words resampled apart" if plan.by == "square" else "unbiased"
    values = [each.value for each in done]
    if not resampled:
        estimate = estimate_of(values[:1], "exact")
    elif not any(values):
        estimate = nothing_met(len(values), farthest(problem))
    else:
        estimate = estimate_of(values, kind, farthest(problem))
    work: dict[str, Any] = {
        "terms": most, "largest_terms": max(each.largest for each in done), "resampled": resampled,
        "repetitions": len(estimate.values),
    }  # fmt: skip
    if plan.by == "square" and resampled:
        fewer = max(problem.terms.n_terms, most // CHECK_SHARE, 1)
        again = _in_batches(rank, use, partial(repetition, task, plan, fewer), [], plan.repetitions, None)
        check = estimate_of([each.value for each in again], kind)
        work["with_fewer_terms"] = {
            "terms": fewer, "value": check.value, "standard_error": check.standard_error,
        }  # fmt: skip
    return estimate, {**work, "time_s": perf_counter() - begin}


def farthest(problem: PauliProblem) -> float:
    """The largest magnitude that the value may have."""
    largest, _ = norms(problem.terms)
    return largest * (norms(problem.state.other)[1] if isinstance(problem.state, OverlapWith) else 1)


def _in_batches(
    rank: Rank, use: Resources, one: Callable[[int], Repetition], done: list[Repetition], n: int,
    checkpoint: Checkpoint | None,
) -> list[Repetition]:  # fmt: skip
    """Repetitions len(done) to n - 1 shared by ranks and threads; stops where nothing was resampled.

    A GPU does one after another, on the stream of this thread.
    """
    world, threads = rank.world, 1 if use.device == "gpu" else min(rank.threads, n)
    with ThreadPoolExecutor(threads) as pool:
        spread = map if use.device == "gpu" else pool.map
        while len(done) < n and not (done and not done[0].resampled):
            batch = range(len(done), min(n, len(done) + threads * world.size))
            own = list(spread(one, batch[world.rank :: world.size]))
            gathered = world.gather_objects(own)
            done = [*done, *(gathered[k % world.size][k // world.size] for k in range(len(batch)))]
            if rank.is_first and checkpoint is not None:
                checkpoint.write(done)
            rank.say(len(done), n, f"repetition {len(done)} of {n}")
    return done


class Checkpoint:
    """The repetitions that are done, in a file beside the result."""

    def __init__(self, path: Path, identity: str, resume: bool) -> None:
        self._path, self._identity, self._resume = path, identity, resume

    def read(self) -> list[Repetition]:
        """Those of an interrupted job; none where there is no file. Refuses the file of another job."""
        if not self._path.exists():
            return []
        if not self._resume:
            raise InputError(
                str(self._path), "is the checkpoint of an interrupted job",
                "continue it with --resume, or delete the file to start again",
            )  # fmt: skip
        document = read_json(self._path, CHECKPOINT_FORMAT, CHECKPOINT_VERSION, "delete the file")
        if document.get("identity") != self._identity:
            raise InputError(
                str(self._path), "belongs to another circuit, observable or options",
                "resume with those of that job, or delete the file to start again",
            )  # fmt: skip
        try:
            return [Repetition(float(v), int(r), int(n)) for v, r, n in document["repetitions"]]
        except (KeyError, TypeError, ValueError):
            raise InputError(
                str(self._path), "is a damaged checkpoint", "delete the file to start again"
            ) from None

    def write(self, done: list[Repetition]) -> None:
        """Replace the file."""
        content = {
            "format": CHECKPOINT_FORMAT, "version": CHECKPOINT_VERSION, "identity": self._identity,
            "repetitions": [list(each) for each in done],
        }  # fmt: skip
        write_text(self._path, json.dumps(content) + "\n")

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self._path.unlink(missing_ok=True)


def identity(problem: PauliProblem, asked: PauliRequest) -> str:
    """What tells repetitions from those of other jobs; more of them are of the same job."""
    assert asked.monte_carlo is not None
    plan = asdict(asked.monte_carlo)
    del plan["repetitions"]
    return identity_of(
        {
            "steps": [_step_text(step) for step in problem.steps], "terms": problem.terms.lines(),
            "state": _state_text(problem.state), "precision": asked.precision,
            "truncation": asdict(asked.truncation), **plan,
        }
    )  # fmt: skip


def _step_text(step: PauliStep) -> str:
    if isinstance(step, Rotation):
        return f"{step.x} {step.z} {step.angle!r}"
    return repr({name: getattr(value, "tolist", lambda v=value: v)() for name, value in vars(step).items()})


def _state_text(state: str | State | None) -> str:
    if state is None or isinstance(state, str):
        return str(state)
    if isinstance(state, OverlapWith):
        return repr(state.other.lines())
    return repr({name: getattr(value, "tolist", lambda v=value: v)() for name, value in vars(state).items()})
