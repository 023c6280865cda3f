"""The words of a compiled pass: matrices, factors and conditions as macros, their numbers in a table.

program.cu has the macros. Knows where bits are, registers, threads or outside a tile; no GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.codegen.register_layout import RegisterLayout
from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate
from tnplan.executor.statevector.gates.phase_polynomial import is_rotation

NOTHING, PLUS, MINUS, PLUS_I, MINUS_I, REAL, IMAGINARY, ANY = range(8)
"""Kinds of an element of a matrix: what program.cu need not multiply by."""
UNITS = {PLUS: 1, MINUS: -1, PLUS_I: 1j, MINUS_I: -1j}
"""The value of each kind that is a unit."""
KIND_DIGITS = 3
"""Bits of a kind in the code of a matrix."""
STEEP = 16
"""A slope of shears that will do; rounding errors grow by it."""
MOST_CHOICES = 8
"""Values of the selectors outside the registers that one step may have, each a branch."""
LEAST_SCALE = 2.0**-40
"""What matrices were divided by is multiplied back before it gets smaller."""


class UnfitError(Exception):
    """A step that no program can have."""


class GateMacros:
    """Writes steps on a tile of the bits `held_bits` while the threads have the layout `layout`."""

    def __init__(self, held_bits: Sequence[int], layout: RegisterLayout) -> None:
        self.held_bits, self.layout = held_bits, layout
        self.position = {bit: k for k, bit in enumerate(held_bits)}
        self.text: list[str] = []
        self.values: list[complex] = []
        self._half: int | None = None
        """The index of a value that can take one more real number."""
        self.scale = 1 + 0j
        """What all amplitudes have still to be multiplied by."""

    def _in_registers(self, bits: Sequence[int]) -> bool:
        return all(self.position.get(bit, -1) in self.layout.registers for bit in bits)

    def _write(self, text: str) -> None:
        self.text.append(text)

    def _value(self, values: Iterable[complex]) -> int:
        """The index of the first of some values, which are appended."""
        first = len(self.values)
        self.values += [complex(value) for value in values]
        return first

    def _slope(self, slope: float) -> str:
        """Where a real number is put, two in a value."""
        if self._half is None:
            self._half = self._value([slope])
            return f"{self._half}, x"
        at, self._half = self._half, None
        self.values[at] += 1j * slope
        return f"{at}, y"

    def _parity(self, bits: int) -> tuple[int, str]:
        """The mask of the registers of some bits, and the parity of the other bits, as text."""
        near = sum(1 << k for k, p in enumerate(self.layout.registers) if bits >> self.held_bits[p] & 1)
        threads = sum(1 << k for k, p in enumerate(self.layout.threads) if bits >> self.held_bits[p] & 1)
        far = bits & ~sum(1 << bit for bit in self.held_bits)
        return near, f"PARITY({threads:#x}, {far:#x}ull)" if threads or far else "0"

    def _divided(self, matrix: Array) -> Array:
        """The matrix divided by its largest element where that makes more of them units."""
        if is_rotation(matrix):
            largest = matrix[0, 0]  # every angle gives the same kinds
            gains = largest != 1
        else:
            largest = matrix.flat[np.argmax(np.abs(matrix) > np.abs(matrix).max() - EXACT)]
            gains = _n_units(matrix / largest) > _n_units(matrix)
        if not gains:
            return matrix
        self.scale *= largest
        if abs(self.scale) < LEAST_SCALE:
            self._rescale()
        divided: Array = matrix / largest
        return divided

    def _rescale(self) -> None:
        if abs(self.scale - 1) > EXACT:
            self._times(self.scale, 0, 0)
        self.scale = 1 + 0j

    def _times(self, factor: complex, mask: int, value: int) -> None:
        kind = kind_of(factor)
        if kind == ANY and abs(abs(factor) - 1) <= EXACT:
            slopes = complex(shears(np.array(factor)))
            if abs(slopes.real) <= STEEP:
                self._write(f"SHEAR({self._value([slopes])}, {mask}, {value})")
                return
        at = self._value([] if kind in UNITS or kind == NOTHING else [factor])
        if kind != PLUS:
            self._write(f"TIMES({kind}, {at if kind > MINUS_I else 0}, {mask}, {value})")

    def _branches(self, step: MultiplexedGate, registers: Sequence[int] | None) -> None:
        """A step by the values of its selectors: those in registers choose amplitudes, others branch."""
        inner = [bit for bit in step.selectors if self.position.get(bit, -1) in self.layout.registers]
        outer = [bit for bit in step.selectors if bit not in inner]
        if 1 << len(outer) > MOST_CHOICES:
            raise UnfitError
        for choice in range(1 << len(outer)):
            values = {bit: choice >> k & 1 for k, bit in enumerate(outer)}
            mark = len(self.text)
            for mask, value, matrix in self._matrices(step, inner, values):
                if registers is None:
                    self._times(complex(matrix[0, 0]), mask, value)
                elif np.any(np.abs(matrix - np.eye(len(matrix))) > EXACT):
                    self._matrix(matrix, registers, mask, value)
            if outer and len(self.text) > mark:
                self.text[mark:] = [f"if ({self._condition(values)}) {{", *self.text[mark:], "}"]

    def _matrices(
        self, step: MultiplexedGate, inner: Sequence[int], outer_values: dict[int, int]
    ) -> Iterator[tuple[int, int, Array]]:
        """Mask and value of the register bits, and the matrix, for every value of the `inner` selectors."""
        registers = [self.layout.registers.index(self.position[bit]) for bit in inner]
        matrices = []
        for v in range(1 << len(inner)):
            values = outer_values | {bit: v >> k & 1 for k, bit in enumerate(inner)}
            number = 0
            for bit in step.selectors:
                number = 2 * number + values[bit]
            matrices.append(step.matrices[number])
        if all(np.array_equal(matrices[0], other) for other in matrices[1:]):
            yield 0, 0, matrices[0]
            return
        mask = sum(1 << p for p in registers)
        for v, matrix in enumerate(matrices):
            yield mask, sum((v >> k & 1) << p for k, p in enumerate(registers)), matrix

    def _matrix(self, matrix: Array, registers: Sequence[int], mask: int, value: int) -> None:
        at, code = self._value(list(matrix.flat)), self._code(matrix)
        name = "ONE" if len(registers) == 1 else "TWO"
        listed = ", ".join(map(str, registers))
        self._write(f"{name}({listed}, {code}, {at}, {mask}, {value})")

    def _signed(self, matrix: Array, register: int, signed: int) -> None:
        """A matrix whose elements off the diagonal have a sign by the parity of some bits."""
        near, parity = self._parity(signed)
        if is_turn(matrix):
            self._write(f"ROTATE({register}, {self._slope(matrix[1, 0].real)}, {near}, {parity})")
            return
        at, code = self._value(list(matrix.flat)), self._code(matrix)
        self._write(f"SIGNED({register}, {code}, {at}, {near}, {parity})")

    def _code(self, matrix: Array) -> str:
        """The kinds of the elements of a matrix, as text."""
        kinds = map(kind_of, matrix.ravel().tolist())
        return f"{sum(kind << (KIND_DIGITS * k) for k, kind in enumerate(kinds)):#x}ull"

    def _condition(self, values: dict[int, int]) -> str:
        terms = []
        for bit, value in values.items():
            if bit in self.position:
                test = f"THREAD({self.layout.threads.index(self.position[bit])})"
            else:
                test = f"FAR({bit})"
            terms.append(test if value else f"!{test}")
        return " && ".join(terms)


def kind_of(value: complex) -> int:
    real, imaginary = value.real, value.imag
    if abs(imaginary) <= EXACT:
        if abs(real) <= EXACT:
            return NOTHING
        return PLUS if abs(real - 1) <= EXACT else MINUS if abs(real + 1) <= EXACT else REAL
    if abs(real) > EXACT:
        return ANY
    if abs(imaginary - 1) <= EXACT:
        return PLUS_I
    return MINUS_I if abs(imaginary + 1) <= EXACT else IMAGINARY


def shears(factors: Array) -> Array:
    """For exp(i a): tan(a / 2) + i sin(a), the slopes of the shears whose product is that turn."""
    angles = np.angle(factors)
    slopes: Array = np.tan(angles / 2) + 1j * np.sin(angles)
    return slopes


def is_turn(matrix: Array) -> bool:
    """Whether a matrix is a real rotation divided by its cosine."""
    return is_rotation(matrix) and kind_of(matrix[0, 0]) == PLUS


def _n_units(matrix: Array) -> int:
    return sum(kind_of(element) in UNITS for element in matrix.ravel().tolist())
