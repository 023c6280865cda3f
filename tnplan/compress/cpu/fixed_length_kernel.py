"""The numba kernels of the coder `fast`: a tile's mask, then its significant elements in fixed-length blocks.

An element is significant where any component is not 0; one mask serves all components. Layout of a tile, in
32-bit words, little-endian (an empty tile has none):

    word 0       number of significant elements, plus DENSE where there is no mask and all 4096 are stored
    masked only  64 bits: which 64-bit words of the mask are not 0; a byte for each of those: which of its
                 bytes are not 0; those bytes
    rates        for each component a byte for each block of 32 stored elements: how many planes it has
                 (mask and rates are filled up to a whole word)
    planes       for each component, block and plane a word: bit i of plane p is bit p of element i's
                 zigzag number 2 |q| - (q > 0)

Imported lazily.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import kernel

jit = kernel(keeps_subnormals=True, nogil=True, error_model="numpy")
int64: Any = np.int64

TILE = 4096
BLOCK = 32
DENSE = 1 << 16
DENSE_FROM = 3840
"""Significant elements from which zeros among them cost less than the mask."""
MOST_PLANES = 32
MASK_BYTES = 4 + 8 + TILE // 64 + TILE // 8 + 3
"""The most bytes of a tile's head: its first word, mask and filling."""


@jit
def encode(q: Any, out: Any, sizes: Any, work: Any) -> Any:
    """Encode q (components, tiles * 4096) int32 into bytes; sizes gets the bytes of each tile. Returns their
    sum, or -1 where `out` is too small. `work`: a mask (uint8, 512), places (int64, 4096), a block (uint32).
    """
    # One tile after another. Invariant: before a tile is written the longest one fits,
    # so that nothing below needs a test.
    components = q.shape[0]
    mask, stored, zigzag = work
    end = 0
    for t in range(sizes.size):
        start = end
        count = _significant(q, t * TILE, mask, stored)
        sizes[t] = 0
        if count == 0:
            continue
        dense = count >= DENSE_FROM
        most = TILE if dense else count
        blocks = (most + BLOCK - 1) // BLOCK
        if end + MASK_BYTES + components * blocks * (1 + 4 * MOST_PLANES) > out.size:
            return -1
        _put_word(count | DENSE if dense else count, out, end)
        end += 4
        if dense:
            for i in range(TILE):
                stored[i] = t * TILE + i
        else:
            end = _put_mask(mask, out, end)
        rates = end
        end += components * blocks
        while (end - start) % 4:
            out[end] = 0
            end += 1
        for c in range(components):
            for b in range(blocks):
                places = stored[b * BLOCK : min(most, b * BLOCK + BLOCK)]
                planes = _put_block(q[c], places, out, end, zigzag)
                out[rates + c * blocks + b] = planes
                end += 4 * planes
        sizes[t] = end - start
    return end


