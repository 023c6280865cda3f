"""A pass as flat tables, which the kernels of CPU and GPU read. Knows bits and numbers; no state, no device.

Bit p of an index inside a tile is bit held_bits[p] of the state's index. A row of `steps` is one step:

    kind, targets, near selectors, far selectors, first of `places`, first of `values`, first of `idle`

GATE: `places` has the tile bits of the targets, those of the selectors held, and the state's bits of the
far selectors; each rise, and the first is the least significant. `values` are [far][near][row][column], and
idle[far, near] says whether a matrix is the identity. DIAGONAL: the same without targets. PHASES: the row's
second number is the first of its `phases`, [linear of every bit][pairs of every two bits][constant], its
third the number of bits. Every value is complex128 here; kernels take them in the precision of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS, MultiplexedGate, WordSum
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial
from tnplan.executor.statevector.scheduling.fusion import with_low_bits
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

GATE, DIAGONAL, PHASES = 0, 1, 2
"""Kinds of a step."""
FIELDS = 7
"""Numbers of a row of `PassTables.steps`."""


@dataclass(frozen=True, eq=False)
class PassTables:
    """The tables of a pass; `held_bits` are those of a tile, `far` those of a tile's number, both rising."""

    held_bits: Array
    far: Array
    steps: Array
    places: Array
    values: Array
    idle: Array
    phases: Array


def pass_tables(item: Pass, n_bits: int, low: int) -> PassTables:
    """The tables of a pass over 2^n_bits amplitudes a rank; bits from n_bits on are those of the rank.

    Diagonals are widened to cover the lowest `low` bits of a tile where they select by any of them. Raises
    ValueError for a gate that no kernel takes.
    """
    # Bits of the index inside a tile, not of the state's: a kernel sees a tile of amplitudes alone.
    tile_position = {bit: number for number, bit in enumerate(item.held_bits)}
    rows: list[tuple[int, ...]] = []
    places: list[int] = []
    values: list[Array] = [np.empty(0, np.complex128)]
    idle: list[Array] = [np.empty(0, np.bool_)]
    phases: list[Array] = [np.empty(0)]
    n_values = n_idle = n_phases = 0
    for step in item.steps:
        if isinstance(step, PhasePolynomial):
            rows.append((PHASES, n_phases, len(step.linear), 0, 0, 0, 0))
            phases += [step.linear, step.pairs.ravel(), np.array([step.constant])]
            n_phases += sum(map(len, phases[-3:]))
            continue
        _check_targets(step)
        wide = with_low_bits(step, item.held_bits, low)
        # Selectors inside the tile vary within it; those outside are constant there and choose a
        # block of matrices.
        near = sorted((bit for bit in wide.selectors if bit in tile_position), reverse=True)
        outer = sorted((bit for bit in wide.selectors if bit not in tile_position), reverse=True)
        rows.append((
            DIAGONAL if not wide.targets else GATE, len(wide.targets), len(near), len(outer), len(places),
            n_values, n_idle,
        ))  # fmt: skip
        # Invariant: places of targets, near selectors, then bits of outer selectors, each part rising.
        places += [tile_position[bit] for bit in sorted(wide.targets)]
        places += [tile_position[bit] for bit in reversed(near)] + outer[::-1]
        matrices = _sorted(wide, sorted(wide.targets, reverse=True), (*outer, *near))
        values.append(matrices.ravel())
        idle.append(np.all(matrices == _identity(matrices.shape[-1]), axis=(1, 2)))
        n_values += matrices.size
        n_idle += len(matrices)
    return PassTables(
        np.array(item.held_bits, np.int64),
        np.array([bit for bit in range(n_bits) if bit not in tile_position], np.int64),
        np.array(rows, np.int64).reshape(-1, FIELDS), np.array(places, np.int64), np.concatenate(values),
        np.concatenate(idle), np.concatenate(phases),
    )  # fmt: skip


@cache
def _identity(side: int) -> Array:
    """The identity."""
    return np.eye(side)


def _check_targets(gate: MultiplexedGate) -> None:
    """Refuse sums, and what would reach beyond the scratch memory of a kernel."""
    if isinstance(gate, WordSum):
        raise ValueError("a sum of a word is only for compiled passes")
    if len(gate.targets) > LARGEST_TARGETS:
        raise ValueError(f"a gate has {len(gate.targets)} targets, and kernels take {LARGEST_TARGETS}")


def _sorted(gate: MultiplexedGate, targets: Sequence[int], selectors: Sequence[int]) -> Array:
    """The matrices [selector value, row, column] for targets and selectors in another order."""
    if tuple(targets) == gate.targets and tuple(selectors) == gate.selectors:
        return gate.matrices
    s, t = len(selectors), len(targets)
    axes = [gate.selectors.index(bit) for bit in selectors]
    rows = [s + gate.targets.index(bit) for bit in targets]
    values = gate.matrices.reshape((2,) * (s + 2 * t)).transpose([*axes, *rows, *(t + row for row in rows)])
    return values.reshape(2**s, 2**t, 2**t)
