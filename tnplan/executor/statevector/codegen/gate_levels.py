"""The steps of a pass, round by round, in levels: phases, then gates that commute. Knows bits, no kernel.

Phases wait until a gate acts on one of their bits, so that those of many bits come together. A CZ is never
done before the end of a pass: a gate on one of its bits, done before it instead of after it, is the same gate
whose matrix has the other sign off its diagonal where the other bit is set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import pi

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, WordSum, bits_of
from tnplan.executor.statevector.gates.phase_polynomial import UNIT, PhasePolynomial, phases_of_diagonal
from tnplan.executor.statevector.scheduling.fusion import PassStep


@dataclass
class Level:
    """Phases, then gates and sums in any order, each with the mask of the bits that sign it.

    Elements off the diagonal of a gate on one bit change their sign where an odd number of these bits is set.
    """

    phases: PhasePolynomial
    gates: list[tuple[MultiplexedGate, int]] = field(default_factory=list)


class GateLevels:
    """Takes the steps of a pass over an index of `n_bits` bits, round by round."""

    def __init__(self, n_bits: int) -> None:
        self.n_bits = n_bits
        self.waiting = PhasePolynomial.zero(n_bits)
        """Phases not yet done."""
        self.signed = [0] * n_bits
        """For each bit the mask of those with which it has a CZ not yet done."""
        self.sums: list[WordSum] = []
        """Sums without targets not yet taken, so that many of them share products of amplitudes."""
        self._levels: list[Level] = []
        self._inside: list[int] = []
        self._level = np.zeros(n_bits, np.int64)
        """Of each bit, the level in which a gate on it may come next; 0 for bits not in registers."""
        self._since = np.zeros((n_bits, n_bits), np.int64)
        """The first level that may have what waits of two bits, or of one."""
        self._pairs = ~np.eye(n_bits, dtype=bool)

    def round(
        self, steps: Sequence[PassStep], inside: Sequence[int], takes_all: Callable[[PhasePolynomial], bool]
    ) -> list[Level]:
        """The levels of a round that has the bits `inside` in registers, targets of all steps among them.

        Phases that wait join those of a level of which `takes_all` is true.
        """
        self._levels, self._inside = [], list(inside)
        self._level[:], self._since[:] = 0, 0
        for step in steps:
            if isinstance(step, PhasePolynomial):
                self._wait(step)
                continue
            if isinstance(step, WordSum) and not step.targets:
                self.sums.append(step)
                continue
            phases = None if step.targets else phases_of_diagonal(step, self.n_bits)
            if phases is None:
                self._gate(step)
            else:
                self._wait(phases)
        for number, level in enumerate(self._levels):
            if takes_all(level.phases):
                self._move(self._since <= number, level.phases)
        return self._levels

    def signs(self) -> PhasePolynomial:
        """The CZs not yet done, as phases, which are so no longer."""
        phases = PhasePolynomial.zero(self.n_bits)
        for bit, others in enumerate(self.signed):
            if others:
                phases.pairs[bit, bits_of(others)] = pi
        self.signed = [0] * self.n_bits
        return phases

    def _wait(self, phases: PhasePolynomial) -> None:
        """Phases wait, a CZ becomes signs."""
        first, second = np.nonzero(phases.pairs)
        angles = np.mod(phases.pairs[first, second], 2 * pi)
        turns = np.abs(angles - pi) <= UNIT
        for bit, other in zip(first[turns].tolist(), second[turns].tolist(), strict=True):
            self.signed[bit] ^= 1 << other
            self._together([bit, other])
        stay = (angles != 0) & ~turns
        first, second, alone = first[stay], second[stay], np.flatnonzero(phases.linear)
        self.waiting.pairs[first, second] += angles[stay]
        self.waiting.linear[alone] += phases.linear[alone]
        self.waiting = replace(self.waiting, constant=self.waiting.constant + phases.constant)
        first, second = np.concatenate([first, alone]), np.concatenate([second, alone])
        now = np.maximum(self._level[first], self._level[second])
        self._since[first, second] = np.maximum(self._since[first, second], now)

    def _together(self, bits: Sequence[int]) -> int:
        """The first level after what was done to any of some bits, which is now that of all in registers."""
        inside = [bit for bit in bits if bit in self._inside]
        level = int(self._level[inside].max(initial=0))
        self._level[inside] = level
        return level

    def _at(self, level: int) -> Level:
        while len(self._levels) <= level:
            self._levels.append(Level(PhasePolynomial.zero(self.n_bits)))
        return self._levels[level]

    def _gate(self, gate: MultiplexedGate) -> None:
        is_sum = isinstance(gate, WordSum)
        if not is_sum and any(word_sum.mask & gate.target_mask for word_sum in self.sums):
            self._take_sums()
        alone = len(gate.targets) == 1 and (is_sum or not gate.selectors)
        for bit in gate.targets:
            if not alone:
                self._unsigned(bit)
            self._settle(bit)
        bits = [*gate.targets, *gate.selectors]
        level = self._together(bits)
        self._at(level).gates.append((gate, self.signed[gate.targets[0]] if alone else 0))
        self._level[[bit for bit in bits if bit in self._inside]] = level + 1

    def _take_sums(self) -> None:
        """All that wait come after what was done to any of their bits."""
        bits = sorted({bit for word_sum in self.sums for bit in word_sum.selectors})
        level = self._together(bits)
        self._at(level).gates += [(word_sum, 0) for word_sum in self.sums]
        self._level[[bit for bit in bits if bit in self._inside]] = level + 1
        self.sums = []

    def _unsigned(self, bit: int) -> None:
        """The CZs of a bit are phases again."""
        for other in bits_of(self.signed[bit]):
            self.waiting.pairs[bit, other] = self.waiting.pairs[other, bit] = pi
            self._since[bit, other] = self._since[other, bit] = max(self._level[bit], self._level[other])
            self.signed[other] ^= 1 << bit
        self.signed[bit] = 0

    def _settle(self, bit: int) -> None:
        """Phases that reach a bit are put where they may come first, before the next gate on it."""
        reached = self.waiting.pairs[bit] != 0
        reached[bit] = self.waiting.linear[bit] != 0
        others = np.flatnonzero(reached)
        since = self._since[bit, others]
        for level in sorted(set(since.tolist())):
            chosen, now, to = others[since == level], self.waiting, self._at(level).phases
            if bit in chosen:
                to.linear[bit] += now.linear[bit]
                now.linear[bit] = 0
            to.pairs[bit, chosen] += now.pairs[bit, chosen]
            to.pairs[chosen, bit] = to.pairs[bit, chosen]
            now.pairs[bit, chosen] = now.pairs[chosen, bit] = 0
            moved = [other for other in self._inside if other in chosen or other == bit]
            self._level[moved] = np.maximum(self._level[moved], level)

    def _move(self, chosen: NDArray[np.bool_], to: PhasePolynomial) -> None:
        """Phases that wait go to others; the diagonal of `chosen` is for those of one bit."""
        alone, now = np.diag(chosen), self.waiting
        to.linear[alone] += now.linear[alone]
        now.linear[alone] = 0
        both = chosen & self._pairs
        to.pairs[both] += now.pairs[both]
        now.pairs[both] = 0
