"""Cases of a test of which a few quick ones run in make test, and the others in make test-slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest


def slow_but(quick: tuple[str, ...], cases: Iterable[Any]) -> list[Any]:
    """Parameters, marked slow unless their names (of files, or texts) begin with one of `quick`."""
    return [
        pytest.param(case, id=name, marks=[] if name.startswith(quick) else [pytest.mark.slow])
        for case, name in ((case, case.stem if isinstance(case, Path) else str(case)) for case in cases)
    ]


def slow_after(n_quick: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters, marked slow but for the first `n_quick`."""
    return [
        pytest.param(case, marks=[] if number < n_quick else [pytest.mark.slow])
        for number, case in enumerate(cases)
    ]


def slow_unless(is_quick: Callable[..., bool], *factors: Sequence[Any]) -> list[Any]:
    """The product of some factors, marked slow unless `is_quick` of the places of a case in its factors."""
    return [
        pytest.param(
            *(factor[place] for factor, place in zip(factors, places, strict=True)),
            marks=[] if is_quick(*places) else [pytest.mark.slow],
        )
        for places in product(*(range(len(factor)) for factor in factors))
    ]
