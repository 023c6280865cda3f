"""The numba kernels between elements and their bit planes. Imported lazily.

Plane 8 b + k has bit k of byte b of every element, eight elements a byte, the first one lowest; what is
left of eight elements stands behind all planes as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import kernel

jit = kernel(keeps_subnormals=True, nogil=True, error_model="numpy")
inline = kernel(keeps_subnormals=True, nogil=True, error_model="numpy", inline="always")
uint64: Any = np.uint64


@inline
def transposed(word: Any) -> Any:
    """Bit i of byte k as bit k of byte i (Warren, Hacker's Delight, 7-3)."""
    # An 8 x 8 matrix of bits: blocks of 1, then 2, then 4 are exchanged across the diagonal.
    moved = (word ^ (word >> uint64(7))) & uint64(0x00AA00AA00AA00AA)
    word = word ^ moved ^ (moved << uint64(7))
    moved = (word ^ (word >> uint64(14))) & uint64(0x0000CCCC0000CCCC)
    word = word ^ moved ^ (moved << uint64(14))
    moved = (word ^ (word >> uint64(28))) & uint64(0x00000000F0F0F0F0)
    return word ^ moved ^ (moved << uint64(28))


@jit
def shuffle(data: Any, item_bytes: Any, planes: Any) -> None:
    """Fill `planes`, as many bytes as `data`."""
    # Eight bytes of the same significance are one word, and its transpose eight bytes of one plane
    # each.
    eights = data.size // (8 * item_bytes)
    for b in range(item_bytes):
        for i in range(eights):
            word = uint64(0)
            for k in range(8):
                word |= uint64(data[(8 * i + k) * item_bytes + b]) << uint64(8 * k)
            word = transposed(word)
            for k in range(8):
                planes[(8 * b + k) * eights + i] = (word >> uint64(8 * k)) & uint64(255)
    n_shuffled = 8 * item_bytes * eights
    planes[n_shuffled:] = data[n_shuffled:]


@jit
def unshuffle(planes: Any, item_bytes: Any, data: Any) -> None:
    """The reverse of `shuffle`."""
    eights = data.size // (8 * item_bytes)
    for b in range(item_bytes):
        for i in range(eights):
            word = uint64(0)
            for k in range(8):
                word |= uint64(planes[(8 * b + k) * eights + i]) << uint64(8 * k)
            word = transposed(word)
            for k in range(8):
                data[(8 * i + k) * item_bytes + b] = (word >> uint64(8 * k)) & uint64(255)
    n_shuffled = 8 * item_bytes * eights
    data[n_shuffled:] = planes[n_shuffled:]
