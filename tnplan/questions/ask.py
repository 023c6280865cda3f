"""From a question to its answer: read on rank 0, choose the method, let its engine answer, write the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.errors import InputError
from tnplan.common.files import check_json_name, check_writable, write_json
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.comm.launcher import launched_rank, launched_size
from tnplan.executor.device.protocols.communicator import agree, ending_together
from tnplan.executor.pauli.propagate import FullMemoryError
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.chooser import NoMethodFitsError, chosen_method, device_of
from tnplan.questions.engines.contraction import answer_by_contraction
from tnplan.questions.engines.mpo import answer_by_mpo
from tnplan.questions.engines.mps import answer_by_mps
from tnplan.questions.engines.pauli import answer_by_pauli
from tnplan.questions.engines.peps import answer_by_peps
from tnplan.questions.engines.stabilizer import answer_by_stabilizers
from tnplan.questions.engines.statevector import answer_by_state
from tnplan.questions.engines.task_list import Outcome, checkpoint_of, series
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues, Question
from tnplan.questions.raised_bond import LONGEST_S, approximate_methods, exact_choice, raised

ENGINES: dict[str, Callable[[CircuitQuery, QuestionOptions, Any], Outcome]] = {
    "contraction": answer_by_contraction,
    "statevector": answer_by_state,
    "pauli": answer_by_pauli,
    "mps": answer_by_mps,
    "stabilizer": answer_by_stabilizers,
    "peps": answer_by_peps,
    "mpo": answer_by_mpo,
}
"""Each with the checkpoint that `checkpoint_of` gives for its method, or None."""

_Choice = tuple[CircuitQuery, str | None, float, str]
"""A question, the exact method, its predicted seconds, and why approximate ones come first, or nothing."""
Told = TypeVar("Told")


# docs/explanation/architecture.md#from-question-to-answer
def ask(read: Callable[[], CircuitQuery], options: QuestionOptions, *inputs: object) -> CircuitAnswer:
    """The answer to the question that `read` gives; rank 0 alone reads. Collective under mpirun.

    The output may be none of the `inputs` that are files.
    """
    begin = perf_counter()

    # Invariant: rank 0 reads and chooses, and tells the others. A choice by measured times may
    # differ between hosts, and engines are collective.
    def prepare() -> _Choice:
        if options.output is not None:
            check_writable(options.output, *(path for path in inputs if isinstance(path, Path)))
            check_json_name(options.output)
        query = read()
        return query, *exact_choice(query, options)

    with watched_ranks(options.timeout):
        return _answer(prepare, options, begin)


def _answer(
    prepare: Callable[[], _Choice], options: QuestionOptions, begin: float
) -> CircuitAnswer:  # fmt: skip
    """The answer by the method that the first rank chooses, and its file; collective under mpirun."""
    query, exact, exact_s, reason = told_by_first(prepare)
    found, checkpoint = None, None
    if reason:
        try:
            found = raised(query, options, reason, partial(_run, query))
        except InputError:  # not even the smallest bond fits
            if exact is None:
                raise
    if found is not None and (found[2] or exact is None or exact_s > LONGEST_S):
        method, outcome, _ = found
    else:
        assert exact is not None
        if options.error is not None:  # an exact method has no bond
            options = replace(options, error=None, max_bond=None, cutoff=None)
        try:
            method, outcome, checkpoint = _exact(query, exact, options)
        except NoMethodFitsError:
            if not approximate_methods(query, options):
                raise
            method, outcome, _ = raised(query, options, "no exact method fits", partial(_run, query))
    if isinstance(query.question, ExpectationValues) and query.question.after:
        outcome.details["after"] = [*query.question.after]
    answer = answer_of(query.question, outcome, method, perf_counter() - begin)
    # Invariant: the checkpoint goes after the answer is on disk, and rank 0 alone writes either.
    if options.output is not None and launched_rank() == 0:
        write_json(options.output, answer.document)
        if checkpoint is not None:
            checkpoint.remove()
    return answer


def _exact(
    query: CircuitQuery, method: str, options: QuestionOptions
) -> tuple[str, Outcome, CheckpointFile | None]:
    """The answer of a method; of another one where the memory of a propagation does not suffice."""
    try:
        return method, *_outcome(query, method, options)
    except FullMemoryError:
        # How many terms a sum has is only estimated before. Ranks would choose apart.
        if options.method != "auto" or launched_size() > 1:
            raise
    method = chosen_method(query, options, without=(method,))
    return method, *_outcome(query, method, options)


def _run(query: CircuitQuery, method: str, options: QuestionOptions) -> Outcome:
    """The answer of a method, which keeps nothing."""
    return _outcome(query, method, options)[0]


def _outcome(
    query: CircuitQuery, method: str, options: QuestionOptions
) -> tuple[Outcome, CheckpointFile | None]:
    """What the engine of a method gives, and the checkpoint that it wrote."""
    checkpoint = checkpoint_of(query, method, options)
    options = replace(options, checkpoint=checkpoint is not None, device=device_of(query, method, options))
    if query.is_series(method):
        return series([ENGINES[method](each, options, None) for each in query.beginnings]), checkpoint
    return ENGINES[method](query, options, checkpoint), checkpoint


def answer_of(question: Question, outcome: Outcome, method: str, time_s: float) -> CircuitAnswer:
    """An outcome as an answer."""
    return CircuitAnswer(
        question.name, outcome.value, outcome.error, outcome.error_kind, method, time_s, outcome.details,
        _gradient_of(question, outcome),
    )  # fmt: skip


def _gradient_of(question: Question, outcome: Outcome) -> dict[str, Any] | None:
    """The derivatives by the names of the parameters; where one observable was given, numbers."""
    if outcome.gradient is None or not isinstance(question, ExpectationValues):
        return None
    columns = outcome.gradient.T
    return {
        name: column[0].item() if question.is_single else column
        for name, column in zip(question.names, columns, strict=True)
    }


@contextmanager
def watched_ranks(timeout_s: float) -> Iterator[None]:
    """Inside, a rank of mpirun that fails or does not answer for so long ends the job; collective."""
    world = world_communicator(timeout_s)
    if world is None:
        yield
        return
    from tnplan.executor.device.comm.heartbeat import watched

    with ending_together(world), watched(world, timeout_s):
        yield


def told_by_first(read: Callable[[], Told]) -> Told:
    """What `read` gives on the first rank, on every rank; all refuse what it refuses."""
    world = world_communicator()
    if world is None:
        return read()
    with ending_together(world):
        value: Told = world.broadcast_object(agree(world, lambda: read() if world.rank == 0 else None), 0)
    return value
