"""The order of elements in a frame: tiles of 4096, each along 12 of the frame's binary axes.

Element number e of a frame has bits; those in `axes` are its place in the tile, the others, ascending, the
tile's number. Axes other than the lowest twelve are only for frames that they divide evenly. Tensors of
quantum circuits are alike along some axes and not along others, so the axes are chosen on a sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compress.stream import TILE_LOG2

TILE = 1 << TILE_LOG2
NATURAL = tuple(range(TILE_LOG2))

LANE_AXES = 5
SECTOR_AXES = 2
"""The lowest axes stay in the tile, so that a GPU reads whole sectors of 32 bytes."""
SAMPLE = 1 << 14
CLASSES = 6


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
    rest = [bit for bit in range(TILE_LOG2 + max(count - 1, 0).bit_length() + TILE_LOG2) if bit not in axes]
    return deposit(np.arange(count, dtype=np.int64), tuple(rest))


def deposit(numbers: NDArray[np.int64], axes: tuple[int, ...]) -> NDArray[np.int64]:
    """Bit j of each number moved to bit axes[j]."""
    placed = np.zeros_like(numbers)
    for j, axis in enumerate(axes):
        placed |= ((numbers >> j) & 1) << axis
    return placed


def ranked_axes(magnitudes: NDArray[np.int64]) -> list[int]:
    """The axes, those first along which neighbours tell most about each other.

    `magnitudes` (axes + 1, samples): row 0 the magnitudes of sampled elements, whole numbers from 0 up, row
    k + 1 those of their neighbours along axis k. Ranked by the entropy of the magnitude's class given the
    neighbour's.
    """
    classes = np.minimum(np.ceil(np.log2(1.0 + magnitudes)), CLASSES - 1).astype(np.int64)
    entropies = [_entropy(classes[0] * CLASSES + row) - _entropy(row) for row in classes[1:]]
    return [int(axis) for axis in np.argsort(np.array(entropies).round(3), kind="stable")]


def tile_axes(ranked: list[int], coder: str) -> tuple[int, ...]:
    """Twelve of the ranked axes as a coder wants them: `fast` the telling ones first (its masks are of eight
    neighbours), `small` last (its contexts are earlier rounds, its lanes the other axes)."""
    first = ranked[: TILE_LOG2 - (LANE_AXES if coder == "small" else SECTOR_AXES)]
    others = sorted(set(ranked) - set(first))[: TILE_LOG2 - len(first)]
    return (*others, *reversed(first)) if coder == "small" else (*first, *others)


def _entropy(classes: NDArray[np.int64]) -> float:
    counts = np.bincount(classes)
    shares = counts[counts > 0] / classes.size
    return float(-(shares * np.log2(shares)).sum())
