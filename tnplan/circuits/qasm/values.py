"""Classical values of OpenQASM: numbers of a fixed width, bit strings, and values that measured bits decide.

Values are bool, int, float and complex of Python, `FixedWidth`, `BitString` and `Measured`. Knows no variable
and no syntax. Refusals are raised as `Mistake`, without a place: who has the line adds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.circuits.derivatives.dual_number import DualNumber

MOST_BITS = 12
"""Measured bits that a value may depend on: it is held as a table of all their values."""
LARGEST_WIDTH = 100_000
LONGEST_WRITTEN = 128
"""Bits of an integer that messages show."""
TURN = 2 * math.pi


class Mistake(Exception):  # noqa: N818
    """What is wrong, and the remedy, before somebody who knows the place makes an InputError of it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy = problem, remedy


@dataclass(frozen=True, slots=True)
class Type:
    """A classical type; `width` is None where the file leaves it open."""

    kind: str
    width: int | None = None

    def __str__(self) -> str:
        return self.kind if self.width is None else f"{self.kind}[{self.width}]"


@dataclass(frozen=True, slots=True)
class FixedWidth:
    """A number of `width` bits of kind int, uint, angle or bit; an angle is 2 pi value / 2^width."""

    kind: str
    width: int
    value: int

    def __str__(self) -> str:
        if self.kind == "bit":
            return f'"{self.value:0{self.width}b}"'
        return written(number(self))

    def bit(self, index: int) -> bool:
        """Bit `index`, the least significant being 0."""
        return bool(self.value >> index & 1)


@dataclass(frozen=True, slots=True)
class BitString:
    """Bits of which some were measured, the least significant first: each a bool or a `Measured`."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """A value for each value of some measured bits; the first of `bits` is the least significant."""

    bits: tuple[int, ...]
    table: tuple[Any, ...]

    def restricted(self, assumed: dict[int, bool]) -> Any:
        """The value where some bits are known."""
        if not any(bit in assumed for bit in self.bits):
            return self
        free = tuple(bit for bit in self.bits if bit not in assumed)
        return measured(free, tuple(self.at(assumed | _row(free, row)) for row in range(1 << len(free))))

    def at(self, assignment: Mapping[int, bool]) -> Any:
        """The value for one value of each bit."""
        return self.table[sum(assignment[bit] << k for k, bit in enumerate(self.bits))]


def _row(bits: tuple[int, ...], row: int) -> dict[int, bool]:
    return {bit: bool(row >> k & 1) for k, bit in enumerate(bits)}


def measured(bits: tuple[int, ...], table: tuple[Any, ...]) -> Any:
    """The value for a table: bits that it does not depend on are left out, and a constant is itself."""
    k = 0
    while k < len(bits):
        step = 1 << k
        low = [value for row, value in enumerate(table) if not row & step]
        high = [value for row, value in enumerate(table) if row & step]
        if all(same(a, b) for a, b in zip(low, high, strict=True)):
            bits, table = bits[:k] + bits[k + 1 :], tuple(low)
        else:
            k += 1
    return Measured(bits, table) if bits else table[0]


def same(a: Any, b: Any) -> bool:
    """Whether values are of one type and equal."""
    return type(a) is type(b) and bool(a == b)


def bit_value(bit: int) -> Measured:
    """The value of one measured bit."""
    return Measured((bit,), (False, True))


def applied(function: Callable[..., Any], *values: Any) -> Any:
    """The function of values; of measured ones, for each value of their bits."""
    if not any(isinstance(value, Measured | BitString) for value in values):
        return function(*values)
    values = tuple(joined(value) for value in values)
    bits = tuple(sorted({bit for value in values if isinstance(value, Measured) for bit in value.bits}))
    check_bits(len(bits))
    rows = (_row(bits, row) for row in range(1 << len(bits)))
    return measured(
        bits, tuple(function(*(v.at(row) if isinstance(v, Measured) else v for v in values)) for row in rows)
    )


def check_bits(n_bits: int) -> None:
    """Refuse tables over too many bits."""
    if n_bits > MOST_BITS:
        raise Mistake(
            f"depends on {n_bits} measured bits", f"let values depend on {MOST_BITS} measured bits at most"
        )


def bit_string(items: tuple[Any, ...]) -> Any:
    """The value of a register: a number where all bits are known."""
    if any(isinstance(item, Measured) for item in items):
        return BitString(items)
    return FixedWidth("bit", len(items), sum(int(item) << k for k, item in enumerate(items)))


def bits_of(value: Any, width: int) -> Sequence[Any]:
    """The bits of a number of `width` bits, the least significant first: each a bool or a `Measured`."""
    if isinstance(value, BitString):
        return value.items
    return [applied(lambda number, k=k: number.bit(k), value) for k in range(width)]


def register_bits(value: Any) -> Sequence[Any] | None:
    """The bits of a register's value, the least significant first; None for any other value."""
    if isinstance(value, BitString):
        return value.items
    return bits_of(value, value.width) if isinstance(value, FixedWidth) and value.kind == "bit" else None


def joined(value: Any) -> Any:
    """A bit string as one value."""
    if not isinstance(value, BitString):
        return value
    return applied(lambda *bits: bit_string(bits), *value.items)


