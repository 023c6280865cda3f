"""Which alpha rows each rank holds: adjacent ones of nearly equal work.

Knows the work of rows; no array of a state and no communicator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.common.arrays import Array


@dataclass(frozen=True)
class RowPartition:
    """Rank r holds rows bounds[r] .. bounds[r+1]-1; some ranks may hold none."""

    bounds: tuple[int, ...]

    def rows(self, rank: int) -> tuple[int, int]:
        """The range of a rank."""
        return self.bounds[rank], self.bounds[rank + 1]

    def count(self, rank: int) -> int:
        """How many rows a rank holds."""
        return self.bounds[rank + 1] - self.bounds[rank]

    @property
    def most(self) -> int:
        """The most rows that a rank holds."""
        return max(self.count(rank) for rank in range(len(self.bounds) - 1))


def partition_rows(work: Sequence[float] | Array, size: int) -> RowPartition:
    """Ranges for `size` ranks; each boundary is where the running sum of work is nearest to its share."""
    sums = np.concatenate([[0.0], np.cumsum(work)])
    shares = sums[-1] * np.arange(1, size) / size
    after = np.searchsorted(sums, shares)
    before = np.maximum(after - 1, 0)
    nearest = np.where(shares - sums[before] <= sums[after] - shares, before, after)
    return RowPartition((0, *np.maximum.accumulate(nearest).tolist(), len(work)))
