"""What the JSON of a propagation says. Knows results, and propagates nothing.

Changelog of `tnplan.pauli`:
1 (2026-11-21): first version.
2 (2026-11-21): `picture`, `device`, `ranks`, `threads`, `precision`, `memory_full`, `gradient`.
3 (2026-11-25): `error_bound`; `dropped` has what was left out of the initial state, null past 1e308.
4 (2026-11-26): `error_bound_is_vacuous`, `error_estimate`, `empty`, `values`, `observables`, `estimate`;
`error_bound` is never more than what is possible, and null for estimates; `dropped.norm`.
5 (2026-11-29): `estimate.low` and `estimate.high` are null where there is no interval, `estimate.doubt` says
why; without `with_fewer_terms`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.circuits.observables.pauli_sum import text as word_text
from tnplan.common.arrays import Array
from tnplan.common.files import write_text
from tnplan.executor.pauli.algebra.errors import (
    ErrorOfValue,
    error_in_state,
    error_of_overlap,
    error_of_state,
)
from tnplan.executor.pauli.algebra.gates import Rotation, TransferMatrix
from tnplan.executor.pauli.algebra.states import OverlapWith
from tnplan.executor.pauli.gradient import Gradient
from tnplan.executor.pauli.propagate import Propagation
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.sampling.estimate import NOTHING_MET, Estimate
from tnplan.executor.pauli.terms.ledger import Record
from tnplan.jobs.pauli.problem import PauliProblem, PauliRequest

FORMAT = "tnplan.pauli"
RECORD_FORMAT = "tnplan.pauli-record"
VERSION = 5
MOST = 1e308
"""The largest number of a report."""


def propagation_report(
    problem: PauliProblem, asked: PauliRequest, use: Resources, done: Propagation, value: complex
) -> dict[str, Any]:
    """The report of one propagation."""
    error = error_of(problem, asked, done, value)
    kind = "norm of what was dropped" if done.dropped.terms else "exact"
    return {
        **_head(problem, asked),
        "expectation": number(value),
        "error_bound": error.bound,
        "error_bound_is_vacuous": error.is_vacuous,
        "error_estimate": {"kind": kind, "value": error.estimate},
        "empty": done.n_terms == 0 and done.dropped.terms > 0,
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
    problem: PauliProblem, asked: PauliRequest, use: Resources, estimate: Estimate, work: dict[str, Any]
) -> dict[str, Any]:
    """The report of repetitions; `work` has the figures of how they went."""
    assert asked.monte_carlo is not None
    kind = "exact" if estimate.kind == "exact" else f"standard error, {estimate.text}"
    return {
        **_head(problem, asked),
        "expectation": estimate.value,
        "error_bound": 0.0 if estimate.kind == "exact" else None,
        "error_bound_is_vacuous": False,
        "error_estimate": {"kind": kind, "value": estimate.standard_error},
        "empty": estimate.kind == NOTHING_MET,
        "monte_carlo": asdict(asked.monte_carlo),
        "estimate": asdict(estimate),
        **_resources(use),
        **work,
    }


def error_of(problem: PauliProblem, asked: PauliRequest, done: Propagation, value: complex) -> ErrorOfValue:
    """How far the value may be from the true one."""
    is_unital = not any(isinstance(step, TransferMatrix) and not step.is_unital for step in problem.steps)
    if asked.picture == "schroedinger":
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
            {"terms": part.n_terms, "value": number(value)}
            for part, value in zip(problem.parts, _part_values(problem, values), strict=True)
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
    place = {(x, z): k for k, (x, z, _) in enumerate(problem.terms.masks())}
    return [sum(c * values[place[x, z]].item() for x, z, c in part.masks()) for part in problem.parts]


def number(value: complex) -> Any:
    """A number as JSON has it: a complex one as its two parts."""
    return [value.real, value.imag] if isinstance(value, complex) else float(value)


def write_record(record: Record, path: str | Path) -> None:
    """Write what happened at every step: as JSON, or as a plot where the name ends in .svg."""
    if Path(path).suffix.lower() == ".svg":
        from tnplan.reporting.plots import svg_of
        from tnplan.reporting.run_plots import record_plot

        write_text(path, svg_of(record_plot(record)))
    else:
        write_text(path, json.dumps({"format": RECORD_FORMAT, "version": 1, **asdict(record)}) + "\n")


def _head(problem: PauliProblem, asked: PauliRequest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "n_qubits": problem.circuit.n_qubits,
        "gates": len(problem.circuit.gates),
        "picture": asked.picture,
        "truncation": asdict(asked.truncation),
        "engine": "hash",
    }


def _resources(use: Resources) -> dict[str, Any]:
    return {
        "device": use.device,
        "ranks": 1 if use.ranks is None else use.ranks.size,
        "threads": use.threads,
        "precision": use.precision,
    }
