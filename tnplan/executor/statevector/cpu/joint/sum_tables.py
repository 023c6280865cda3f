"""A pass with sums as flat tables. Knows bits and numbers; no state.

A row of `actions` is one of `vector_tables`, or

    CROSS_SUM, x of the round, column, whether the imaginary part is wanted, z of the round
    DIAGONAL_SUMS, first column, the one after the last, first row of `signs`, the one after the last

A turn that sums has the number of its column and 1 in the third place; where it sums about Y and about Z,
minus that: the next column is that of Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.vector_operations import LANE_BITS
from tnplan.executor.statevector.cpu.joint.sum_rounds import (
    CrossSum,
    DiagonalSums,
    SumRoundBuilder,
    SumTurn,
    Terms,
)
from tnplan.executor.statevector.cpu.vector_rounds import RoundStep
from tnplan.executor.statevector.cpu.vector_tables import (
    LANE_EXCHANGE,
    LANE_ROTATE,
    TURN_ALL,
    Actions,
    VectorPass,
    pass_of_steps,
    round_bits,
)
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

CROSS_SUM, DIAGONAL_SUMS = TURN_ALL + 1, TURN_ALL + 2
"""Kinds of an action."""
COLUMN_FIELDS = 4


class FlatSums(NamedTuple):
    """How sums are made of those of a round.

    A row of `columns`: its row of `signs`, and the masks that give its sign by the number of a lane, by the
    value of the tile's other bits and by the index outside of the tile. `signs` [row, vector] are those of
    the vectors of one state in a round, in the precision of the state; `lane_signs`, float64 [mask * lanes],
    those of lanes for every mask.
    """

    columns: Array
    signs: Array
    lane_signs: Array


@dataclass(frozen=True, eq=False)
class SumPass:
    """The tables of a pass with sums; column k is part of the sums terms[k], with factors."""

    tables: VectorPass
    sums: FlatSums
    terms: tuple[Terms, ...]


def sum_pass(item: Pass, n_bits: int, real: np.dtype[np.floating]) -> SumPass:
    """The tables of a pass over two states, 2^n_bits amplitudes together, of parts of this type."""
    # `most - 1` bits of a round belong to one state, as its highest bit tells psi from lambda.
    lane_bits, most = LANE_BITS[real.itemsize], min(round_bits(real), len(item.held))
    made = SumRoundBuilder(item.held, n_bits, lane_bits, most).all(item.steps)
    actions = _SumActions(item.held, lane_bits, most)
    tables = pass_of_steps(made, actions, n_bits, real, 0)
    n_vectors = 1 << most - 1 - lane_bits
    sums = FlatSums(
        np.array(actions.columns, np.int64).reshape(-1, COLUMN_FIELDS),
        _signs(actions.signs, n_vectors).astype(real),
        _signs(range(1 << lane_bits), 1 << lane_bits).reshape(-1),
    )
    return SumPass(tables, sums, tuple(actions.terms))


def _signs(masks: Sequence[int], count: int) -> Array:
    """(-1)^|mask & k| for k below `count`, float64 [mask, k]."""
    odd = np.bitwise_count(np.array(masks, np.int64).reshape(-1, 1) & np.arange(count)) & 1
    return np.asarray(1.0 - 2.0 * odd)


class _SumActions(Actions):
    """The rows of actions and sums so far."""

    def __init__(self, held: Sequence[int], lane_bits: int, size: int) -> None:
        super().__init__(held, lane_bits, size)
        self.columns: list[tuple[int, int, int, int]] = []
        self.terms: list[Terms] = []
        self.signs: list[int] = []
        """Masks of numbers of vectors."""

    def add(self, step: RoundStep, bits: tuple[int, ...]) -> None:
        """A step of a round on these bits."""
        if isinstance(step, CrossSum):
            self._cross(step, bits)
        elif isinstance(step, DiagonalSums):
            self._diagonal(step, bits)
        else:
            super().add(step, bits)
        if isinstance(step, SumTurn):
            kind, position, _, turn, at = self.rows[-1]
            column = len(self.columns) + 1
            self.rows[-1] = kind, position, -column if step.z_terms else column, turn, at
            for terms in (step.terms, step.z_terms)[: 1 + bool(step.z_terms)]:
                self._column(terms, 0, 1 << position if kind == LANE_ROTATE else 0, 0, bits)

    def _column(self, terms: Terms, row: int, lanes: int, z: int, bits: Sequence[int]) -> None:
        """A column; the sign by bits outside of a round is that of z."""
        outside_round = sum((z >> bit & 1) << k for k, bit in enumerate(self.others_of(bits)))
        outside = z & ~sum(1 << bit for bit in self.held)
        self.columns.append((row, lanes, outside_round, outside))
        self.terms.append(terms)

    def _cross(self, step: CrossSum, bits: Sequence[int]) -> None:
        # A bit of x in the lane number would pair lanes of one vector: it is exchanged for another
        # bit, before and back afterwards. The signs of z move along: where z has one of the two
        # bits alone, both change.
        places = [k for k, bit in enumerate(bits) if step.x >> bit & 1]
        z = sum((step.z >> bit & 1) << k for k, bit in enumerate(bits))
        exchanged = []
        for number, position in enumerate(places):
            if position < self.lane_bits:
                free = next(p for p in range(self.lane_bits, self.size - 1) if p not in places)
                exchanged.append((LANE_EXCHANGE, position, free, 0, 0))
                if (z >> position ^ z >> free) & 1:
                    z ^= 1 << position | 1 << free
                places[number] = free
        lanes, x = z & (1 << self.lane_bits) - 1, sum(1 << position for position in places)
        row = (CROSS_SUM, x, len(self.columns), int(step.imaginary), z - lanes)
        self.rows += [*exchanged, row, *reversed(exchanged)]
        self._column(step.terms, 0, lanes, step.z, bits)

    def _diagonal(self, step: DiagonalSums, bits: Sequence[int]) -> None:
        first_column, first_row = len(self.columns), len(self.signs)
        # Sorted by the bits of z outside the lanes: words that share these share a row of signs of
        # whole vectors.
        sums = []
        for z, terms in step.sums:
            near = sum((z >> bit & 1) << k for k, bit in enumerate(bits))
            sums.append((near >> self.lane_bits, near & (1 << self.lane_bits) - 1, z, terms))
        for vectors, lanes, z, terms in sorted(sums):
            if len(self.signs) == first_row or self.signs[-1] != vectors:
                self.signs.append(vectors)
            self._column(terms, len(self.signs) - 1, lanes, z, bits)
        self.rows.append((DIAGONAL_SUMS, first_column, len(self.columns), first_row, len(self.signs)))
