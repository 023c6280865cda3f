"""Checks of plain values that callers pass in: counts and sizes. Knows no file and no option's meaning."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from math import isfinite
from numbers import Rational, Real
from typing import Any

from tnplan.common.errors import InputError


def check_count(place: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """`value` as an int from `least` to `most` (None: without end); anything else is refused."""
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1
    if isinstance(value, bool) or count < least or (most is not None and count > most):
        end = "up" if most is None else f"to {most}"
        raise InputError(place, f"is {value!r}", f"give an integer from {least} {end}")
    return count


def check_choice(place: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices."""
    names = tuple(choices)
    if value not in names:
        raise InputError(place, f"{value!r} is unknown", f"choose from {', '.join(names)}")


def check_kind(place: str, value: Any, kind: type) -> None:
    """Refuse a value that is there and of another kind."""
    if value is not None and not isinstance(value, kind):
        raise InputError(place, f"is {value!r}", f"give a {kind.__name__}")


def check_plots(place: str) -> None:
    """Refuse to draw where matplotlib is not installed: before the work whose result is to be drawn."""
    if find_spec("matplotlib") is None:
        raise InputError(
            place, "needs matplotlib", "install it with: pip install 'tnplan[plot]'", topic="installation"
        )


def is_number(value: Any) -> bool:
    """Whether a value is a real number, NaN and infinity among them, but no boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether a value is a real number, no boolean, within the range of floating point."""
    if not is_number(value):
        return False
    # Integers of any size compare exactly; math.isfinite and NumPy's fail with those that are too large.
    size: Any = abs(value)
    return bool(size <= sys.float_info.max) if isinstance(value, Rational) else isfinite(float(size))
