"""Pauli propagation from a circuit to a value: `tnplan pauli`. The arithmetic is in executor/pauli."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tnplan.api.jobs.job import TIMEOUT_S, Job, JobOptions, Needs, Rank, run_job
from tnplan.api.jobs.pauli.problem import PauliProblem, PauliRequest, read_problem
from tnplan.api.jobs.pauli.report import (
    derivatives,
    estimate_report,
    propagation_report,
    sum_of_parts,
    term_values,
    write_record,
)
from tnplan.api.jobs.pauli.sampling import Checkpoint, identity, sample, sampled_value, sampling_needs
from tnplan.api.progress import Listener
from tnplan.executor.pauli.algebra.expectation import bits_bloch, overlap, product_state
from tnplan.executor.pauli.algebra.schroedinger import forward
from tnplan.executor.pauli.algebra.states import ProductState
from tnplan.executor.pauli.gradient import gradient as gradient_of_steps
from tnplan.executor.pauli.gradient import on_cpu_alone, value_of_terms
from tnplan.executor.pauli.propagate import Progress, Propagation
from tnplan.executor.pauli.propagate import propagate as propagate_steps
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.sampling.estimate import Estimate
from tnplan.executor.pauli.sampling.repetitions import MonteCarlo
from tnplan.executor.pauli.terms.ledger import Dropped
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import write_json
from tnplan.planner.common.units import size_text

NOTHING = Dropped(0.0, 0.0, 0)


@dataclass(frozen=True, eq=False, repr=False)
class Expectation:
    """What `propagate` gives.

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
        Of repetitions: the mean, its standard error and interval, and every value.

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
            error = f"standard error {self.estimate.standard_error:.3g}"
            return f"Expectation({self.value}, {error}, {self.report['repetitions']} repetitions)"
        bound = self.report["error_bound"]
        error = "error not bounded" if bound is None else f"error at most {bound:.3g}"
        if self.report["error_bound_is_vacuous"]:
            error += " (vacuous)"
        if self.report["empty"]:
            error = "everything was cut"
        return f"Expectation({self.value}, {error}, {self.report['terms']} terms)"


def propagate(
    circuit: Any,
    observable: Any,
    truncation: Truncation | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    state: Any = None,
    overlap: Any = None,
    depolarize: float = 0.0,
    picture: str = "heisenberg",
    gradient: bool = False,
    each_term: bool = False,
    monte_carlo: MonteCarlo | None = None,
    keep: str = "all",
    stop_above: int | None = None,
    when_full: str = "stop",
    record: str | Path | None = None,
    precision: str = "fp64",
    device: str = "auto",
    ranks: int | None = None,
    threads: int | None = None,
    memory: float | str | None = None,
    output: str | Path | None = None,
    checkpoint: bool = True,
    resume: bool = False,
    progress: Listener | bool | None = None,
    timeout: float = TIMEOUT_S,
    allow_mixed_builds: bool = False,
) -> Expectation:
    """The expectation value <state| U^dagger O U |state> of a circuit U, by propagation of Pauli words.

    Without a truncation the value is exact but for rounding. With one, `report["error_bound"]` bounds its
    error. With `monte_carlo` it is an estimate with a standard error. Under mpirun the call is collective.

    Parameters
    ----------
    circuit : GateSequence, path or object
        A circuit, a qsim or OpenQASM file, or what else `load_circuit` reads.
    observable : str, PauliSum or SparsePauliOp
        A sum of Pauli words O, such as "0.5*X0 X1 - Z3", or Qiskit's object for one. With `each_term` also a
        list of them, which are propagated together.
    truncation : Truncation, optional
        Which terms are dropped. Default: none.
    parameters : mapping, optional
        Values of the parameters of a file or of another library's circuit, by their names.
    state : str, array or list of str, optional
        A letter for each qubit: 0, 1, + and - (of X), r and l (of Y); Bloch vectors, float64 [qubit, 3]; or
        stabilizers, such as ["X0 X1", "-Z0 Z1"]: fewer than the qubits give the mean of all such states.
        Default: all 0.
    overlap : str, PauliSum or SparsePauliOp, optional
        Another sum B, instead of a state: the value is tr(B^dagger U^dagger O U) / 2^n. With O itself it is
        the mean over inputs of a Loschmidt echo.
    depolarize : float
        The probability that, after a gate, one of the Pauli words other than I strikes its qubits.
    picture : {"heisenberg", "schroedinger"}
        Take the observable backwards, or the state forward. The state has words of at most the truncation's
        `max_weight`; the others count as dropped.
    gradient : bool
        Add the derivatives by the angles of all rotations. In the Heisenberg picture; on a GPU alone or
        on CPUs. Terms take a quarter of the memory, the tape of what was done to them the rest.
    each_term : bool
        Add the value of every word of the observable, from one sweep back. Takes what `gradient` takes.
    monte_carlo : MonteCarlo, optional
        Resample the terms where they would pass the truncation's `max_terms`, in repetitions. With "auto" a
        GPU is taken for many terms alone.
    keep : {"all", "own", "none"}
        Which terms the result has on every rank. The Schroedinger picture keeps all.
    stop_above : int, optional
        Stop where more terms than this are left.
    when_full : {"stop", "truncate"}
        Where the memory is full: stop, or keep the terms of largest magnitude and go on.
    record : path, optional
        A file for the number of terms at every step: .json, or a plot, .svg.
    precision : {"fp64", "fp32"}
        That of coefficients.
    device, ranks, threads, memory, output, checkpoint, resume, progress, timeout, allow_mixed_builds
        How the job uses the machine, as in `execute`. Ranks share the terms: a power of two
        of them; or the repetitions. `output` is a JSON file. Repetitions keep a checkpoint beside it.

    Returns
    -------
    Expectation
        The value, the propagated sum, and what the JSON file says.

    Raises
    ------
    InputError
        For what cannot be done, or where terms outgrow the memory.

    Examples
    --------
    >>> flip = tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]], np.complex128))
    >>> circuit = tnplan.GateSequence(1, (flip,))
    >>> tnplan.propagate(circuit, "Z0", tnplan.Truncation(branch_cut=1e-4), device="cpu")
    Expectation(-1.0, error at most 0, 1 terms)
    """
    options = JobOptions.given(
        device, ranks, threads, memory, output, checkpoint, resume, progress,
        timeout=timeout, allow_mixed_builds=allow_mixed_builds,
    )  # fmt: skip
    limits = Truncation() if truncation is None else truncation
    asked = PauliRequest(
        limits, parameters, state, overlap, depolarize, picture, gradient, each_term, monte_carlo, keep,
        stop_above, precision, when_full, record,
    )  # fmt: skip
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
        raise InputError("--resume", "is for repetitions, which alone keep a checkpoint", "leave it out")
    problem = read_problem(circuit, observable, asked, options.output)
    kept = _checkpoint(problem, asked, options)
    if kept is not None:
        kept.read()
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


def _checkpoint(problem: PauliProblem, asked: PauliRequest, options: JobOptions) -> Checkpoint | None:
    """The checkpoint of repetitions, where one is kept."""
    path = options.checkpoint_file
    if asked.monte_carlo is None or path is None:
        return None
    return Checkpoint(path, identity(problem, asked), options.resume)


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
    rank: Rank, problem: PauliProblem, asked: PauliRequest, kept: Checkpoint | None
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
