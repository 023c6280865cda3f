"""The rounds of a pass over both states of a sweep back, with sums between their gates.

Both states are one whose last bit held, of every round, tells them apart. Sums wait like diagonals: a sum of
a word of X or Y on one bit for the next matrix on this bit, which makes it while it has the amplitudes in
registers; sums of words of Z until a matrix comes on one of their bits, so that many are taken at once.
Knows bits and gates; no tables and no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.cpu.vector_rounds import IDENTITY, RoundBuilder, RoundStep, Turn
from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate, bits_of
from tnplan.executor.statevector.gates.one_bit import Elements, is_real
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial
from tnplan.executor.statevector.gates.word_sum import WordSum

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

    def __init__(self, held: tuple[int, ...], n_bits: int, lane_bits: int, most: int) -> None:
        super().__init__(held, n_bits, lane_bits, most)
        self.low |= 1 << held[-1]
        self._turned: dict[int, list[_Waiting]] = {}
        """Sums about X or Y of each bit."""
        self._signed: dict[int, list[tuple[int, float]]] = {}
        """Sums of words of Z, by their masks."""

    def _begin(self, chosen: int) -> None:
        self._settle(tuple(self._turned))
        super()._begin(chosen)

    def _place(self, gate: MultiplexedGate) -> None:
        if not isinstance(gate, WordSum):
            super()._place(gate)
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
        # A phase of one bit commutes up to a rotation of X and Y into each other, which `_terms`
        # accounts for by the phase that was there before. A phase of two bits does not: the sums
        # are taken first.
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
