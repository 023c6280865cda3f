"""What a selection of determinants is asked for: thresholds, sizes and the correction.

Knows numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tnplan.common.checks import check_count, is_finite, is_number
from tnplan.common.errors import InputError

FIRST, LAST, LEAST = 1e-2, 5e-4, 1e-7
"""Thresholds where none are given: from FIRST, each half of the one before, while they are above LAST; above
LEAST where the number of determinants ends the series."""

EPSILON_PT2 = 1e-7
"""Terms up to this, in Hartree, are left out of the second-order correction by default."""

MOST_SURPLUS = 100
"""Times the determinants that are asked for."""


@dataclass(frozen=True, repr=False)
class Growth:
    """How a list of determinants grows by heat-bath selection.

    Parameters
    ----------
    epsilons
        Thresholds in Hartree, falling. A determinant a is selected where |H_ai c_i| is above the threshold
        for some determinant i of the list. Default: 0.01 and its halves, down to 6.25e-4, or until
        there are so many `determinants`.
    determinants
        Determinants at most. The list first grows beyond, and is then cut to those of largest coefficients.
    epsilon_pt2
        Terms H_ai c_i up to this, in Hartree, are left out of the second-order correction. None: no
        correction.
    stable
        A threshold is done when it adds no more than this share of the list.
    surplus
        How many times `determinants` the list may have before it is cut, 1 or more.

    Raises
    ------
    InputError
        For values that cannot be.

    Examples
    --------
    >>> tnplan.Growth((1e-3, 5e-4), 100_000)
    Growth(2 thresholds from 0.001 to 0.0005 Ha, 100000 determinants at most)
    """

    epsilons: tuple[float, ...] = ()
    determinants: int | None = None
    epsilon_pt2: float | None = EPSILON_PT2
    stable: float = 0.01
    surplus: float = 2.0

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "epsilons", tuple(self.epsilons))
        except TypeError:
            remedy = "give a tuple of thresholds, such as (1e-2, 1e-3)"
            raise InputError("--epsilon", f"is {self.epsilons!r}", remedy) from None
        for value in self.epsilons:
            _check("--epsilon", value, "give Hartrees of 0 or more, such as 1e-3")
        for before, after in pairwise(self.epsilons):
            if not after < before:
                raise InputError(
                    "--epsilon", f"is {after:g} after {before:g}", "give thresholds that become smaller"
                )
        if self.determinants is not None:
            check_count("--grow-to", self.determinants)
        if self.epsilon_pt2 is not None:
            _check("--epsilon-pt2", self.epsilon_pt2, "give Hartrees of 0 or more, such as 1e-7")
        if not (is_number(self.stable) and 0 <= self.stable < 1):
            raise InputError("growth: stable", f"is {self.stable!r}", "give a share of 0 or more, below 1")
        if not (is_number(self.surplus) and 1 <= self.surplus <= MOST_SURPLUS):
            raise InputError("growth: surplus", f"is {self.surplus!r}", f"give 1 to {MOST_SURPLUS}")

    def __repr__(self) -> str:
        ends = f"{len(self.series)} thresholds from {self.series[0]:g} to {self.series[-1]:g} Ha"
        size = "" if self.determinants is None else f", {self.determinants} determinants at most"
        return f"Growth({ends}{size})"

    @property
    def most(self) -> int | None:
        """Determinants at most before the list is cut."""
        return None if self.determinants is None else int(self.determinants * self.surplus)

    @property
    def series(self) -> tuple[float, ...]:
        """All thresholds, in Hartree."""
        if self.epsilons:
            return self.epsilons
        last, made = LAST if self.determinants is None else LEAST, [FIRST]
        while made[-1] / 2 > last:
            made.append(made[-1] / 2)
        return tuple(made)

    @property
    def least_term(self) -> float:
        """Elements up to this are never asked for, since no coefficient is above 1."""
        return min(self.series if self.epsilon_pt2 is None else (*self.series, self.epsilon_pt2))


def _check(place: str, value: Any, remedy: str) -> None:
    if not (is_finite(value) and value >= 0):
        raise InputError(place, f"is {value!r}", remedy)
