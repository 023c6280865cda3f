"""The tiles of passes on a CPU, by the dtype of amplitudes. Knows no state."""

from __future__ import annotations

from tnplan.executor.statevector.scheduling.tiled_passes import Tile

TILES = {
    "complex64": Tile(16, 5, 4, rotations=True), "complex128": Tile(15, 4, 4, rotations=True)
}  # fmt: skip
"""Real and imaginary parts of a tile take 512 KiB, a part of the cache of one core."""
