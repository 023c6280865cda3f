"""Operators and functions of OpenQASM on values that are known. Plain functions; `applied` lifts them.

Integers of a width wrap, as in C: two of them give the wider one. An integer without a width, such as a
literal, takes any size. A quotient of two integers is an integer, cut off towards 0.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable
from typing import Any

from tnplan.circuits.derivatives.dual_number import lifted
from tnplan.circuits.qasm.values import (
    FixedWidth,
    Mistake,
    as_complex,
    described,
    integer,
    number,
    real,
    truth,
    wrapped,
    written,
)

LARGEST_BITS = 100_000
"""Bits of an integer: powers and shifts beyond are refused."""


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator on numbers, whose result has the width of its operands."""

    def calculate(a: Any, b: Any) -> Any:
        # Angles are whole numbers of 2^-width turns: their sums are exact, and wrap.
        if isinstance(a, FixedWidth) and isinstance(b, FixedWidth) and a.kind == b.kind == "angle":
            return wrapped("angle", max(a.width, b.width), _turned(function, a, b))
        x, y = number(a), number(b)
        try:
            return _sized(function(x, y), a, b)
        except ZeroDivisionError:
            raise Mistake("divides by 0", "give another divisor") from None
        except OverflowError:
            raise Mistake("has a number that is too large", "let all numbers be finite") from None
        except ValueError:  # of math.fmod
            raise Mistake(
                "has a remainder that is not a number", "divide finite numbers, and not by 0"
            ) from None
        except TypeError:
            raise Mistake(f"calculates with {described(a)} and {described(b)}", "use other types") from None

    return calculate


def _turned(function: Callable[[Any, Any], Any], a: FixedWidth, b: FixedWidth) -> int:
    """The sum or difference of two angles, as an integer of the wider width."""
    width = max(a.width, b.width)
    if function not in (operator.add, operator.sub):
        raise Mistake("multiplies or divides two angles", "cast one to float")
    return int(function(a.value << (width - a.width), b.value << (width - b.width)))


def _sized(result: Any, a: Any, b: Any) -> Any:
    """An integer result in the width of integer operands: both, or none where one has none."""
    if not isinstance(result, int) or isinstance(result, bool):
        return result
    if result.bit_length() > LARGEST_BITS:
        raise Mistake("has an integer that is too large", f"let integers have {LARGEST_BITS} bits at most")
    if not (isinstance(a, FixedWidth) and isinstance(b, FixedWidth)):
        return result
    if "bit" in (a.kind, b.kind):
        return result
    kind = "int" if a.kind == b.kind == "int" else "uint"
    return wrapped(kind, max(a.width, b.width), result)


