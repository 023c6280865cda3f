"""Pauli propagation of a circuit as a job: the steps of its operations, and what it needs of a rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.observables.pauli_sum import PauliSum
from tnplan.circuits.program import (
    Channel,
    Measurement,
    Operation,
    Reset,
    without_final_measurements,
)
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.channels import kraus_channel
from tnplan.executor.pauli.algebra.gates import PauliStep, gate_steps
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.jobs.job import Needs, Rank

ZERO, ONE = np.diag([1.0, 0.0]).astype(np.complex128), np.diag([0.0, 1.0]).astype(np.complex128)
LOWER = np.array([[0, 1], [0, 0]], np.complex128)
"""|0><1|."""


def program_steps(operations: Sequence[Operation]) -> tuple[PauliStep, ...]:
    """The steps of gates, channels, measurements and resets; final measurements are left out."""
    kept, _ = without_final_measurements(operations)
    return tuple(step for number, one in enumerate(kept) for step in operation_steps(one, number))


def operation_steps(one: Operation, number: int) -> tuple[PauliStep, ...]:
    """The steps of operation `number`."""
    if isinstance(one, Gate):
        return gate_steps(one, f"gate {number} ({one.name})")
    if isinstance(one, Channel):
        return (kraus_channel(one.qubits, one.kraus),)
    if isinstance(one, Measurement):
        return (kraus_channel((one.qubit,), (ZERO, ONE)),)
    if isinstance(one, Reset):
        return (kraus_channel((one.qubit,), (ZERO, LOWER)),)
    raise InputError(f"operation {number}", "depends on measured bits", "use --method statevector")


def resources_of(rank: Rank, precision: str) -> Resources:
    """What a propagation may use of a rank."""
    return Resources(
        device=rank.device.name, threads=rank.threads, precision=precision,
        memory_bytes=rank.memory_bytes, ranks=rank.connected(),
    )  # fmt: skip


def pauli_needs(sums: Sequence[PauliSum]) -> Needs:
    """What the terms take that sums start with."""
    words = max(one.n_terms for one in sums)
    size_bytes = words * term_bytes(sums[0].n_qubits, 8)
    return Needs(size_bytes, size_bytes, "give an observable of fewer words")


def check_power_of_two(n_ranks: int) -> None:
    """Refuse a number of ranks that cannot share terms."""
    if n_ranks & (n_ranks - 1):
        raise InputError("ranks", f"are {n_ranks}", "start a power of two")
