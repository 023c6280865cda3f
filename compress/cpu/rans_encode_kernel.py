"""The numba kernels that write the coder `small` (`cpu.rans_kernel` says what is written). Imported lazily.

`count` looks up everything that depends on values alone, a tile at a time: each number's symbol, which is
its token in its context's table, and how many raw bits follow. `encode_segment` puts 32 numbers a round
on the states. Loops over 32 lanes or a tile have no branches, so that they become vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.compress.cpu.numba_cache import cached_njit
from tnplan.compress.cpu.rans_kernel import (
    BUCKETS,
    CLASSES,
    DIRECT,
    FIRST,
    LANES,
    LARGEST_MAGNITUDE,
    LOW,
    MOST_ROUND_WORDS,
    POPCOUNT,
    RAW_LOG2,
    ROUND_AXES,
    SCALE,
    TILE,
    TOKENS,
    TOTAL,
    TOTAL_LOG2,
)

jit = cached_njit(nogil=True, error_model="numpy")
inline = cached_njit(nogil=True, error_model="numpy", inline="always")
int32: Any = np.int32
int64: Any = np.int64
uint64: Any = np.uint64
uint16: Any = np.uint16

HISTOGRAMS = 4
"""Equal symbols often follow one another: neighbours count in histograms of their own."""
SCALES = np.repeat(SCALE[POPCOUNT], LANES).astype(np.int32)
EXPONENT_32 = 126
"""Of a float32 from 1/2 on, below its exponent's bits: what is above it is a bit length."""
EXPONENT_64 = 1022
PACKED_LOG2 = 16


@jit
def fill_buckets(magnitudes: Any, sums: Any, floats: Any, buckets: Any) -> None:
    """The context buckets of a tile from its magnitudes; sums (int32) and floats (float32) are for work."""
    sums[:] = 0
    for b in range(ROUND_AXES):
        run = LANES << b
        for start in range(run, TILE, 2 * run):
            into, others = sums[start : start + run], magnitudes[start - run : start]
            for i in range(run):
                into[i] += others[i]
    for i in range(TILE):
        floats[i] = np.float32((sums[i] * SCALES[i]) >> int32(16))
    exponents = floats.view(np.int32)
    for i in range(TILE):
        buckets[i] = max((exponents[i] >> int32(23)) - int32(EXPONENT_32), int32(0))
    buckets[:LANES] = FIRST


@jit
def fill_symbols(q: Any, bases: Any, zigzags: Any, floats: Any, symbols: Any, raw_bits: Any) -> Any:
    """Symbols of a tile's numbers, which are their tokens above `bases`, and raw bits, whose sum is returned.
    zigzags (int32) and floats (float64) are for work."""
    largest = int32(0)
    for i in range(TILE):
        zigzags[i] = (int32(2) * q[i] - int32(1)) ^ ((q[i] - int32(1)) >> int32(31))
        # As a number without sign, the greatest one has 32 bits.
        largest |= zigzags[i]
    if 0 <= largest < DIRECT:
        for i in range(TILE):
            symbols[i] = bases[i] + zigzags[i]
            raw_bits[i] = 0
        return 0
    for i in range(TILE):
        floats[i] = np.float64(np.uint32(zigzags[i]))
    words = floats.view(np.int64)
    total = int64(0)
    for i in range(TILE):
        # The exponent, and behind it the bit below the highest one.
        high = int32(words[i] >> 51) - int32(2 * EXPONENT_64)
        direct = floats[i] < DIRECT
        symbols[i] = bases[i] + (zigzags[i] if direct else high + int32(DIRECT - 10))
        bits = int32(0) if direct else (high >> int32(1)) - int32(2)
        raw_bits[i] = bits
        total += bits
    return total


@jit
def add_to(histograms: Any, symbols: Any) -> None:
    """Count a tile's symbols."""
    for i in range(0, TILE, HISTOGRAMS):
        for k in range(HISTOGRAMS):
            histograms[k, symbols[i + k]] += 1


