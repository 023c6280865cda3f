"""Phases and signs of a compiled pass, each in the cheapest of its ways: see `gate_macros`.

One by one, those of register bits together, signs of all bits, or factors of a thread from tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.codegen.gate_macros import STEEP, GateMacros, shears
from tnplan.executor.statevector.codegen.register_layout import LANE_BITS, RegisterLayout
from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial
from tnplan.executor.statevector.scheduling.qubit_cover import index_of

SIGN_PRICE, SHEAR_PRICE, SIGNS_PRICE, BULK_PRICE = 2, 3, 5, 9
"""Instructions an amplitude: a sign, a phase by shears, all signs, all phases of a thread."""
QUARTERS = (1, -1, 1j, -1j)
"""Quarter turns by which phases are turned until shears take them."""
STEEPEST = 48
"""A slope of shears that will not do, where others are no better than `STEEP`."""


Ways = tuple[float, PhasePolynomial, list[int]]
"""What phases cost, those done one by one, and the bits of those done together."""


@dataclass(frozen=True, eq=False)
class TilePhases:
    """Factors of a tile, each exp(i phase) with a phase that is a sum over the bits outside the tile.

    `rows`, float64 [entry, 1 + n_bits]: the phase without these bits, and what each adds. First come entries
    for every value of a thread's lane bits, then for its warp bits, then one for each register. `pairs`,
    float64 [n_bits, n_bits], are phases of two bits outside, for all amplitudes.
    """

    rows: Array
    pairs: Array

    def tables(self, far: Sequence[int], rank_base: int, with_pairs: bool) -> Array:
        """The factors, complex128, by the lower half of a tile's number, by its upper half, and by all of it.

        Bit k of the number is bit far[k] of the index, whose bits of the rank are those of `rank_base`. The
        last part, the factors of pairs, is left out where none of the kernel's has any.
        """
        low = len(far) // 2
        fixed = self.rows[:, 0] + self._of_bits(rank_base)
        lower = np.array([self._of_bits(index_of(k, far[:low])) for k in range(1 << low)])
        upper = np.array([fixed + self._of_bits(index_of(k, far[low:])) for k in range(1 << len(far) - low)])
        parts = [np.exp(1j * lower).ravel(), np.exp(1j * upper).ravel()]
        if with_pairs:
            set_bits = [bit for bit in range(len(self.pairs)) if rank_base >> bit & 1]
            angle = np.array([self.pairs[np.ix_(set_bits, set_bits)].sum() / 2])
            # With bit k of the number set there are as many more, each larger by the pairs of that bit.
            for k, bit in enumerate(far):
                more = self.pairs[bit, set_bits].sum() + _sums(self.pairs[list(far[:k]), bit, None])[:, 0]
                angle = np.concatenate([angle, angle + more])
            parts.append(np.exp(1j * angle))
        return np.concatenate(parts)

    def _of_bits(self, index: int) -> Array:
        bits = index >> np.arange(self.rows.shape[1] - 1) & 1
        phases: Array = self.rows[:, 1:] @ bits
        return phases


class PhaseMacros(GateMacros):
    """Writes diagonals of an index of `n_bits` bits; collects factors of threads and of tiles."""

    def __init__(self, held_bits: Sequence[int], layout: RegisterLayout, n_bits: int) -> None:
        super().__init__(held_bits, layout)
        self.n_bits, self.register_bits = n_bits, len(layout.registers)
        self.factors: list[Array] = []
        self.tile_phases: list[TilePhases] = []

    def _ways(self, form: PhasePolynomial) -> Ways:
        """What phases cost without factors of a thread, those done one by one, and the bits of all others.

        Phases of register bits are done together where that costs less.
        """
        if form.is_constant:
            return 0.0, form, []
        registers = [self.held_bits[p] for p in self.layout.registers]
        inner = form.within(registers, with_linear=True)
        outer = form.without(inner)
        is_used = (inner.linear != 0) | inner.pairs.any(axis=0)
        used = [bit for bit in registers if is_used[bit]]
        joined, price = SHEAR_PRICE * (1 - 0.5 ** len(used)), self._price(inner)
        if joined < price:
            return joined + self._price(outer), outer, used
        return price + self._price(outer), form, []

    def _phases(self, form: PhasePolynomial, ways: Ways | None = None) -> None:
        """Phases in the cheapest way, where what `_ways` gives may be known."""
        price, separate, joined = ways or self._ways(form)
        if price > BULK_PRICE:
            self._bulk(form)
            return
        if joined:
            self._joined(form.within(joined, with_linear=True), joined)
        for gate in separate.gates():
            self._branches(gate, None)
        self.scale *= np.exp(1j * form.constant)

    def _joined(self, form: PhasePolynomial, bits: Sequence[int]) -> None:
        """Phases of register bits, as a factor of each value of theirs: by three shears, or a product.

        Shears turn by any angle not near a half turn, so that all are turned by quarters until none is.
        Value 0 has no phase but these.
        """
        mask = sum(1 << self.layout.registers.index(self.position[bit]) for bit in bits)
        factors = form.elements(bits[::-1])
        steepest = [float(np.max(np.abs(shears(factors * quarter).real))) for quarter in QUARTERS]
        best = next((k for k, slope in enumerate(steepest) if slope <= STEEP), int(np.argmin(steepest)))
        if steepest[best] > STEEPEST:
            self._write(f"PHASES({mask}, {self._value(factors[1:])})")
            return
        first = int(best == 0)
        slopes = shears(factors[first:] * QUARTERS[best])
        self._write(f"SHEARS({mask}, {first}, {self._value(slopes)})")
        self.scale /= QUARTERS[best]

    def _price(self, form: PhasePolynomial) -> float:
        """Instructions an amplitude for phases one by one."""
        if form.is_constant:
            return 0.0
        share = np.ones(self.n_bits)
        share[[self.held_bits[p] for p in self.layout.registers]] = 0.5
        alone, (first, second) = np.flatnonzero(form.linear), form.pairs_present()
        factors = np.exp(1j * np.concatenate([form.linear[alone], form.pairs[first, second]]))
        is_unit = np.any(np.abs(factors[:, None] - QUARTERS) <= EXACT, axis=1)
        shares = np.concatenate([share[alone], share[first] * share[second]])
        return float(shares @ np.where(is_unit, SIGN_PRICE, SHEAR_PRICE))

    def _signs(self, form: PhasePolynomial) -> None:
        """The sign of an amplitude: that of its thread, those of its register bits, and of pairs of these."""
        registers = [self.held_bits[p] for p in self.layout.registers]
        rows = [sum(1 << int(other) for other in np.flatnonzero(form.pairs[bit])) for bit in registers]
        parities = [self._parity(row) for row in rows]
        pairs = sum((near & -(2 << k)) << (k * self.register_bits) for k, (near, _) in enumerate(parities))
        alone = "0"
        done = sum(1 << bit for bit in registers)
        for k, p in enumerate(self.layout.threads):
            bit = self.held_bits[p]
            done |= 1 << bit
            row = sum(1 << int(other) for other in np.flatnonzero(form.pairs[bit])) & ~done
            if row:
                alone += f" ^ -THREAD({k}) & {self._parity(row)[1]}"
        far = form.within([bit for bit in range(self.n_bits) if bit not in self.position], with_linear=False)
        for gate in far.gates():
            self._branches(gate, None)
        scale = 1.0
        if abs(self.scale.imag) <= EXACT * abs(self.scale):
            scale, self.scale = self.scale.real, 1 + 0j
        at = self._value([scale])
        self._write(f"SIGNS({pairs:#x}ull, {at}, {alone}, {', '.join(parity for _, parity in parities)})")

    def _bulk(self, form: PhasePolynomial) -> None:
        """Many phases: of registers alone one by one, of the tile by factors, of far bits by `TilePhases`."""
        registers = [self.held_bits[p] for p in self.layout.registers]
        threads = [self.held_bits[p] for p in self.layout.threads]
        far = [bit for bit in range(self.n_bits) if bit not in self.position]
        reaches_far = form.reaches(far)
        inner = form.within(registers, with_linear=not reaches_far)
        for value, factor in enumerate(inner.elements(registers[::-1]).tolist()):
            self._times(factor, (1 << len(registers)) - 1, value)
        near = form.without(inner).within([*registers, *threads], with_linear=not reaches_far)
        if not reaches_far:
            self.scale *= np.exp(1j * form.constant)
        if reaches_far:
            number = self._tile_phases(form.without(inner).without(near), far)
            self._write(f"TWIST({number}, {self._factors(near, registers, threads)})")
        elif near.n_terms:
            self._write(f"FACTORS({self._factors(near, registers, threads)})")

    def _factors(self, form: PhasePolynomial, registers: Sequence[int], threads: Sequence[int]) -> str:
        """The first row, the registers that have a row, and whether all have one in common."""
        values = {bit: np.arange(1 << len(threads)) >> k & 1 for k, bit in enumerate(threads)}
        zero = dict.fromkeys(registers, 0)
        at = len(self.factors)
        all_threads = np.broadcast_to(form.factor(values | zero), 1 << len(threads))
        has_all = bool(np.any(np.abs(all_threads - 1) > EXACT))
        if has_all:
            self.factors.append(all_threads * self.scale)
            self.scale = 1 + 0j
        mask = 0
        for k, bit in enumerate(registers):
            factor = form.factor(values | zero | {bit: 1}) / all_threads
            if np.any(np.abs(factor - 1) > EXACT):
                mask |= 1 << k
                self.factors.append(factor)
        return f"{at}, {mask}, {'true' if has_all else 'false'}"

    def _tile_phases(self, form: PhasePolynomial, far: Sequence[int]) -> str:
        """Its number, and the registers that it turns; phases of far bits and of each with a tile's."""
        threads = [self.held_bits[p] for p in self.layout.threads]
        registers = [self.held_bits[p] for p in self.layout.registers]
        rows = np.zeros((self.n_bits, 1 + self.n_bits))
        rows[:, 0] = form.linear
        rows[:, 1:][:, list(far)] = form.pairs[:, list(far)]
        tile = np.zeros(1 + self.n_bits)
        tile[0] = form.constant
        tile[1:][list(far)] = form.linear[list(far)]
        pairs = np.zeros_like(form.pairs)
        pairs[np.ix_(far, far)] = form.pairs[np.ix_(far, far)]
        lanes, warps = threads[:LANE_BITS], threads[LANE_BITS:]
        entries = [*_sums(rows[lanes]), *(tile + _sums(rows[warps])), *rows[registers]]
        mask = sum(int(np.any(rows[bit])) << k for k, bit in enumerate(registers))
        self.tile_phases.append(TilePhases(np.array(entries), pairs))
        return f"{len(self.tile_phases) - 1}, {mask}"

    def _table(self, step: MultiplexedGate) -> None:
        """Any diagonal: element by element; with selectors in registers alone, or far ones, by branches."""
        if self._in_registers(step.selectors) or any(bit not in self.position for bit in step.selectors):
            self._branches(step, None)
            return
        threads = np.arange(1 << len(self.layout.threads))
        at = len(self.factors)
        for value in range(1 << self.register_bits):
            row: Any = np.zeros_like(threads)
            for bit in step.selectors:
                position = self.position[bit]
                bit_value: Any
                if position in self.layout.registers:
                    bit_value = value >> self.layout.registers.index(position) & 1
                else:
                    bit_value = threads >> self.layout.threads.index(position) & 1
                row = 2 * row + bit_value
            self.factors.append(step.matrices[row, 0, 0])
        self._write(f"TABLE({at})")


def _sums(rows: Array) -> Array:
    """The sum of each subset of rows, [2^rows, ...], the first row the lowest bit of its number."""
    sums = np.zeros((1, rows.shape[-1]))
    for row in rows:
        sums = np.concatenate([sums, sums + row])
    return sums
