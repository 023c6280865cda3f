"""The inputs of a propagation: circuit, observables, state. Read and checked on rank 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence, GlobalPhase
from tnplan.circuits.load import load_circuit
from tnplan.circuits.pauli_sum import PauliSum, given_sum, merge
from tnplan.common.checks import check_choice, check_plots, is_number
from tnplan.common.errors import InputError
from tnplan.common.files import check_json_name, check_suffix, check_writable
from tnplan.executor.pauli.algebra.expectation import value_in
from tnplan.executor.pauli.algebra.gates import MOST_QUBITS, PauliStep, depolarizing, steps_of_gates
from tnplan.executor.pauli.algebra.states import OverlapWith, ProductState, State, given_overlap, given_state
from tnplan.executor.pauli.algebra.symmetry import (
    QubitSymmetry,
    check_symmetric,
    given_symmetry,
    invariant_layers,
)
from tnplan.executor.pauli.repetitions import MonteCarlo, check_sampling
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.truncation import Truncation

TOPIC = "Pauli propagation"

PICTURES = ("heisenberg", "schroedinger")


@dataclass(frozen=True)
class PauliRequest:
    """The arguments of `propagate` besides the circuit, the observable and the job's options."""

    truncation: Truncation
    parameters: Mapping[str, Any] | None
    state: Any
    overlap: Any
    symmetry: Any
    depolarize: float
    picture: str
    gradient: bool
    each_term: bool
    monte_carlo: MonteCarlo | None
    keep: str
    stop_above: int | None
    precision: str
    when_full: str
    record: str | Path | None

    @property
    def has_tape(self) -> bool:
        """Whether there is a sweep back, along a tape."""
        return self.gradient or self.each_term


@dataclass(frozen=True)
class PauliProblem:
    """A circuit's steps with the gate that each belongs to, a sum of observables, and a state.

    `parts` are the observables of a list, `terms` has the words of all. `pieces` has the steps as these meet
    them: all, or by layers, each of which the `symmetry` leaves as it is, the last one first.
    """

    circuit: GateSequence
    steps: list[PauliStep]
    gates: list[int]
    terms: PauliSum
    parts: tuple[PauliSum, ...]
    state: str | State | None
    symmetry: QubitSymmetry | None
    pieces: list[list[PauliStep]]


def read_problem(circuit: Any, observable: Any, request: PauliRequest, output: Path | None) -> PauliProblem:
    """Read and check all inputs."""
    if not isinstance(request.truncation, Truncation):
        raise InputError("truncation", f"is {request.truncation!r}", "give a tnplan.Truncation")
    if not isinstance(request.monte_carlo, MonteCarlo | None):
        raise InputError("monte_carlo", f"is {request.monte_carlo!r}", "give a tnplan.MonteCarlo")
    Resources(precision=request.precision, when_full=request.when_full)  # refuses other names
    _check_files(circuit, output, request.record)
    check_choice("--picture", request.picture, PICTURES)
    probability = request.depolarize
    if not is_number(probability) or not 0 <= probability <= 1:
        raise InputError("--depolarizing", f"probability is {probability!r}", "give a number from 0 to 1")
    read = load_circuit(circuit, request.parameters)
    is_list = isinstance(observable, list | tuple)
    observables = observable if is_list else [observable]
    parts = tuple(given_sum(each, read.n_qubits) for each in observables)
    if not parts:
        raise InputError("--observable", "is an empty list", "give one observable or more")
    state = _state(request, read.n_qubits)
    steps, gates = _steps(read, request)
    symmetry, pieces = None, [steps]
    if request.symmetry is not None:
        symmetry = given_symmetry(request.symmetry, read.n_qubits)
        check_symmetric(symmetry, state)
        pieces = _layers(read, symmetry, request, steps, gates)
    problem = PauliProblem(
        read, steps, gates, _united(parts), parts if is_list else (), state, symmetry, pieces
    )  # fmt: skip
    _check_together(problem, request)
    value_in(problem.terms, state)
    return problem


def _state(request: PauliRequest, n_qubits: int) -> str | State | None:
    state = given_state(request.state, n_qubits)
    if request.overlap is None:
        return state
    if request.state is not None:
        raise InputError("--overlap", "is given together with a state", "leave one of them out")
    return given_overlap(request.overlap, n_qubits)


