"""Questions answered by tensor networks, which `questions/tensor_networks` plans and contracts.

Ranks of mpirun share light cones, parts of a list of strings, and shots. Each contracts what is its own on
its device; one contraction is not distributed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from math import floor, log2
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.system_calls import cores
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.job import Job, Rank, Request, Result, run_job
from tnplan.planner.search.sparse_state import distinct_strings
from tnplan.questions.engines.task_list import (
    EXACT,
    STATISTICAL,
    Outcome,
    Rows,
    TaskCheckpoint,
    TaskList,
    counts_of,
    cross_entropy,
)
from tnplan.questions.methods import LARGEST_OF_SAMPLES
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import (
    Amplitudes,
    CircuitQuery,
    ExpectationValues,
    OpenAmplitudes,
    Overlap,
    Probabilities,
    ReducedDensityMatrix,
    Sample,
    Trace,
)
from tnplan.questions.tensor_networks.amplitudes import (
    amplitudes,
    open_amplitudes,
    probabilities,
    reduced_density_matrix,
)
from tnplan.questions.tensor_networks.expectation import LightCones, PlannedAhead
from tnplan.questions.tensor_networks.sample import INDEPENDENT, ContractionSamples, SampleOptions, sample


def answer_by_contraction(
    query: CircuitQuery, options: QuestionOptions, checkpoint: TaskCheckpoint | None
) -> Outcome:
    """The answer by contraction; under mpirun ranks share light cones, strings and shots."""
    use = ContractionOptions(
        memory=options.memory, precision=options.precision, device=options.device, devices=options.ranks or 1,
        threads=options.threads, seed=options.seed or 0, progress=options.progress,
    )  # fmt: skip
    # Sampling has its own sharing of shots over ranks; everything else below is a number or a table
    # without error.
    if isinstance(query.question, Sample):
        return _sampled(query, options, use)
    details: dict[str, Any] = {"device": options.device, "ranks": launched_size()}
    if query.has_gradient:
        value, gradient = _with_gradient(query, use)
        return Outcome(value, 0.0, EXACT, details, gradient)
    return Outcome(_value(query, options, use, checkpoint), 0.0, EXACT, details)


def _with_gradient(query: CircuitQuery, use: ContractionOptions) -> tuple[Any, Array]:
    """The values of observables, and their derivatives [observable, parameter]."""
    from tnplan.questions.tensor_networks.expectation import expectation_gradients

    question = query.question
    assert isinstance(question, ExpectationValues)
    values, gradients = expectation_gradients(query.circuit, question.sums, question.names, use)
    return values[0].item() if question.is_single else values, gradients


def _value(
    query: CircuitQuery, options: QuestionOptions, use: ContractionOptions, checkpoint: TaskCheckpoint | None
) -> Any:
    """The value of every question but samples."""
    question, gates = query.question, query.gates
    if isinstance(question, ExpectationValues):
        values = shared_expectations(query, options, use, checkpoint)
        # The mean of a Hermitian operator is real: an imaginary part is rounding.
        if not any(np.iscomplexobj(observable.coefficients) for observable in question.sums):
            values = values.real
        return values[0].item() if question.is_single else values
    if isinstance(question, Probabilities | ReducedDensityMatrix):
        is_table = isinstance(question, Probabilities)
        find = probabilities if is_table else reduced_density_matrix
        return find(query.circuit, question.qubits, use)
    assert gates is not None
    if isinstance(question, OpenAmplitudes):
        return open_amplitudes(gates, question.fixed, question.open_qubits, use)
    if isinstance(question, Amplitudes):
        values = shared_amplitudes(query, options, use)
        return values[0].item() if question.is_single else values
    from tnplan.questions.tensor_networks import amplitudes

    if isinstance(question, Overlap):
        return amplitudes.overlap(gates, question.other, use)
    assert isinstance(question, Trace)
    if query.start is None:
        return amplitudes.trace(gates, question.a, question.b, use)
    # With an input state |s> the trace is <s|A U^dagger B U|s>, a sum over pairs of words of overlaps.
    pairs = amplitudes.pairs_of_trace(gates, question.a, question.b, query.start.circuit(query.n_qubits))
    return sum(weight * amplitudes.overlap(ket, bra, use) for weight, ket, bra in pairs)


def _sampled(query: CircuitQuery, options: QuestionOptions, use: ContractionOptions) -> Outcome:
    """Counts of the classical bits, or of all qubits where none is measured."""
    question = query.question
    assert isinstance(question, Sample)
    how = SampleOptions(question.sampling, question.open_qubits, question.fidelity, question.xeb)
    deferred = query.deferred
    drawn, seed = shared_samples(deferred, question.shots, how, options, use)
    details = {
        "device": options.device, "ranks": launched_size(), "seed": seed,
        "shots": question.shots, "samples": drawn.kind, "sampling": drawn.method,
        "exact_distribution": drawn.exact, "fidelity": drawn.fidelity, "clipped": drawn.clipped,
        "candidates": drawn.candidates, **(drawn.predicted or {}),
        **({} if drawn.precision is None else {"precision": drawn.precision}),
        **_cross_entropy(query, drawn, options, use),
    }  # fmt: skip
    return Outcome(counts_of(drawn.bitstrings, deferred.program), None, STATISTICAL, details)


def _cross_entropy(
    query: CircuitQuery, drawn: ContractionSamples, options: QuestionOptions, use: ContractionOptions
) -> dict[str, Any]:
    """The linear cross-entropy of samples, where exact probabilities of gates are known or come cheap."""
    # Linear cross-entropy: 2^n <p(x)> - 1 over the samples x, with exact p. It is 1 for samples of
    # a random circuit and 0 for uniform strings (Arute et al., Nature 574, 505, 2019).
    chances = drawn.probabilities
    if query.gates is None or query.n_drawn < query.n_qubits:
        return {}
    if chances is None and query.n_qubits <= LARGEST_OF_SAMPLES:
        strings = replace(query, question=Amplitudes(drawn.bitstrings, is_single=False))
        silent = replace(options, progress=None), replace(use, progress=None)
        chances = np.abs(shared_amplitudes(strings, *silent)) ** 2
    if chances is None:
        return {}
    return cross_entropy(chances, query.n_qubits, drawn.kind == INDEPENDENT)


N_FIGURES = 7
"""Numbers before the bits of a part of the shots: three of all samples, and the four of `predicted`."""


def shared_expectations(
    query: CircuitQuery, options: QuestionOptions, use: ContractionOptions, checkpoint: TaskCheckpoint | None
) -> Array:
    """Expectation values, complex128; ranks share the light cones. Collective under mpirun."""
    question = query.question
    assert isinstance(question, ExpectationValues)
    cones = LightCones(query.circuit, question.sums)

    def work(rank: Rank, done: Rows) -> Array:
        here, n_ranks = options_of_rank(rank, use), rank.world.size
        # Threads plan the next cones while this one is contracted, on cores that this leaves free.
        busy = cores() if here.device == "cpu" else 1
        n_ahead = cores() - (use.threads or 1) if n_ranks == 1 else rank.threads - busy
        with PlannedAhead(cones, here, n_ahead, n_ranks) as planned:
            # Rows are real: a complex number is two of them in memory, so that all tasks share one
            # kind of checkpoint.
            costs = None if rank.listener is None else cones.work()
            tasks = TaskList(
                rank, len(cones), lambda number: planned.values(number).view(np.float64), checkpoint,
                "light cone", costs,
            )  # fmt: skip
            rows = tasks.shared(done)
        return cones.expectations([row.view(np.complex128) for row in rows])

    widths = [2 * n for n in cones.n_words]
    return _run(options, work, lambda: {} if checkpoint is None else checkpoint.rows(widths, options.resume))


def shared_amplitudes(query: CircuitQuery, options: QuestionOptions, use: ContractionOptions) -> Array:
    """The amplitudes of given strings; each rank has a part of the rising list. Collective under mpirun."""
    question, gates = query.question, query.gates
    assert isinstance(question, Amplitudes)
    assert gates is not None
    distinct, inverse = distinct_strings(question.bits)
    # Strings are sorted, so that a part of the list shares the first bits, and with them most of a
    # contraction.
    parts = np.array_split(distinct, min(launched_size(), len(distinct)))

    def work(rank: Rank, done: Rows) -> Array:
        here = options_of_rank(rank, use)

        def row_of(number: int) -> Array:
            values = amplitudes(gates, parts[number], here)
            return values.astype(np.complex128).view(np.float64)

        rows = TaskList(rank, len(parts), row_of, noun="part").shared(done)
        return np.concatenate(rows).view(np.complex128)[inverse].astype(options.dtype)

    return _run(options, work, dict)


def shared_samples(
    query: CircuitQuery, shots: int, how: SampleOptions, options: QuestionOptions, use: ContractionOptions
) -> tuple[ContractionSamples, int]:
    """Samples of the qubits that decide on outcomes, and their seed; each rank draws a part of the shots with
    random numbers of its own.

    Collective under mpirun.
    """
    n_drawn = query.n_drawn
    parts = [len(part) for part in np.array_split(np.arange(shots), min(launched_size(), shots))]

    def work(rank: Rank, seed: int) -> tuple[ContractionSamples, int]:
        here = options_of_rank(rank, use)
        kinds: list[ContractionSamples] = []

        def row_of(number: int) -> Array:
            # Invariant: each part has random numbers of its own, from the seed and its number: two
            # parts with one stream would draw the same strings.
            own = seed if len(parts) == 1 else int(np.random.default_rng([seed, number]).integers(2**63))
            drawn = sample(query.circuit, parts[number], own, here, how, n_drawn)
            kinds.append(drawn)
            known = np.zeros(0) if drawn.probabilities is None else drawn.probabilities
            figures = [drawn.clipped, drawn.candidates, drawn.fidelity, *(drawn.predicted or {}).values()]
            head = np.zeros(N_FIGURES)
            head[: len(figures)] = figures
            return np.concatenate([head, drawn.bitstrings.ravel(), known])

        # A row of numbers is all that tasks exchange: the share that was clipped, candidates, the fidelity
        # and what was predicted, then bits, then probabilities.
        rows = TaskList(rank, len(parts), row_of, noun="part").shared({})
        ends = [N_FIGURES + part * n_drawn for part in parts]
        bits = np.concatenate([row[N_FIGURES:end] for row, end in zip(rows, ends, strict=True)])
        known = np.concatenate([row[end:] for row, end in zip(rows, ends, strict=True)])
        # Invariant: part 0 is rank 0's, the first task of the first rank, so that `kinds` is not empty there.
        first: ContractionSamples = rank.world.broadcast_object(kinds[0] if rank.is_first else None, 0)
        drawn = replace(
            first, bitstrings=bits.astype(np.uint8).reshape(shots, -1),
            probabilities=known if known.size else None, clipped=float(np.mean([row[0] for row in rows])),
            candidates=int(sum(row[1] for row in rows)),
            fidelity=float(np.average([row[2] for row in rows], weights=parts)),
        )  # fmt: skip
        if drawn.predicted is not None:
            xeb, _, share, _ = np.average([row[3:N_FIGURES] for row in rows], axis=0, weights=parts).tolist()
            # Parts are independent: their errors add up as squares.
            errors = [part * row[4] / shots for part, row in zip(parts, rows, strict=True)]
            error = float(np.linalg.norm(errors))
            both = {"predicted_xeb": xeb, "predicted_xeb_error": error, "share_of_slices": share}
            drawn = replace(drawn, predicted={**drawn.predicted, **both})
        return drawn, seed

    return _run(options, work, lambda: secrets.randbits(63) if options.seed is None else options.seed)


def _run(
    options: QuestionOptions, work: Callable[[Rank, Request], Result], prepare: Callable[[], Request]
) -> Result:
    """The job, whose ranks are those of mpirun. In one process `ranks` share each contraction instead, which
    takes the device that it needs itself."""
    job = replace(options, ranks=None)
    if launched_size() == 1:
        job = replace(job, device="cpu", memory=None)
    return run_job(Job(prepare=prepare, work=work), job)


def options_of_rank(rank: Rank, use: ContractionOptions) -> ContractionOptions:
    """The options of the contractions of one rank: alone as they were given, else on the device it got."""
    if rank.world.size == 1:
        return use
    memory = rank.memory_bytes if rank.memory_bytes == use.memory else _steady(rank.memory_bytes)
    here = replace(use, devices=1, threads=rank.threads, memory=memory, progress=None)
    if rank.device.name == "cpu":
        return replace(here, device="cpu")
    return replace(here, device="gpu", gpu=rank.device.device_id)  # type: ignore[attr-defined]


def _steady(size_bytes: float) -> float:
    """Rounded down to one of four numbers between two powers of two.

    What is free changes from call to call, and plans are kept for the memory that they were made for.
    """
    return float(2.0 ** (floor(4 * log2(size_bytes)) / 4))