def _divide(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        quotient = abs(x) // abs(y)
        return quotient if (x < 0) == (y < 0) else -quotient
    return x / y


def _divide_as_real(x: Any, y: Any) -> Any:
    return _divide(x, y) if isinstance(x, int) and isinstance(y, int) and x % y == 0 else x / y


def cut_quotient(a: Any, b: Any) -> tuple[int, int] | None:
    """The two numbers where they are integers whose quotient leaves a rest, which `/` drops."""
    x, y = number(a), number(b)
    return (x, y) if isinstance(x, int) and isinstance(y, int) and y != 0 and x % y else None


def _remainder(x: Any, y: Any) -> Any:
    return x - y * _divide(x, y) if isinstance(x, int) and isinstance(y, int) else math.fmod(x, y)


def _power(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int) and y >= 0 and x.bit_length() * y > LARGEST_BITS:
        raise Mistake("has an integer that is too large", f"let integers have {LARGEST_BITS} bits at most")
    return x**y


def integer_power(a: Any, b: Any) -> Any:
    """The power of two numbers; refused for integers whose power is none."""
    x, y = number(a), number(b)
    if isinstance(x, int) and isinstance(y, int) and y < 0 and abs(x) > 1:
        raise Mistake(
            f"has {written(x)}**({written(y)}) of integers, which is not an integer",
            "write a decimal point, as in 2.0**-1",
        )
    return BINARY["**"](a, b)


def _bitwise(function: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    def calculate(a: Any, b: Any) -> Any:
        if isinstance(a, bool) and isinstance(b, bool):
            return bool(function(a, b))
        widths = [operand for operand in (a, b) if isinstance(operand, FixedWidth)]
        if not widths:
            return function(integer(a), integer(b))
        widest = max(widths, key=lambda operand: operand.width)
        return wrapped(widest.kind, widest.width, function(_bits(a), _bits(b)))

    return calculate


def _bits(value: Any) -> int:
    return value.value if isinstance(value, FixedWidth) else integer(value)


def _shift(left: bool) -> Callable[[Any, Any], Any]:
    def calculate(a: Any, b: Any) -> Any:
        places = integer(b)
        if not 0 <= places <= LARGEST_BITS:
            raise Mistake(f"shifts by {written(places)}", f"shift by 0 to {LARGEST_BITS}")
        shifted = _bits(a) << places if left else _bits(a) >> places
        if isinstance(a, FixedWidth):
            return wrapped(a.kind, a.width, shifted)
        return shifted

    return calculate


def _compare(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def calculate(a: Any, b: Any) -> bool:
        if isinstance(a, FixedWidth) and isinstance(b, FixedWidth) and a.kind == b.kind:
            width = max(a.width, b.width)
            if a.kind == "angle":
                # Angles of two widths are compared at the finer one.
                return function(a.value << (width - a.width), b.value << (width - b.width))
            return function(a.value, b.value)
        try:
            return bool(function(number(a), number(b)))
        except TypeError:
            raise Mistake("compares complex numbers", "compare their parts") from None

    return calculate


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": _arithmetic(operator.add), "-": _arithmetic(operator.sub), "*": _arithmetic(operator.mul),
    "/": _arithmetic(_divide), "%": _arithmetic(_remainder), "**": _arithmetic(_power),
    "&": _bitwise(operator.and_), "|": _bitwise(operator.or_), "^": _bitwise(operator.xor),
    "<<": _shift(True), ">>": _shift(False),
    "==": _compare(operator.eq), "!=": _compare(operator.ne), "<": _compare(operator.lt),
    ">": _compare(operator.gt), "<=": _compare(operator.le), ">=": _compare(operator.ge),
    "&&": lambda a, b: truth(a) and truth(b), "||": lambda a, b: truth(a) or truth(b),
}  # fmt: skip
REAL_QUOTIENT = _arithmetic(_divide_as_real)
"""`/` of version 2: the quotient of real numbers; an integer where integers leave no rest."""


def _inverted(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, FixedWidth):
        return wrapped(value.kind, value.width, ~value.value)
    return ~integer(value)


def _negative(value: Any) -> Any:
    if isinstance(value, FixedWidth) and value.kind != "bit":
        return wrapped(value.kind, value.width, -value.value)
    return -number(value)


UNARY: dict[str, Callable[[Any], Any]] = {"-": _negative, "~": _inverted, "!": lambda value: not truth(value)}


def _function(on_real: Callable[[float], float], on_complex: Callable[..., Any] | None) -> Any:
    def calculate(value: Any) -> Any:
        plain = number(value)
        try:
            if isinstance(plain, complex) and on_complex is not None:
                return on_complex(plain)
            return lifted(on_real, real(plain))
        except (ValueError, OverflowError, ZeroDivisionError):
            problem = f"takes a function of {written(plain)}"
            raise Mistake(problem, "give a number where it has a value") from None

    return calculate


def _rotated(sign: int) -> Callable[[Any, Any], Any]:
    def calculate(a: Any, b: Any) -> Any:
        if not isinstance(a, FixedWidth):
            raise Mistake("rotates a value that has no width", "give bit[n] or uint[n]")
        places = sign * integer(b) % a.width
        low = a.value & ((1 << a.width) - 1)
        return wrapped(a.kind, a.width, low << places | low >> (a.width - places))

    return calculate


def _popcount(value: Any) -> int:
    if isinstance(value, bool | FixedWidth):
        return _bits(value).bit_count()
    raise Mistake("counts the bits of a value that has no width", "give bit[n] or uint[n]")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": _function(math.sin, cmath.sin), "cos": _function(math.cos, cmath.cos),
    "tan": _function(math.tan, cmath.tan), "exp": _function(math.exp, cmath.exp),
    "arcsin": _function(math.asin, None), "arccos": _function(math.acos, None),
    "arctan": _function(math.atan, None), "log": _function(math.log, cmath.log),
    "sqrt": _function(math.sqrt, cmath.sqrt), "floor": _function(math.floor, None),
    "ceiling": _function(math.ceil, None), "mod": BINARY["%"],
    "real": lambda value: as_complex(value).real, "imag": lambda value: as_complex(value).imag,
    "popcount": _popcount, "rotl": _rotated(1), "rotr": _rotated(-1),
}  # fmt: skip
FUNCTIONS_2 = {
    name: FUNCTIONS[name] for name in ("sin", "cos", "tan", "exp", "sqrt")
} | {"ln": FUNCTIONS["log"], "asin": FUNCTIONS["arcsin"], "acos": FUNCTIONS["arccos"],
     "atan": FUNCTIONS["arctan"]}  # fmt: skip
ARGUMENTS = {"mod": 2, "rotl": 2, "rotr": 2}
"""Of functions that do not take one argument."""
