"""Which half-strings to carry over to a larger or another basis: those of most weight in a state.

Knows weights; nothing of Hamiltonians.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError

Array = NDArray[Any]


def carry_over(weights: Array, *, ratio: float | None = None, missing: float | None = None) -> Array:
    """The numbers of the strings to keep, by falling weight; those of equal weight in rising order.

    Either the share `ratio` of them, rounded up, or the fewest whose weights sum to 1 - `missing` or more.
    """
    if (ratio is None) == (missing is None):
        raise InputError("carry-over", "needs a ratio or a missing weight", "give one of the two")
    order = np.argsort(-weights, kind="stable")
    if ratio is not None:
        if not 0 < ratio <= 1:
            raise InputError("carry-over ratio", f"is {ratio}", "give a share above 0, and 1 at most")
        return order[: int(np.ceil(ratio * len(order) - 1e-12))]
    if missing is None or not 0 <= missing < 1:
        raise InputError("carry-over's missing weight", f"is {missing}", "give 0 or more, and less than 1")
    sums = np.cumsum(weights[order])
    needed = int(np.searchsorted(sums, (1 - missing) * sums[-1] - 1e-14)) + 1
    return order[: min(needed, len(order))]
