"""Stages before and after a base coder: threshold, grouping, and what is done to the bitmap (V-B, V-C, VI-B).

Knows flat float32 arrays and bytes; never which base coder follows.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]
Bytes = NDArray[np.uint8]

LZ4_CHUNK = 1 << 16
_U64 = struct.Struct("<Q")


def threshold(values: Values, limit: float) -> Values:
    """Eq. 3: a copy in which magnitudes up to the limit are 0."""
    return np.where(np.abs(values) <= np.float32(limit), np.float32(0), values)


def group(values: Values) -> tuple[Bytes, Values]:
    """The bitmap of what is not 0 (bit i % 8 of byte i // 8), and the significant values in order."""
    significant = values != 0
    return np.packbits(significant, bitorder="little"), values[significant]


def ungroup(bitmap: Bytes, significant: Values, size: int) -> Values:
    """The array of `size` values that was grouped."""
    values = np.zeros(size, np.float32)
    values[np.unpackbits(bitmap, count=size, bitorder="little").astype(bool)] = significant
    return values


def pack_raw(bitmap: Bytes) -> bytes:
    """The bitmap as it is."""
    return bitmap.tobytes()


def unpack_raw(data: bytes, size: int) -> Bytes:
    """The bitmap of `size` bytes."""
    return np.frombuffer(data, np.uint8, size)


def pack_two_level(bitmap: Bytes) -> bytes:
    """Fig. 7: a second bitmap of the bytes that are not 0, then those bytes."""
    filled = bitmap != 0
    return np.packbits(filled, bitorder="little").tobytes() + bitmap[filled].tobytes()


def unpack_two_level(data: bytes, size: int) -> Bytes:
    """The bitmap of `size` bytes."""
    head = -(-size // 8)
    top = np.frombuffer(data, np.uint8, head)
    bitmap = np.zeros(size, np.uint8)
    bitmap[np.unpackbits(top, count=size, bitorder="little").astype(bool)] = np.frombuffer(
        data[head:], np.uint8
    )
    return bitmap


def pack_lz4(bitmap: Bytes) -> bytes:
    """Chunks of 64 KiB in the block format of LZ4, each after its size (u32)."""
    from tnplan.compress.shah2023 import lz4_kernel

    out = np.empty(LZ4_CHUNK + LZ4_CHUNK // 255 + 16, np.uint8)
    table = np.empty(1 << lz4_kernel.HASH_LOG2, np.int64)
    parts = []
    for start in range(0, bitmap.size, LZ4_CHUNK):
        size = lz4_kernel.encode(bitmap[start : start + LZ4_CHUNK], out, table)
        parts.append(struct.pack("<I", size) + out[:size].tobytes())
    return b"".join(parts)


def unpack_lz4(data: bytes, size: int) -> Bytes:
    """The bitmap of `size` bytes."""
    from tnplan.compress.shah2023 import lz4_kernel

    bitmap = np.empty(size, np.uint8)
    at = 0
    for start in range(0, size, LZ4_CHUNK):
        (length,) = struct.unpack_from("<I", data, at)
        body = np.frombuffer(data, np.uint8, length, at + 4)
        if not lz4_kernel.decode(body, bitmap[start : start + LZ4_CHUNK]):
            raise ValueError("the bytes are no LZ4 block of this size")
        at += 4 + length
    return bitmap


def pack_nvcomp(bitmap: Bytes) -> bytes:
    """As `pack_lz4`, by nvCOMP on the current GPU; `unpack_lz4` reads its blocks, which may be others."""
    from nvidia import nvcomp

    codec = nvcomp.Codec(algorithm="LZ4", bitstream_kind=nvcomp.BitstreamKind.RAW)
    starts = range(0, bitmap.size, LZ4_CHUNK)
    chunks = [nvcomp.as_array(bitmap[start : start + LZ4_CHUNK]).cuda() for start in starts]
    blocks = [np.asarray(codec.encode(chunk).cpu()).tobytes() for chunk in chunks]
    return b"".join(struct.pack("<I", len(block)) + block for block in blocks)


BITMAPS = {
    "raw": (pack_raw, unpack_raw),
    "2L": (pack_two_level, unpack_two_level),
    "LZ4": (pack_lz4, unpack_lz4),
    "nvCOMP": (pack_nvcomp, unpack_lz4),
}


def join(*parts: bytes) -> bytes:
    """Parts one after another, each after its size (u64)."""
    return b"".join(_U64.pack(len(part)) + part for part in parts)


def split(data: bytes, count: int) -> list[bytes]:
    """The `count` parts that were joined."""
    parts, at = [], 0
    for _ in range(count):
        (size,) = _U64.unpack_from(data, at)
        parts.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return parts