@jit
def count(q: Any, counts: Any, symbols: Any, raw_bits: Any) -> Any:
    """Add to counts (tables, TOKENS) how often tokens occur in q (components, tiles * 4096); the number
    of raw bits is returned, and symbols (uint16) and raw_bits (uint8), shaped like q, are filled."""
    magnitudes, sums, buckets = np.zeros(TILE, np.int32), np.zeros(TILE, np.int32), np.zeros(TILE, np.int32)
    bases, zigzags = np.zeros(TILE, np.int32), np.zeros(TILE, np.int32)
    singles, doubles = np.zeros(TILE, np.float32), np.zeros(TILE, np.float64)
    histograms = np.zeros((HISTOGRAMS, counts.size), np.int64)
    most = int32(LARGEST_MAGNITUDE)
    total = int64(0)
    for first in range(0, q.shape[1], TILE):
        reals = q[0, first : first + TILE]
        for i in range(TILE):
            magnitudes[i] = min(np.uint32(abs(reals[i])), np.uint32(most))
        if q.shape[0] == 2:
            imaginaries = q[1, first : first + TILE]
            for i in range(TILE):
                magnitudes[i] = min(magnitudes[i] + int32(min(abs(imaginaries[i]), most)), most)
        fill_buckets(magnitudes, sums, singles, buckets)
        for i in range(TILE):
            bases[i] = buckets[i] * int32(TOKENS)
        own = symbols[0, first : first + TILE]
        total += fill_symbols(reals, bases, zigzags, doubles, own, raw_bits[0, first : first + TILE])
        add_to(histograms, own)
        if q.shape[0] == 2:
            for i in range(TILE):
                size = abs(reals[i])
                kind = min(size, int32(2)) + int32(size >= 4)
                bases[i] = (int32(BUCKETS) + int32(CLASSES) * buckets[i] + kind) * int32(TOKENS)
            own = symbols[1, first : first + TILE]
            total += fill_symbols(
                imaginaries, bases, zigzags, doubles, own, raw_bits[1, first : first + TILE]
            )
            add_to(histograms, own)
    flat = counts.reshape(-1)
    for k in range(HISTOGRAMS):
        flat += histograms[k]
    return total


@jit
def spill(states: Any, limits: Any, words: Any, top: Any) -> Any:
    """States from their limits on put a word each, the last lane first; words[top - 1] is free. Returns the
    new top."""
    at = uint64(top)
    for lane in range(LANES - 1, -1, -1):
        full = states[lane] >= limits[lane]
        words[at - uint64(1)] = uint16(states[lane])
        at -= uint64(full)
        states[lane] >>= int64(full) << 4
    return int64(at)


