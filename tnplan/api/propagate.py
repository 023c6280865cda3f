"""Pauli propagation from a circuit to a value: `tnplan pauli`. The arithmetic is in executor/pauli.

Changelog of `tnplan.pauli`, the JSON of a result:
1 (2026-11-21): first version.
2 (2026-11-21): `picture`, `device`, `ranks`, `threads`, `precision`, `memory_full`, `gradient`.
3 (2026-11-25): `error_bound`; `dropped` has what was left out of the initial state, null past 1e308.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.executor.device.comm.launcher import world_communicator
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator, agree, ending_together
from tnplan.executor.device.selection.select import open_device
from tnplan.executor.observables.pauli_sum import PauliSum, parse
from tnplan.executor.observables.pauli_sum import text as word_text
from tnplan.executor.pauli.algebra.channels import depolarizing
from tnplan.executor.pauli.algebra.expectation import (
    bits_bloch,
    in_bits,
    overlap,
    overlap_error,
    product_state,
)
from tnplan.executor.pauli.algebra.gates import LARGEST_STEP, Rotation, Step, Transfer, gate_steps
from tnplan.executor.pauli.algebra.schroedinger import forward
from tnplan.executor.pauli.gradient import Gradient
from tnplan.executor.pauli.gradient import gradient as gradient_of_steps
from tnplan.executor.pauli.propagate import Progress, Propagation
from tnplan.executor.pauli.propagate import propagate as propagate_steps
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.ledger import Dropped, Record
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.planner.common.checks import is_number
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import check_suffix, check_writable, file_path, write_text
from tnplan.planner.networks.circuits.circuit import Circuit, Gate, GlobalPhase
from tnplan.planner.networks.circuits.load import load_circuit

FORMAT = "tnplan.pauli"
RECORD_FORMAT = "tnplan.pauli-record"
VERSION = 3
PICTURES = ("heisenberg", "schroedinger")
MOST = 1e308
"""The largest number of a report."""
NOTHING = Dropped(0.0, 0.0, 0)


@dataclass(frozen=True)
class Expectation:
    """The value, the propagation that gave it, and what the JSON file says.

    In the Schroedinger picture the result of the propagation is 2^n times the density matrix, and what was
    dropped includes the words that were left out of the initial state.
    """

    value: complex
    propagation: Propagation
    report: dict[str, Any]


@dataclass(frozen=True)
class _Problem:
    """A circuit's steps with the gate that each belongs to, an observable, and a state."""

    circuit: Circuit
    steps: list[Step]
    gates: list[int]
    terms: PauliSum
    state: str | None


