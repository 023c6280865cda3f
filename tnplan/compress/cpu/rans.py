"""The coder `small`: tables of token frequencies, then segments of rANS words (`cpu.rans_kernel`).

Layout: u32 log2 of the tiles a segment, u32 size of the tables; tables; for each segment a u32 of its number
of words; for each its 32 states (u32) and words (u16); all filled up to 4 bytes. Tables are the numbers of
their tokens; a byte for each token, its frequency below 128, or else the top bit and the upper bits; and the
lower byte of each of the latter.

Knows whole numbers in tile order, and bytes; never values or bounds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.workspace import workspace
from tnplan.compress.format.bit_tiling import TILE, whole_log2
from tnplan.compress.format.stream import damaged_unless

LONGEST_SEGMENT_LOG2 = 6
"""Of the tiles a segment that are read."""
LONGEST_WRITTEN_LOG2 = 5
"""Of those written: a segment is decoded by a warp, one number a lane after the other."""
WASTE = 24
"""A segment is at least so many times the 64 bytes that its states take beyond what they hold."""
STATES_WASTE_BYTES = 64
STATES_BYTES = 128
COST_LOG2 = 8
"""Costs are in units of 2^-8 bits, so that a CPU and a GPU count alike."""
BYTES_SEGMENT = 1 << 16
LANES = 32
BYTE_VALUES = 256


@dataclass(frozen=True)
class SegmentPlan:
    """How a frame will be coded: frequencies (tables, tokens), log2 of the tiles a segment, expected size."""

    frequencies: NDArray[np.int64]
    tiles_log2: int
    size_bytes: float


def plan(counts: NDArray[np.int64], raw_bits: int, n_tiles: int, longest_log2: int) -> SegmentPlan:
    """The plan for tokens that occur so often (tables, tokens), followed by so many raw bits; segments
    have at most 2^longest_log2 tiles."""
    frequencies = normalized(counts)
    units = (raw_bits << COST_LOG2) + cost_units(counts, frequencies)
    least = (WASTE * STATES_WASTE_BYTES * 8 * n_tiles) << COST_LOG2
    log2 = 0
    while log2 < longest_log2 and units << log2 < least:
        log2 += 1
    return SegmentPlan(frequencies, log2, units / (8 << COST_LOG2))


def count_shape(components: int) -> tuple[int, int]:
    """Tables and tokens of arrays of one or two components."""
    from tnplan.compress.cpu import rans_kernel as kernel

    return kernel.TABLES[components - 1], kernel.TOKENS


def most_words(n_tiles: int, components: int) -> int:
    """The most words of a segment of so many tiles."""
    from tnplan.compress.cpu import rans_kernel as kernel

    return n_tiles * TILE * components * 2 + kernel.MOST_ROUND_WORDS


def most_table_bytes(components: int) -> int:
    """The most bytes before the segments' numbers of words, a multiple of 4."""
    n_tables, n_tokens = count_shape(components)
    return 12 + n_tables * (1 + 2 * n_tokens) & ~3


def pack_head(planned: SegmentPlan, words: NDArray[np.integer]) -> bytes:
    """What stands before the segments, of so many words each."""
    tables = pack_tables(planned.frequencies)
    head = struct.pack("<II", planned.tiles_log2, len(tables)) + _filled(tables)
    return head + words.astype("<u4").tobytes()


def longest_log2(residuals: bool) -> int:
    """Log2 of the most tiles of a segment that is written. Residuals of smooth arrays take so little that the
    states of segments count."""
    return LONGEST_SEGMENT_LOG2 if residuals else LONGEST_WRITTEN_LOG2


