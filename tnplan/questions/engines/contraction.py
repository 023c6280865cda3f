"""Questions answered by tensor networks: hands them to `contraction`, which plans and contracts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.questions.engines.task_list import (
    EXACT,
    STATISTICAL,
    Outcome,
    TaskCheckpoint,
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
from tnplan.questions.tensor_networks.sample import INDEPENDENT, ContractionSamples


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
    """The value of every question but samples; the engine's files are imported when they are needed."""
    question, gates = query.question, query.gates
    if isinstance(question, ExpectationValues):
        from tnplan.questions.engines.contraction_ranks import shared_expectations

        values = shared_expectations(query, options, use, checkpoint)
        # The mean of a Hermitian operator is real: an imaginary part is rounding.
        if not any(np.iscomplexobj(observable.coefficients) for observable in question.sums):
            values = values.real
        return values[0].item() if question.is_single else values
    if isinstance(question, Probabilities | ReducedDensityMatrix):
        from tnplan.questions.tensor_networks import density

        is_table = isinstance(question, Probabilities)
        find = density.probabilities if is_table else density.reduced_density_matrix
        return find(query.circuit, question.qubits, use)
    assert gates is not None
    if isinstance(question, OpenAmplitudes):
        from tnplan.questions.tensor_networks.amplitudes import open_amplitudes

        return open_amplitudes(gates, question.fixed, question.open_qubits, use)
    if isinstance(question, Amplitudes):
        from tnplan.questions.engines.contraction_ranks import shared_amplitudes

        values = shared_amplitudes(query, options, use)
        return values[0].item() if question.is_single else values
    from tnplan.questions.tensor_networks import overlap

    if isinstance(question, Overlap):
        return overlap.overlap(gates, question.other, use)
    assert isinstance(question, Trace)
    if query.start is None:
        return overlap.trace(gates, question.a, question.b, use)
    # With an input state |s> the trace is <s|A U^dagger B U|s>, a sum over pairs of words of overlaps.
    pairs = overlap.pairs_of_trace(gates, question.a, question.b, query.start.circuit(query.n_qubits))
    return sum(weight * overlap.overlap(ket, bra, use) for weight, ket, bra in pairs)


def _sampled(query: CircuitQuery, options: QuestionOptions, use: ContractionOptions) -> Outcome:
    """Counts of the classical bits, or of all qubits where none is measured."""
    from tnplan.questions.engines.contraction_ranks import shared_samples
    from tnplan.questions.tensor_networks.sample import SampleOptions

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
        from tnplan.questions.engines.contraction_ranks import shared_amplitudes

        strings = replace(query, question=Amplitudes(drawn.bitstrings, is_single=False))
        silent = replace(options, progress=None), replace(use, progress=None)
        chances = np.abs(shared_amplitudes(strings, *silent)) ** 2
    if chances is None:
        return {}
    return cross_entropy(chances, query.n_qubits, drawn.kind == INDEPENDENT)
