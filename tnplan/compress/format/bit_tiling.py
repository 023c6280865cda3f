"""The order of elements in a frame: tiles of 4096, each along 12 of the frame's binary axes.

Element number e of a frame has bits; those in `axes` are its place in the tile, the others, ascending, the
tile's number. Axes other than the lowest twelve are only for frames that they divide evenly. Tensors of
quantum circuits are alike along some axes and not along others, so the axes are chosen on a sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.stream import TILE_LOG2

TILE = 1 << TILE_LOG2
NATURAL = tuple(range(TILE_LOG2))

LANE_AXES = 5
PIECE_BYTES = 32
"""The lowest axes stay in the tile of `fast`, in the lanes of `small`, so that a GPU moves whole sectors."""
SAMPLE = 1 << 14
CLASSES = 6
"""A class is the bit length of a magnitude, at most CLASSES - 1: of an element and its neighbours along
each axis pairs of classes are counted."""
LOG2_BITS = 20
"""Logarithms are whole numbers of units of 2^-20, which a CPU and a GPU find alike."""


def usable_axes(axes: tuple[int, ...], n_elements: int) -> tuple[int, ...]:
    """`axes` where they divide the elements of a frame evenly, else the lowest ones."""
    return axes if n_elements % (2 << max(axes)) == 0 else NATURAL


def tile_count(n_elements: int) -> int:
    """The tiles of a frame; the last one may be filled up."""
    return -(-n_elements // TILE)


def local_offsets(axes: tuple[int, ...]) -> NDArray[np.int64]:
    """The offset in the frame of each place in a tile, in elements."""
    return deposit(np.arange(TILE, dtype=np.int64), axes)


def tile_offsets(axes: tuple[int, ...], n_elements: int) -> NDArray[np.int64]:
    """The first element of each tile."""
    count = tile_count(n_elements)
    n_bits = TILE_LOG2 + max(count - 1, 0).bit_length() + TILE_LOG2
    return deposit(np.arange(count, dtype=np.int64), tuple(bit for bit in range(n_bits) if bit not in axes))


def deposit(numbers: NDArray[np.int64], axes: tuple[int, ...]) -> NDArray[np.int64]:
    """Bit j of each number moved to bit axes[j]."""
    placed = np.zeros_like(numbers)
    for j, axis in enumerate(axes):
        placed |= ((numbers >> j) & 1) << axis
    return placed


def sampled(n_elements: int) -> NDArray[np.uint64]:
    """The numbers of SAMPLE elements among so many, by SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = np.arange(1, SAMPLE + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) % np.uint64(n_elements))


def times_log2(most: int) -> NDArray[np.int64]:
    """n log2 n in units of 2^-LOG2_BITS, of whole numbers from 0 to `most`, below 2^31."""
    numbers = np.arange(most + 1)
    return numbers * whole_log2(np.maximum(numbers, 1), LOG2_BITS)


def whole_log2(numbers: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Logarithms in units of 2^-bits, rounded down, of whole numbers from 1, below 2^31: squares of a number
    from 1 to 2 give the bits of its logarithm."""
    log2 = np.frexp(numbers.astype(np.float64))[1].astype(np.int64) - 1
    power = numbers.astype(np.uint64) << (31 - log2).astype(np.uint64)
    for _ in range(bits):
        power = power * power >> np.uint64(31)
        bit = power >> np.uint64(32)
        log2 = 2 * log2 + bit.astype(np.int64)
        power >>= bit
    return log2


LOGS = times_log2(SAMPLE)


def ranked_axes(counts: NDArray[np.integer]) -> list[int]:
    """The axes, those first along which neighbours tell most about each other: by the entropy of an element's
    class given the neighbour's, in thousandths of a bit, from counts (axes, CLASSES, CLASSES) of SAMPLE
    pairs: of an element, and of its neighbour."""
    pairs = LOGS.take(counts.reshape(len(counts), -1)).sum(axis=1)
    classes = LOGS.take(counts.sum(axis=1)).sum(axis=1)
    unit = SAMPLE << LOG2_BITS
    axes: list[int] = (((classes - pairs) * 1000 + unit // 2) // unit).argsort(kind="stable").tolist()
    return axes


def tile_axes(ranked: list[int], coder: str, element_bytes: int) -> tuple[int, ...]:
    """Twelve of the ranked axes as a coder wants them: `fast` the telling ones first (its masks are of eight
    neighbours), `small` last (its contexts are earlier rounds, its lanes the other axes)."""
    piece_axes = (PIECE_BYTES // element_bytes).bit_length() - 1
    if coder == "small":
        first = [axis for axis in ranked if axis >= piece_axes][: TILE_LOG2 - LANE_AXES]
        others = sorted(set(ranked) - set(first))[:LANE_AXES]
        return (*others, *reversed(first))
    first = [axis for axis in ranked if axis >= piece_axes][: TILE_LOG2 - piece_axes]
    return tuple(axis for axis in ranked if axis < piece_axes or axis in first)
