"""A pass as the program of one GPU kernel: what its structure alone decides as text, numbers as tables.

Passes of the same structure are the same text, so that they share a compiled kernel. Every thread keeps
2^register_bits amplitudes of a tile in registers; a round is what is done between two exchanges of amplitudes
among the threads. kernels/state_program.cu has the macros. Knows bits and numbers, no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.statevector.blocks import EXACT, Block
from executor.statevector.fusion import Step
from executor.statevector.layouts import LANE_BITS, Barriers, Layout, Layouts
from executor.statevector.passes import Pass
from executor.statevector.phases import Phases, TileTurns, as_phases, of_twist
from executor.statevector.twists import Twist

Array = NDArray[Any]

NOTHING, PLUS, MINUS, PLUS_I, MINUS_I, REAL, IMAGINARY, ANY = range(8)
UNITS = {PLUS: 1, MINUS: -1, PLUS_I: 1j, MINUS_I: -1j}
KIND_DIGITS = 3
MOST_TARGETS = 2
MOST_CHOICES = 8
"""Values of the selectors outside the registers that one step may have, each a branch."""
LEAST_SCALE = 2.0**-40
"""What matrices were divided by is multiplied back before it gets smaller."""
BULK_PRICE = 9
"""What the factors of a thread cost, in instructions an amplitude, beside phases done one by one."""


@dataclass(frozen=True, eq=False)
class Program:
    """The text of a pass and its tables.

    `steps` are macros. `values`, complex128, are elements of matrices; `factors`, complex128 [row, thread].
    `twists` have the phases with bits outside the tile, which are factors of each tile.
    """

    steps: str
    values: Array
    factors: Array
    twists: tuple[TileTurns, ...]

    @property
    def n_twists(self) -> int:
        """How many twists there are."""
        return len(self.twists)

    @property
    def has_far_pairs(self) -> bool:
        """Whether any has phases of two bits outside the tile."""
        return any(np.any(twist.pairs) for twist in self.twists)


@dataclass
class _Round:
    """Steps in a row whose targets fit into the registers."""

    bits: set[int] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)


def make_program(item: Pass, n_bits: int, register_bits: int, item_bytes: int) -> Program | None:
    """The program of a pass; None where a step has more targets or selectors than a kernel takes.

    `n_bits` counts all bits of the index, `item_bytes` are those of an amplitude.
    """
    try:
        return _Writer(item, n_bits, register_bits, item_bytes).program()
    except _UnfitError:
        return None


def index_bits(item: Pass, n_bits: int) -> int:
    """The bits of an index that a pass speaks of, those of the rank among them; `n_bits` or more."""
    most = n_bits
    for step in item.steps:
        most = max(most, len(step.linear) if isinstance(step, Twist) else step.mask.bit_length())
    return most


class _UnfitError(Exception):
    """A step that no program can have."""


class _Writer:
    """Writes the text, and collects the tables."""

    def __init__(self, item: Pass, n_bits: int, register_bits: int, item_bytes: int) -> None:
        self.item, self.n_bits, self.register_bits = item, n_bits, register_bits
        self.tile_bits = len(item.held)
        if self.tile_bits <= register_bits:
            raise _UnfitError
        self.place = {bit: k for k, bit in enumerate(item.held)}
        self.text: list[str] = []
        self.values: list[complex] = []
        self.factors: list[Array] = []
        self.twists: list[TileTurns] = []
        self.layouts, self.barriers = Layouts(self.tile_bits, register_bits, item_bytes), Barriers()
        self.scale = 1 + 0j
        self.layout = self.layouts.first(())

    def program(self) -> Program:
        """Everything in turn: load, rounds with exchanges between them, store."""
        rounds = self._rounds()
        soon = [sorted(one.bits, reverse=True) for one in rounds[:2]] + [[], []]
        first = self.layouts.first(soon[0], soon[1])
        self.layout = self.layouts.first((), soon[0]) if self.layouts.is_scattered(first) else first
        self._write(f"LOAD({self.layout.text})")
        for one in rounds:
            self._move(self.layouts.following(self.layout, sorted(one.bits)))
            self._steps(one.steps)
        self._rescale()
        if self.layouts.is_scattered(self.layout):
            self._move(self.layouts.last(self.layout))
        self._write(f"STORE({self.layout.text})")
        threads = 1 << (self.tile_bits - self.register_bits)
        return Program(
            " ".join(self.text), np.array(self.values or [0], np.complex128),
            np.array(self.factors, np.complex128).reshape(-1, threads),
            tuple(self.twists),
        )  # fmt: skip

    def _rounds(self) -> list[_Round]:
        rounds: list[_Round] = []
        for step in self.item.steps:
            targets = {self.place[bit] for bit in step.targets} if isinstance(step, Block) else set()
            if len(targets) > min(MOST_TARGETS, self.register_bits):
                raise _UnfitError
            if not rounds or len(rounds[-1].bits | targets) > self.register_bits:
                rounds.append(_Round())
            rounds[-1].bits |= targets
            rounds[-1].steps.append(step)
        return rounds

    def _in_registers(self, bits: Sequence[int]) -> bool:
        return all(self.place.get(bit, -1) in self.layout.registers for bit in bits)

    def _write(self, text: str) -> None:
        self.text.append(text)

    def _move(self, layout: Layout) -> None:
        if layout != self.layout:
            meeting = self.barriers.between(self.layout, layout)
            self._write(f"MOVE({self.layout.text}, {layout.text}, {meeting})")
            self.layout = layout

    def _value(self, values: Sequence[complex]) -> int:
        """Where values are put; units need no place, so that equal structures stay equal."""
        self.values += [complex(value) for value in values]
        return len(self.values) - len(values)

    def _steps(self, steps: Sequence[Step]) -> None:
        """Steps in turn, phases in a row as one."""
        form: Phases | None = None
        for step in steps:
            found = None
            if isinstance(step, Twist):
                found = of_twist(step)
            elif not step.targets and not self._in_registers(step.selectors):
                found = as_phases(step, self.n_bits)
            if found is not None:
                form = found if form is None else form.plus(found)
                continue
            self._phases(form)
            form = None
            if isinstance(step, Block) and step.targets:
                self._block(step)
            elif isinstance(step, Block):
                self._table(step)
        self._phases(form)

    def _phases(self, form: Phases | None) -> None:
        if form is not None and self._price(form) > BULK_PRICE:
            self._bulk(form)
        elif form is not None:
            for block in form.blocks():
                self._branches(block, None)
            self.scale *= np.exp(1j * form.constant)

    def _price(self, form: Phases) -> float:
        """Instructions an amplitude for phases one by one: a sign takes 2, any other phase 4."""
        total = 0.0
        for block in form.blocks():
            inside = sum(self.place.get(bit, -1) in self.layout.registers for bit in block.selectors)
            total += (2 if _kind(block.blocks[-1, 0, 0]) in UNITS else 4) / (1 << inside)
        return total

    def _block(self, step: Block) -> None:
        places = [self.layout.registers.index(self.place[bit]) for bit in step.targets]
        matrices = step.blocks
        if places != sorted(places, reverse=True):
            matrices = matrices[:, [0, 2, 1, 3]][:, :, [0, 2, 1, 3]]
        if not step.selectors:
            matrices = self._divided(matrices[0])[None]
        self._branches(Block(step.targets, step.selectors, matrices), sorted(places))

    def _divided(self, matrix: Array) -> Array:
        """The matrix divided by its largest element where that makes more of them units."""
        largest = matrix.flat[np.argmax(np.abs(matrix) > np.abs(matrix).max() - EXACT)]
        divided: Array = matrix / largest
        if _n_units(divided) <= _n_units(matrix):
            return matrix
        self.scale *= largest
        if abs(self.scale) < LEAST_SCALE:
            self._rescale()
        return divided

    def _rescale(self) -> None:
        if abs(self.scale - 1) > EXACT:
            self._times(self.scale, 0, 0)
        self.scale = 1 + 0j

    def _times(self, factor: complex, mask: int, value: int) -> None:
        kind = _kind(factor)
        at = self._value([] if kind in UNITS or kind == NOTHING else [factor])
        if kind != PLUS:
            self._write(f"TIMES({kind}, {at if kind > MINUS_I else 0}, {mask}, {value})")

    def _branches(self, step: Block, places: Sequence[int] | None) -> None:
        """A step by the values of its selectors: those in registers choose amplitudes, others branch."""
        inner = [bit for bit in step.selectors if self.place.get(bit, -1) in self.layout.registers]
        outer = [bit for bit in step.selectors if bit not in inner]
        if 1 << len(outer) > MOST_CHOICES:
            raise _UnfitError
        for choice in range(1 << len(outer)):
            given = {bit: choice >> k & 1 for k, bit in enumerate(outer)}
            mark = len(self.text)
            for mask, value, matrix in self._matrices(step, inner, given):
                if places is None:
                    self._times(complex(matrix[0, 0]), mask, value)
                elif np.any(np.abs(matrix - np.eye(len(matrix))) > EXACT):
                    self._matrix(matrix, places, mask, value)
            if outer and len(self.text) > mark:
                self.text[mark:] = [f"if ({self._condition(given)}) {{", *self.text[mark:], "}"]

    def _matrices(
        self, step: Block, inner: Sequence[int], given: dict[int, int]
    ) -> Iterator[tuple[int, int, Array]]:
        """Mask and value of the register bits, and the matrix, for every value of the `inner` selectors."""
        places = [self.layout.registers.index(self.place[bit]) for bit in inner]
        found = []
        for v in range(1 << len(inner)):
            values = given | {bit: v >> k & 1 for k, bit in enumerate(inner)}
            number = 0
            for bit in step.selectors:
                number = 2 * number + values[bit]
            found.append(step.blocks[number])
        if all(np.array_equal(found[0], other) for other in found[1:]):
            yield 0, 0, found[0]
            return
        mask = sum(1 << p for p in places)
        for v, matrix in enumerate(found):
            yield mask, sum((v >> k & 1) << p for k, p in enumerate(places)), matrix

    def _matrix(self, matrix: Array, places: Sequence[int], mask: int, value: int) -> None:
        kinds = [_kind(element) for element in matrix.flat]
        code = sum(kind << (KIND_DIGITS * k) for k, kind in enumerate(kinds))
        at = self._value(list(matrix.flat))
        name = "ONE" if len(places) == 1 else "TWO"
        where = ", ".join(map(str, places))
        self._write(f"{name}({where}, {code:#x}ull, {at}, {mask}, {value})")

    def _condition(self, given: dict[int, int]) -> str:
        terms = []
        for bit, value in given.items():
            if bit in self.place:
                test = f"THREAD({self.layout.threads.index(self.place[bit])})"
            else:
                test = f"FAR({bit})"
            terms.append(test if value else f"!{test}")
        return " && ".join(terms)

    def _bulk(self, form: Phases) -> None:
        """Many phases: of registers alone one by one, of the tile by factors, of far bits by a twist."""
        registers = [self.item.held[p] for p in self.layout.registers]
        threads = [self.item.held[p] for p in self.layout.threads]
        far = [bit for bit in range(self.n_bits) if bit not in self.place]
        turned = form.reaches(far)
        inner = form.within(registers, with_linear=not turned)
        for value in range(1, 1 << len(registers)):
            self._times(inner.factor({bit: value >> k & 1 for k, bit in enumerate(registers)}),
                        (1 << len(registers)) - 1, value)  # fmt: skip
        near = form.without(inner).within([*registers, *threads], with_linear=not turned)
        if not turned:
            self.scale *= np.exp(1j * form.constant)
        if turned:
            turns = self._twist(form.without(inner).without(near), far)
            self._write(f"TWIST({turns}, {self._factors(near, registers, threads)})")
        elif near.n_terms:
            self._write(f"FACTORS({self._factors(near, registers, threads)})")

    def _factors(self, form: Phases, registers: Sequence[int], threads: Sequence[int]) -> str:
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
            own = form.factor(values | zero | {bit: 1}) / all_threads
            if np.any(np.abs(own - 1) > EXACT):
                mask |= 1 << k
                self.factors.append(own)
        return f"{at}, {mask}, {'true' if has_all else 'false'}"

    def _twist(self, form: Phases, far: Sequence[int]) -> str:
        """Its number, and the registers that it turns; phases of far bits and of each with a tile's."""
        held = self.item.held
        threads = [held[p] for p in self.layout.threads]
        registers = [held[p] for p in self.layout.registers]
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
        self.twists.append(TileTurns(np.array(entries), pairs, 1 << len(lanes), 1 << len(warps)))
        return f"{len(self.twists) - 1}, {mask}"

    def _table(self, step: Block) -> None:
        """Any diagonal: element by element; with selectors in registers alone, or far ones, by branches."""
        if self._in_registers(step.selectors) or any(bit not in self.place for bit in step.selectors):
            self._branches(step, None)
            return
        threads = np.arange(1 << len(self.layout.threads))
        at = len(self.factors)
        for value in range(1 << self.register_bits):
            row: Any = np.zeros_like(threads)
            for bit in step.selectors:
                place = self.place[bit]
                own: Any
                if place in self.layout.registers:
                    own = value >> self.layout.registers.index(place) & 1
                else:
                    own = threads >> self.layout.threads.index(place) & 1
                row = 2 * row + own
            self.factors.append(step.blocks[row, 0, 0])
        self._write(f"TABLE({at})")


def _sums(rows: Array) -> Array:
    """The sum of each subset of rows, [2^rows, ...], the first row the lowest bit of its number."""
    sums = np.zeros((1, rows.shape[-1]))
    for row in rows:
        sums = np.concatenate([sums, sums + row])
    return sums


def _kind(value: complex) -> int:
    if abs(value) <= EXACT:
        return NOTHING
    for kind, unit in UNITS.items():
        if abs(value - unit) <= EXACT:
            return kind
    if abs(complex(value).imag) <= EXACT:
        return REAL
    return IMAGINARY if abs(complex(value).real) <= EXACT else ANY


def _n_units(matrix: Array) -> int:
    return sum(_kind(element) in UNITS for element in matrix.flat)
