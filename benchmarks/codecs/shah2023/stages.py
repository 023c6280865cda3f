"""Stages before and after a base coder: threshold, grouping, and what is done to the bitmap (V-B, V-C, VI-B).

Knows flat float32 arrays and bytes; never which base coder follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.errors import CodecError

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
    compress = _lz4().compress
    return _sized(compress(chunk.tobytes(), store_size=False) for chunk in _chunks(bitmap))


def unpack_lz4(data: bytes, size: int) -> Bytes:
    """The bitmap of `size` bytes; ValueError for bytes that make no sense."""
    block = _lz4()
    bitmap = np.empty(size, np.uint8)
    at = 0
    for chunk in _chunks(bitmap):
        (length,) = struct.unpack_from("<I", data, at)
        try:
            chunk[:] = np.frombuffer(block.decompress(data[at + 4 : at + 4 + length], chunk.size), np.uint8)
        except (ValueError, block.LZ4BlockError):
            raise ValueError("the bytes are no LZ4 block of this size") from None
        at += 4 + length
    return bitmap


def pack_nvcomp(bitmap: Bytes) -> bytes:
    """As `pack_lz4`, by nvCOMP on the current GPU; `unpack_lz4` reads its blocks, which may be others."""
    from nvidia import nvcomp

    codec = nvcomp.Codec(algorithm="LZ4", bitstream_kind=nvcomp.BitstreamKind.RAW)
    chunks = [nvcomp.as_array(chunk).cuda() for chunk in _chunks(bitmap)]
    return _sized(np.asarray(codec.encode(chunk).cpu()).tobytes() for chunk in chunks)


def _lz4() -> Any:
    """The library's block format; CodecError where it is not installed."""
    try:
        from lz4 import block
    except ImportError:
        raise CodecError("LZ4", "needs lz4", "install it with: pip install lz4") from None
    return block


def _chunks(bitmap: Bytes) -> Iterator[Bytes]:
    return (bitmap[start : start + LZ4_CHUNK] for start in range(0, bitmap.size, LZ4_CHUNK))


def _sized(blocks: Iterable[bytes]) -> bytes:
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
