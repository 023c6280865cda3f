"""A pass with sums as flat tables. Knows bits and numbers; no state.

A row of `actions` is one of `vector_tables`, or

    CROSS_SUM, x of the round, column, whether the imaginary part is wanted, z of the round
    DIAGONAL_SUMS, first column, the one after the last, first row of `signs`, the one after the last

A turn that sums has the number of its column and 1 in the third place; where it sums about Y and about Z,
minus that: the next column is that of Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.vector_operations import LANE_BITS
from tnplan.executor.statevector.cpu.vector_rounds import IDENTITY, RoundBuilder, RoundStep, Turn
from tnplan.executor.statevector.cpu.vector_tables import (
    LANE_ROTATE,
    TURN_ALL,
    Actions,
    VectorPass,
    pass_of_steps,
    round_bits,
)
from tnplan.executor.statevector.gates.multiplexed_gate import (
    EXACT,
    MultiplexedGate,
    WordSum,
    bits_of,
    mask_of,
)
from tnplan.executor.statevector.gates.one_bit import Elements, is_real
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

# The rounds of a pass over both states of a sweep back, with sums between their gates.
#
# Both states are one whose last held bit, of every round, selects one. Sums wait like diagonals: a sum
# of a word of X or Y on one bit for the next matrix on this bit, which makes it while it has the amplitudes
# in registers; sums of words of Z until a matrix comes on one of their bits, so that many are taken at
# once. Knows bits and gates; no tables and no state.


Terms = tuple[tuple[int, float], ...]
"""The numbers of the sums that something is part of, and the factors."""


@dataclass(frozen=True, eq=False)
class SumTurn(Turn):
    """A turn that gives the imaginary part of <lambda| Y |psi> on its bit, between phases and matrix.

    And that of <lambda| Z |psi> where it has `z_terms`.
    """

    terms: Terms = ()
    z_terms: Terms = ()


@dataclass(frozen=True, eq=False)
class CrossSum(RoundStep):
    """The sum over i of (-1)^|z & i| conj(lambda[i ^ x]) psi[i], one part of it, for masks of bits."""

    x: int
    z: int
    imaginary: bool
    terms: Terms


@dataclass(frozen=True, eq=False)
class DiagonalSums(RoundStep):
    """The imaginary parts of the sums over i of (-1)^|z & i| conj(lambda[i]) psi[i], for masks z of bits."""

    sums: tuple[tuple[int, Terms], ...]


@dataclass(frozen=True)
class _Waiting:
    """A sum about X or Y of a bit, for the phase that waited on it."""

    number: int
    factor: float
    is_y: bool
    phase: float


class SumRoundBuilder(RoundBuilder):
    """The rounds so far, the phases that wait, and the sums that wait."""

    def __init__(self, held_bits: tuple[int, ...], n_bits: int, lane_bits: int, most: int) -> None:
        super().__init__(held_bits, n_bits, lane_bits, most)
        self.low |= 1 << held_bits[-1]
        self._turned: dict[int, list[_Waiting]] = {}
        """Sums about X or Y of each bit."""
        self._signed: dict[int, list[tuple[int, float]]] = {}
        """Sums of words of Z, by their masks."""

    def _begin(self, chosen: int) -> None:
        self._settle(tuple(self._turned))
        super()._begin(chosen)

    def _add_gate(self, gate: MultiplexedGate) -> None:
        if not isinstance(gate, WordSum):
            super()._add_gate(gate)
        elif not gate.targets:
            self._signed.setdefault(gate.z, []).append((gate.number, gate.factor))
        elif gate.mask.bit_count() == 1:
            (bit,) = gate.targets
            waiting = _Waiting(gate.number, gate.factor, bool(gate.z), self.linear[bit])
            self._turned.setdefault(bit, []).append(waiting)
        else:
            for bit in gate.targets:
                self._turn(bit, IDENTITY, with_linear=True)
            self._add(CrossSum(gate.target_mask, gate.z, gate.imaginary, ((gate.number, gate.factor),)))

    def _settle(self, bits: tuple[int, ...]) -> None:
        """Take the sums that wait for a matrix on some bits."""
        for bit in bits:
            if bit in self._turned:
                self._turn(bit, IDENTITY, with_linear=True)

    def _take_signed(self, bits: tuple[int, ...]) -> None:
        """Take all sums of words of Z, if any of them has one of some bits."""
        if any(z >> bit & 1 for z in self._signed for bit in bits):
            self._add(DiagonalSums(tuple((z, tuple(terms)) for z, terms in self._signed.items())))
            self._signed = {}

    def _wait(self, bits: tuple[int, ...], angles: Sequence[float]) -> None:
        # A phase of one bit commutes up to a rotation of X and Y into each other, which `_terms` accounts for
        # by the phase that was there before. A phase of two bits does not: the sums are taken first.
        if len(bits) > 1:
            self._settle(bits)
        super()._wait(bits, angles)

    def _multiply_one(self, bit: int, matrix: Elements) -> None:
        if not is_real(matrix):
            self._settle((bit,))
        super()._multiply_one(bit, matrix)

    def _multiply_two(self, bits: tuple[int, ...], matrix: Array) -> None:
        self._settle(bits)
        super()._multiply_two(bits, matrix)

    def _add_matrix(self, bits: tuple[int, ...], matrix: Array) -> None:
        self._take_signed(bits)
        super()._add_matrix(bits, matrix)

    def _act(self, turn: Turn) -> None:
        bit = turn.bit
        assert bit is not None
        # With phase t between the sum's place and the turn, e^{-itZ/2} X e^{itZ/2} mixes X and Y:
        # what is about Y now is made by the rotation itself, while it has the amplitudes in
        # registers. What is about X is a sum of its own.
        x_terms, y_terms = _terms(self._turned.pop(bit, []), turn.constant)
        z_terms = tuple(self._signed.pop(1 << bit, ())) if y_terms and not x_terms else ()
        if turn.has_matrix:
            self._take_signed((bit,))
        if x_terms:
            super()._act(replace(turn, matrix=IDENTITY))
            self._add(CrossSum(1 << bit, 0, True, x_terms))
            turn = replace(turn, constant=0.0, weights={})
        if y_terms:
            self._add(SumTurn(bit, turn.matrix, turn.constant, turn.weights, y_terms, z_terms))
        else:
            super()._act(turn)

    def _end(self) -> PhasePolynomial:
        self._settle(tuple(self._turned))
        if self._signed:
            if not self.bits:
                super()._begin(self.low)
            self._take_signed(tuple(bits_of(max(self._signed))))
        return super()._end()


def _terms(waiting: list[_Waiting], applied: float) -> tuple[Terms, Terms]:
    """Of which sums, with which factors, those about X and about Y are part, for the phase applied by now.

    A phase t between turns X into cos(t) X + sin(t) Y, and Y into cos(t) Y - sin(t) X.
    """
    x_terms, y_terms = [], []
    for pending in waiting:
        phase = applied - pending.phase
        own, other = pending.factor * float(np.cos(phase)), pending.factor * float(np.sin(phase))
        x, y = (-other, own) if pending.is_y else (own, other)
        x_terms += [(pending.number, x)] if abs(x) > EXACT else []
        y_terms += [(pending.number, y)] if abs(y) > EXACT else []
    return tuple(x_terms), tuple(y_terms)


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
    # `most - 1` bits of a round belong to one state, as its highest bit selects psi or lambda.
    lane_bits, most = LANE_BITS[real.itemsize], min(round_bits(real), len(item.held_bits))
    steps = SumRoundBuilder(item.held_bits, n_bits, lane_bits, most).all(item.steps)
    actions = _SumActions(item.held_bits, lane_bits, most)
    tables = pass_of_steps(steps, actions, n_bits, real, 0)
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

    def __init__(self, held_bits: Sequence[int], lane_bits: int, size: int) -> None:
        super().__init__(held_bits, lane_bits, size)
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
        outside = z & ~sum(1 << bit for bit in self.held_bits)
        self.columns.append((row, lanes, outside_round, outside))
        self.terms.append(terms)

    def _cross(self, step: CrossSum, bits: Sequence[int]) -> None:
        # A bit of x in the lane number would pair lanes of one vector: it is exchanged for another
        # bit, before and back afterwards. The signs of z move along: where z has one of the two
        # bits alone, both change.
        flipped = [k for k, bit in enumerate(bits) if step.x >> bit & 1]
        positions, exchanges = self._out_of_lanes(flipped, self.size - 1)
        z = sum((step.z >> bit & 1) << k for k, bit in enumerate(bits))
        for _, position, free, _, _ in exchanges:
            if (z >> position ^ z >> free) & 1:
                z ^= 1 << position | 1 << free
        lanes, x = z & (1 << self.lane_bits) - 1, mask_of(positions)
        row = (CROSS_SUM, x, len(self.columns), int(step.imaginary), z - lanes)
        self.rows += [*exchanges, row, *reversed(exchanges)]
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
