"""The bytes of a compressed stream: a header, then frames, each with its checksum. All little-endian.

Knows fields and sizes; never what a payload means.

    header   magic, version, size, dtype, mode, coder, reflection, frame size, predictor, dimensions, bound,
             quantizers, axes (filled up to 16 bytes), shape, checksum
    frame    payload size u64, checksum u64, payload

Everything starts at a multiple of 8 bytes. A frame holds 2^frame_log2 elements in C order, the last one what
is left; under a predictor as many whole planes or rows as that holds. A mirrored stream holds the first half
of the elements, the middle one included, and under a predictor the rest of its row. Sizes are 64 bits wide.
The four bytes behind the axes are those of a predictor (`format.box.Predictor.pack_axes`), or 0.

Changelog of `tnplan.compressed`:
1 (2026-11-21): first version.
2 (2026-11-26): predictors (`format.box`), in the byte that was 0; frames without loss as bit planes. Streams
that have neither are written as version 1.
3 (2026-12-01): predictors over up to six axes, with batches, means, differences and strips.
4 (2026-12-01): frames under a predictor in another coder (`cpu.adaptive`), which no GPU reads or writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf, prod
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format import box
from tnplan.compress.format.box import REFLECTIONS, Predictor, is_predictor, unpack_predictor
from tnplan.compress.format.errors import CodecError, StreamError

FORMAT = "tnplan.compressed"
VERSION = 4
PREDICTED_VERSION = 3
LOSSLESS_VERSION = 2
FIRST_VERSION = 1
MAGIC = b"tnplanCZ"

DTYPES = ("float32", "float64", "complex64", "complex128")
_SINGLE: np.dtype[np.floating] = np.dtype(np.float32)
_DOUBLE: np.dtype[np.floating] = np.dtype(np.float64)
_PARTS = {
    "float32": (1, _SINGLE),
    "float64": (1, _DOUBLE),
    "complex64": (2, _SINGLE),
    "complex128": (2, _DOUBLE),
}
_LARGEST = {real: float(np.finfo(real).max) for real in (_SINGLE, _DOUBLE)}
MODES = ("lossless", "range", "absolute", "pointwise")
CODERS = ("lossless", "fast", "small")

LARGEST_NDIM = 64
TILE_LOG2 = 12
FRAME_LOG2 = 22
LARGEST_FRAME_LOG2 = 30
AXES_BYTES = 16

_FIXED = struct.Struct("<8sII6BHd")
_QUANTIZER = struct.Struct("<dQQQ")
_U64 = struct.Struct("<Q")
_FRAME = struct.Struct("<QQ")
FRAME_HEADER_BYTES = _FRAME.size

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_STIR = np.uint64(0xBF58476D1CE4E5B9)
_CHECK_WORDS = 1 << 15
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Quantizer:
    """How one component (real or imaginary part) becomes whole numbers, and back.

    Absolute bounds: the value of q is q * step, that of 0 the value whose bits are `zero_bits`; the step is a
    number of the array's own precision. Point-wise bounds (`bits_step` > 0): q = 0 is zero, else the bits of
    the magnitude are base_bits + (|q| - 1) * bits_step (`tnplan.compress.format.bounds`).
    """

    step: float = 0.0
    zero_bits: int = 0
    bits_step: int = 0
    base_bits: int = 0


@dataclass(frozen=True)
class Header:
    """What a stream says about itself. `axes`: bit j of an element's place in a tile is bit axes[j] of its
    number in the frame (`tnplan.compress.format.bit_tiling`), or of its residual's number where there is a
    predictor."""

    dtype: str
    shape: tuple[int, ...]
    mode: str
    bound: float
    coder: str
    reflection: str
    quantizers: tuple[Quantizer, ...]
    axes: tuple[int, ...] = tuple(range(TILE_LOG2))
    frame_log2: int = FRAME_LOG2
    predictor: Predictor | None = None
    version: int = FIRST_VERSION

    @property
    def size(self) -> int:
        """The elements of the array."""
        return prod(self.shape)

    @property
    def stored(self) -> int:
        """The elements that the frames hold: half of a mirrored array, in whole rows where there is a
        predictor."""
        if self.reflection == "none":
            return self.size
        half, row = (self.size + 1) // 2, box.box_of_shape(self.shape)[-1] if self.predictor else 1
        return min(self.size, -(-half // row) * row) if row else half

    @property
    def components(self) -> int:
        """1 for real arrays, 2 for complex ones."""
        return components(self.dtype)

    @property
    def real_dtype(self) -> np.dtype[np.floating]:
        """The dtype of a component."""
        return real_dtype(self.dtype)

    @property
    def frame_elements(self) -> int:
        """The elements of every frame but the last."""
        if self.predictor:
            return box.frame_elements(self.shape, self.frame_log2, self.predictor.early)
        return 1 << self.frame_log2

    def frames(self) -> Iterator[tuple[int, int]]:
        """First element and number of elements of each frame."""
        frame = self.frame_elements
        for start in range(0, self.stored, frame):
            yield start, min(frame, self.stored - start)


def components(dtype: str) -> int:
    """1 for a real dtype, 2 for a complex one."""
    return _PARTS[dtype][0]


def real_dtype(dtype: str) -> np.dtype[np.floating]:
    """The dtype of the real part."""
    return _PARTS[dtype][1]


def check_dtype(dtype: Any) -> None:
    """CodecError for what is none of `DTYPES` in native order."""
    if dtype.name not in DTYPES or not np.dtype(dtype).isnative:
        raise CodecError("array", f"has dtype {dtype}", f"give {', '.join(DTYPES)} in native order")


def checksum(data: bytes | memoryview | NDArray[np.uint8]) -> int:
    """A 64-bit checksum that is a sum over words, so that many threads can form it.

    Word i of the data (8 bytes, little-endian, the last one filled with zeros) is mixed with i and stirred;
    the words' sum modulo 2^64 starts from the length in bytes.
    """
    flat = np.frombuffer(data, np.uint8)
    total = flat.size
    n_words = flat.size // 8
    words = flat[: n_words * 8].view("<u8")
    for start in range(0, n_words, _CHECK_WORDS):
        total += _stirred(words[start : start + _CHECK_WORDS], start)
    if flat.size % 8:
        total += _stirred_word(int.from_bytes(flat[n_words * 8 :].tobytes(), "little"), n_words)
    return total & _MASK


def _stirred(words: NDArray[np.uint64], start: int) -> int:
    places = np.arange(start + 1, start + 1 + words.size, dtype=np.uint64)
    mixed = (words ^ (places * _GOLDEN)) * _STIR
    mixed ^= mixed >> np.uint64(32)
    mixed *= _GOLDEN
    mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


def _stirred_word(word: int, number: int) -> int:
    """What word `number` adds to a checksum."""
    golden = int(_GOLDEN)
    mixed = (word ^ (number + 1) * golden & _MASK) * int(_STIR) & _MASK
    mixed = (mixed ^ mixed >> 32) * golden & _MASK
    return mixed ^ mixed >> 29


def pack_header(header: Header) -> bytes:
    """The header's bytes, its checksum included."""
    size = header_size_bytes(len(header.shape), header.components)
    body = _FIXED.pack(
        MAGIC, header.version, size, DTYPES.index(header.dtype),
        MODES.index(header.mode), CODERS.index(header.coder), REFLECTIONS.index(header.reflection),
        header.frame_log2, header.predictor.code if header.predictor else 0, len(header.shape), header.bound,
    )  # fmt: skip
    for rule in header.quantizers:
        body += _QUANTIZER.pack(rule.step, rule.zero_bits, rule.bits_step, rule.base_bits)
    predicted = header.predictor.pack_axes() if header.predictor else 0
    body += bytes(header.axes) + struct.pack(f"<I{len(header.shape)}Q", predicted, *header.shape)
    return body + _U64.pack(checksum(body))


