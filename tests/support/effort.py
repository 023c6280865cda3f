"""How often random tests are repeated: so often as fits each run of the suite, or as the goals ask.

`TNPLAN_TESTS=thorough make test-slow` does the latter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def is_thorough() -> bool:
    """Whether the variable TNPLAN_TESTS is "thorough"."""
    return os.environ.get("TNPLAN_TESTS") == "thorough"


def repeats(of_suite: int, of_goal: int) -> int:
    """`of_goal` in thorough runs, else `of_suite`."""
    return of_goal if is_thorough() else of_suite


def in_turn(cases: Sequence[T], number: int, count: int = 1) -> Sequence[T]:
    """`count` of the cases of test `number`, so that tests with numbers in a row share them; in thorough
    runs all cases."""
    if is_thorough():
        return cases
    return [cases[(number * count + k) % len(cases)] for k in range(count)]
