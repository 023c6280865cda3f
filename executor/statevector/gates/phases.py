"""Sums of phases of single bits and of pairs, to be taken apart. Knows numbers, no pass and no device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate
from tnplan.executor.statevector.gates.phase_polynomial import UNIT, Twist

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Phases:
    """constant + sum_j linear[j] b_j + sum_{j<k} pairs[j, k] b_j b_k on all bits b of an index, in radians.

    `pairs` is symmetric, its diagonal 0.
    """

    constant: float
    linear: Array
    pairs: Array

    @staticmethod
    def none(n_bits: int) -> Phases:
        """No phase on so many bits."""
        return Phases(0.0, np.zeros(n_bits), np.zeros((n_bits, n_bits)))

    @property
    def n_terms(self) -> int:
        """How many bits and pairs have a phase."""
        return int(np.count_nonzero(self.linear) + np.count_nonzero(self.pairs) // 2)

    def reaches(self, bits: Sequence[int]) -> bool:
        """Whether any of some bits has a phase."""
        chosen = list(bits)
        return bool(np.any(self.linear[chosen]) or np.any(self.pairs[chosen]))

    def within(self, bits: Sequence[int], with_linear: bool) -> Phases:
        """The phases of pairs of some bits, and their own ones if wanted; no constant."""
        inside = np.zeros(len(self.linear), bool)
        inside[list(bits)] = True
        linear = np.where(inside & with_linear, self.linear, 0)
        return Phases(0.0, linear, np.where(np.outer(inside, inside), self.pairs, 0))

    def without(self, part: Phases) -> Phases:
        """What is left without a part."""
        linear = np.where(part.linear != 0, 0, self.linear)
        return Phases(self.constant, linear, np.where(part.pairs != 0, 0, self.pairs))

    def plus(self, other: Phases) -> Phases:
        """Both together."""
        return Phases(self.constant + other.constant, self.linear + other.linear, self.pairs + other.pairs)

    def blocks(self) -> list[MultiplexedGate]:
        """Diagonal blocks on one and two bits, whose product is exp(i phase) but for the constant."""
        singles = [((int(bit),), self.linear[bit]) for bit in np.flatnonzero(self.linear)]
        doubles = [((int(j), int(k)), self.pairs[j, k]) for j, k in np.argwhere(np.triu(self.pairs))]
        return [
            MultiplexedGate(
                (), bits, np.array([*[1] * (2 ** len(bits) - 1), np.exp(1j * angle)]).reshape(-1, 1, 1)
            )
            for bits, angle in (*singles, *doubles)
        ]

    def factor(self, values: Mapping[int, Any]) -> Any:
        """exp(i phase) without the constant, for values of bits, numbers or arrays; other bits are 0."""
        bits = list(values)
        angle: Any = 0.0
        for k, bit in enumerate(bits):
            inner = self.linear[bit] + sum(self.pairs[bit, other] * values[other] for other in bits[:k])
            angle = angle + values[bit] * inner
        return np.exp(1j * angle)


@dataclass(frozen=True, eq=False)
class TileTurns:
    """Factors of a tile, each exp(i phase) with a phase that is a sum over the bits outside the tile.

    `rows`, float64 [entry, 1 + n_bits]: the phase without these bits, and what each adds. First come entries
    for every value of a thread's lane bits, `n_lanes`, then for its warp bits, `n_warps`, then one for each
    register. `pairs`, float64 [n_bits, n_bits], are phases of two bits outside, for all amplitudes.
    """

    rows: Array
    pairs: Array
    n_lanes: int
    n_warps: int

    def tables(self, far: Sequence[int], rank_base: int, with_pairs: bool) -> Array:
        """The factors, complex128, by the lower half of a tile's number, by its upper half, and by all of it.

        Bit k of the number is bit far[k] of the index, whose bits of the rank are those of `rank_base`. The
        last part, the factors of pairs, is left out where none of the kernel's twists has any.
        """
        low = len(far) // 2
        fixed = self.rows[:, 0] + self._of_bits(rank_base)
        lower = np.array([self._of_bits(_put(number, far[:low])) for number in range(1 << low)])
        upper = np.array([fixed + self._of_bits(_put(k, far[low:])) for k in range(1 << (len(far) - low))])
        parts = [np.exp(1j * lower).ravel(), np.exp(1j * upper).ravel()]
        if with_pairs:
            numbers = np.arange(1 << len(far))
            values: list[Any] = [rank_base >> bit & 1 for bit in range(len(self.pairs))]
            for k, bit in enumerate(far):
                values[bit] = numbers >> k & 1
            angle = np.zeros(len(numbers))
            for j, k in np.argwhere(np.triu(self.pairs)):
                angle += self.pairs[j, k] * values[j] * values[k]
            parts.append(np.exp(1j * angle))
        return np.concatenate(parts)

    def _of_bits(self, index: int) -> Array:
        bits = index >> np.arange(self.rows.shape[1] - 1) & 1
        found: Array = self.rows[:, 1:] @ bits
        return found


def _put(number: int, bits: Sequence[int]) -> int:
    return sum((number >> k & 1) << bit for k, bit in enumerate(bits))


def of_twist(twist: Twist) -> Phases:
    """The phases of a twist."""
    return Phases(twist.constant, twist.linear, twist.pairs)


def as_phases(block: MultiplexedGate, n_bits: int) -> Phases | None:
    """The phases that a diagonal block is, on an index of `n_bits`; None where it is no such sum."""
    values = block.blocks[:, 0, 0]
    if np.any(np.abs(np.abs(values) - 1) > UNIT):
        return None
    bits = block.selectors[::-1]
    linear, pairs = np.zeros(n_bits), np.zeros((n_bits, n_bits))
    for k, bit in enumerate(bits):
        linear[bit] = _angle(values[1 << k] / values[0])
        for m, other in enumerate(bits[:k]):
            both = values[1 << k | 1 << m] * values[0] / (values[1 << k] * values[1 << m])
            pairs[bit, other] = pairs[other, bit] = _angle(both)
    form = Phases(_angle(values[0]), linear, pairs)
    numbers = np.arange(len(values))
    made = form.factor({bit: numbers >> k & 1 for k, bit in enumerate(bits)}) * values[0]
    return form if np.all(np.abs(made - values) <= len(bits) * UNIT) else None


def _angle(value: complex) -> float:
    """The angle of a number, exactly 0 for 1."""
    return 0.0 if abs(value - 1) <= EXACT else float(np.angle(value))
