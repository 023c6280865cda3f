"""Which way each part of a multiplication takes, what it needs of memory, and which rows each rank has.

Ranks have adjacent alpha rows of nearly equal work. Knows numbers of strings and excitations; no state.

The rates are those of one core, or of one GPU; only their ratios matter for a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.common.arrays import Array


@dataclass(frozen=True)
class Rates:
    """Operations a second of dense and sparse products within a spin, and seconds of the opposite-spin part.

    `value_s` is for an element of a row that an excitation brings, with its number operators; `product_s` for
    one of its products with an excitation of beta, or None where tiles make these.
    """

    gemm_flop_per_s: float
    sparse_flop_per_s: float
    value_s: float
    product_s: float | None


CPU = Rates(50e9, 17e9, 1e-9, 8e-11)
"""Rates of one core."""
GPU = Rates(62e12, 7.5e11, 1.7e-12, None)
"""On a GPU a sparse product reads 8 bytes for two operations, at about 3e12 bytes a second. A value is one of
`numbers`, as fe4s4 takes them on an H200 with a parity."""
STEP_S, VISIT_S, FAR_S = 1.24e-11, 2.4e-11, 2.3e-12
"""Seconds of a GPU for a column of a tile: for 8 excitations of a row; each time that products of up to 64
are stored and added; and for an excitation from a string more than FAR away, whose row of the state is rarely
in the caches that other blocks fill. Fitted to the opposite-spin part of fe4s4 on an H200: the rows of the
first and of the last of four ranks, all rows, and the ratio of the other two ranks. They make 51, 30 and 19 %
of it."""
FAR = 300
"""Strings between two rows that share cached rows of the state."""


def dense_is_faster(n_strings: int, n_linked: int, rates: Rates) -> bool:
    """Whether the same-spin product is faster with a dense matrix than by its nonzero elements."""
    return n_strings * n_strings / rates.gemm_flop_per_s <= n_linked / rates.sparse_flop_per_s


def spin_seconds(linked: Any, n_strings: int, rates: Rates) -> Any:
    """The part within a spin of alpha rows, for one beta string, from their elements of the alpha matrix."""
    return np.minimum(2 * linked / rates.sparse_flop_per_s, 2 * n_strings / rates.gemm_flop_per_s)


def dense_bytes(n_rows: int, n_strings: int) -> int:
    """The memory of rows of a dense same-spin matrix."""
    return 8 * n_rows * n_strings


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