def counting(q: NDArray[np.int32]) -> tuple[Any, ...]:
    """What the kernel that counts tokens of q takes (`rans_encode_kernel.count`)."""
    from tnplan.compress.cpu import rans_encode_kernel as kernel

    symbols, raw_bits = workspace("symbols", q.shape, np.uint16), workspace("raw bits", q.shape, np.uint8)
    histograms = np.empty((kernel.HISTOGRAMS, prod(count_shape(q.shape[0]))), np.int64)
    # The row of zeros behind the magnitudes is for neighbours that come later.
    magnitudes = np.zeros(TILE + LANES, np.int32)
    buckets, bases, zigzags = np.empty((3, TILE), np.int32)
    singles, doubles = np.empty(TILE, np.float32), np.empty(TILE, np.float64)
    work = zigzags, singles, doubles, singles.view(np.int32), doubles.view(np.int64)
    return q, histograms, symbols, raw_bits, (magnitudes, buckets, bases, work), np.empty(1, np.int64)


def count(q: NDArray[np.int32]) -> tuple[NDArray[np.int64], int, NDArray[np.uint16], NDArray[np.uint8]]:
    """How often tokens occur in q (components, tiles * 4096), as (tables, tokens); how many raw bits
    there are; and symbols and raw bits, shaped like q, in a `workspace`."""
    from tnplan.compress.cpu import rans_encode_kernel as kernel

    arguments = counting(q)
    kernel.count(*arguments)
    _, histograms, symbols, raw_bits, _, n_raw = arguments
    return histograms[0].reshape(count_shape(q.shape[0])), int(n_raw[0]), symbols, raw_bits