def header_size_bytes(ndim: int, n_components: int) -> int:
    """The size of a header."""
    return _FIXED.size + n_components * _QUANTIZER.size + AXES_BYTES + 8 * ndim + 8


def read_header(source: BinaryIO, *, checked: bool = True) -> Header:
    """The header of a stream; StreamError for anything that is none, or of another version. Where it is not
    `checked`, its fields are sound but its checksum is left to `check_header`."""
    # Invariant: nothing of the file says how much to read, or which entry of a table to take, before it
    # is checked itself: a damaged stream is refused, whatever its bytes are.
    fixed = _read(source, _FIXED.size, "its header")
    magic, version, size, dtype, mode, coder, reflection, frame_log2, predictor, ndim, bound = _FIXED.unpack(
        fixed
    )
    if magic != MAGIC:
        raise StreamError(
            "stream", "is not a compressed array of tnplan", "give what 'tnplan compress' wrote"
        )
    if not FIRST_VERSION <= version <= VERSION:
        raise StreamError(
            "stream", f"is version {version} of {FORMAT}", f"this tnplan reads {FIRST_VERSION} to {VERSION}"
        )
    if dtype >= len(DTYPES) or ndim > LARGEST_NDIM:
        raise _damaged("header")
    n_components = components(DTYPES[dtype])
    if size != header_size_bytes(ndim, n_components):
        raise _damaged("header")
    body = _read(source, size - _FIXED.size, "its header")
    if checked:
        check_header(fixed + body)
    end = n_components * _QUANTIZER.size
    axes = tuple(body[end : end + TILE_LOG2])
    valid = mode < len(MODES) and coder < len(CODERS) and reflection < len(REFLECTIONS)
    if not valid:
        raise _damaged("header")
    quantizers = tuple(Quantizer(*fields) for fields in _QUANTIZER.iter_unpack(body[:end]))
    packed_axes, *shape = struct.unpack(f"<I{ndim}Q", body[end + TILE_LOG2 : -8])
    try:
        chosen = unpack_predictor(predictor, packed_axes, tuple(shape))
    except ValueError:
        raise _damaged("header") from None
    header = Header(
        DTYPES[dtype],
        tuple(shape),
        MODES[mode],
        bound,
        CODERS[coder],
        REFLECTIONS[reflection],
        quantizers,
        axes,
        frame_log2,
        chosen,
        version,
    )
    if not _is_sound(header):
        raise _damaged("header")
    return header


