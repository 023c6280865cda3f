"""Pauli propagation from a circuit to a value: `tnplan pauli`. The arithmetic is in executor/pauli.

Changelog of `tnplan.pauli`, the JSON of a result:
1 (2026-11-21): first version.
2 (2026-11-21): `picture`, `device`, `ranks`, `threads`, `precision`, `memory_full`, `gradient`.
3 (2026-11-25): `error_bound`; `dropped` has what was left out of the initial state, null past 1e308.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.api.jobs.job import Job, JobOptions, Needs, Rank, run_job
from tnplan.api.progress import Listener
from tnplan.executor.observables.given_sum import given_sum
from tnplan.executor.observables.pauli_sum import PauliSum
from tnplan.executor.observables.pauli_sum import text as word_text
from tnplan.executor.pauli.algebra.channels import depolarizing
from tnplan.executor.pauli.algebra.expectation import (
    bits_bloch,
    in_bits,
    overlap,
    overlap_error,
    product_state,
)
from tnplan.executor.pauli.algebra.gates import MOST_QUBITS, PauliStep, Rotation, TransferMatrix, gate_steps
from tnplan.executor.pauli.algebra.schroedinger import forward
from tnplan.executor.pauli.gradient import Gradient
from tnplan.executor.pauli.gradient import gradient as gradient_of_steps
from tnplan.executor.pauli.propagate import Progress, Propagation
from tnplan.executor.pauli.propagate import propagate as propagate_steps
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.terms.ledger import Dropped, Record
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.planner.common.checks import check_choice, is_number
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import check_suffix, check_writable, write_text
from tnplan.planner.common.units import size_text
from tnplan.planner.networks.circuits.circuit import Gate, GateSequence, GlobalPhase
from tnplan.planner.networks.circuits.load import load_circuit

FORMAT = "tnplan.pauli"
RECORD_FORMAT = "tnplan.pauli-record"
VERSION = 3
PICTURES = ("heisenberg", "schroedinger")
MOST = 1e308
"""The largest number of a report."""
NOTHING = Dropped(0.0, 0.0, 0)


@dataclass(frozen=True, eq=False, repr=False)
class Expectation:
    """What `propagate` gives.

    Parameters
    ----------
    value : float or complex
        The expectation value.
    propagation : Propagation
        The propagated sum and how it came about: `result`, `n_terms`, `dropped`, `record`. In the
        Schroedinger picture the sum is 2^n times the density matrix, and what was dropped includes the words
        that were left out of the initial state.
    report : dict
        What the JSON file says (docs/explanation/pauli.md).

    Examples
    --------
    >>> expectation = tnplan.propagate(tnplan.GateSequence(2, ()), "Z0 Z1", device="cpu")
    >>> expectation.value
    1.0
    """

    value: complex
    propagation: Propagation
    report: dict[str, Any]

    def __repr__(self) -> str:
        bound = f"error at most {self.report['error_bound']:.3g}"
        return f"Expectation({self.value}, {bound}, {self.propagation.n_terms} terms)"


@dataclass(frozen=True)
class _Problem:
    """A circuit's steps with the gate that each belongs to, an observable, and a state."""

    circuit: GateSequence
    steps: list[PauliStep]
    gates: list[int]
    terms: PauliSum
    state: str | None


@dataclass(frozen=True)
class _Propagation:
    """The arguments of `propagate` besides the circuit, the observable and the job's options."""

    truncation: Truncation
    parameters: Mapping[str, Any] | None
    state: str | None
    depolarize: float
    picture: str
    gradient: bool
    keep: str
    stop_above: int | None
    precision: str
    when_full: str
    record: str | Path | None


