"""The coder `fast`: the sizes of the tiles as 32-bit words, then their bytes (`cpu.fixed_length_kernel`).

Knows whole numbers in tile order; never values or bounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.stream import damaged_unless


def encode(q: NDArray[np.int32], most_bytes: int) -> bytes | None:
    """The bytes of q (components, tiles * 4096), or None where they are more than `most_bytes`."""
    from tnplan.compress.cpu import fixed_length_kernel

    sizes = np.empty(q.shape[1] // TILE, np.int64)
    # The kernel checks before each tile that its worst case fits.
    out = np.empty(most_bytes + 2 * TILE * q.shape[0] * q.itemsize, np.uint8)
    mask, places, block = np.empty(TILE // 8, np.uint8), *_work()
    end = int(fixed_length_kernel.encode(q, out, sizes, (mask, places, block)))
    if end < 0 or end + 4 * sizes.size > most_bytes:
        return None
    return sizes.astype("<u4").tobytes() + out[:end].tobytes()


def decode(data: NDArray[np.uint8], q: NDArray[np.int32], place: str) -> None:
    """Fill q from what `encode` returned; StreamError, naming `place`, where it makes no sense."""
    from tnplan.compress.cpu import fixed_length_kernel

    n_tiles = q.shape[1] // TILE
    damaged_unless(data.size >= 4 * n_tiles, place)
    sizes = data[: 4 * n_tiles].view("<u4").astype(np.int64)
    damaged_unless(bool(fixed_length_kernel.decode(data[4 * n_tiles :], sizes, q, _work())), place)


def _work() -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Memory for the places of a tile, and for a block."""
    return np.empty(TILE, np.int64), np.empty(32, np.uint32)
