"""The job of `propagate`: inputs are read and checked, terms propagated on all ranks, results written.

The arithmetic is in executor/pauli.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.circuits.pauli_sum import text as word_text
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.files import write_json, write_text
from tnplan.common.shown_text import Printed
from tnplan.common.units import plural, size_text
from tnplan.executor.pauli.algebra.expectation import (
    ErrorOfValue,
    bits_bloch,
    error_in_state,
    error_of_overlap,
    error_of_state,
    forward,
    overlap,
    product_state,
)
from tnplan.executor.pauli.algebra.gates import Rotation, TransferMatrix
from tnplan.executor.pauli.algebra.states import OverlapWith, ProductState
from tnplan.executor.pauli.estimate import NOTHING_MET, Estimate
from tnplan.executor.pauli.gradient import Gradient, on_cpu_alone, value_of_terms
from tnplan.executor.pauli.gradient import gradient as gradient_of_steps
from tnplan.executor.pauli.propagate import Progress, Propagation, propagate_all
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.terms.ledger import Dropped, Record
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.job_options import JobOptions
from tnplan.jobs.pauli_problem import PauliProblem, PauliRequest, read_problem
from tnplan.jobs.pauli_sampling import SampleCheckpoint, identity, sample, sampled_value, sampling_needs

# Changelog of `tnplan.pauli`: 1 (2026-11-21): first version. 2 (2026-11-21): `picture`, `device`, `ranks`,
# `threads`, `precision`, `memory_full`, `gradient`. 3 (2026-11-25): `error_bound`; `dropped` has what was
# left out of the initial state, null past 1e308. 4 (2026-11-26): `error_bound_is_vacuous`,
# `error_estimate`, `empty`, `values`, `observables`, `estimate`; `error_bound` is never more than what is
# possible, and null for estimates; `dropped.norm`. 5 (2026-11-29): `estimate.low` and `estimate.high` are
# null where there is no interval, `estimate.doubt` says why; without `with_fewer_terms`. 6 (2026-12-01):
# `symmetry`, how many permutations the group has.


TOPIC = "Pauli propagation"

FORMAT = "tnplan.pauli"
RECORD_FORMAT = "tnplan.pauli-record"
VERSION = 6
MOST = 1e308
"""The largest number of a report."""


def propagation_report(
    problem: PauliProblem, request: PauliRequest, use: Resources, done: Propagation, value: complex
) -> dict[str, Any]:
    """The report of one propagation."""
    error = error_of(problem, request, done, value)
    kind = "norm of what was dropped" if done.dropped.terms else "exact"
    return {
        **_head(problem, request),
        "expectation": number(value),
        "error_bound": error.bound,
        "error_bound_is_vacuous": error.is_vacuous,
        "error_estimate": {"kind": kind, "value": error.estimate},
        "empty": done.n_terms == 0 and done.dropped.terms > 0,
        # JSON has no infinity.
        "dropped": {name: None if size > MOST else size for name, size in asdict(done.dropped).items()},
        **_resources(use),
        "memory_full": done.full,
        "terms": done.n_terms,
        "largest_terms": done.largest,
        "steps": done.steps,
        "terms_times_steps": done.visits,
        "size_bytes": done.size_bytes,
        "time_s": done.time_s,
    }  # fmt: skip


def estimate_report(
    problem: PauliProblem, request: PauliRequest, use: Resources, estimate: Estimate, work: dict[str, Any]
) -> dict[str, Any]:
    """The report of repetitions; `work` has the figures of how they went."""
    assert request.monte_carlo is not None
    kind = "exact" if estimate.kind == "exact" else f"standard error, {estimate.text}"
    return {
        **_head(problem, request),
        "expectation": estimate.value,
        "error_bound": 0.0 if estimate.kind == "exact" else None,
        "error_bound_is_vacuous": False,
        "error_estimate": {"kind": kind, "value": estimate.standard_error},
        "empty": estimate.kind == NOTHING_MET,
        "monte_carlo": asdict(request.monte_carlo),
        "estimate": asdict(estimate),
        **_resources(use),
        **work,
    }


def error_of(problem: PauliProblem, request: PauliRequest, done: Propagation, value: complex) -> ErrorOfValue:
    """How far the value may be from the true one."""
    is_unital = not any(isinstance(step, TransferMatrix) and not step.is_unital for step in problem.steps)
    if request.picture == "schroedinger":
        return error_of_state(done.dropped, problem.terms, value, is_unital=is_unital)
    if isinstance(problem.state, OverlapWith):
        return error_of_overlap(done.dropped, problem.terms, problem.state.other, value, is_unital=is_unital)
    return error_in_state(done.dropped, problem.terms, value)


def derivatives(problem: PauliProblem, gradients: Gradient) -> list[dict[str, Any]]:
    """The derivatives by the angles of rotations."""
    return [
        {"gate": gate, "rotation": word_text(step.x, step.z), "angle": step.angle, "derivative": derivative}
        for step, gate, derivative in zip(
            problem.steps, problem.gates, np.real(gradients.derivatives).tolist(), strict=True
        )
        if isinstance(step, Rotation)
    ]


def term_values(problem: PauliProblem, values: Array) -> dict[str, Any]:
    """The value of every word, and of every observable of a list; `values` are those of the words."""
    words = [
        {"word": word_text(x, z), "coefficient": number(coefficient), "value": number(value)}
        for (x, z, coefficient), value in zip(problem.terms.masks(), values.tolist(), strict=True)
    ]
    if not problem.parts:
        return {"values": words}
    return {
        "values": [{"word": word["word"], "value": word["value"]} for word in words],
        "observables": [
            {"terms": observable.n_terms, "value": number(value)}
            for observable, value in zip(problem.parts, _part_values(problem, values), strict=True)
        ],
    }


def sum_of_parts(problem: PauliProblem, values: Array, *, is_exact: bool) -> tuple[complex, dict[str, Any]]:
    """The value of the sum of the observables of a list, and what of the report is another for a list.

    Where something was dropped there is no bound: what cancels between observables may be dropped, and the
    value of each lacks it.
    """
    value = sum(_part_values(problem, values))
    estimate = {"kind": "exact", "value": 0.0} if is_exact else {"kind": "none", "value": None}
    return value, {
        "expectation": number(value), "error_bound": 0.0 if is_exact else None,
        "error_bound_is_vacuous": False, "error_estimate": estimate,
    }  # fmt: skip


def _part_values(problem: PauliProblem, values: Array) -> list[complex]:
    """The value of every observable of a list from those of the words."""
    number_of = {(x, z): k for k, (x, z, _) in enumerate(problem.terms.masks())}
    return [sum(c * values[number_of[x, z]].item() for x, z, c in part.masks()) for part in problem.parts]


def number(value: complex) -> Any:
    """A number as JSON has it: a complex one as its two parts."""
    return [value.real, value.imag] if isinstance(value, complex) else float(value)


def write_record(record: Record, path: str | Path) -> None:
    """Write what happened at every step: as JSON, or as a plot where the name ends in .svg."""
    if Path(path).suffix.lower() == ".svg":
        from tnplan.reporting.plots import record_plot, svg_of

        write_text(path, svg_of(record_plot(record)))
    else:
        write_text(path, json.dumps({"format": RECORD_FORMAT, "version": 1, **asdict(record)}) + "\n")


def _head(problem: PauliProblem, request: PauliRequest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "n_qubits": problem.circuit.n_qubits,
        "gates": len(problem.circuit.gates),
        "picture": request.picture,
        "symmetry": 1 if problem.symmetry is None else len(problem.symmetry.images),
        "truncation": asdict(request.truncation),
        "engine": "hash",
    }


def _resources(use: Resources) -> dict[str, Any]:
    return {
        "device": use.device,
        "ranks": 1 if use.ranks is None else use.ranks.size,
        "threads": use.threads,
        "precision": use.precision,
    }


@dataclass(frozen=True, eq=False, repr=False)
class Expectation(Printed):
    """What `propagate` gives; `print` shows the values, their errors and the work.

    Parameters
    ----------
    value : float or complex
        The expectation value, or the overlap; of a list of observables that of their sum.
    propagation : Propagation or None
        The propagated sum and how it came about: `result`, `n_terms`, `dropped`, `record`. In the
        Schroedinger picture the sum is 2^n times the density matrix, and what was dropped includes the words
        that were left out of the initial state. None for repetitions.
    report : dict
        What the JSON file says (docs/explanation/pauli.md).
    estimate : Estimate or None
        Of repetitions: the mean, its standard error, its interval if it has one, and every value.

    Examples
    --------
    >>> expectation = tnplan.propagate(tnplan.GateSequence(2, ()), "Z0 Z1", device="cpu")
    >>> expectation.value
    1.0
    """

    value: complex
    propagation: Propagation | None
    report: dict[str, Any]
    estimate: Estimate | None = None

    def __repr__(self) -> str:
        if self.estimate is not None:
            error = f"standard error {self.estimate.standard_error:.3g}, {self.estimate.text}"
            return f"Expectation({self.value}, {error}, {self.report['repetitions']} repetitions)"
        bound = self.report["error_bound"]
        error = "error not bounded" if bound is None else f"error at most {bound:.3g}"
        if self.report["error_bound_is_vacuous"]:
            error += " (vacuous)"
        if self.report["empty"]:
            error = "everything was cut"
        return f"Expectation({self.value}, {error}, {self.report['terms']} terms)"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        report = self.report
        if self.estimate is None:
            yield from _value_lines(report)
        else:
            yield f"expectation value {self.estimate}"
            yield (
                f"{plural(report['repetitions'], 'repetition', 'repetitions')} of at most "
                f"{plural(report['largest_terms'], 'term', 'terms')} in {report['time_s']:.3g} s"
            )
        for entry in report.get("values", ()):
            yield f"value of {entry['word']}: {entry['value']!r}"
        for number, entry in enumerate(report.get("observables", ())):
            yield f"value of observable {number}: {entry['value']!r}"
        for entry in report.get("gradient", ()):
            where = f"gate {entry['gate']}, {entry['rotation']}, angle {entry['angle']:.6g}"
            yield f"derivative at {where}: {entry['derivative']!r}"


def _value_lines(report: dict[str, Any]) -> Iterator[str]:
    """The value with its bound and its estimate, and what the terms did."""
    bound, estimate, dropped = report["error_bound"], report["error_estimate"], report["dropped"]["terms"]
    error = "no bound of the error" if bound is None else f"error at most {bound:.3g}"
    vacuous = " (vacuous: no possible value is farther away)" if report["error_bound_is_vacuous"] else ""
    yield f"expectation value {report['expectation']!r}, {error}{vacuous}"
    if estimate["value"] and estimate["kind"] != "exact":
        yield f"estimated error {estimate['value']:.3g} ({estimate['kind']})"
    yield (
        f"{plural(report['terms'], 'term', 'terms')} at the end, {report['largest_terms']} at most, "
        f"{'over 1e308' if dropped is None else dropped} dropped; "
        f"{plural(report['steps'], 'step', 'steps')} in {report['time_s']:.3g} s"
    )
    if report["memory_full"]:
        yield f"the memory was full {report['memory_full']} times: the largest terms were kept"


NOTHING = Dropped(0.0, 0.0, 0)


def run_propagation(circuit: Any, observable: Any, request: PauliRequest, options: JobOptions) -> Expectation:
    """Propagate on the ranks of this process, or on those of mpirun."""
    if request.monte_carlo is None and not options.resume:
        options = replace(options, checkpoint=False)
    job = Job(
        prepare=lambda: _prepare(circuit, observable, request, options),
        work=lambda rank, problem: _work(rank, problem, request, options),
        check_ranks=lambda problem, n: _check_ranks(n, request),
        needs=lambda problem, n, threads: _needs(problem, request, n, threads, options.device),
    )
    return run_job(job, options)


def _prepare(circuit: Any, observable: Any, request: PauliRequest, options: JobOptions) -> PauliProblem:
    """Read and check all inputs, on rank 0."""
    if request.has_tape and request.picture != "heisenberg":
        name = "gradient" if request.gradient else "each_term"
        raise InputError(name, "works only in the Heisenberg picture", "leave --picture out")
    if options.resume and request.monte_carlo is None:
        raise InputError(
            "--resume",
            "is only for repetitions: nothing else keeps a checkpoint",
            "leave it out",
            topic="checkpoints",
        )
    problem = read_problem(circuit, observable, request, options.output)
    checkpoint = _checkpoint(problem, request, options)
    if checkpoint is not None:
        checkpoint.repetitions(options.resume)
    return problem


def _check_ranks(n_ranks: int, request: PauliRequest) -> None:
    if n_ranks & (n_ranks - 1) and request.monte_carlo is None:
        raise InputError("ranks", f"are {n_ranks}", "start a power of two")
    if n_ranks > 1 and request.symmetry is not None:
        raise InputError("ranks", f"are {n_ranks}, and --symmetry is for one rank", "start one rank")


def _needs(problem: PauliProblem, request: PauliRequest, n_ranks: int, threads: int, device: str) -> Needs:
    """The terms to start with; how many there will be is known beforehand for repetitions alone."""
    if request.monte_carlo is not None:
        return sampling_needs(sampled_value(problem, request), threads, device)
    size_bytes = problem.terms.n_terms * term_bytes(problem.circuit.n_qubits, 8)
    cpu_only = "" if problem.symmetry is None else "sums whose words are merged by symmetry"
    if request.has_tape:
        cpu_only = on_cpu_alone(problem.steps, [problem.terms], n_ranks)
    return Needs(size_bytes, size_bytes, "give an observable of fewer words", cpu_only)


def _checkpoint(problem: PauliProblem, request: PauliRequest, options: JobOptions) -> SampleCheckpoint | None:
    """The checkpoint of repetitions, where one is kept."""
    path = options.checkpoint_file
    return None if path is None else SampleCheckpoint(path, identity(problem, request))


def _work(rank: Rank, problem: PauliProblem, request: PauliRequest, options: JobOptions) -> Expectation:
    """Propagate on this rank; rank 0 writes the files."""
    checkpoint = _checkpoint(problem, request, options)
    if request.monte_carlo is not None:
        expectation = _sample(rank, problem, request, checkpoint)
    else:
        expectation = _propagate(rank, problem, request, few_on_cpu=options.device == "auto")
    expectation.report["energy"] = rank.energy()
    if rank.is_first:
        if options.output is not None:
            write_json(options.output, expectation.report)
        if request.record is not None and expectation.propagation is not None:
            write_record(expectation.propagation.record, request.record)
        if checkpoint is not None:
            # Invariant: the checkpoint goes after the result is written, never before.
            checkpoint.remove()
    return expectation


def _sample(
    rank: Rank, problem: PauliProblem, request: PauliRequest, checkpoint: SampleCheckpoint | None
) -> Expectation:  # fmt: skip
    """The repetitions of all ranks."""
    ranks = rank.world if rank.world.size > 1 else None
    use = Resources(device=rank.device.name, threads=rank.threads, precision=request.precision, ranks=ranks)
    with rank.on_stream():
        estimate, work = sample(
            rank, sampled_value(problem, request), use, checkpoint,
            lambda done, n: rank.say_steps(done, n, "repetition"),
        )  # fmt: skip
    report = estimate_report(problem, request, use, estimate, work)
    return Expectation(estimate.value, None, report, estimate)


def _propagate(rank: Rank, problem: PauliProblem, request: PauliRequest, *, few_on_cpu: bool) -> Expectation:
    """One propagation, whose terms all ranks share."""

    def report_step(at: Progress) -> None:
        text = f"step {at.step} of {at.steps}: {at.terms} terms, {size_text(at.size_bytes)}"
        rank.say(at.step, at.steps, text if rank.world.size == 1 else f"{text} on rank 0", at)

    memory_bytes = rank.memory_bytes
    if problem.symmetry is not None and memory_bytes is not None:
        memory_bytes //= 2  # the other half is for the words while they are merged
    use = Resources(
        device=rank.device.name, threads=rank.threads, precision=request.precision,
        memory_bytes=memory_bytes, when_full=request.when_full, ranks=rank.connected(),
        few_on_cpu=few_on_cpu,
    )  # fmt: skip
    with rank.on_stream():
        return _solve(problem, use, request, report_step)


def _solve(
    problem: PauliProblem, use: Resources, request: PauliRequest, report_step: Callable[[Progress], None]
) -> Expectation:
    steps, start, keep, state = problem.steps, problem.terms, request.keep, problem.state
    is_forward, dropped = request.picture == "schroedinger", NOTHING
    # Schroedinger picture: the state rho = prod (1 + r.sigma)/2 is the sum that is propagated,
    # forward and by the channel itself; the value is then its overlap with the observable. Weights
    # above the bound are left out of the start and count as dropped.
    if is_forward:
        start, dropped = product_state(_bloch(problem), request.truncation.max_weight)
        steps, keep, state = list(forward(steps)), "all", None
    done = propagate_all(
        [steps] if is_forward else problem.pieces, start, request.truncation, use, state=state, keep=keep,
        stop_above=request.stop_above, progress=report_step, symmetry=problem.symmetry,
    )[-1]  # fmt: skip
    done = replace(done, dropped=dropped + done.dropped)
    value = overlap(done.result, problem.terms) if is_forward else done.value
    report = propagation_report(problem, request, use, done, value)
    if request.gradient:
        gradients = gradient_of_steps(problem.steps, problem.terms, request.truncation, use, state=state)
        report["gradient"] = derivatives(problem, gradients)
    if request.each_term:
        values = value_of_terms(problem.steps, problem.terms, request.truncation, use, state=state)
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