def propagate(
    circuit: Any,
    observable: Any,
    truncation: Truncation | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    state: str | None = None,
    depolarize: float = 0.0,
    picture: str = "heisenberg",
    gradient: bool = False,
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
    progress: Listener | bool | None = None,
) -> Expectation:
    """The expectation value <state| U^dagger O U |state> of a circuit U, by propagation of Pauli words.

    Without a truncation the value is exact but for rounding. With one, `report["error_bound"]` bounds its
    error. Under mpirun the call is collective.

    Parameters
    ----------
    circuit : GateSequence, path or object
        A circuit, a qsim or OpenQASM file, or what else `load_circuit` reads.
    observable : str, PauliSum or SparsePauliOp
        A sum of Pauli words O, such as "0.5*X0 X1 - Z3", or Qiskit's object for one.
    truncation : Truncation, optional
        Which terms are dropped. Default: none.
    parameters : mapping, optional
        Values of the parameters of a file or of another library's circuit, by their names.
    state : str, optional
        A bit string, character k for qubit k. Default: all 0.
    depolarize : float
        The probability that, after a gate, one of the Pauli words other than I strikes its qubits.
    picture : {"heisenberg", "schroedinger"}
        Take the observable backwards, or the state forward. The state has words of at most the truncation's
        `max_weight`; the others count as dropped.
    gradient : bool
        Add the derivatives by the angles of all rotations. Takes one thread, the Heisenberg picture and fp64.
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
    device, ranks, threads, memory, output, progress
        How the job uses the machine, as in `execute`. Ranks share the terms: a power of two
        of them. `output` is a JSON file.

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
    threads = 1 if gradient and threads is None else threads
    options = JobOptions.given(device, ranks, threads, memory, output, progress=progress)
    limits = Truncation() if truncation is None else truncation
    asked = _Propagation(
        limits, parameters, state, depolarize, picture, gradient, keep, stop_above, precision, when_full,
        record,
    )  # fmt: skip
    job = Job(
        prepare=lambda: _prepare(circuit, observable, asked, options),
        work=lambda rank, problem: _work(rank, problem, asked, options.output),
        check_ranks=lambda problem, n: _check_ranks(n, asked),
        needs=lambda problem, n, threads: _needs(problem, asked),
    )
    return run_job(job, options)


def _prepare(circuit: Any, observable: Any, asked: _Propagation, options: JobOptions) -> _Problem:
    """Read and check all inputs, on rank 0."""
    if not isinstance(asked.truncation, Truncation):
        raise InputError("truncation", f"is {asked.truncation!r}", "give Truncation")
    Resources(precision=asked.precision, when_full=asked.when_full)  # refuses other names
    _check_files(circuit, options.output, asked.record)
    check_choice("--picture", asked.picture, PICTURES)
    alone = options.device != "gpu" and options.threads == 1 and options.memory is None
    if asked.gradient and not (alone and asked.picture == "heisenberg" and asked.precision == "fp64"):
        raise InputError(
            "gradient", "takes one thread in the Heisenberg picture, fp64, and no bound of memory",
            "leave out the other options",
        )  # fmt: skip
    return _problem(circuit, observable, asked)


def _check_ranks(n_ranks: int, asked: _Propagation) -> None:
    if n_ranks & (n_ranks - 1):
        raise InputError("ranks", f"are {n_ranks}", "start a power of two")
    if asked.gradient and n_ranks > 1:
        raise InputError("gradient", f"takes one rank, not {n_ranks}", "start one rank")


def _needs(problem: _Problem, asked: _Propagation) -> Needs:
    """The terms to start with; how many there will be nobody knows beforehand."""
    size_bytes = problem.terms.n_terms * term_bytes(problem.circuit.n_qubits, 8)
    return Needs(
        size_bytes, size_bytes, "give an observable of fewer words", "gradients" if asked.gradient else ""
    )


def _work(rank: Rank, problem: _Problem, asked: _Propagation, output: Path | None) -> Expectation:
    """Propagate on this rank; rank 0 writes the files."""

    def heard(at: Progress) -> None:
        text = f"step {at.step} of {at.steps}: {at.terms} terms, {size_text(at.size_bytes)}"
        rank.say(at.step, at.steps, text if rank.world.size == 1 else f"{text} on rank 0", at)

    use = Resources(
        device=rank.device.name, threads=rank.threads, precision=asked.precision,
        memory_bytes=None if asked.gradient else rank.memory_bytes, when_full=asked.when_full,
        ranks=rank.connected(),
    )  # fmt: skip
    with rank.on_stream():
        expectation = _solve(problem, use, asked, heard)
    if rank.is_first:
        if output is not None:
            write_text(output, json.dumps(expectation.report, indent=1) + "\n")
        if asked.record is not None:
            write_record(expectation.propagation.record, asked.record)
    return expectation


def write_record(record: Record, path: str | Path) -> None:
    """Write what happened at every step: as JSON, or as a plot where the name ends in .svg."""
    if Path(path).suffix.lower() == ".svg":
        from tnplan.reporting.pauli_plot import record_plot
        from tnplan.reporting.plots import svg_of

        write_text(path, svg_of(record_plot(record)))
    else:
        write_text(path, json.dumps({"format": RECORD_FORMAT, "version": 1, **asdict(record)}) + "\n")


def _solve(
    problem: _Problem, use: Resources, asked: _Propagation, heard: Callable[[Progress], None]
) -> Expectation:
    steps, start, keep = problem.steps, problem.terms, asked.keep
    is_forward, left_out = asked.picture == "schroedinger", NOTHING
    if is_forward:
        bits = problem.state or "0" * problem.circuit.n_qubits
        start, left_out = product_state(bits_bloch(bits), asked.truncation.max_weight)
        steps, keep = list(forward(steps)), "all"
    done = propagate_steps(
        steps, start, asked.truncation, use, state=problem.state, keep=keep, stop_above=asked.stop_above,
        progress=heard,
    )  # fmt: skip
    done = replace(done, dropped=left_out + done.dropped)
    value, bound = done.value, done.dropped.l1
    if is_forward:
        value, is_unital = overlap(done.result, problem.terms), all(map(_is_unital, problem.steps))
        bound = overlap_error(done.dropped, problem.terms, value, is_unital=is_unital)
    report = _report(problem, value, bound, done, use, asked)
    if asked.gradient:
        gradients = gradient_of_steps(problem.steps, problem.terms, asked.truncation, state=problem.state)
        report["gradient"] = _derivatives(problem, gradients)
    return Expectation(value, done, report)


def _is_unital(step: PauliStep) -> bool:
    return not isinstance(step, TransferMatrix) or step.is_unital


def _check_files(circuit: Any, output: str | Path | None, record: str | Path | None) -> None:
    for path in (output, record):
        if path is not None:
            check_writable(path, circuit)
    if record is not None:
        check_suffix(record, ".json", ".svg")
        if output is not None and Path(record).resolve() == Path(output).resolve():
            raise InputError(str(record), "is the file of the result too", "give the record another name")


def _problem(circuit: Any, observable: Any, asked: _Propagation) -> _Problem:
    probability = asked.depolarize
    if not is_number(probability) or not 0 <= probability <= 1:
        raise InputError("--depolarizing", f"probability is {probability!r}", "give 0 to 1")
    read = load_circuit(circuit, asked.parameters)
    terms = given_sum(observable, read.n_qubits)
    in_bits(terms, asked.state)
    steps, gates = [], []
    for number, gate in enumerate(read.gates):
        for step in _noisy(gate, f"gate {number} ({gate.name})", probability, asked.gradient):
            steps.append(step)
            gates.append(number)
    return _Problem(read, steps, gates, terms, asked.state)


def _noisy(gate: Gate, place: str, probability: float, gradient: bool) -> Iterator[PauliStep]:
    yield from gate_steps(gate, place, rotations=gradient)
    if probability and not isinstance(gate, GlobalPhase):
        if len(gate.qubits) > MOST_QUBITS:
            raise InputError(
                place, f"acts on {len(gate.qubits)} qubits, and depolarizing noise on {MOST_QUBITS}",
                "split the gate, or leave --depolarizing out",
            )  # fmt: skip
        yield depolarizing(gate.qubits, probability)


def _derivatives(problem: _Problem, gradients: Gradient) -> list[dict[str, Any]]:
    return [
        {"gate": gate, "rotation": word_text(step.x, step.z), "angle": step.angle, "derivative": derivative}
        for step, gate, derivative in zip(
            problem.steps, problem.gates, np.real(gradients.derivatives).tolist(), strict=True
        )
        if isinstance(step, Rotation)
    ]


def _report(
    problem: _Problem, value: complex, bound: float, done: Propagation, use: Resources, asked: _Propagation
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "n_qubits": problem.circuit.n_qubits,
        "gates": len(problem.circuit.gates),
        "picture": asked.picture,
        "expectation": value if isinstance(value, float) else [value.real, value.imag],
        "error_bound": bound,
        "dropped": {name: None if number > MOST else number for name, number in asdict(done.dropped).items()},
        "truncation": asdict(asked.truncation),
        "engine": "hash",
        "device": use.device,
        "ranks": 1 if use.ranks is None else use.ranks.size,
        "threads": use.threads,
        "precision": use.precision,
        "memory_full": done.full,
        "terms": done.n_terms,
        "largest_terms": done.largest,
        "steps": done.steps,
        "terms_times_steps": done.visits,
        "size_bytes": done.size_bytes,
        "time_s": done.time_s,
    }
