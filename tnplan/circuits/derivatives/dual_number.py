"""Real numbers that carry their derivatives by named parameters through arithmetic: dual numbers.

Only what is here carries them. A function of a library gives a plain number, without derivatives: who uses
them has to check that none were lost (`varied_program`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate

_DERIVATIVES: dict[Callable[[float], float], Callable[[float], float]] = {
    math.sin: math.cos, math.cos: lambda x: -math.sin(x), math.tan: lambda x: 1 / math.cos(x) ** 2,
    math.exp: math.exp, math.log: lambda x: 1 / x, math.sqrt: lambda x: 0.5 / math.sqrt(x),
    math.asin: lambda x: 1 / math.sqrt(1 - x * x), math.acos: lambda x: -1 / math.sqrt(1 - x * x),
    math.atan: lambda x: 1 / (1 + x * x),
}  # fmt: skip
"""Of functions that files may use; where one has no derivative, it divides by 0."""


@dataclass(frozen=True)
class Varied:
    """The value of a parameter by which derivatives are wanted: a number or its text, plus a shift."""

    value: Any
    shift: float = 0.0

    def number(self, name: str, value: float) -> DualNumber:
        """The number, its value having been read, with the slope 1 by the parameter of this name."""
        return DualNumber(value + self.shift, {name: 1.0})


class DualNumber(float):
    """A number, and `slopes`: its derivative by each parameter that it depends on.

    Examples
    --------
    >>> a = DualNumber(2.0, {"a": 1.0})
    >>> (3 * a + a / 2).slopes
    {'a': 3.5}
    """

    __slots__ = ("slopes",)
    slopes: Mapping[str, float]

    def __new__(cls, value: float, slopes: Mapping[str, float]) -> DualNumber:
        """A number with its slopes."""
        number = super().__new__(cls, value)
        number.slopes = dict(slopes)
        return number

    def __getnewargs__(self) -> tuple[float, Mapping[str, float]]:  # type: ignore[override]
        """What a copy is made of."""
        return float(self), self.slopes

    def __add__(self, other: Any) -> Any:
        return _combined(float.__add__(self, other), (self, 1.0), (other, 1.0))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _combined(float.__sub__(self, other), (self, 1.0), (other, -1.0))

    def __rsub__(self, other: Any) -> Any:
        return _combined(float.__rsub__(self, other), (self, -1.0), (other, 1.0))

    def __mul__(self, other: Any) -> Any:
        return _combined(float.__mul__(self, other), (self, other), (other, float(self)))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        value = float.__truediv__(self, other)
        if value is NotImplemented:
            return value
        return _combined(value, (self, 1.0 / other), (other, -float(value) / float(other)))

    def __rtruediv__(self, other: Any) -> Any:
        value = float.__rtruediv__(self, other)
        if value is NotImplemented:
            return value
        return _combined(value, (self, -float(value) / float(self)), (other, 1.0 / float(self)))

    def __pow__(self, other: Any, modulus: None = None) -> Any:
        return _power(float.__pow__(self, other), self, other)

    def __rpow__(self, other: Any, modulus: None = None) -> Any:
        return _power(float.__rpow__(self, other), other, self)

    def __neg__(self) -> DualNumber:
        return _combined(float.__neg__(self), (self, -1.0))

    def __pos__(self) -> DualNumber:
        return self

    def __abs__(self) -> DualNumber:
        return -self if self < 0 else self


def slopes_of(value: Any) -> Mapping[str, float]:
    """The derivatives of a number: none of a plain one."""
    return value.slopes if isinstance(value, DualNumber) else {}


def has_slopes(values: Any) -> bool:
    """Whether some of the values depend on parameters."""
    return any(isinstance(value, DualNumber) for value in values)


def with_slopes(value: float, source: Any, factor: float = 1.0) -> float:
    """A number that changes by `factor` times what another one changes by."""
    return _combined(value, (source, factor)) if isinstance(source, DualNumber) else value


def lifted(function: Callable[[float], float], value: float) -> float:
    """A function of a number, with its slopes where the derivative of the function is known."""
    result = function(float(value))
    if not isinstance(value, DualNumber) or function not in _DERIVATIVES:
        return result
    return with_slopes(result, value, _DERIVATIVES[function](float(value)))


def _combined(value: Any, *parts: tuple[Any, Any]) -> Any:
    """A number whose slopes are the sum of those of some numbers, each times a factor."""
    if not isinstance(value, float):  # NotImplemented, or complex
        return value
    slopes: dict[str, float] = {}
    for source, factor in parts:
        for name, slope in slopes_of(source).items():
            slopes[name] = slopes.get(name, 0.0) + float(factor) * slope
    return DualNumber(value, slopes)


def _power(value: Any, base: Any, exponent: Any) -> Any:
    if not isinstance(value, float):
        return value
    x, y = float(base), float(exponent)
    by_base = y * x ** (y - 1) if y else 0.0
    by_exponent = float(value) * math.log(x) if isinstance(exponent, DualNumber) else 0.0
    return _combined(value, (base, by_base), (exponent, by_exponent))


@dataclass(frozen=True, eq=False, repr=False)
class VariedGate(Gate):
    """A gate that parameters change. Its `params` are angles, of which some carry slopes (`DualNumber`).

    - `generators`: For each angle the matrix G with dU/dangle = G U, up to a phase of the whole gate.
    - `tangents`: By each parameter that the gate depends on: the derivative of its matrix, up to such a
      phase.
    """

    generators: tuple[np.ndarray, ...] = ()
    tangents: Mapping[str, np.ndarray] = field(default_factory=dict)
