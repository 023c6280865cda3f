"""The opposite-spin part of H on a CPU: tables of beta's excitations, and rows made from them.

    y[Ia, Ib] += sum over excitations Ja to Ia of pq, Jb to Ib of rs of +-(pq|rs) x[Ja, Jb]

Every pair of excitations is visited once, so that the work is the number of contributing elements, with some
alpha excitations in the SIMD lanes of one instruction. Number operators, of which many meet in one element,
are summed before. On a GPU the part goes by tiles: active pairs of beta, side by side with the strings that
they excite (`pair_tiles`).

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


PART = 16
"""Active pairs whose products lie in shared memory at once."""
PARTS = 2
"""Of a tile."""
ROWS = PART * PARTS
"""Active pairs of a tile."""
LANES = 32
"""Columns of a warp."""
PADDING = 8
"""Between rows of products, so that rows begin in different banks."""
WARPS, FEW_WARPS = 6, 4
"""Of a block of threads, each with LANES columns of a tile; few for at most FEW beta strings."""
FEW = 4800
"""Of which a multiprocessor can hold the sums of three blocks."""
NEIGHBOURS = 16
"""Beta strings that stay side by side in a tile: 128 bytes of fp64."""
MOST_STRINGS = 1 << 18
"""Targets that fit in an entry of `PairTiles.slots` with an element."""
AHEAD = 3
"""Tiles beyond the last whose columns are read, though not used."""
SIGN = 1 << 12
"""What says that an element is subtracted; numbers of elements are below it."""
NONE = 0xFFFFFFFF
"""A slot without an element."""
DEEP, MOST = 8, 64
"""Excitations of a row that are multiplied at once, and whose coefficients are stored at once."""


class PairTiles(NamedTuple):
    """Active pairs ROWS m .. ROWS (m + 1) - 1 have tiles start[m] .. start[m + 1] - 1.

    columns [tiles + AHEAD, warp, 8, 4]: the beta string of column 8 n + c of a warp at [c, n], any where
    there is none. slots [turn, thread, 4]: elements (pair % PART) * (LANES * warps + PADDING) + column, plus
    SIGN where one is subtracted, plus 2 * SIGN * its target; those of a target side by side in one thread, or
    last in four, and then the first four threads of the warp have such a target. Part q % PARTS of tile
    q / PARTS has turn q and turns more[q] .. more[q + 1] - 1.
    """

    start: Array
    columns: Array
    more: Array
    slots: Array

    @property
    def size_bytes(self) -> int:
        """The memory of the tables."""
        return sum(table.nbytes for table in self)


def block_warps(n_beta: int) -> int:
    """The warps of a block, for states of so many beta strings."""
    return FEW_WARPS if n_beta <= FEW else WARPS


def pair_tiles(bounds: Array, entries: Array, n_active: int, warps: int) -> PairTiles:
    """Tiles of excitations as `OppositeSpinTables` keeps them, for blocks of so many warps.

    Beta string j gets entries[bounds[2 j] .. bounds[2 j + 2] - 1], each an active pair and a source; those
    from bounds[2 j + 1] on are subtracted.
    """
    n_columns, n_beta = LANES * warps, len(bounds) // 2
    target = np.repeat(np.arange(n_beta), np.diff(bounds[::2]))
    minus = np.arange(len(entries)) >= bounds[1::2][target]
    pair, source = entries.astype(np.int64).T
    start, strings, column = _columns(pair // ROWS, source, -(-n_active // ROWS), n_columns)
    columns = np.zeros((int(start[-1]) + AHEAD) * n_columns, np.int32)
    at = np.arange(len(strings))
    columns[at // LANES * LANES + at % 8 * 4 + at % LANES // 8] = strings
    part = column // n_columns * PARTS + pair % ROWS // PART
    element = pair % PART * (n_columns + PADDING) + column % n_columns
    more, slots = _dealt(part, target, element, minus, int(start[-1]) * PARTS, n_columns)
    return PairTiles(start.astype(np.int32), columns.reshape(-1, warps, 8, 4), more, slots)


def _dealt(
    part: Array, target: Array, element: Array, minus: Array, n_parts: int, n_threads: int
) -> tuple[Array, Array]:
    """`more` and `slots` of a `PairTiles`; after the first turns of parts come empty ones, to be read."""
    from tnplan.executor.sbd.sigma import opposite_spin_kernel

    order = np.lexsort((target, part))
    part, target, element = part[order], target[order], element[order]
    words = (element + minus[order] * SIGN + 2 * SIGN * target).astype(np.uint32)
    heads = np.flatnonzero(np.diff(part, prepend=-1) | np.diff(target, prepend=-1))
    sizes = np.diff(heads, append=len(part))
    cells = np.where(sizes == 1, opposite_spin_kernel.cell.function(words[heads]), 0)
    order = np.lexsort((cells, -sizes, part[heads]))
    heads, sizes = heads[order], sizes[order]
    bounds = np.searchsorted(part[heads], np.arange(n_parts + 1))
    # Threads for targets of more than half of what one takes, then for all elements.
    per_thread = opposite_spin_kernel.TAKEN
    if sizes.max(initial=0) > per_thread * per_thread:
        raise ValueError(f"a target has {sizes.max()} elements in a part, and threads take {per_thread**2}")
    wide = np.where(
        sizes > per_thread, 2 * per_thread, np.where(2 * sizes > per_thread, 2, 2 * sizes == per_thread)
    )
    n_elements = np.where(sizes > per_thread, per_thread * per_thread, sizes)
    threads, elements = (np.bincount(part[heads], count, n_parts) for count in (wide, n_elements))
    turns = -(-np.maximum(-(-threads // 2), -(-elements // per_thread)) // n_threads)
    more = n_parts + PARTS + np.concatenate([[0], np.cumsum(np.maximum(turns - 1, 0))]).astype(np.int32)
    slots = np.full((int(more[-1]), n_threads, per_thread), NONE, np.uint32)
    dealt = np.empty(((1 + int(np.diff(more).max(initial=0))) * n_threads, per_thread), np.uint32)
    counts = np.empty(opposite_spin_kernel.COUNTS, np.int64)
    opposite_spin_kernel.deal(bounds, heads, sizes, words, more, dealt, counts, slots)
    return more, slots


def tile_counts(row: Array, source: Array, n_rows: int, n_columns: int) -> Array:
    """How many tiles each row of tiles has, for excitations with these rows of tiles and sources."""
    width = int(source.max(initial=0)) + 1
    n_strings = np.bincount(np.unique(row * width + source) // width, minlength=n_rows)
    return np.asarray(-(-n_strings // n_columns))


def _columns(row: Array, source: Array, n_rows: int, n_columns: int) -> tuple[Array, Array, Array]:
    """The tiles of each row of tiles, the strings of all columns, and the column of each excitation."""
    width = int(source.max(initial=0)) + 1
    keys, inverse = np.unique(row * width + source, return_inverse=True)
    row, string = keys // width, keys % width
    first = np.searchsorted(row, np.arange(n_rows + 1))
    counts = -(-np.diff(first) // n_columns)
    start = np.concatenate([[0], np.cumsum(counts)])
    # Blocks of neighbours are dealt to the tiles of their row in turn, so that a target comes rarely in each.
    block = np.unique(row * (width // NEIGHBOURS + 1) + string // NEIGHBOURS, return_inverse=True)[1]
    turn = (block - block[first[row]]) % counts[row] if len(keys) else block
    order = np.lexsort((block, turn, row))
    at = np.empty_like(order)
    at[order] = start[row[order]] * n_columns + np.arange(len(keys)) - first[row[order]]
    strings = np.zeros(int(start[-1]) * n_columns, np.int64)
    strings[at] = string
    return start, strings, at[inverse]
