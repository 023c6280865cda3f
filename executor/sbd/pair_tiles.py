"""The mixed-spin part by tiles: active pairs of beta, side by side with the strings that they excite.

For a row i of alpha strings and a tile of ROWS active pairs a and some beta strings j',

    product[a, j'] = sum over excitations e of i of +-(pair of e | a) x[other of e, j']

is a product of matrices, and each excitation of beta, from j' to j by a, wants one of its elements:
y[i, j] +-= product[a, j']. A tile has only strings that one of its pairs excites. Its elements are dealt to
warps by their targets j and to groups in which no target comes twice, so that they are added without atomics
and in one order.

Knows excitations of beta; no integrals, no states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PART = 16
"""Active pairs whose products lie in shared memory at once."""
PARTS = 2
"""Of a tile."""
ROWS = PART * PARTS
LANES = 32
"""Targets of a group, and columns of a warp."""
PADDING = 8
"""Between rows of products, so that rows begin in different banks."""
WARPS = 6
"""Of a block of threads, each with LANES columns of a tile."""
NEIGHBOURS = 16
"""Beta strings that stay side by side in a tile: 128 bytes of fp64."""
SIGN = 1 << 13
"""In a place, what says that the element is subtracted."""
MOST_STRINGS = 1 << 18
"""Targets that fit in a place beside an element."""
WARP_TARGETS = 16
"""Targets side by side that a warp adds, then the next warp."""
MOST = 64
"""Excitations of a row whose coefficients are held at once."""


@dataclass(frozen=True)
class PairTiles:
    """Active pairs ROWS m .. ROWS (m + 1) - 1 have tiles start[m] .. start[m + 1] - 1.

    columns [tiles + 2, warp, 8, 4]: the beta string of column 8 n + c of a warp at [c, n], any where there
    is none. groups [PARTS * tiles * warps + 1]: the groups of a warp in a part of a tile. places [group,
    LANES, 2]: two elements of a target, 1 + (pair % PART) * (LANES * warps + PADDING) + column, 0 for none,
    plus SIGN where it is subtracted; in the first also 2 * SIGN * target.
    """

    start: Array
    columns: Array
    groups: Array
    places: Array

    @property
    def size_bytes(self) -> int:
        """The memory of the tables."""
        return sum(table.nbytes for table in (self.start, self.columns, self.groups, self.places))


def pair_tiles(bounds: Array, entries: Array, n_active: int, warps: int = WARPS) -> PairTiles:
    """Tiles of excitations as `MixedSpin` keeps them, for blocks of so many warps.

    Beta string j gets entries[bounds[2 j] .. bounds[2 j + 2] - 1], each an active pair and a source; those
    from bounds[2 j + 1] on are subtracted.
    """
    n_columns = LANES * warps
    target = np.repeat(np.arange(len(bounds) // 2), np.diff(bounds[::2]))
    minus = np.arange(len(entries)) >= bounds[1::2][target]
    pair, source = entries.astype(np.int64).T
    start, strings, slot = _columns(pair // ROWS, source, -(-n_active // ROWS), n_columns)
    columns = np.zeros((int(start[-1]) + 2) * n_columns, np.int32)
    at = np.arange(len(strings))
    columns[at // LANES * LANES + at % 8 * 4 + at % LANES // 8] = strings
    part = slot // n_columns * PARTS + pair % ROWS // PART
    place = 1 + pair % PART * (n_columns + PADDING) + slot % n_columns + minus * SIGN
    key = part * warps + target // WARP_TARGETS % warps
    order = np.lexsort((target, target % WARP_TARGETS, key))
    groups, places = _groups(key[order], target[order], place[order], int(start[-1]) * PARTS * warps)
    return PairTiles(
        start.astype(np.int32), columns.reshape(-1, warps, 8, 4), groups.astype(np.int32), places
    )


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


def _groups(key: Array, target: Array, place: Array, n_keys: int) -> tuple[Array, Array]:
    """Places in order of key and target, in groups of each key: two of a target side by side."""
    new = np.ones(len(key), bool)
    new[1:] = (key[1:] != key[:-1]) | (target[1:] != target[:-1])
    run = np.arange(len(key)) - np.flatnonzero(new)[np.cumsum(new) - 1]
    head = np.flatnonzero(run % 2 == 0)
    begin = np.searchsorted(key[head], np.arange(n_keys + 1))
    count = -(-np.diff(begin) // LANES)
    np.maximum.at(count, key[head], run[head] // 2 + 1)
    groups = np.concatenate([[0], np.cumsum(count)])
    at = np.arange(len(head)) - begin[key[head]]
    many = count[key[head]]
    spot = at // many
    places = np.zeros((int(groups[-1]), LANES, 2), np.uint32)
    where = groups[key[head]] + at % many, spot % 2 * (LANES // 2) + spot // 2
    places[*where, 0] = place[head] + 2 * SIGN * target[head]
    second = np.append(run, 0)[head + 1] % 2 == 1
    places[where[0][second], where[1][second], 1] = place[head[second] + 1]
    return groups, places