def _steps(circuit: GateSequence, request: PauliRequest) -> tuple[list[PauliStep], list[int]]:
    """The steps of all gates, and the gate of each."""
    steps: list[PauliStep] = []
    gates: list[int] = []
    for number, own_steps in enumerate(steps_of_gates(circuit.gates, rotations=request.gradient)):
        steps += own_steps
        if request.depolarize:
            steps += _noise(circuit.gates[number], f"gate {number} ({circuit.gates[number].name})", request)
        gates += [number] * (len(steps) - len(gates))
    return steps, gates


def _layers(
    circuit: GateSequence, symmetry: QubitSymmetry, request: PauliRequest, steps: list[PauliStep],
    gates: list[int],
) -> list[list[PauliStep]]:  # fmt: skip
    """The steps of each layer that the symmetry leaves as it is, the last layer first."""
    of_gate: dict[int, list[PauliStep]] = defaultdict(list)
    for step, gate in zip(steps, gates, strict=True):
        of_gate[gate].append(step)
    layers = invariant_layers(circuit, symmetry, is_noisy=request.depolarize > 0)
    return [[step for gate in layer for step in of_gate[gate]] for layer in reversed(layers)] or [[]]


def _noise(gate: Gate, place: str, request: PauliRequest) -> list[PauliStep]:
    if isinstance(gate, GlobalPhase):
        return []
    if len(gate.qubits) > MOST_QUBITS:
        raise InputError(
            place, f"acts on {len(gate.qubits)} qubits, but depolarizing noise acts on at most {MOST_QUBITS}",
            "split the gate, or leave --depolarizing out",
        )  # fmt: skip
    return [depolarizing(gate.qubits, request.depolarize)]


def _united(parts: tuple[PauliSum, ...]) -> PauliSum:
    """One sum with the words of several, each with its largest magnitude, so that no cut favours a part."""
    if len(parts) == 1:
        return parts[0]
    keys = np.concatenate([term_sum.keys for term_sum in parts])
    sizes = np.concatenate([np.abs(term_sum.coefficients) for term_sum in parts])
    order = np.argsort(-sizes, kind="stable")
    keys, sizes = keys[order], sizes[order]
    _, first = np.unique(keys, axis=0, return_index=True)
    return PauliSum(parts[0].n_qubits, *merge(keys[first], sizes[first]))


def _check_together(problem: PauliProblem, request: PauliRequest) -> None:
    """Refuse options that cannot go together."""
    if request.picture == "schroedinger" and not isinstance(problem.state, str | ProductState | None):
        kind = "overlaps" if isinstance(problem.state, OverlapWith) else "stabilizer states"
        raise InputError("--picture", f"schroedinger has no {kind}", "use heisenberg")
    is_other = request.picture == "schroedinger" or request.monte_carlo is not None or request.has_tape
    if problem.symmetry is not None and (is_other or request.truncation.max_frequency is not None):
        raise InputError(
            "--symmetry", "cannot be combined with any of schroedinger, gradient, each-term, repetitions, "
            "max-frequency",
            "leave it or them out",
        )  # fmt: skip
    if problem.parts and not request.each_term:
        raise InputError("--observable", "is a list", "add --each-term for all values, or give one sum")
    if request.monte_carlo is not None:
        check_sampling(problem.terms, request.truncation)
        is_forward, has_limit = request.picture == "schroedinger", request.stop_above is not None
        if is_forward or request.has_tape or has_limit or request.record:
            raise InputError(
                "--repetitions", "cannot be combined with --picture schroedinger, --gradient, --each-term, "
                "--stop-above or --record",
                "leave those out",
            )  # fmt: skip


def _check_files(circuit: Any, output: str | Path | None, record: str | Path | None) -> None:
    for path in (output, record):
        if path is not None:
            check_writable(path, circuit)
    if output is not None:
        check_json_name(output)
    if record is not None:
        check_suffix(record, ".json", ".svg")
        if Path(record).suffix.lower() == ".svg":
            check_plots("--record")
        if output is not None and Path(record).resolve() == Path(output).resolve():
            raise InputError(str(record), "is also the file of the result", "give the record another name")
