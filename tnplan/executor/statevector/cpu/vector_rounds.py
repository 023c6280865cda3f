"""The steps of a pass for vectors: rounds of steps on a part of a tile that stays in the nearest cache.

Diagonals wait. A matrix of one bit is a real one after a turn: where the bit is 1, a phase that is a product
of phases of all other bits, of whatever waits on this bit. Knows bits and gates; no tables and no state.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, bits_of, mask_of
from tnplan.executor.statevector.gates.one_bit import (
    Elements,
    elements_of,
    is_real,
    product,
    real_between_phases,
)
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial, angles_of
from tnplan.executor.statevector.scheduling.fusion import PassStep
from tnplan.executor.statevector.scheduling.qubit_cover import rounds
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

Matrix = tuple[float, float, float, float]
"""A real matrix of one bit, row by row."""
IDENTITY: Matrix = (1.0, 0.0, 0.0, 1.0)
LARGEST_MATRIX = 2
"""Targets of a matrix that is a step of a round; larger ones are steps of a tile."""


class RoundStep:
    """A step of a round."""


@dataclass(frozen=True, eq=False)
class Turn(RoundStep):
    """A phase where bit `bit` is 1, then a real matrix on it.

    The phase is `constant`, and `weights`[j] more where bit j is 1; all in radians. Where `bit` is None, all
    amplitudes have their phase, and there is no matrix.
    """

    bit: int | None
    matrix: Matrix
    constant: float
    weights: Mapping[int, float]

    @property
    def has_matrix(self) -> bool:
        """Whether there is more than phases."""
        return self.matrix != IDENTITY


@dataclass(frozen=True, eq=False)
class Multiplication(RoundStep):
    """A complex matrix on one or two bits, the first the most significant of a row."""

    bits: tuple[int, ...]
    matrix: Array


@dataclass(frozen=True, eq=False)
class VectorRound:
    """Steps on the bits of `bits`, rising, of a tile."""

    bits: tuple[int, ...]
    steps: list[RoundStep] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class VectorSteps:
    """Rounds and steps of whole tiles, in turn, and phases of what is outside of a tile, which come last."""

    steps: list[VectorRound | MultiplexedGate]
    outside: PhasePolynomial


def vector_steps(item: Pass, n_bits: int, lane_bits: int, most: int) -> VectorSteps:
    """The steps of a pass. Rounds have `most` bits of a tile at most, those of a lane among them.

    The index has `n_bits` bits, with those of the rank.
    """
    return RoundBuilder(item.held_bits, n_bits, lane_bits, min(most, len(item.held_bits))).all(item.steps)


class RoundBuilder:
    """The rounds so far, and the phases that wait: of all amplitudes, of each bit, and of pairs of bits."""

    def __init__(self, held_bits: tuple[int, ...], n_bits: int, lane_bits: int, most: int) -> None:
        self.held_bits, self.most = held_bits, most
        self.low = mask_of(held_bits[: lane_bits + 1])
        """The bits of every round."""
        self.has_matrices = most >= lane_bits + LARGEST_MATRIX
        """Whether bits of a lane can change places with others, those of a matrix apart."""
        self.steps: list[VectorRound | MultiplexedGate] = []
        self.bits: tuple[int, ...] = ()
        self.constant = 0.0
        self.linear = [0.0] * n_bits
        self.pairs: list[dict[int, float]] = [{} for _ in range(n_bits)]

    def all(self, steps: Sequence[PassStep]) -> VectorSteps:
        """Every step, and what is left."""
        for round_mask, gates in rounds(list(_as_gates(steps)), self.low, self.most):
            self._begin(round_mask)
            for gate in gates:
                self._add_gate(gate)
        return VectorSteps(self.steps, self._end())

    def _begin(self, chosen: int) -> None:
        """The next round has these bits, and the lowest others up to its size."""
        free = [bit for bit in self.held_bits if not chosen >> bit & 1]
        bits = bits_of(chosen)
        self.bits = tuple(sorted(bits + free[: self.most - len(bits)]))

    def _add(self, step: RoundStep) -> None:
        last = self.steps[-1] if self.steps else None
        if not isinstance(last, VectorRound) or last.bits != self.bits:
            last = VectorRound(self.bits)
            self.steps.append(last)
        last.steps.append(step)

    def _add_gate(self, gate: MultiplexedGate) -> None:
        angles = angles_of(gate)
        if angles is not None:
            self._wait(gate.selectors, angles)
        elif gate.selectors or len(gate.targets) > LARGEST_MATRIX:
            for bit in gate.targets:
                self._turn(bit, IDENTITY, with_linear=True)
            self.steps.append(gate)
        elif len(gate.targets) == 1:
            self._multiply_one(gate.targets[0], elements_of(gate))
        else:
            self._multiply_two(gate.targets, gate.matrices[0])

    def _wait(self, bits: tuple[int, ...], angles: Sequence[float]) -> None:
        """The phases of a diagonal on one or two bits."""
        # exp(i (c + a b_i + a' b_j + w b_i b_j)) on bits i, j: c, a, a' and w are differences of
        # the four angles, at (b_i, b_j) = 00, 01, 10 and 11.
        self.constant += angles[0]
        last = bits[-1]
        self.linear[last] += angles[1] - angles[0]
        if len(angles) == 4:
            first = bits[0]
            self.linear[first] += angles[2] - angles[0]
            both = self.pairs[first].get(last, 0.0) + (angles[3] - angles[2] - angles[1] + angles[0])
            # Two controlled Z make a whole turn, which is nothing.
            self.pairs[first][last] = self.pairs[last][first] = math.remainder(both, math.tau)

    def _multiply_one(self, bit: int, matrix: Elements) -> None:
        if is_real(matrix):
            self._turn(bit, _real(matrix), with_linear=True)
            return
        # What waits on this bit alone is diag(1, phase): it becomes part of the matrix. Then matrix
        # = diag(first, second) real diag(1, column); column is the phase of the turn, and the row
        # phases wait again.
        phase = cmath.exp(1j * self.linear[bit])
        column, real, (first, second) = real_between_phases(product(matrix, (1, 0, 0, phase)))
        self.linear[bit] = cmath.phase(column)
        if real is not None and not is_real(real):
            self._turn(bit, IDENTITY, with_linear=False)
            self._add_matrix((bit,), np.array(real).reshape(2, 2))
            return
        upper, lower = abs(first), abs(second)
        a, b, c, d = IDENTITY if real is None else _real(real)
        self._turn(bit, (upper * a, upper * b, lower * c, lower * d), with_linear=True)
        self.constant += cmath.phase(first)
        self.linear[bit] = cmath.phase(second / first) if upper and lower else 0.0

    def _multiply_two(self, bits: tuple[int, ...], matrix: Array) -> None:
        i, j = bits
        both = self.linear[i] + self.linear[j] + self.pairs[i].pop(j, 0.0)
        matrix = matrix * np.exp(1j * np.array([0, self.linear[j], self.linear[i], both]))
        self.pairs[j].pop(i, None)
        self.linear[i] = self.linear[j] = 0.0
        for bit in bits:
            self._turn(bit, IDENTITY, with_linear=False)
        self._add_matrix(bits, matrix)

    def _add_matrix(self, bits: tuple[int, ...], matrix: Array) -> None:
        last = self.steps[-1] if self.steps else None
        before = last.steps[-1] if isinstance(last, VectorRound) else None
        if isinstance(last, VectorRound) and isinstance(before, Multiplication) and before.bits == bits:
            last.steps[-1] = Multiplication(bits, matrix @ before.matrix)
        elif self.has_matrices:
            self._add(Multiplication(bits, matrix))
        else:
            self.steps.append(MultiplexedGate(bits, (), matrix[None]))

    def _turn(self, bit: int, matrix: Matrix, with_linear: bool) -> None:
        """What waits on a bit, then a real matrix; nothing where both are nothing."""
        # All pairs that wait with this bit are one phase where the bit is 1: constant + sum over the others.
        weights, self.pairs[bit] = self.pairs[bit], {}
        for other in weights:
            del self.pairs[other][bit]
        constant = 0.0
        if with_linear:
            constant, self.linear[bit] = self.linear[bit], 0.0
        self._act(Turn(bit, matrix, constant, weights))

    def _act(self, turn: Turn) -> None:
        """A turn, unless it is nothing."""
        if turn.constant or turn.has_matrix or any(turn.weights.values()):
            self._add(turn)

    def _end(self) -> PhasePolynomial:
        """Turns of as few bits as have part in all pairs, then one of all.

        Gives the phases of which no bit of a tile is part.
        """
        # A greedy vertex cover of the graph of pairs: each turn takes all pairs of one bit.
        while any(self.pairs[bit] for bit in self.held_bits):
            most = max(self.held_bits, key=lambda bit: len(self.pairs[bit]))
            if most not in self.bits:
                others = [bit for bit in self.held_bits if bit in self.pairs[most]]
                next_bits = [bit for bit in (most, *others) if not self.low >> bit & 1]
                self._begin(self.low | mask_of(next_bits[: self.most - self.low.bit_count()]))
            self._turn(most, IDENTITY, with_linear=True)
        weights = {bit: self.linear[bit] for bit in self.held_bits if self.linear[bit]}
        if weights:
            for bit in weights:
                self.linear[bit] = 0.0
            if not self.bits:
                self._begin(self.low)
            self._add(Turn(None, IDENTITY, 0.0, weights))
        pairs = np.zeros((len(self.pairs), len(self.pairs)))
        for bit, row in enumerate(self.pairs):
            if row:
                pairs[bit, list(row)] = list(row.values())
        return PhasePolynomial(self.constant, np.array(self.linear), pairs)


def _real(matrix: Elements) -> Matrix:
    """The real parts."""
    a, b, c, d = matrix
    return a.real, b.real, c.real, d.real


def _as_gates(steps: Sequence[PassStep]) -> Iterator[MultiplexedGate]:
    """Gates alone: phase polynomials taken apart."""
    for step in steps:
        if isinstance(step, MultiplexedGate):
            yield step
        else:
            yield from step.gates()
            if step.constant:
                yield MultiplexedGate((), (0,), np.exp(1j * step.constant) * np.ones((2, 1, 1)))