@jit
def push_raw(q: Any, raw_bits: Any, longest: Any, states: Any, limits: Any, words: Any, top: Any) -> Any:
    """Put the raw bits of a round's numbers on the states, in parts of which the first may be shorter."""
    for part in range((longest + RAW_LOG2 - 1) // RAW_LOG2 - 1, -1, -1):
        for lane in range(LANES):
            bits = int64(raw_bits[lane])
            below = max((bits + RAW_LOG2 - 1) // RAW_LOG2 - 1 - part, 0) * RAW_LOG2
            width = min(bits - below, RAW_LOG2) if bits > RAW_LOG2 * part else 0
            limits[lane] = int64(1) << (32 - width)
        top = spill(states, limits, words, top)
        for lane in range(LANES):
            bits, number = int64(raw_bits[lane]), int64(q[lane])
            zigzag = (2 * number - 1) ^ ((number - 1) >> 63)
            below = max((bits + RAW_LOG2 - 1) // RAW_LOG2 - 1 - part, 0) * RAW_LOG2
            width = min(bits - below, RAW_LOG2) if bits > RAW_LOG2 * part else 0
            rest = TOTAL_LOG2 - width
            value = (zigzag >> below) & ((int64(1) << width) - 1)
            kept = states[lane] & ((int64(1) << rest) - 1)
            states[lane] = ((states[lane] >> rest) << TOTAL_LOG2) + (value << rest) + kept
    return top


@jit
def push_short(q: Any, raw_bits: Any, states: Any, limits: Any, words: Any, top: Any) -> Any:
    """As `push_raw`, where no number has more than one part."""
    for lane in range(LANES):
        limits[lane] = int64(1) << (int64(32) - int64(raw_bits[lane]))
    top = spill(states, limits, words, top)
    for lane in range(LANES):
        width, number = int64(raw_bits[lane]), int64(q[lane])
        zigzag = (2 * number - 1) ^ ((number - 1) >> 63)
        rest = int64(TOTAL_LOG2) - width
        value = zigzag & ((int64(1) << width) - int64(1))
        kept = states[lane] & ((int64(1) << rest) - int64(1))
        states[lane] = ((states[lane] >> rest) << int64(TOTAL_LOG2)) + (value << rest) + kept
    return top


@jit
def encode_segment(
    q: Any, symbols: Any, raw_bits: Any, begin: Any, stop: Any, packed: Any, inverses: Any, states: Any,
    words: Any,
) -> Any:  # fmt: skip
    """Encode places begin .. stop - 1 of q (components, ...), the last one first: returns where in `words`
    they start, -1 where they do not fit.

    symbols and raw_bits are those of `count`; packed (symbols): the frequency of each, and in the lower 16
    bits its first slot; inverses: of the frequencies. states (32) is set to what the decoder starts with.
    """
    limits, found = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    inverse = np.zeros(LANES, np.float64)
    top = int64(words.size)
    states[:] = LOW
    for place in range(stop - LANES, begin - LANES, -LANES):
        if top < MOST_ROUND_WORDS:
            return -1
        for c in range(q.shape[0] - 1, -1, -1):
            own, raw = symbols[c, place : place + LANES], raw_bits[c, place : place + LANES]
            longest = np.uint8(0)
            for lane in range(LANES):
                found[lane] = packed[own[lane]]
                inverse[lane] = inverses[own[lane]]
                longest = max(longest, raw[lane])
            if longest > RAW_LOG2:
                top = push_raw(q[c, place : place + LANES], raw, int64(longest), states, limits, words, top)
            elif longest:
                top = push_short(q[c, place : place + LANES], raw, states, limits, words, top)
            full = False
            for lane in range(LANES):
                limits[lane] = (found[lane] >> PACKED_LOG2) << (32 - TOTAL_LOG2)
                full |= states[lane] >= limits[lane]
            if full:
                top = spill(states, limits, words, top)
            for lane in range(LANES):
                # Exact: half a unit is more than the rounding of a product below 2^33.
                quotient = int64((np.float64(states[lane]) + 0.5) * inverse[lane])
                frequency = found[lane] >> PACKED_LOG2
                start = found[lane] & int64((1 << PACKED_LOG2) - 1)
                states[lane] += quotient * (TOTAL - frequency) + start
    return top


@jit
def encode_segments(
    q: Any, symbols: Any, raw_bits: Any, step: Any, packed: Any, inverses: Any, words: Any, counts: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Put segments of `step` places into out (uint16): states, words, and filling up to 32 bits. Returns how
    many were written, -1 where they do not fit; counts (segments) gets the words of each. `words` is for
    work."""
    states = np.zeros(LANES, np.int64)
    at = 0
    for segment in range(counts.size):
        begin = segment * step
        stop = min(begin + step, q.shape[1])
        top = encode_segment(q, symbols, raw_bits, begin, stop, packed, inverses, states, words)
        size = words.size - top
        if top < 0 or at + 2 * LANES + size + 1 > out.size:
            return -1
        for lane in range(LANES):
            out[at + 2 * lane] = uint16(states[lane])
            out[at + 2 * lane + 1] = uint16(states[lane] >> 16)
        at += 2 * LANES
        out[at : at + size] = words[top:]
        at += size
        if size % 2:
            out[at] = 0
            at += 1
        counts[segment] = size
    return at
