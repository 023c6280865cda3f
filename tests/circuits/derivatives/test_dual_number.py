"""Dual numbers: slopes of formulas against differences, copies, and what gives plain numbers."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tnplan.circuits.derivatives.dual_number import (
    DualNumber,
    has_slopes,
    lifted,
    slopes_of,
    with_slopes,
)

FORMULAS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: 2 + a - b, lambda a, b: 3 - a * b, lambda a, b: a / b + b / 2 + 1 / a,
    lambda a, b: a**3 - b**0.5, lambda a, b: 2**a + a**b, lambda a, b: -a + abs(-b) + (+a),
    lambda a, b: (a + b) * (a - b) / (1 + a * a), lambda a, b: sum([a, b, a]), lambda a, b: a * a * a,
]  # fmt: skip
FUNCTIONS = (
    math.sin, math.cos, math.tan, math.exp, math.log, math.sqrt, math.asin, math.acos, math.atan,
)  # fmt: skip


def pair() -> tuple[DualNumber, DualNumber]:
    return DualNumber(0.7, {"a": 1.0}), DualNumber(1.3, {"b": 1.0})


@pytest.mark.parametrize("formula", FORMULAS)
def test_slopes_are_derivatives(formula: Callable[[Any, Any], Any]) -> None:
    a, b, h = 0.7, 1.3, 1e-6
    found = formula(*pair())
    assert float(found) == formula(a, b)
    wanted = {
        "a": (formula(a + h, b) - formula(a - h, b)) / (2 * h),
        "b": (formula(a, b + h) - formula(a, b - h)) / (2 * h),
    }
    for name in ("a", "b"):
        assert slopes_of(found).get(name, 0.0) == pytest.approx(wanted[name], abs=1e-8)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_carry_slopes(function: Callable[[float], float]) -> None:
    a, h = 0.7, 1e-6
    found = lifted(function, DualNumber(a, {"a": 2.0}))
    assert found == function(a)
    wanted = 2 * (function(a + h) - function(a - h)) / (2 * h)
    assert slopes_of(found) == {"a": pytest.approx(wanted, abs=1e-7)}
    assert not has_slopes([lifted(function, a)])


def test_what_is_unknown_gives_plain_numbers() -> None:
    a, _ = pair()
    for plain in (math.floor(a), lifted(math.floor, a), math.sin(a), float(a), 1j * a):
        assert not has_slopes([plain])
    assert slopes_of(with_slopes(2.0, a, 3.0)) == {"a": 3.0}
    assert with_slopes(2.0, 5.0) == 2.0


def test_copies_keep_slopes() -> None:
    a, b = pair()
    for one in (copy.deepcopy(a * b), pickle.loads(pickle.dumps(a * b))):
        assert float(one) == 0.7 * 1.3
        assert one.slopes == {"a": 1.3, "b": 0.7}
