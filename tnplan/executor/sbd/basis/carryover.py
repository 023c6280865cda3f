"""Which half-strings to carry over to a larger or another basis: those of most weight in a state.

Knows weights; nothing of Hamiltonians.
"""

from __future__ import annotations

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checks import is_number
from tnplan.common.errors import InputError


def carry_over(weights: Array, *, ratio: float | None = None, missing: float | None = None) -> Array:
    """The numbers of the strings to keep, by falling weight; those of equal weight in rising order.

    Either the share `ratio` of them, rounded up, or the fewest whose weights sum to 1 - `missing` or more.
    """
    check_share(ratio, missing)
    order = np.argsort(-weights, kind="stable")
    if ratio is not None:
        return order[: int(np.ceil(ratio * len(order) - 1e-12))]
    assert missing is not None
    sums = np.cumsum(weights[order])
    needed = int(np.searchsorted(sums, (1 - missing) * sums[-1] - 1e-14)) + 1
    return order[: min(needed, len(order))]


def check_share(ratio: float | None, missing: float | None) -> None:
    """Refuse all but a ratio or a missing weight, one of the two, that can be."""
    if (ratio is None) == (missing is None):
        raise InputError(
            "--carryover", "needs a share or a weight, one of the two",
            "give --carryover-ratio or --carryover-missing",
        )  # fmt: skip
    if ratio is not None and not (is_number(ratio) and 0 < ratio <= 1):
        raise InputError("--carryover-ratio", f"is {ratio!r}", "give a share above 0, and 1 at most")
    if missing is not None and not (is_number(missing) and 0 <= missing < 1):
        raise InputError("--carryover-missing", f"is {missing!r}", "give 0 or more, and less than 1")
