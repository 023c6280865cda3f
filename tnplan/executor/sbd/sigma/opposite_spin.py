"""The opposite-spin part of H on a CPU: tables of beta's excitations, and rows made from them.

    y[Ia, Ib] += sum over excitations Ja to Ia of pq, Jb to Ib of rs of +-(pq|rs) x[Ja, Jb]

Every pair of excitations is visited once, so that the work is the number of contributing elements, with some
alpha excitations in the SIMD lanes of one instruction. Number operators, of which many meet in one element,
are summed before.

Knows strings, excitations and integrals; nothing of the parts within a spin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.vector_operations import PRODUCT_LANES, VECTOR_BYTES
from tnplan.executor.sbd.basis.excitations import ActivePairs, Singles

SIMD_LANES = PRODUCT_LANES
"""Alpha excitations that one vector instruction sums at once."""
LINE_BYTES = VECTOR_BYTES
"""Weights and values begin on a cache line: loads across two take twice as long."""


class OppositeSpinTables(NamedTuple):
    """Tables of rows of alpha strings and of all beta strings; see `opposite_spin_kernel`.

    numbers [pair, beta string], active [pair, active pair], number_weights [row, active pair] and
    filled [row, orbital] are of one real type; bounds [2 beta strings + 1], entries [excitation, 2].
    """

    numbers: Array
    active: Array
    number_weights: Array
    filled: Array
    bounds: Array
    entries: Array

    def as_type(self, dtype: str) -> OppositeSpinTables:
        """The same in another precision."""
        names = "numbers", "active", "number_weights", "filled"
        return self._replace(**{name: getattr(self, name).astype(dtype, copy=False) for name in names})

    def scratch(self, dtype: Any, n_columns: int) -> tuple[Array, Array, Array]:
        """Of one thread: the rows, weights and values of the lanes, for rows of so many columns."""
        weights, values = (_aligned(count, dtype) for count in (self.active.shape[1], n_columns))
        return np.empty(SIMD_LANES, np.int64), weights, values


def opposite_spin_tables(
    two: Array, filled: Array, filled_beta: Array, singles: Singles, pairs: ActivePairs
) -> OppositeSpinTables:
    """Tables from integrals two[pair of alpha, pair of beta], filled orbitals, and beta's excitations."""
    # two[:, :n] are the integrals (pq|rr): times beta's occupations they sum over its number
    # operators. active[:n] are (pp|a), which alpha's occupations sum over in the same way.
    n = filled.shape[1]
    active = np.ascontiguousarray(two[:, pairs.pairs])
    bounds, entries = beta_entries(singles, pairs)
    return OppositeSpinTables(
        np.ascontiguousarray(two[:, :n] @ filled_beta.T), active, filled @ active[:n], filled, bounds, entries
    )


def beta_entries(singles: Singles, pairs: ActivePairs) -> tuple[Array, Array]:
    """`bounds` and `entries` of `OppositeSpinTables`: each string's positive excitations come first."""
    n_beta = len(singles.start) - 1
    target = np.repeat(np.arange(n_beta), np.diff(singles.start))
    negative = singles.sign < 0
    # Invariant: entries of a string with + come before those with -, so that a kernel needs no sign for each.
    order = np.lexsort((negative, target))
    entries = np.stack([pairs.active[singles.pairs], singles.other], 1)[order]
    bounds = np.searchsorted((2 * target + negative)[order], np.arange(2 * n_beta + 1))
    return bounds.astype(np.int64), np.ascontiguousarray(entries, np.int32)


def table_bytes(n_pairs: int, n_rows: int, n_beta: int, n_orbitals: int, active: int) -> int:
    """The memory of the tables of real numbers in fp64."""
    return 8 * (n_pairs * (n_beta + active) + n_rows * (active + n_orbitals))


def entries_bytes(n_beta: int, excitations: int) -> int:
    """The memory of beta's excitations."""
    return 8 * (2 * n_beta + 1 + excitations)


def scratch_bytes(n_beta: int, active: int) -> int:
    """What one thread needs besides the tables."""
    return 8 * SIMD_LANES * (n_beta + active + 1) + 2 * LINE_BYTES


def _aligned(n_rows: int, dtype: Any) -> Array:
    """An array [row, lane] that begins on a cache line, of zeros."""
    item = np.dtype(dtype).itemsize
    memory = np.zeros(n_rows * SIMD_LANES + LINE_BYTES // item, dtype)
    begin = -memory.ctypes.data % LINE_BYTES // item
    return memory[begin : begin + n_rows * SIMD_LANES].reshape(n_rows, SIMD_LANES)