def number(value: Any) -> Any:
    """A value as a number for arithmetic."""
    if isinstance(value, FixedWidth):
        return TURN * value.value / (1 << value.width) if value.kind == "angle" else value.value
    if isinstance(value, bool | int | float | complex):
        return value
    raise Mistake("calculates with something that is not a number", "use numbers and bits")


def truth(value: Any) -> bool:
    """A value as a condition."""
    return bool(value.value if isinstance(value, FixedWidth) else number(value))


def integer(value: Any) -> int:
    """A value that has to be a whole number."""
    plain = number(value)
    if isinstance(plain, float) and plain.is_integer():
        plain = int(plain)
    if not isinstance(plain, int) or (isinstance(value, FixedWidth) and value.kind == "angle"):
        raise Mistake(f"uses {described(value)} for a whole number", "give an int or a uint")
    return int(plain)


def real(value: Any) -> float:
    """A value that has to be a finite real number."""
    plain = number(value)
    if isinstance(plain, complex):
        raise Mistake(f"uses {described(value)} for a real number", "give a real number")
    try:
        result = plain if isinstance(plain, DualNumber) else float(plain)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise Mistake(f"has the number {result}", "let all numbers be finite")
    return result


def as_complex(value: Any) -> complex:
    """A value as a complex number."""
    plain = number(value)
    return plain if isinstance(plain, complex) else complex(real(plain))


def wrapped(kind: str, width: int, value: int) -> FixedWidth:
    """The lowest bits of an integer, as a number of a kind."""
    low = value & ((1 << width) - 1)
    if kind == "int" and low >> (width - 1):
        low -= 1 << width
    return FixedWidth(kind, width, low)


def described(value: Any) -> str:
    """A value for messages."""
    if isinstance(value, FixedWidth):
        return f"{value.kind}[{value.width}] {value}"
    return "a measured value" if isinstance(value, Measured | BitString) else written(value)


def written(value: Any) -> str:
    """A number for messages. Python refuses to write integers of very many digits."""
    if isinstance(value, int) and value.bit_length() > LONGEST_WRITTEN:
        return f"an integer of {value.bit_length()} bits"
    return str(value)[:40]


def converted(value: Any, kind: Type) -> Any:
    """A value as the type that a variable or a cast has."""
    if isinstance(value, BitString) and kind.kind == "bit" and kind.width == len(value.items):
        return value
    return applied(lambda plain: _converted(plain, kind), value)


def _converted(value: Any, kind: Type) -> Any:
    convert = _CONVERSIONS.get(kind.kind)
    if convert is None:
        raise Mistake(f"has a value of type {kind}", "use bool, bit, int, uint, float, angle or complex")
    return convert(value, kind.width)


def _to_integer(value: Any, kind: str, width: int | None) -> Any:
    if isinstance(value, FixedWidth) and value.kind == "angle":
        raise Mistake(f"converts an angle to {kind}", "cast it to bits first")
    plain = value.value if isinstance(value, FixedWidth) else number(value)
    if isinstance(plain, float):
        plain = math.trunc(real(plain))
    if isinstance(plain, complex):
        raise Mistake(f"converts a complex number to {kind}", "take its real part")
    if width is not None:
        return wrapped(kind, width, int(plain))
    if kind == "uint" and plain < 0:
        raise Mistake(f"converts {written(plain)} to uint", "give 0 or more")
    return int(plain)


def _to_float(value: Any, width: int | None) -> float:
    plain = real(value)
    if width == 32:
        _check_not_rounded(plain, "float[32]")
        return float(np.float32(plain))
    return plain


def _check_not_rounded(value: float, kind: str) -> None:
    """Refuse to round a number that carries derivatives: it would change in steps."""
    if isinstance(value, DualNumber):
        raise Mistake(
            f"rounds to {kind} a value whose derivative is asked for", "use float, or angle without width"
        )


def _to_angle(value: Any, width: int | None) -> Any:
    if width is None:
        return real(value)
    if isinstance(value, FixedWidth) and value.kind == "bit":
        return wrapped("angle", width, value.value)
    if isinstance(value, FixedWidth) and value.kind == "angle":
        shift = width - value.width
        return wrapped("angle", width, value.value << shift if shift >= 0 else value.value >> -shift)
    plain = real(value)
    _check_not_rounded(plain, f"angle[{width}]")
    return wrapped("angle", width, round(math.fmod(plain, TURN) / TURN * (1 << width)))


def _to_bits(value: Any, width: int | None) -> Any:
    if width is None:
        return truth(value)
    if isinstance(value, FixedWidth):
        if value.width != width:
            raise Mistake(f"converts {value.kind}[{value.width}] to bit[{width}]", "use one width")
        return wrapped("bit", width, value.value)
    plain = integer(value)
    if not 0 <= plain < 1 << width:
        raise Mistake(f"converts {written(plain)} to bit[{width}]", f"give 0 to 2^{width} - 1")
    return wrapped("bit", width, plain)


_CONVERSIONS: dict[str, Callable[[Any, int | None], Any]] = {
    "bool": lambda value, width: truth(value),
    "bit": _to_bits,
    "int": lambda value, width: _to_integer(value, "int", width),
    "uint": lambda value, width: _to_integer(value, "uint", width),
    "float": _to_float,
    "angle": _to_angle,
    "complex": lambda value, width: as_complex(value),
}