@jit
def _significant(q: Any, first: Any, mask: Any, stored: Any) -> Any:
    """How many elements of the tile from `first` are not 0; their places go to `stored`."""
    count = 0
    for i in range(TILE // 8):
        byte = 0
        for k in range(8):
            element = first + 8 * i + k
            if q[0, element] != 0 or (q.shape[0] == 2 and q[1, element] != 0):
                byte |= 1 << k
                stored[count] = element
                count += 1
        mask[i] = byte
    return count


@jit
def _put_block(q: Any, places: Any, out: Any, end: Any, zigzag: Any) -> Any:
    """Write the planes of up to 32 numbers from out[end] on; returns how many."""
    # Zigzag numbers are small where |q| is small, whatever the sign: so the planes above the
    # largest one are all 0 and are left out.
    union = np.uint32(0)
    for i in range(places.size, BLOCK):
        zigzag[i] = np.uint32(0)
    for i in range(places.size):
        number = int64(q[places[i]])
        zigzag[i] = 2 * number - 1 if number > 0 else -2 * number
        union |= zigzag[i]
    planes = 0
    while planes < MOST_PLANES and (int64(union) >> planes) != 0:
        planes += 1
    for p in range(planes):
        word = np.uint32(0)
        for i in range(BLOCK):
            word |= ((zigzag[i] >> np.uint32(p)) & np.uint32(1)) << np.uint32(i)
        _put_word(word, out, end + 4 * p)
    return planes


@jit
def _put_word(word: Any, out: Any, at: Any) -> None:
    for k in range(4):
        out[at + k] = (int64(word) >> (8 * k)) & 255


@jit
def _put_mask(mask: Any, out: Any, end: Any) -> Any:
    # A mask in three levels: 64 bits for the words of 64 elements, a byte for the bytes of each
    # word that is not 0, these bytes. Sparse tiles cost little more than their significant
    # elements.
    top = end
    end += 8
    for k in range(8):
        out[top + k] = 0
    for w in range(TILE // 64):
        any_bits = 0
        for k in range(8):
            any_bits |= mask[8 * w + k]
        if any_bits:
            out[top + w // 8] |= 1 << (w % 8)
    for w in range(TILE // 64):
        if (out[top + w // 8] >> (w % 8)) & 1:
            byte = 0
            for k in range(8):
                if mask[8 * w + k]:
                    byte |= 1 << k
            out[end] = byte
            end += 1
    for i in range(TILE // 8):
        if mask[i]:
            out[end] = mask[i]
            end += 1
    return end


@jit
def decode(data: Any, sizes: Any, q: Any, work: Any) -> Any:
    """Fill q (components, tiles * 4096) from the bytes of all tiles; 0 where they make no sense, else 1.
    `work`: places (int64, 4096), a block (uint32)."""
    # Invariant: `data` is not trusted: every length is compared with the end before it is used, and
    # all bytes have to be used up.
    start = 0
    for t in range(sizes.size):
        first = t * TILE
        for c in range(q.shape[0]):
            for i in range(TILE):
                q[c, first + i] = 0
        size = sizes[t]
        if size == 0:
            continue
        if size < 4 or size % 4 or start + size > data.size:
            return 0
        if not _decode_tile(data[start : start + size], first, work, q):
            return 0
        start += size
    return int64(start == data.size)


@jit
def _decode_tile(data: Any, first: Any, work: Any, q: Any) -> Any:
    stored, zigzag = work
    head = int64(data[0]) | int64(data[1]) << 8 | int64(data[2]) << 16 | int64(data[3]) << 24
    at = 4
    count = head & (DENSE - 1)
    most = count
    if head & DENSE:
        most = TILE
        for i in range(TILE):
            stored[i] = first + i
    else:
        at = _take_mask(data, first, count, stored)
    if at < 0 or count < 1 or count > TILE or head >= 2 * DENSE:
        return False
    blocks = (most + BLOCK - 1) // BLOCK
    rates = at
    at += q.shape[0] * blocks
    at += -at % 4
    if at > data.size:
        return False
    for c in range(q.shape[0]):
        for b in range(blocks):
            planes = int64(data[rates + c * blocks + b])
            if planes > MOST_PLANES or at + 4 * planes > data.size:
                return False
            for i in range(BLOCK):
                zigzag[i] = np.uint32(0)
            for p in range(planes):
                word = np.uint32(0)
                for k in range(4):
                    word |= np.uint32(data[at + k]) << np.uint32(8 * k)
                at += 4
                for i in range(BLOCK):
                    zigzag[i] |= ((word >> np.uint32(i)) & np.uint32(1)) << np.uint32(p)
            for i in range(min(BLOCK, most - b * BLOCK)):
                half = int64(zigzag[i] >> np.uint32(1))
                q[c, stored[b * BLOCK + i]] = half + 1 if zigzag[i] & np.uint32(1) else -half
    return at == data.size


@jit
def _take_mask(data: Any, first: Any, count: Any, stored: Any) -> Any:
    """Where the mask ends, or -1; `stored` gets the places of the significant elements."""
    if data.size < 12:
        return -1
    n_groups = 0
    for w in range(TILE // 64):
        n_groups += (data[4 + w // 8] >> (w % 8)) & 1
    group = 12
    at = group + n_groups
    n_stored = 0
    for w in range(TILE // 64):
        if not (data[4 + w // 8] >> (w % 8)) & 1:
            continue
        if group >= data.size:
            return -1
        for k in range(8):
            if not (data[group] >> k) & 1:
                continue
            if at >= data.size:
                return -1
            for bit in range(8):
                if (data[at] >> bit) & 1:
                    stored[n_stored] = first + 64 * w + 8 * k + bit
                    n_stored += 1
            at += 1
        group += 1
    return at if n_stored == count else -1
