"""Which terms a propagation may drop; and which stay where there may be only so many.

The largest stay, or a sample without bias. Knows coefficients and words as arrays; no table of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError

NO_LIMIT = 2**30
"""More than a weight, a number of letters or a frequency can be."""
TRUNCATE = "drop terms (--min-coefficient, --max-weight)"
"""What helps where terms are too many."""


@dataclass(frozen=True)
class Truncation:
    """What a Pauli propagation drops; None and 0 drop nothing.

    All but `branch_cut` act after every `every` steps, and after the last.

    Parameters
    ----------
    branch_cut
        What a step adds to another word is dropped, before merging, where its magnitude is below this.
    merged_cut
        A term is dropped where the magnitude of its coefficient, after merging, is below this.
    max_weight
        The largest number of qubits that a word may act on.
    max_xy
        The largest number of letters X and Y that a word may have.
    max_frequency
        The largest number of rotations that may split a term, counted along the shortest way to it.
    max_terms
        The number of terms that are kept: those of largest magnitude.
    every
        Steps between two truncations.

    Raises
    ------
    InputError
        For values that cannot be.

    Examples
    --------
    >>> tnplan.Truncation(branch_cut=1e-4, max_weight=8).every
    1
    """

    branch_cut: float = 0.0
    merged_cut: float = 0.0
    max_weight: int | None = None
    max_xy: int | None = None
    max_frequency: int | None = None
    max_terms: int | None = None
    every: int = 1

    def __post_init__(self) -> None:
        for name, cut in (
            ("--branch-cut", self.branch_cut), ("--min-coefficient (merged_cut)", self.merged_cut),
        ):  # fmt: skip
            if not is_number(cut) or not 0 <= cut < float("inf"):
                raise InputError(name, f"is {cut!r}", "give a finite number, 0 or more")
        for name in ("max_weight", "max_xy", "max_frequency"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_count(name, getattr(self, name), 0, NO_LIMIT - 1))
        if self.max_terms is not None:
            object.__setattr__(self, "max_terms", check_count("max_terms", self.max_terms))
        object.__setattr__(self, "every", check_count("every", self.every))

    @property
    def needs_letters(self) -> bool:
        """Whether the letters of a word decide, so that Cliffords must be applied where they stand."""
        return self.max_weight is not None or self.max_xy is not None

    @property
    def limits(self) -> TermLimits:
        """The limits that a term alone decides upon, as numbers."""
        limits = (self.max_weight, self.max_xy, self.max_frequency)
        weight, xy, frequency = (NO_LIMIT if limit is None else limit for limit in limits)
        return TermLimits(float(self.merged_cut), weight, xy, frequency, self.needs_letters)


class TermLimits(NamedTuple):
    """What a sweep drops: terms below `merged_cut` or past a limit; `has_letters`: any of weight and XY."""

    merged_cut: float
    max_weight: int
    max_xy: int
    max_frequency: int
    has_letters: bool

    @property
    def has_frequency(self) -> bool:
        """Whether frequencies are limited, so that they must be followed."""
        return self.max_frequency < NO_LIMIT
