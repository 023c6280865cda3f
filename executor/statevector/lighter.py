"""Blocks that do the same with fewer multiplications: phases move on to later gates. Knows matrices and bits.

A phase of one bit commutes with all diagonals, so that it may wait until a target on that bit comes and be
multiplied into it. A unitary matrix of one bit, freed of the phases of its rows, has two equal elements,
which become 1 when it is divided by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.statevector.blocks import EXACT, Block
from executor.statevector.twists import can_twist

Array = NDArray[Any]

UNITS = (1, -1, 1j, -1j)


def lighter(blocks: Sequence[Block], n_bits: int) -> list[Block]:
    """The same product; what phases are left over are the last blocks."""
    waiting = np.ones((n_bits, 2), np.complex128)
    made: list[Block] = []
    latest = [-1] * n_bits
    """The last block on each bit."""
    for block in blocks:
        if can_twist(block):
            pair = _taken_apart(block, waiting)
            if abs(pair - 1) <= EXACT:
                continue
            values = np.array([1, 1, 1, pair]).reshape(4, 1, 1)
            now = Block((), block.selectors, values)
        elif block.targets:
            now = replace(block, blocks=block.blocks * _columns(block, waiting))
            waiting[list(block.targets)] = 1
        else:
            now = block
        if len(now.targets) == 1 and not now.selectors:
            (bit,) = now.targets
            matrix = now.blocks[0]
            before = made[latest[bit]] if latest[bit] >= 0 else None
            if before is not None and before.targets == (bit,) and not before.selectors:
                matrix = matrix @ before.blocks[0]
                made[latest[bit]] = Block((), (), np.ones((1, 1, 1), np.complex128))
            phases, matrix = _split(matrix)
            waiting[bit] = phases
            now = Block((bit,), (), matrix[None])
        for bit in (*now.targets, *now.selectors):
            latest[bit] = len(made)
        made.append(now)
    last = [
        Block((), (bit,), values.reshape(2, 1, 1))
        for bit, values in enumerate(waiting)
        if np.any(np.abs(values - 1) > EXACT)
    ]
    return [block for block in made if block.mask] + last


def _taken_apart(block: Block, waiting: Array) -> complex:
    """Multiply a diagonal's phases of single bits into those that wait; gives what is left: that of both."""
    values = block.blocks[:, 0, 0]
    first = block.selectors[0]
    if len(values) == 2:
        waiting[first] *= values
        return 1
    second = block.selectors[1]
    waiting[first] *= (values[0], values[2])
    waiting[second] *= (1, values[1] / values[0])
    return complex(values[3] * values[0] / (values[1] * values[2]))


def _columns(block: Block, waiting: Array) -> Array:
    """The phases that wait on the targets, by column of a block's matrices."""
    columns = np.ones(1, np.complex128)
    for bit in block.targets:
        columns = np.kron(columns, waiting[bit])
    return columns


def _split(matrix: Array) -> tuple[Array, Array]:
    """Phases of the rows, and the matrix without them; phases of 1 where they make it no cheaper."""
    columns = (0, 1) if abs(matrix[0, 0]) >= abs(matrix[0, 1]) else (1, 0)
    chosen = matrix[(0, 1), columns]
    if np.any(np.abs(chosen) <= EXACT):
        return np.ones(2), matrix
    phases = chosen / np.abs(chosen)
    freed = matrix / phases[:, None]
    return (phases, freed) if cost(freed) < cost(matrix) else (np.ones(2), matrix)


def cost(matrix: Array) -> int:
    """Multiply-adds of a GPU for a matrix of one bit, divided by its largest element."""
    scaled = matrix / matrix.flat[np.argmax(np.abs(matrix) > np.abs(matrix).max() - EXACT)]
    total = 0
    for row in scaled:
        units = [any(abs(element - unit) <= EXACT for unit in UNITS) for element in row]
        for element, is_unit in zip(row, units, strict=True):
            parts = int(np.count_nonzero(np.abs((element.real, element.imag)) > EXACT))
            total += 2 if is_unit else 2 * parts
        total -= 2 * any(units)
    return total
