"""A pass as the program of one GPU kernel: what its structure alone decides as text, numbers as tables.

Passes of the same structure are the same text, so that they share a compiled kernel. Every thread keeps
2^register_bits amplitudes of a tile in registers; a round is what is done between two exchanges of amplitudes
among the threads. program.cu has the macros. Knows bits and numbers, no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import pi

import numpy as np
from numpy.typing import NDArray

from tnplan.common.arrays import Array
from tnplan.executor.statevector.codegen.gate_macros import GateMacros, UnfitError, is_turn
from tnplan.executor.statevector.codegen.phase_macros import (
    BULK_PRICE,
    SIGNS_PRICE,
    PhaseMacros,
    TilePhases,
    Ways,
)
from tnplan.executor.statevector.codegen.register_layout import Barriers, LayoutChoice, RegisterLayout
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, WordSum, as_swap, bits_of
from tnplan.executor.statevector.gates.phase_polynomial import UNIT, PhasePolynomial, phases_of_diagonal
from tnplan.executor.statevector.scheduling.fusion import PassStep
from tnplan.executor.statevector.scheduling.overlap import MOST_PART_BITS
from tnplan.executor.statevector.scheduling.qubit_cover import index_of
from tnplan.executor.statevector.scheduling.tiled_passes import Pass


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


# Inner products of two states about Pauli words, as macros of a compiled pass; see sums.cuh.
#
# Bit 0 of the index selects the state, 0 for psi and 1 for lambda, and is in registers. Knows bits.


MOST_TOGETHER = 8
"""Sums that a warp adds up together: each of its threads has a number for each."""


class SumMacros(GateMacros):
    """Writes sums; collects their numbers and scales."""

    sums: list[tuple[int, float]]
    n_waiting = 0
    """Sums that each thread has a number of, until a warp adds them up together."""

    def _word_sums(self, sums: Sequence[tuple[MultiplexedGate, int]]) -> None:
        """Sums that are taken now, each with the mask of the bits that sign it besides its own.

        Those about the same bits of x share products.
        """
        sharing: dict[tuple[int, bool], list[tuple[WordSum, int]]] = {}
        for word_sum, signed in sums:
            assert isinstance(word_sum, WordSum)
            registers = [self.layout.registers.index(self.position[bit]) for bit in word_sum.targets]
            key = sum(1 << register for register in registers), word_sum.imaginary
            sharing.setdefault(key, []).append((word_sum, signed))
        for (x, imaginary), group in sorted(sharing.items(), key=lambda item: item[0]):
            if len(group) > 1:
                self._write(f"{{ PRODUCTS({x}, {int(imaginary)})")
            for word_sum, signed in group:
                name = "SUM(" if len(group) > 1 else f"SUM_ALONE({x}, {int(imaginary)}, "
                near, parity = self._parity(word_sum.z ^ signed)
                self._write(f"{name}{self.n_waiting}, {near}, {parity})")
                self.sums.append((word_sum.number, abs(self.scale) ** 2))
                self.n_waiting += 1
                if self.n_waiting == MOST_TOGETHER:
                    self._add_sums()
            if len(group) > 1:
                self._write("}")

    def _add_sums(self) -> None:
        """The sums that wait are added up."""
        if self.n_waiting:
            self._write(f"SUMS({self.n_waiting}, {len(self.sums) - self.n_waiting})")
        self.n_waiting = 0


MOST_TARGETS = 2
"""Targets of a gate that a compiled pass takes."""


@dataclass(frozen=True, eq=False)
class PassProgram:
    """The text of a pass and its tables.

    `steps` are macros. `values`, complex128, are elements of matrices; `factors`, complex128 [row, thread].
    `tile_phases` have the phases with bits outside the tile, which are factors of each tile.
    """

    steps: str
    values: Array
    factors: Array
    tile_phases: tuple[TilePhases, ...]
    sums: tuple[tuple[int, float], ...] = ()
    """The number of each sum of a word, and the real number by which it is multiplied."""

    @property
    def has_far_pairs(self) -> bool:
        """Whether any has phases of two bits outside the tile."""
        return any(np.any(phases.pairs) for phases in self.tile_phases)


@dataclass
class _Round:
    """Steps in a row whose targets fit into the registers."""

    bits: set[int] = field(default_factory=set)
    steps: list[PassStep] = field(default_factory=list)


def make_program(
    item: Pass, n_bits: int, register_bits: int, item_bytes: int, coded: bool = False
) -> PassProgram | None:  # fmt: skip
    """The program of a pass; None where a step has more targets or selectors than a kernel takes.

    `n_bits` counts all bits of the index, `item_bytes` are those of an amplitude in a tile. A `coded` state
    goes through shared memory on its way from and to memory, where any layout will do.
    """
    try:
        return _Writer(item, n_bits, register_bits, item_bytes).program(coded)
    except UnfitError:
        return None


def tile_numbers(n_bits: int, held_bits: Sequence[int], bits: Sequence[int] = (), value: int = 0) -> Array:
    """`Tiles` of program.cu, uint32: all tiles of 2^n_bits amplitudes, or those of a part.

    A part has the value `value` in `bits`, at most four that rise and are not held.
    """
    far = [bit for bit in range(n_bits) if bit not in held_bits]
    digits = [far.index(bit) for bit in bits]
    low = [(1 << digit) - 1 for digit in digits] + [2**32 - 1] * (MOST_PART_BITS - len(digits))
    return np.array([1 << (len(far) - len(digits)), index_of(value, digits), *low], np.uint32)


def index_bits(item: Pass, n_bits: int) -> int:
    """The bits of an index that a pass speaks of, those of the rank among them; `n_bits` or more."""
    most = n_bits
    for step in item.steps:
        most = max(most, len(step.linear) if isinstance(step, PhasePolynomial) else step.mask.bit_length())
    return most


class _Writer(PhaseMacros, SumMacros):
    """Writes the text, and collects the tables."""

    def __init__(self, item: Pass, n_bits: int, register_bits: int, item_bytes: int) -> None:
        if len(item.held_bits) <= register_bits:
            raise UnfitError
        self.tile_bits = len(item.held_bits)
        self.steps, self.stored = _without_exchanges(item)
        self.layouts, self.barriers = LayoutChoice(self.tile_bits, register_bits, item_bytes), Barriers()
        self.schedule = GateLevels(n_bits)
        self.always = {0} if any(isinstance(step, WordSum) for step in item.steps) else set()
        """Bit 0 selects one of the two states of a sum."""
        self.sums = []
        super().__init__(item.held_bits, self.layouts.first(()), n_bits)

    def program(self, coded: bool) -> PassProgram:
        """Everything in turn: load, rounds with exchanges between them, store."""
        rounds = self._rounds()
        # The first layout has the bits of the first round in registers, unless loads would be
        # scattered with it.
        soon = [sorted(gate_round.bits, reverse=True) for gate_round in rounds[:2]] + [[], []]
        first = self.layouts.first(soon[0], soon[1])
        is_scattered = not coded and self.layouts.is_scattered(first)
        self.layout = self.layouts.first((), soon[0]) if is_scattered else first
        self._write(f"LOAD({self.layout.text})")
        for gate_round in rounds:
            self._move(self.layouts.following(self.layout, sorted(gate_round.bits)))
            self._levels(gate_round)
        self._pending_phases()
        self._rescale()
        stored = self.layout.on(self.stored)
        # Neighbouring threads are to write neighbouring amplitudes: where they would not, one more
        # exchange comes first.
        if not coded and (self.layouts.is_scattered(stored) or 0 in stored.registers[1:]):
            stored = self.layouts.last(stored)
            self._move(stored.on(self.stored))
        self._write(f"STORE({stored.text})")
        threads = 1 << (self.tile_bits - self.register_bits)
        return PassProgram(
            " ".join(self.text), np.array(self.values or [0], np.complex128),
            np.array(self.factors, np.complex128).reshape(-1, threads),
            tuple(self.tile_phases), tuple(self.sums),
        )  # fmt: skip

    def _rounds(self) -> list[_Round]:
        rounds: list[_Round] = []
        for step in self.steps:
            targets = (
                {self.position[bit] for bit in step.targets} if isinstance(step, MultiplexedGate) else set()
            )
            if len(targets) > min(MOST_TARGETS, self.register_bits):
                raise UnfitError
            if not rounds or len(rounds[-1].bits | targets) > self.register_bits:
                rounds.append(_Round(set(self.always)))
            rounds[-1].bits |= targets
            rounds[-1].steps.append(step)
        return rounds

    def _move(self, layout: RegisterLayout) -> None:
        if layout != self.layout:
            barrier = self.barriers.between(self.layout, layout)
            self._write(f"MOVE({self.layout.text}, {layout.text}, {barrier})")
            self.layout = layout

    def _levels(self, gate_round: _Round) -> None:
        """A round: phases, gates, phases, gates."""
        registers = [self.held_bits[p] for p in self.layout.registers]
        known_ways: dict[int, Ways] = {}

        def takes_all(form: PhasePolynomial) -> bool:
            ways = self._ways(form)
            if ways[0] <= BULK_PRICE:
                known_ways[id(form)] = ways
            return ways[0] > BULK_PRICE

        for level in self.schedule.round(gate_round.steps, registers, takes_all):
            self._phases(level.phases, known_ways.get(id(level.phases)))
            self._word_sums([gate_round for gate_round in level.gates if isinstance(gate_round[0], WordSum)])
            for step, signed in level.gates:
                if isinstance(step, WordSum):
                    continue
                if step.targets:
                    self._gate(step, signed)
                else:
                    self._table(step)

    def _pending_phases(self) -> None:
        """Sums, phases and signs that nothing waits for."""
        self._word_sums([(word_sum, 0) for word_sum in self.schedule.sums])
        self._add_sums()
        form, signs = self.schedule.waiting, self.schedule.signs()
        separate = self._price(signs) <= SIGNS_PRICE
        if separate or self._price(form) > BULK_PRICE:
            self._phases(form.plus(signs))
        else:
            self._phases(form)
            self._signs(signs)

    def _gate(self, step: MultiplexedGate, signed: int) -> None:
        registers = [self.layout.registers.index(self.position[bit]) for bit in step.targets]
        matrices = step.matrices
        if registers != sorted(registers, reverse=True):
            matrices = matrices[:, [0, 2, 1, 3]][:, :, [0, 2, 1, 3]]
        if not step.selectors:
            matrices = self._divided(matrices[0])[None]
        if signed or (not step.selectors and is_turn(matrices[0])):
            self._signed(matrices[0], registers[0], signed)
        else:
            self._branches(MultiplexedGate(step.targets, step.selectors, matrices), sorted(registers))


def _without_exchanges(item: Pass) -> tuple[list[PassStep], list[int]]:
    """Steps without the exchanges of two bits at the end, and where each bit of a tile is after these.

    No bit is exchanged twice, so that this is its own inverse.
    """
    steps, where = list(item.steps), list(range(len(item.held_bits)))
    while steps and isinstance(steps[-1], MultiplexedGate):
        phases = as_swap(steps[-1])
        if phases is None or not phases.is_identity:
            break
        first, second = (item.held_bits.index(bit) for bit in steps[-1].targets)
        if where[first] != first or where[second] != second:
            break
        where[first], where[second] = second, first
        steps.pop()
    return steps, where
