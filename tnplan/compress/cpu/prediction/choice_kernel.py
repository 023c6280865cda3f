"""The numba kernels of the choice of a predictor: sampled values to tiles of numbers. Imported lazily."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.compress.cpu.prediction.interpolate_kernel import jit, split
from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.box import LARGEST_FINE

int32: Any = np.int32
LANES = 32


@jit
def whole_number(value: Any, unit: Any) -> Any:
    """A whole number of units; 0 for what is too large, or no number."""
    scaled = np.rint(np.float64(value) / unit)
    return int32(scaled) if np.abs(scaled) <= LARGEST_FINE else int32(0)


@jit
def count_beyond(values: Any, most: Any) -> Any:
    """How many of the values are larger than this."""
    count = 0
    for value in values.flat:
        count += np.float64(abs(value)) > most
    return count


@jit
def fill_plain(values: Any, steps: Any, turned: Any, tiles: Any) -> None:
    """The first tile of each box of values (boxes, points, components) as it is, filled up with zeros;
    `turned`: neighbours are in rounds instead of lanes."""
    tiles[:] = 0
    n_points = min(values.shape[1], TILE)
    for k in range(values.shape[0]):
        for c in range(values.shape[2]):
            for i in range(n_points):
                position = i % (TILE // LANES) * LANES + i // (TILE // LANES) if turned else i
                tiles[c, k * TILE + position] = whole_number(values[k, i, c], steps[c])


@jit
def fill_residuals(
    values: Any, units: Any, box: Any, lattices: Any, cubic: Any, fine: Any, residuals: Any, tiles: Any
) -> None:
    """The last tile of residuals of each box of values (boxes, points, components), filled up with zeros.
    fine and residuals (points) are for work."""
    tiles[:] = 0
    count = min(fine.size - 1, TILE)
    for k in range(values.shape[0]):
        for c in range(values.shape[2]):
            for i in range(fine.size):
                fine[i] = whole_number(values[k, i, c], units[c])
            split(fine, box, lattices, cubic, residuals)
            for i in range(count):
                tiles[c, k * TILE + i] = residuals[fine.size - count + i]
