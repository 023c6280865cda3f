"""Values without loss: bit planes of all elements, one behind the other, through Zstandard.

Equal bits of neighbours become runs, and repeated parts of an array are found again. What is left of eight
elements stands behind the planes as it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.stream import damaged_unless

LEVEL = 6
Bytes = NDArray[np.uint8]


def encode(data: Bytes, item_bytes: int) -> bytes:
    """The bytes of elements of so many bytes."""
    import zstandard

    from tnplan.compress.cpu import shuffle_kernel

    shuffled = np.empty_like(data)
    shuffle_kernel.shuffle(data, item_bytes, shuffled)
    return zstandard.ZstdCompressor(level=LEVEL).compress(shuffled.data)


def decode(packed: Bytes, item_bytes: int, out: Bytes, place: str) -> None:
    """Fill `out` from what `encode` returned; StreamError, naming `place`, where it makes no sense."""
    import zstandard

    from tnplan.compress.cpu import shuffle_kernel

    try:
        # Its own statement of the size is checked before there is memory for it.
        good = zstandard.frame_content_size(packed.data) == out.size
        data = zstandard.ZstdDecompressor().decompress(packed.data) if good else b""
    except zstandard.ZstdError:
        data = b""
    damaged_unless(len(data) == out.size, place)
    shuffle_kernel.unshuffle(np.frombuffer(data, np.uint8), item_bytes, out)