def propagate(
    circuit: Circuit | str | Path,
    observable: PauliSum | str,
    truncation: Truncation | None = None,
    resources: Resources | None = None,
    *,
    state: str | None = None,
    depolarize: float = 0.0,
    picture: str = "heisenberg",
    gradient: bool = False,
    keep: str = "all",
    stop_above: int | None = None,
    output: str | Path | None = None,
    record: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Expectation:
    """<state| U^dagger O U |state> of a circuit; `state` is a bit string, None all 0.

    `depolarize` is the probability that one of the words other than I strikes the qubits of each gate after
    it. The Schroedinger `picture` takes the state forward, as far as it has words of at most the truncation's
    `max_weight`; the others count as dropped. `gradient` adds the derivatives by the angles of all rotations
    to the report. `keep` says which terms the result has on every rank: all, its own, or none; in the
    Schroedinger picture it has all. `record` is a file for the terms at every step: JSON, or a plot where it
    ends in .svg. Under mpirun the call is collective, and rank 0 writes. Raises InputError for
    what cannot be done.
    """
    limits = Truncation() if truncation is None else truncation
    use = Resources() if resources is None else resources
    world = world_communicator()

    def prepare() -> _Problem:
        for value, kind in ((limits, Truncation), (use, Resources)):
            if not isinstance(value, kind):
                raise InputError(kind.__name__.lower(), f"is {value!r}", f"give {kind.__name__}")
        source = circuit if isinstance(circuit, Circuit) else file_path(circuit)
        _check_files(source, output, record)
        if world is not None and world.size & (world.size - 1):
            raise InputError("mpirun", f"started {world.size} ranks", "start a power of two")
        if picture not in PICTURES:
            raise InputError("picture", f"is {picture!r}", f"use {' or '.join(PICTURES)}")
        if gradient and (world is not None or picture != "heisenberg" or use != Resources()):
            raise InputError(
                "gradient", "takes one thread in the Heisenberg picture, fp64, and no bound of memory",
                "leave out the other options",
            )  # fmt: skip
        replace(use, ranks=world)  # refuses engines that cannot share the terms
        return _problem(source, observable, state, depolarize, gradient)

    def work(rank: Communicator, problem: _Problem) -> Expectation:
        with _opened(use, rank) as own:
            return _solve(problem, limits, own, picture, gradient, keep, stop_above, progress)

    if world is None:
        problem = prepare()  # in this thread: libraries first imported in one that ends may crash later
        found = run_ranks(1, lambda rank: work(rank, problem))[0]
    else:
        with ending_together(world):
            found = work(world, agree(world, prepare))
    if world is None or world.rank == 0:
        if output is not None:
            write_text(output, json.dumps(found.report, indent=1) + "\n")
        if record is not None:
            write_record(found.propagation.record, record)
    return found


def write_record(record: Record, path: str | Path) -> None:
    """Write what happened at every step: as JSON, or as a plot where the name ends in .svg."""
    if Path(path).suffix.lower() == ".svg":
        from tnplan.reporting.pauli_plot import record_svg

        write_text(path, record_svg(record))
    else:
        write_text(path, json.dumps({"format": RECORD_FORMAT, "version": 1, **asdict(record)}) + "\n")


def _solve(
    problem: _Problem,
    limits: Truncation,
    use: Resources,
    picture: str,
    gradient: bool,
    keep: str,
    stop_above: int | None,
    progress: Callable[[Progress], None] | None,
) -> Expectation:
    steps, start = problem.steps, problem.terms
    is_forward, left_out = picture == "schroedinger", NOTHING
    if is_forward:
        bits = problem.state or "0" * problem.circuit.n_qubits
        start, left_out = product_state(bits_bloch(bits), limits.max_weight)
        steps, keep = list(forward(steps)), "all"
    done = propagate_steps(
        steps, start, limits, use, state=problem.state, keep=keep, stop_above=stop_above, progress=progress
    )
    done = replace(done, dropped=left_out + done.dropped)
    value, bound = done.value, done.dropped.l1
    if is_forward:
        value, is_unital = overlap(done.result, problem.terms), all(map(_is_unital, problem.steps))
        bound = overlap_error(done.dropped, problem.terms, value, is_unital=is_unital)
    report = _report(problem, value, bound, done, limits, use, picture)
    if gradient:
        found = gradient_of_steps(problem.steps, problem.terms, limits, state=problem.state)
        report["gradient"] = _derivatives(problem, found)
    return Expectation(value, done, report)


def _is_unital(step: Step) -> bool:
    return not isinstance(step, Transfer) or step.is_unital


@contextmanager
def _opened(use: Resources, rank: Communicator) -> Iterator[Resources]:
    """The resources with the ranks of the job, and each rank's GPU opened where GPUs are wanted."""
    shared = rank if rank.size > 1 else None
    if use.device == "cpu":
        yield replace(use, ranks=shared)
        return
    chosen = open_device("gpu", rank, 0, 1)
    try:
        with chosen.device.stream:  # type: ignore[attr-defined]
            yield replace(use, ranks=shared and chosen.ranks.split(0, rank.rank))
        chosen.device.synchronize()
        chosen.ranks.close()
    finally:
        chosen.close()


def _check_files(circuit: Circuit | Path, output: str | Path | None, record: str | Path | None) -> None:
    for path in (output, record):
        if path is not None:
            check_writable(path, None if isinstance(circuit, Circuit) else circuit)
    if record is not None:
        check_suffix(record, ".json", ".svg")
        if output is not None and Path(record).resolve() == Path(output).resolve():
            raise InputError(str(record), "is the file of the result too", "give the record another name")


def _problem(
    circuit: Circuit | Path, observable: PauliSum | str, state: str | None, depolarize: float, gradient: bool
) -> _Problem:
    if not is_number(depolarize) or not 0 <= depolarize <= 1:
        raise InputError("--depolarizing", f"probability is {depolarize!r}", "give 0 to 1")
    read = circuit if isinstance(circuit, Circuit) else load_circuit(circuit)
    terms = observable if isinstance(observable, PauliSum) else parse(observable, read.n_qubits)
    if terms.n_qubits != read.n_qubits:
        raise InputError(
            "--observable", f"is a sum on {terms.n_qubits} qubits", f"give one on {read.n_qubits}"
        )
    in_bits(terms, state)
    steps, gates = [], []
    for number, gate in enumerate(read.gates):
        for step in _noisy(gate, f"gate {number} ({gate.name})", depolarize, gradient):
            steps.append(step)
            gates.append(number)
    return _Problem(read, steps, gates, terms, state)


def _noisy(gate: Gate, place: str, probability: float, gradient: bool) -> Iterator[Step]:
    yield from gate_steps(gate, place, turns=gradient)
    if probability and not isinstance(gate, GlobalPhase):
        if len(gate.qubits) > LARGEST_STEP:
            raise InputError(
                place, f"acts on {len(gate.qubits)} qubits, and depolarizing noise on {LARGEST_STEP}",
                "split the gate, or leave --depolarizing out",
            )  # fmt: skip
        yield depolarizing(gate.qubits, probability)


def _derivatives(problem: _Problem, found: Gradient) -> list[dict[str, Any]]:
    return [
        {"gate": gate, "rotation": word_text(step.x, step.z), "angle": step.angle, "derivative": derivative}
        for step, gate, derivative in zip(
            problem.steps, problem.gates, np.real(found.derivatives).tolist(), strict=True
        )
        if isinstance(step, Rotation)
    ]


def _report(
    problem: _Problem,
    value: complex,
    bound: float,
    done: Propagation,
    limits: Truncation,
    use: Resources,
    picture: str,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "n_qubits": problem.circuit.n_qubits,
        "gates": len(problem.circuit.gates),
        "picture": picture,
        "expectation": value if isinstance(value, float) else [value.real, value.imag],
        "error_bound": bound,
        "dropped": {name: None if number > MOST else number for name, number in asdict(done.dropped).items()},
        "truncation": asdict(limits),
        "engine": use.engine,
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