def encode(q: NDArray[np.int32], most_bytes: int, residuals: bool = False) -> bytes | None:
    """The bytes of q (components, tiles * 4096), whole numbers or residuals of a predictor, or None where
    they are more than `most_bytes`."""
    from tnplan.compress.cpu import rans_encode_kernel as kernel

    n_tiles = q.shape[1] // TILE
    counts, total, symbols, raw_bits = count(q)
    planned = plan(counts, total, n_tiles, longest_log2(residuals))
    if planned.size_bytes > most_bytes:
        return None
    frequencies = planned.frequencies.reshape(-1)
    starts = cumulative(planned.frequencies)[:, :-1].reshape(-1)
    packed = (frequencies << kernel.PACKED_LOG2 | starts).astype(np.uint32)
    segment = min(n_tiles, 1 << planned.tiles_log2)
    words = workspace("segment", (most_words(segment, q.shape[0]),), np.uint16)
    sizes = np.empty(-(-n_tiles >> planned.tiles_log2), np.int64)
    out = workspace("words", (most_bytes // 2 + 1,), "<u2")
    states = np.zeros(kernel.WORK_ROWS * LANES, np.uint32)
    coded = q, symbols, raw_bits
    end = int(kernel.encode_segments(coded, TILE * segment, packed, words, sizes, out, states))
    if end < 0:
        return None
    data = b"".join((pack_head(planned, sizes), out[:end].data))
    return data if len(data) <= most_bytes else None


def unpack_head(
    data: NDArray[np.uint8], n_tiles: int, components: int, place: str
) -> tuple[int, NDArray[np.int64], NDArray[np.int64], int]:
    """Log2 of the tiles a segment, frequencies, words of each segment, and where the segments start.

    `data` may go on with anything.
    """
    damaged_unless(data.size >= 8, place)
    tiles_log2, tables_bytes = struct.unpack("<II", data[:8].tobytes())
    damaged_unless(tiles_log2 <= LONGEST_SEGMENT_LOG2 and 8 + tables_bytes <= data.size, place)
    frequencies = unpack_tables(data[8 : 8 + tables_bytes], *count_shape(components), place)
    at = 8 + tables_bytes + -tables_bytes % 4
    end = at + 4 * -(-n_tiles >> tiles_log2)
    damaged_unless(end <= data.size, place)
    return tiles_log2, frequencies, data[at:end].view("<u4").astype(np.int64), end


def decode(data: NDArray[np.uint8], q: NDArray[np.int32], place: str) -> None:
    """Fill q from what `encode` returned; StreamError, naming `place`, where it makes no sense."""
    from tnplan.compress.cpu import rans_kernel as kernel

    tiles_log2, frequencies, counts, at = unpack_head(data, q.shape[1] // TILE, q.shape[0], place)
    sizes = STATES_BYTES + 2 * (counts + counts % 2)
    damaged_unless(bool((counts <= data.size).all()) and at + int(sizes.sum()) == data.size, place)
    segments, step = np.zeros((data.size - at) // 2 + kernel.MOST_AHEAD, "<u2"), TILE << tiles_log2
    segments[: -kernel.MOST_AHEAD] = data[at:].view("<u2")
    magnitudes = np.zeros(TILE + LANES, np.int32)
    work = np.zeros(kernel.WORK_ROWS * LANES, np.uint32)
    scratch = magnitudes, work, work.view(np.float32)
    slots = slot_table(frequencies)
    good = kernel.decode_segments(segments, counts, slots, step, q.view(np.uint32), scratch)
    damaged_unless(bool(good), place)


def encode_bytes(data: NDArray[np.uint8], most_bytes: int) -> bytes | None:
    """Bytes by their frequencies alone, or None where that takes more than `most_bytes`."""
    from tnplan.compress.cpu import rans_kernel as kernel

    counts = np.bincount(data, minlength=BYTE_VALUES)[np.newaxis]
    frequencies = normalized(counts)
    if cost_units(counts, frequencies) / (8 << COST_LOG2) > most_bytes:
        return None
    starts = cumulative(frequencies)[0]
    words = np.empty(BYTES_SEGMENT, "<u2")
    states = np.empty(LANES, np.int64)
    counts_of_words, segments = [], []
    for begin in range(0, data.size, BYTES_SEGMENT):
        top = int(kernel.encode_bytes(data[begin : begin + BYTES_SEGMENT], starts, states, words))
        counts_of_words.append(words.size - top)
        segments.append(_filled(states.astype("<u4").tobytes() + words[top:].tobytes()))
    tables = pack_tables(frequencies)
    head = struct.pack("<I", len(tables)) + _filled(tables)
    packed = b"".join([head, np.array(counts_of_words, "<u4").tobytes(), *segments])
    return packed if len(packed) <= most_bytes else None


def decode_bytes(data: NDArray[np.uint8], out: NDArray[np.uint8], place: str) -> None:
    """Fill `out` from what `encode_bytes` returned; StreamError, naming `place`, where it makes no sense."""
    from tnplan.compress.cpu import rans_kernel as kernel

    damaged_unless(data.size >= 4, place)
    (tables_bytes,) = struct.unpack("<I", data[:4].tobytes())
    damaged_unless(4 + tables_bytes <= data.size, place)
    frequencies = unpack_tables(data[4 : 4 + tables_bytes], 1, BYTE_VALUES, place)
    at = 4 + tables_bytes + -tables_bytes % 4
    starts = cumulative(frequencies)[0]
    table = lookup(frequencies)[0]
    counts, at = _words(data, at, -(-out.size // BYTES_SEGMENT), place)
    for segment, n_words in enumerate(counts):
        states, words, at = _segment(data, at, int(n_words), place)
        block = out[segment * BYTES_SEGMENT : (segment + 1) * BYTES_SEGMENT]
        damaged_unless(bool(kernel.decode_bytes(words, states, starts, table, block)), place)
    damaged_unless(at == data.size, place)


def _words(data: NDArray[np.uint8], at: int, count: int, place: str) -> tuple[NDArray[np.uint32], int]:
    damaged_unless(at + 4 * count <= data.size, place)
    return np.frombuffer(data[at : at + 4 * count].tobytes(), "<u4"), at + 4 * count


def _segment(
    data: NDArray[np.uint8], at: int, n_words: int, place: str
) -> tuple[NDArray[np.int64], NDArray[np.uint16], int]:
    """States and words of the segment that starts at `at`, and where it ends."""
    end = at + STATES_BYTES + 2 * n_words
    damaged_unless(end <= data.size, place)
    raw = data[at:end].tobytes()
    states = np.frombuffer(raw[:STATES_BYTES], "<u4").astype(np.int64)
    return states, np.frombuffer(raw[STATES_BYTES:], "<u2"), end + -end % 4


def _filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def normalized(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts (tables, tokens) as frequencies that add to 4096 in each used table; what occurs has 1."""
    from tnplan.compress.cpu import rans_kernel as kernel

    frequencies = np.zeros_like(counts)
    kernel.normalize(counts, frequencies)
    return frequencies


def cost_units(counts: NDArray[np.int64], frequencies: NDArray[np.int64]) -> int:
    """What tokens of these counts take, in units of 2^-COST_LOG2 bits."""
    return int((counts * _token_units().take(frequencies)).sum())


@cache
def _token_units() -> NDArray[np.int64]:
    """What a token of each frequency takes; 0 for those that do not occur."""
    from tnplan.compress.cpu.rans_kernel import TOTAL, TOTAL_LOG2

    units = (TOTAL_LOG2 << COST_LOG2) - whole_log2(np.maximum(np.arange(TOTAL + 1), 1), COST_LOG2)
    units[0] = 0
    return units


def cumulative(frequencies: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first slot of each token, and the end (tables, tokens + 1)."""
    starts = np.zeros((frequencies.shape[0], frequencies.shape[1] + 1), np.int64)
    np.cumsum(frequencies, axis=1, out=starts[:, 1:])
    return starts


def lookup(frequencies: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The token of each of the 4096 slots (tables, 4096); tables that are not used hold 0."""
    from tnplan.compress.cpu.rans_kernel import TOTAL

    tokens = np.zeros((frequencies.shape[0], TOTAL), np.uint8)
    for row, row_frequencies in zip(tokens, frequencies, strict=True):
        if row_frequencies.any():
            row[:] = np.repeat(np.arange(row_frequencies.size, dtype=np.uint8), row_frequencies)
    return tokens


def slot_table(frequencies: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Token, frequency and offset of each of the 4096 slots of all tables, one after the other; those of
    tables that are not used are 0."""
    from tnplan.compress.cpu import rans_kernel as kernel

    slots = np.zeros(frequencies.shape[0] * kernel.TOTAL, np.uint32)
    kernel.fill_slots(frequencies, slots)
    return slots


def pack_tables(frequencies: NDArray[np.int64]) -> bytes:
    """The tables' bytes."""
    numbers = np.arange(1, frequencies.shape[1] + 1)
    lengths = np.where(frequencies, numbers, 0).max(axis=1)
    tokens = frequencies[numbers <= lengths[:, np.newaxis]]
    long = tokens >= 128
    firsts = np.where(long, 128 | tokens >> 8, tokens)
    parts = (lengths.astype(_length_dtype(frequencies.shape[1])), firsts.astype("u1"))
    return b"".join(column.tobytes() for column in (*parts, (tokens[long] & 255).astype("u1")))


def unpack_tables(data: NDArray[np.uint8], n_tables: int, n_tokens: int, place: str) -> NDArray[np.int64]:
    """The frequencies (tables, tokens) from all bytes of the tables."""
    from tnplan.compress.cpu.rans_kernel import TOTAL

    dtype = np.dtype(_length_dtype(n_tokens))
    start = n_tables * dtype.itemsize
    damaged_unless(start <= data.size, place)
    lengths = np.frombuffer(data[:start].tobytes(), dtype).astype(np.int64)
    end = start + int(lengths.sum())
    damaged_unless(int(lengths.max()) <= n_tokens and end <= data.size, place)
    tokens = data[start:end].astype(np.int64)
    long = tokens >= 128
    damaged_unless(end + int(long.sum()) == data.size, place)
    tokens[long] = (tokens[long] & 127) << 8 | data[end:]
    frequencies = np.zeros((n_tables, n_tokens), np.int64)
    frequencies[np.arange(n_tokens) < lengths[:, np.newaxis]] = tokens
    damaged_unless(bool(((frequencies.sum(axis=1) == TOTAL) | (lengths == 0)).all()), place)
    return frequencies


def _length_dtype(n_tokens: int) -> str:
    return "<u2" if n_tokens == BYTE_VALUES else "u1"
