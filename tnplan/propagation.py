"""Pauli propagation from a circuit to a value: `tnplan pauli`. The arithmetic is in executor/pauli.

Changelog of `tnplan.pauli`, the JSON of a result:
1 (2026-11-21): first version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from executor.pauli.channels import depolarizing
from executor.pauli.expectation import in_bits
from executor.pauli.propagate import Progress, Propagation
from executor.pauli.propagate import propagate as propagate_steps
from executor.pauli.steps import Step, gate_steps
from executor.pauli.truncation import Truncation
from executor.pauli.words import PauliSum, parse
from planner.files import check_writable, write_text
from planner.networks.circuits.circuit import Circuit, Gate
from planner.networks.circuits.read import load_circuit

FORMAT = "tnplan.pauli"
VERSION = 1


@dataclass(frozen=True)
class Expectation:
    """The value, the propagation that gave it, and what the JSON file says."""

    value: complex
    propagation: Propagation
    report: dict[str, Any]


def propagate(
    circuit: Circuit | str | Path,
    observable: PauliSum | str,
    truncation: Truncation | None = None,
    *,
    state: str | None = None,
    depolarize: float = 0.0,
    stop_above: int | None = None,
    engine: str = "hash",
    output: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Expectation:
    """<state| U^dagger O U |state> of a circuit; `state` is a bit string, None all 0.

    `depolarize` is the probability that one of the words other than I strikes the qubits of each gate after
    it. Raises planner.errors.InputError for what cannot be done.
    """
    if output is not None:
        check_writable(output)
    limits = truncation or Truncation()
    read = circuit if isinstance(circuit, Circuit) else load_circuit(circuit)
    terms = parse(observable, read.n_qubits) if isinstance(observable, str) else observable
    in_bits(terms, state)
    steps = [step for number, gate in enumerate(read.gates) for step in _noisy(gate, number, depolarize)]
    done = propagate_steps(steps, terms, limits, engine=engine, stop_above=stop_above, progress=progress)
    value = in_bits(done.result, state)
    report = _report(read, value, done, limits, engine)
    if output is not None:
        write_text(output, json.dumps(report, indent=1) + "\n")
    return Expectation(value, done, report)


def _noisy(gate: Gate, number: int, probability: float) -> tuple[Step, ...]:
    steps = gate_steps(gate, f"gate {number} ({gate.name})")
    return (*steps, depolarizing(gate.qubits, probability)) if probability else steps


def _report(
    circuit: Circuit, value: complex, done: Propagation, limits: Truncation, engine: str
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "n_qubits": circuit.n_qubits,
        "gates": len(circuit.gates),
        "expectation": value if isinstance(value, float) else [value.real, value.imag],
        "dropped": asdict(done.dropped),
        "truncation": asdict(limits),
        "engine": engine,
        "terms": done.result.n_terms,
        "largest_terms": done.largest,
        "steps": done.steps,
        "terms_times_steps": done.visits,
        "size_bytes": done.size_bytes,
        "time_s": done.time_s,
    }
