"""From a question to its answer: read on rank 0, choose the method, let its engine answer, write the file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from tnplan.common.errors import InputError
from tnplan.common.files import check_json_name, check_writable, write_json
from tnplan.executor.device.comm.launcher import launched_rank, launched_size
from tnplan.executor.device.comm.time_limit import world_communicator
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.protocols.communicator import agree, ending_together
from tnplan.executor.device.selection.select import free_gpu_bytes, gpu_profile, sees_gpu
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.engines.contraction import answer_by_contraction
from tnplan.questions.engines.mps import answer_by_mps
from tnplan.questions.engines.pauli import answer_by_pauli
from tnplan.questions.engines.stabilizer import answer_by_stabilizers
from tnplan.questions.engines.statevector import answer_by_state
from tnplan.questions.engines.task_list import Outcome, TaskCheckpoint, checkpoint_of
from tnplan.questions.methods import check_answerable, check_method, is_small, possible_methods, why_not
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import Amplitudes, AskedCircuit, ExpectationValues, OpenAmplitudes, Sample

# The method that `method="auto"` takes, and the check of one that was named.


SEARCH_S, SEARCH_SHARE = 1.0, 0.125
"""Seconds of a search or a pilot that a choice makes, and in parts of the time of the best method so far."""


def chosen_method(asked: AskedCircuit, options: QuestionOptions) -> str:
    """The method for a question; raises InputError where none can answer, or the one named cannot."""
    is_alone = launched_size() == 1
    if options.method != "auto":
        check_method(options.method, asked, options)
        if options.method == "contraction" and not is_alone and not _is_shared(asked):
            raise InputError(
                "mpirun", f"started more than one rank, and 'contraction' answers {_named(asked)} on one",
                "start it without mpirun, or use another --method",
                topic="ranks",
            )  # fmt: skip
        return options.method
    if is_small(asked) and why_not("statevector", asked, options) is None and is_alone:
        return "statevector"
    check_answerable(asked, options)
    has_contraction = is_alone or _is_shared(asked)
    possible = [one for one in possible_methods(asked, options) if has_contraction or one != "contraction"]
    n_ranks = options.ranks or launched_size()
    # States and sums of Pauli words are distributed by bits of their index, so that ranks are a
    # power of two there.
    if n_ranks & (n_ranks - 1) and "contraction" in possible:  # the other methods take powers of two
        return "contraction"
    # With one rank contraction would answer, or `check_method` says why it does not.
    if not possible:
        check_method("contraction", asked, options)
        raise InputError(
            "mpirun", "started more than one rank, and only 'contraction' answers", "start one",
            topic="ranks",
        )
    if len(possible) == 1 or (possible[0] == "statevector" and is_small(asked)):
        return possible[0]
    if "stabilizer" in possible and is_alone:
        return "stabilizer"
    return _fastest(asked, options, possible)


def _is_shared(asked: AskedCircuit) -> bool:
    """Whether ranks of mpirun share a question in a contraction."""
    return isinstance(asked.question, Amplitudes | Sample | ExpectationValues) and not asked.has_gradient


def _named(asked: AskedCircuit) -> str:
    """The question, in a refusal."""
    if asked.has_gradient:
        return "gradients"
    return "open qubits" if isinstance(asked.question, OpenAmplitudes) else asked.question.name


def _fastest(asked: AskedCircuit, options: QuestionOptions, possible: list[str]) -> str:
    """The method that is predicted to take the least time on this machine, the choice included."""
    from tnplan.questions.estimates.estimate import MethodEstimate, at_once, best_method, method_rows

    profile, devices = _here(options), options.ranks or launched_size()
    rows: list[MethodEstimate] = []
    least_s = inf
    for method in possible:
        # A search for a path may take a share of the time of the best method so far, and no more:
        # the choice is paid for by the user too. `possible` is in the order of ANSWERS.
        search_s = min(SEARCH_S, SEARCH_SHARE * least_s)
        rows += method_rows(method, asked, options, profile, search_s, devices)
        if at_once(rows):
            return method
        least_s = min(row.cost.longest_s if row.cost else inf for row in rows)
    best, why = best_method(rows)
    if best is not None:
        return best
    if isinstance(asked.question, Sample):  # a longer search than that of an estimate may find what fits
        return possible[-1]
    raise InputError(
        "--method", f"none fits ({why})", "allow more memory or more ranks, or truncate", topic="memory",
    )


def _here(options: QuestionOptions) -> Profile:
    """The profile of this machine: the shipped one that is nearest, with the memory that is free."""
    is_gpu = options.device in ("gpu", "auto") and sees_gpu()
    profile = load_profile(gpu_profile(0) if is_gpu else "cpu")
    free_bytes = free_gpu_bytes(0) if is_gpu else host_memory()[1] / (options.ranks or 1)
    limit = min(free_bytes, options.memory or free_bytes)
    return replace(profile, memory_bytes=max(1, int(min(limit, 2.0**60))), reserved_bytes=0)


# From a question to its answer: read on rank 0, choose the method, let its engine answer, write the file.


ENGINES: dict[str, Callable[[AskedCircuit, QuestionOptions, TaskCheckpoint | None], Outcome]] = {
    "contraction": answer_by_contraction,
    "statevector": answer_by_state,
    "pauli": answer_by_pauli,
    "mps": answer_by_mps,
    "stabilizer": answer_by_stabilizers,
}

Told = TypeVar("Told")


# docs/explanation/architecture.md#from-question-to-answer
def ask(read: Callable[[], AskedCircuit], options: QuestionOptions, *inputs: object) -> CircuitAnswer:
    """The answer to the question that `read` gives; rank 0 alone reads. Collective under mpirun.

    The output may be none of the `inputs` that are files.
    """
    begin = perf_counter()

    # Invariant: rank 0 reads and chooses, and tells the others. A choice by measured times may
    # differ between hosts, and engines are collective.
    def prepare() -> tuple[AskedCircuit, str]:
        if options.output is not None:
            check_writable(options.output, *(one for one in inputs if isinstance(one, Path)))
            check_json_name(options.output)
        asked = read()
        return asked, chosen_method(asked, options)

    with watched_ranks(options.timeout):
        return _answer(prepare, options, begin)


def _answer(
    prepare: Callable[[], tuple[AskedCircuit, str]], options: QuestionOptions, begin: float
) -> CircuitAnswer:
    """The answer by the method that the first rank chooses, and its file; collective under mpirun."""
    asked, method = told_by_first(prepare)
    kept = checkpoint_of(asked, method, options)
    options = replace(options, checkpoint=kept is not None)
    outcome = ENGINES[method](asked, options, kept)
    answer = CircuitAnswer(
        asked.question.name, outcome.value, outcome.error, outcome.error_kind, method,
        perf_counter() - begin, outcome.details, _gradient_of(asked, outcome),
    )  # fmt: skip
    # Invariant: the checkpoint goes after the answer is on disk, and rank 0 alone writes either.
    if options.output is not None and launched_rank() == 0:
        write_json(options.output, answer.document)
        if kept is not None:
            kept.remove()
    return answer


def _gradient_of(asked: AskedCircuit, outcome: Outcome) -> dict[str, Any] | None:
    """The derivatives by the names of the parameters; where one observable was given, numbers."""
    question = asked.question
    if outcome.gradient is None or not isinstance(question, ExpectationValues):
        return None
    columns = outcome.gradient.T
    return {
        name: column[0].item() if question.is_single else column
        for name, column in zip(question.names, columns, strict=True)
    }


def watched_ranks(timeout_s: float) -> AbstractContextManager[None]:
    """Inside, a rank of mpirun that does not answer for so long ends the job; collective."""
    world = world_communicator(timeout_s)
    if world is None:
        return nullcontext()
    from tnplan.executor.device.comm.heartbeat import watched

    return watched(world, timeout_s)


def told_by_first(read: Callable[[], Told]) -> Told:
    """What `read` gives on the first rank, on every rank; all refuse what it refuses."""
    world = world_communicator()
    if world is None:
        return read()
    with ending_together(world):
        found: Told = world.broadcast_object(agree(world, lambda: read() if world.rank == 0 else None), 0)
    return found
