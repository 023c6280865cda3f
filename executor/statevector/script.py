"""A program made ready to be run many times: gates between two other operations as one segment of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.statevector.blocks import Block, gate_block, is_identity, matrix_block
from planner.networks.circuits.circuit import Gate
from planner.networks.circuits.program import Channel, Conditional, Measurement, Operation, Reset

Array = NDArray[Any]

UNITARY = 1e-12


@dataclass(frozen=True, eq=False)
class Segment:
    """Blocks on qubits that act one after another."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """One of two scripts, as a `Conditional` chooses."""

    bits: tuple[int, ...]
    value: int
    body: tuple[Item, ...]
    otherwise: tuple[Item, ...]


@dataclass(frozen=True, eq=False)
class Mixture:
    """A channel whose operators are unitaries times square roots of `weights`; None is the identity."""

    weights: Array
    segments: tuple[Segment | None, ...]


Item = Segment | Branch | Mixture | Measurement | Reset | Channel


def make_script(operations: Sequence[Operation], place: str = "") -> tuple[Item, ...]:
    """The items of operations; raises InputError for a gate that is not unitary or too large.

    `place` says in errors which operation these are inside of.
    """
    items: list[Item] = []
    blocks: list[Block] = []
    for number, operation in enumerate(operations):
        if isinstance(operation, Gate):
            blocks.append(gate_block(operation, f"{place}gate {number} ({operation.name})"))
            continue
        if blocks:
            items.append(Segment(tuple(blocks)))
            blocks = []
        if isinstance(operation, Conditional):
            inner = f"{place}operation {number}, inner "
            bodies = make_script(operation.body, inner), make_script(operation.otherwise, inner)
            items.append(Branch(operation.bits, operation.value, *bodies))
        elif isinstance(operation, Channel):
            items.append(_as_mixture(operation) or operation)
        else:
            items.append(operation)
    return (*items, Segment(tuple(blocks))) if blocks else tuple(items)


def _as_mixture(channel: Channel) -> Mixture | None:
    """The mixture that a channel is, if it is one."""
    side = 2 ** len(channel.qubits)
    weights = np.array([np.trace(k.conj().T @ k).real / side for k in channel.kraus])
    segments: list[Segment | None] = []
    for weight, operator in zip(weights, channel.kraus, strict=True):
        product = operator.conj().T @ operator
        if not np.allclose(product, weight * np.eye(side), rtol=0, atol=UNITARY):
            return None
        block = matrix_block(channel.qubits, operator / np.sqrt(weight)) if weight else None
        segments.append(None if block is None or is_identity(block) else Segment((block,)))
    return Mixture(weights, tuple(segments))
