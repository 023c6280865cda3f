"""The sweep back over both states at once, psi and lambda in turn in one array.

Its passes undo gates and take inner products between them, so that it has about as many of them as a forward
sweep has. Bit 0 of the index selects the state, and every tile holds it. Knows gates and bits, no state
and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tnplan.circuits.circuit import Gate
from tnplan.executor.statevector.derivative_segments import parameter_words
from tnplan.executor.statevector.gates.multiplexed_gate import (
    MultiplexedGate,
    WordSum,
    from_gate,
    inverse,
    word_sum,
)
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, PassPlan, Tile, compile_gates

MOST_X_BITS = 2
"""Bits of x of a word that a compiled pass takes."""
MOST_STEPS = 150
"""Of a pass. The instructions of more seem not to fit into the cache of a multiprocessor: passes of 157 and
188 steps, over layers of ry, rz and cz, took 25 and 60 ms (one H100)."""
ROUNDING = 1e-12
"""Parts of a factor below this, in parts of the factor, are the rounding of a generator."""


@dataclass(frozen=True)
class Term:
    """A sum of a word times `factor` is added to the derivative by angle `number` of gate `gate`."""

    gate: int
    number: int
    factor: float


@dataclass(frozen=True, eq=False)
class JointSweep:
    """Passes over both states; the `WordSum` of number k is the sum of terms[k]."""

    plan: PassPlan
    angles: tuple[tuple[int, int], ...]
    """The gate and the number of each angle."""
    terms: tuple[Term, ...]

    def derivatives(self, sums: Sequence[float]) -> dict[tuple[int, int], float]:
        """The derivative by each angle of each gate, for the sums of all terms."""
        derivatives = dict.fromkeys(self.angles, 0.0)
        for term, value in zip(self.terms, sums, strict=True):
            derivatives[term.gate, term.number] += term.factor * value
        return derivatives


def joint_sweep(gates: Sequence[Gate], where: Sequence[int], tile: Tile) -> JointSweep | None:
    """The sweep back through gates, from qubit q at bit where[q] + 1 of both states, in tiles of both.

    None where a word has more bits of x than a compiled pass takes.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    steps: list[MultiplexedGate] = []
    angles: list[tuple[int, int]] = []
    terms: list[Term] = []
    for number in range(len(gates) - 1, -1, -1):
        sums = sums_of_gate(gates[number], number, angles, terms)
        if sums is None:
            return None
        steps += [*sums, inverse(from_gate(gates[number]))]
    before = [*(bit + 1 for bit in where), 0]
    rounds = replace(tile, register_bits=tile.register_bits - 1)
    plan = compile_gates(steps, before, rounds)
    return JointSweep(replace(plan, steps=_divided(plan.passes)), tuple(angles), tuple(terms))


def takes_words(gates: Sequence[Gate]) -> bool:
    """Whether passes over both states take the words of the generators of all gates.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    return all(sums_of_gate(gate, number, [], []) is not None for number, gate in enumerate(gates))


def sums_of_gate(
    gate: Gate, number: int, angles: list[tuple[int, int]], terms: list[Term]
) -> list[WordSum] | None:  # fmt: skip
    """The sums right after gate `number`, about the words of its generators; None where one is too wide.

    Its angles, and a term for each sum, are appended to those so far.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    sums: list[WordSum] = []
    for parameter in parameter_words(gate, number):
        angles.append((parameter.gate, parameter.number))
        for x, z, coefficient in parameter.words:
            if x.bit_count() > MOST_X_BITS:
                return None
            factor = 2 * coefficient * 1j ** ((x & z).bit_count() & 3)
            for weight, imaginary in ((factor.real, False), (-factor.imag, True)):
                if abs(weight) > ROUNDING * abs(factor):
                    sums.append(word_sum(x, z, len(terms), imaginary))
                    terms.append(Term(parameter.gate, parameter.number, weight))
    return sums


def _divided(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """Passes of many steps as several in a row, of about as many steps each."""
    shorter = []
    for item in passes:
        count = -(-len(item.steps) // MOST_STEPS)
        ends = [number * len(item.steps) // count for number in range(count + 1)]
        shorter += [Pass(item.held_bits, item.steps[first:last]) for first, last in pairwise(ends)]
    return tuple(shorter)
