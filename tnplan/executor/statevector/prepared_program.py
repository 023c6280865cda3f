"""A program made ready to be run many times: gates between two other operations as one segment of gates."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.program import (
    BitAssignment,
    Channel,
    Conditional,
    Measurement,
    Operation,
    Reset,
    WhileLoop,
)
from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_gate, from_matrix

UNITARY = 1e-12
"""How far K^dagger K of an operator may be from its weight times 1 to count as unitary."""
IMPOSSIBLE = 1e-12
"""Outcomes of less probability are rounding and are never taken."""
Unitaries = tuple[list[float], tuple[MultiplexedGate | None, ...]]
"""Of a mixture: the probabilities added up, and a gate for each on qubits 0, 1, ..., None for identities."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Gates on qubits that act one after another."""

    gates: tuple[MultiplexedGate, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """One of two programs, as a `Conditional` chooses."""

    bits: tuple[int, ...]
    value: int
    body: tuple[PreparedStep, ...]
    otherwise: tuple[PreparedStep, ...]


@dataclass(frozen=True, eq=False)
class Rounds:
    """A program that is repeated, as a `WhileLoop` says."""

    bits: tuple[int, ...]
    value: int
    body: tuple[PreparedStep, ...]


@dataclass(frozen=True, eq=False)
class Mixture:
    """A channel whose operators are unitaries times square roots of probabilities; None is the identity.

    `reached` are the probabilities of the first operators added up, as `cumulated` gives them.
    """

    reached: list[float]
    segments: tuple[Segment | None, ...]

    def drawn(self, random: float) -> Segment | None:
        """What acts, chosen by a number from 0 up to 1."""
        return self.segments[bisect_right(self.reached, random * self.reached[-1])]


def cumulated(weights: Array) -> Array:
    """Probabilities added up; impossible outcomes, whose probability is rounding, are never reached."""
    return np.cumsum(np.where(weights > IMPOSSIBLE * weights.sum(), weights, 0))


PreparedStep = Segment | Branch | Rounds | Mixture | Measurement | Reset | Channel | BitAssignment


def prepare_program(operations: Sequence[Operation]) -> tuple[PreparedStep, ...]:
    """The items of operations; raises InputError for a gate that is not unitary or too large."""
    return _prepared(operations, "", {})


def _prepared(
    operations: Sequence[Operation], place: str, mixtures: dict[int, Unitaries | None]
) -> tuple[PreparedStep, ...]:
    """`place` says in errors which operation these are inside of; `mixtures` is what was made of operators
    before, by the identity of their tuple."""
    items: list[PreparedStep] = []
    gates: list[MultiplexedGate] = []
    for number, operation in enumerate(operations):
        if isinstance(operation, Gate):
            gates.append(from_gate(operation, f"{place}gate {number} ({operation.name})"))
            continue
        if gates:
            items.append(Segment(tuple(gates)))
            gates = []
        if isinstance(operation, Conditional):
            inner = f"{place}operation {number}, inner "
            bodies = [_prepared(body, inner, mixtures) for body in (operation.body, operation.otherwise)]
            items.append(Branch(operation.bits, operation.value, *bodies))
        elif isinstance(operation, WhileLoop):
            body = _prepared(operation.body, f"{place}operation {number}, inner ", mixtures)
            items.append(Rounds(operation.bits, operation.value, body))
        elif isinstance(operation, Channel):
            key = id(operation.kraus)
            if key not in mixtures:
                mixtures[key] = _unitaries(operation.kraus, f"{place}operation {number} (channel)")
            items.append(_as_mixture(operation.qubits, mixtures[key]) or operation)
        else:
            items.append(operation)
    return (*items, Segment(tuple(gates))) if gates else tuple(items)


def _unitaries(kraus: Sequence[Array], place: str) -> Unitaries | None:
    """The mixture that operators are, if they are one; raises InputError where one of them is too large."""
    side = len(kraus[0])
    qubits = tuple(range(side.bit_length() - 1))
    for operator in kraus:
        from_matrix(qubits, operator, place)
    weights = np.array([np.trace(k.conj().T @ k).real / side for k in kraus])
    gates: list[MultiplexedGate | None] = []
    for weight, operator in zip(weights, kraus, strict=True):
        product = operator.conj().T @ operator
        if not np.allclose(product, weight * np.eye(side), rtol=0, atol=UNITARY):
            return None
        gate = from_matrix(qubits, operator / np.sqrt(weight), place) if weight else None
        gates.append(None if gate is None or gate.is_identity else gate)
    return cumulated(weights).tolist(), tuple(gates)


def _as_mixture(qubits: Sequence[int], unitaries: Unitaries | None) -> Mixture | None:
    if unitaries is None:
        return None
    reached, gates = unitaries
    return Mixture(reached, tuple(None if gate is None else Segment((gate.on(qubits),)) for gate in gates))