def check_given(header: Header) -> None:
    """CodecError for a header that no stream can have, and that is not read from one."""
    try:
        sound = len(header.quantizers) == header.components and _is_sound(header)
    except (AttributeError, KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise CodecError(
            "header", "cannot be the header of any stream", "give the header of the stream, or leave it out"
        )


def check_same(expected: bytes, actual: bytes) -> None:
    """Refuse a stream whose header is not the `expected` one; both may go on with other bytes."""
    size = min(len(expected), len(actual))
    if expected[:size] != actual[:size]:
        raise StreamError(
            "stream", "begins with another header than the one given", "give its own header, or leave it out"
        )


def _is_sound(header: Header) -> bool:
    """Whether a header's numbers are ones that kernels may be given."""
    return (
        0 <= header.bound < inf
        and _is_cut(
            header.mode, header.coder, header.reflection, tuple(header.shape), tuple(header.axes),
            header.frame_log2,
        )
        and _sound(header.quantizers, header.real_dtype)
        and (header.predictor is None or _may_predict(header))
    )  # fmt: skip


def _may_predict(header: Header) -> bool:
    """Whether residuals of a predictor are what this header's coder and quantizers can have."""
    predictor = header.predictor
    return (
        predictor is not None and header.version >= (2 if predictor.early else 3)
        and is_predictor(predictor, header.shape)
        and header.coder == "small" and header.axes == tuple(range(TILE_LOG2))
        and box.may_be_smooth(header.shape)
        and all(rule.step > 0 and not (rule.zero_bits or rule.bits_step) for rule in header.quantizers)
    )  # fmt: skip


@lru_cache(64)
def _is_cut(
    mode: str, coder: str, reflection: str, shape: tuple[int, ...], axes: tuple[int, ...], frame_log2: int
) -> bool:
    """Whether an array can be cut into frames and tiles like this."""
    return (
        mode in MODES and coder in CODERS and reflection in REFLECTIONS
        and len(shape) <= LARGEST_NDIM and min(shape, default=0) >= 0
        and TILE_LOG2 <= frame_log2 <= LARGEST_FRAME_LOG2
        and len(axes) == len(set(axes)) == TILE_LOG2 and min(axes) >= 0 and max(axes) < frame_log2
    )  # fmt: skip


def check_header(data: bytes) -> None:
    """Refuse a header whose checksum is wrong; `data` may go on behind it."""
    size = _FIXED.unpack_from(data)[2]
    if _U64.unpack_from(data, size - _U64.size)[0] != checksum(data[: size - _U64.size]):
        raise _damaged("header")


def _sound(rules: tuple[Quantizer, ...], real: np.dtype[np.floating]) -> bool:
    """Whether quantizers' numbers are ones that real numbers of this dtype can have."""
    largest, sign_bit = _LARGEST[real], 1 << (8 * real.itemsize - 1)
    return all(
        0 <= rule.step <= largest and rule.zero_bits < 2 * sign_bit
        and rule.bits_step < sign_bit and rule.base_bits < sign_bit
        for rule in rules
    )  # fmt: skip


def frame_seed(header: Header) -> int:
    """What ties frames to their header: the checksum of its bytes, part of every frame's checksum."""
    return seed_of(pack_header(header))


def seed_of(data: bytes) -> int:
    """As `frame_seed`, of the header that `data` begins with: its last word has the sum over those before."""
    size = _FIXED.unpack_from(data)[2]
    stated: int = _U64.unpack_from(data, size - _U64.size)[0]
    return (stated + _U64.size + _stirred_word(stated, size // _U64.size - 1)) & _MASK


def pack_frame(payload: bytes, number: int, seed: int) -> bytes:
    """The bytes of frame `number` around its payload."""
    return pack_frame_header(len(payload), checksum(payload), number, seed) + payload


def pack_frame_header(size: int, payload_checksum: int, number: int, seed: int) -> bytes:
    """What stands before the payload of frame `number`."""
    return _FRAME.pack(size, _frame_checksum(payload_checksum, number, seed))


def unpack_frame_header(data: bytes, number: int, seed: int, most_bytes: int) -> tuple[int, int]:
    """Size and checksum of the payload of frame `number`, which is at most `most_bytes`."""
    size, stated = _FRAME.unpack(data)
    if size > most_bytes:
        raise _damaged(f"frame {number}")
    return size, (stated - _frame_checksum(0, number, seed)) & _MASK


def read_frame(source: BinaryIO, number: int, seed: int, most_bytes: int) -> bytes:
    """The payload of the next frame, at most `most_bytes`; StreamError where it is damaged."""
    head = _read(source, _FRAME.size, f"frame {number}")
    size, stated = unpack_frame_header(head, number, seed, most_bytes)
    payload = _read(source, size, f"frame {number}")
    if checksum(payload) != stated:
        raise _damaged(f"frame {number}")
    return payload


def _frame_checksum(payload_checksum: int, number: int, seed: int) -> int:
    """Of a payload at its place in its stream, so that frames cannot be exchanged unseen."""
    return (payload_checksum + seed + (number + 1) * int(_GOLDEN)) & _MASK


def check_ended(source: BinaryIO) -> None:
    """Refuse bytes after the last frame."""
    if source.read(1):
        raise StreamError("stream", "continues after its last frame", "give exactly one whole stream")


def damaged_unless(good: bool, place: str) -> None:
    """Refuse a part of a stream whose fields contradict each other."""
    if not good:
        raise _damaged(place)


def _damaged(place: str) -> StreamError:
    return StreamError(f"stream: {place}", "is damaged", "give the stream as it was written")


def _read(source: BinaryIO, size: int, place: str) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise StreamError("stream", f"ends inside {place}", "give the whole stream")
    return data
