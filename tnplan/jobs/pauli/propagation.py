"""The job of `propagate`: inputs are read and checked, terms propagated on all ranks, results written.

The arithmetic is in executor/pauli.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.files import write_json
from tnplan.common.units import size_text
from tnplan.executor.pauli.algebra.expectation import bits_bloch, overlap, product_state
from tnplan.executor.pauli.algebra.schroedinger import forward
from tnplan.executor.pauli.algebra.states import ProductState
from tnplan.executor.pauli.gradient import gradient as gradient_of_steps
from tnplan.executor.pauli.gradient import on_cpu_alone, value_of_terms
from tnplan.executor.pauli.propagate import Progress
from tnplan.executor.pauli.propagate import propagate as propagate_steps
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.terms.ledger import Dropped
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.job_options import JobOptions
from tnplan.jobs.pauli.problem import PauliProblem, PauliRequest, read_problem
from tnplan.jobs.pauli.report import (
    derivatives,
    estimate_report,
    propagation_report,
    sum_of_parts,
    term_values,
    write_record,
)
from tnplan.jobs.pauli.result import Expectation
from tnplan.jobs.pauli.sampling import SampleCheckpoint, identity, sample, sampled_value, sampling_needs

NOTHING = Dropped(0.0, 0.0, 0)


def run_propagation(
    circuit: Any, observable: Any, asked: PauliRequest, options: JobOptions
) -> Expectation:  # fmt: skip
    """Propagate on the ranks of this process, or on those of mpirun."""
    if asked.monte_carlo is None and not options.resume:
        options = replace(options, checkpoint=False)
    job = Job(
        prepare=lambda: _prepare(circuit, observable, asked, options),
        work=lambda rank, problem: _work(rank, problem, asked, options),
        check_ranks=lambda problem, n: _check_ranks(n, asked),
        needs=lambda problem, n, threads: _needs(problem, asked, n, threads, options.device),
    )
    return run_job(job, options)


def _prepare(circuit: Any, observable: Any, asked: PauliRequest, options: JobOptions) -> PauliProblem:
    """Read and check all inputs, on rank 0."""
    if asked.has_tape and asked.picture != "heisenberg":
        name = "gradient" if asked.gradient else "each_term"
        raise InputError(name, "is of the Heisenberg picture", "leave out the picture")
    if options.resume and asked.monte_carlo is None:
        raise InputError(
            "--resume", "is for repetitions, which alone keep a checkpoint", "leave it out",
            topic="checkpoints",
        )
    problem = read_problem(circuit, observable, asked, options.output)
    kept = _checkpoint(problem, asked, options)
    if kept is not None:
        kept.repetitions(options.resume)
    return problem


def _check_ranks(n_ranks: int, asked: PauliRequest) -> None:
    if n_ranks & (n_ranks - 1) and asked.monte_carlo is None:
        raise InputError("ranks", f"are {n_ranks}", "start a power of two")


def _needs(problem: PauliProblem, asked: PauliRequest, n_ranks: int, threads: int, device: str) -> Needs:
    """The terms to start with; how many there will be is known beforehand for repetitions alone."""
    if asked.monte_carlo is not None:
        return sampling_needs(sampled_value(problem, asked), threads, device)
    size_bytes = problem.terms.n_terms * term_bytes(problem.circuit.n_qubits, 8)
    what = on_cpu_alone(problem.steps, [problem.terms], n_ranks) if asked.has_tape else ""
    return Needs(size_bytes, size_bytes, "give an observable of fewer words", what)


def _checkpoint(problem: PauliProblem, asked: PauliRequest, options: JobOptions) -> SampleCheckpoint | None:
    """The checkpoint of repetitions, where one is kept."""
    path = options.checkpoint_file
    return None if path is None else SampleCheckpoint(path, identity(problem, asked))


def _work(rank: Rank, problem: PauliProblem, asked: PauliRequest, options: JobOptions) -> Expectation:
    """Propagate on this rank; rank 0 writes the files."""
    kept = _checkpoint(problem, asked, options)
    if asked.monte_carlo is not None:
        expectation = _sample(rank, problem, asked, kept)
    else:
        expectation = _propagate(rank, problem, asked, few_on_cpu=options.device == "auto")
    if rank.is_first:
        if options.output is not None:
            write_json(options.output, expectation.report)
        if asked.record is not None and expectation.propagation is not None:
            write_record(expectation.propagation.record, asked.record)
        if kept is not None:
            kept.remove()
    return expectation


def _sample(
    rank: Rank, problem: PauliProblem, asked: PauliRequest, kept: SampleCheckpoint | None
) -> Expectation:  # fmt: skip
    """The repetitions of all ranks."""
    ranks = rank.world if rank.world.size > 1 else None
    use = Resources(
        device=rank.device.name, threads=rank.threads, precision=asked.precision, ranks=ranks
    )  # fmt: skip
    with rank.on_stream():
        estimate, work = sample(
            rank, sampled_value(problem, asked), use, kept,
            lambda done, n: rank.say(done, n, f"repetition {done} of {n}"),
        )  # fmt: skip
    report = estimate_report(problem, asked, use, estimate, work)
    return Expectation(estimate.value, None, report, estimate)


def _propagate(
    rank: Rank, problem: PauliProblem, asked: PauliRequest, *, few_on_cpu: bool
) -> Expectation:  # fmt: skip
    """One propagation, whose terms all ranks share."""

    def heard(at: Progress) -> None:
        text = f"step {at.step} of {at.steps}: {at.terms} terms, {size_text(at.size_bytes)}"
        rank.say(at.step, at.steps, text if rank.world.size == 1 else f"{text} on rank 0", at)

    use = Resources(
        device=rank.device.name, threads=rank.threads, precision=asked.precision,
        memory_bytes=rank.memory_bytes, when_full=asked.when_full, ranks=rank.connected(),
        few_on_cpu=few_on_cpu,
    )  # fmt: skip
    with rank.on_stream():
        return _solve(problem, use, asked, heard)


def _solve(
    problem: PauliProblem, use: Resources, asked: PauliRequest, heard: Callable[[Progress], None]
) -> Expectation:
    steps, start, keep, state = problem.steps, problem.terms, asked.keep, problem.state
    is_forward, left_out = asked.picture == "schroedinger", NOTHING
    if is_forward:
        start, left_out = product_state(_bloch(problem), asked.truncation.max_weight)
        steps, keep, state = list(forward(steps)), "all", None
    done = propagate_steps(
        steps, start, asked.truncation, use, state=state, keep=keep, stop_above=asked.stop_above,
        progress=heard,
    )  # fmt: skip
    done = replace(done, dropped=left_out + done.dropped)
    value = overlap(done.result, problem.terms) if is_forward else done.value
    report = propagation_report(problem, asked, use, done, value)
    if asked.gradient:
        gradients = gradient_of_steps(problem.steps, problem.terms, asked.truncation, use, state=state)
        report["gradient"] = derivatives(problem, gradients)
    if asked.each_term:
        values = value_of_terms(problem.steps, problem.terms, asked.truncation, use, state=state)
        report |= term_values(problem, values)
    if problem.parts:
        value, of_sum = sum_of_parts(problem, values, is_exact=not done.dropped.terms)
        report |= of_sum
    return Expectation(value, done, report)


def _bloch(problem: PauliProblem) -> Array:
    """The Bloch vectors of a bit string or a product state."""
    if isinstance(problem.state, ProductState):
        return problem.state.bloch
    assert problem.state is None or isinstance(problem.state, str)
    return bits_bloch(problem.state or "0" * problem.circuit.n_qubits)
