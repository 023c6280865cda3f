"""The numba kernels that write the coder `small` (`cpu.rans_kernel` says what is written). Imported lazily.

`count` looks up everything that depends on values alone, a tile at a time: each number's symbol, which is
its token in its context's table, and how many raw bits follow. `encode_segment` puts 32 numbers a round
on the states. Loops over 32 lanes or a tile have no branches, so that they become vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import Late, kernel
from tnplan.common.kernels.vector_operations import unowned_views
from tnplan.compress.cpu.rans_kernel import (
    BUCKETS,
    CLASSES,
    DIRECT,
    FIRST,
    LANES,
    LARGEST_MAGNITUDE,
    LOW,
    MOST_ROUND_WORDS,
    NEIGHBOURS,
    POPCOUNT,
    RAW_LOG2,
    ROUNDS,
    SCALE,
    SLOT_LOG2,
    TILE,
    TOKENS,
    TOTAL,
    TOTAL_LOG2,
)
from tnplan.compress.format.bit_tiling import LOG2_BITS

jit = kernel(keeps_subnormals=True, nogil=True, error_model="numpy")
inline = kernel(keeps_subnormals=True, nogil=True, error_model="numpy", forceinline=True)
unowned: Any = Late(unowned_views)
int32: Any = np.int32
uint32: Any = np.uint32
int64: Any = np.int64
uint64: Any = np.uint64
uint16: Any = np.uint16

HISTOGRAMS = 4
"""Equal symbols often follow one another: neighbours count in histograms of their own."""
EXPONENT_32 = 126
"""Of a float32 from 1/2 on, below its exponent's bits: what is above it is a bit length."""
EXPONENT_64 = 1022
PACKED_LOG2 = 16
STATE, FULL, SYMBOL, WIDTH, VALUE = (np.uint64(row * LANES) for row in range(5))
"""Where the 32 lanes' values start in the memory for work (`cpu.rans_kernel`)."""
WORK_ROWS = 5


# Both kernels make the contexts of `rans_kernel`, here for a whole tile at once: the encoder knows
# all numbers, and needs no order of rounds.
@jit
def fill_buckets(magnitudes: Any, floats: Any, exponents: Any, buckets: Any) -> None:
    """The context buckets of a tile from magnitudes and a row of zeros (129 * 32); floats (float32), as whole
    numbers `exponents` (int32), are for work."""
    sizes, into = unowned(magnitudes), unowned(floats)
    lanes = uint64(sizes.size) // uint64(ROUNDS + 1)
    for r in range(ROUNDS):
        o0, o1, o2, o3 = NEIGHBOURS[r, 0], NEIGHBOURS[r, 1], NEIGHBOURS[r, 2], NEIGHBOURS[r, 3]
        o4, o5, o6 = NEIGHBOURS[r, 4], NEIGHBOURS[r, 5], NEIGHBOURS[r, 6]
        scale, first = int32(SCALE[POPCOUNT[r]]), uint64(r * LANES)
        for at in range(lanes):
            near = sizes[o0 + at] + sizes[o1 + at] + sizes[o2 + at] + sizes[o3 + at]
            total = near + sizes[o4 + at] + sizes[o5 + at] + sizes[o6 + at]
            into[first + at] = np.float32(int32(int32(int32(total) * scale) >> int32(16)))
    for i in range(TILE):
        length = int32(int32(exponents[i] >> int32(23)) - int32(EXPONENT_32))
        buckets[i] = length if length > 0 else int32(0)
    for lane in range(LANES):
        buckets[lane] = FIRST


@jit
def fill_symbols(q: Any, first: Any, bases: Any, work: Any, symbols: Any, raw_bits: Any) -> Any:
    """Symbols of the numbers of the tile from `first` on, which are their tokens above `bases`, and raw bits,
    whose sum is returned. `work` are a tile of zigzag numbers (int32), one of float32 and one of float64, and
    these two as whole numbers."""
    # A symbol is table * TOKENS + token; `bases` has the first part.
    zigzags, singles, doubles, halves, words = work
    largest, tile = int32(0), uint64(TILE)
    for i in range(tile):
        number = q[first + i]
        zigzags[i] = int32(int32(2) * number - int32(1)) ^ (int32(number - int32(1)) >> int32(31))
        # As a number without sign, the greatest one has 32 bits.
        largest = int32(largest | zigzags[i])
    # Most tiles: the token is the number itself.
    if 0 <= largest < DIRECT:
        for i in range(tile):
            symbols[first + i] = bases[i] + zigzags[i]
            raw_bits[first + i] = 0
        return 0
    # Up to 24 bits a float32 is exact: its exponent is the bit length less 1, its highest bit of
    # the fraction the second highest bit of the number. Above, a float64 does the same.
    if 0 <= largest < 1 << 24:
        for i in range(TILE):
            singles[i] = np.float32(zigzags[i])
        for i in range(TILE):
            # The exponent, and behind it the bit below the highest one.
            high = int32(int32(halves[i] >> int32(22)) - int32(2 * EXPONENT_32 - DIRECT + 10))
            zigzags[i] = zigzags[i] if zigzags[i] < DIRECT else high
    else:
        for i in range(TILE):
            doubles[i] = np.float64(np.uint32(zigzags[i]))
        for i in range(TILE):
            high = int32(int32(words[i] >> 51) - int32(2 * EXPONENT_64 - DIRECT + 10))
            zigzags[i] = zigzags[i] if doubles[i] < DIRECT else high
    total = int64(0)
    for i in range(tile):
        token = zigzags[i]
        bits = int32(int32(3) + (int32(token - int32(DIRECT)) >> int32(1))) if token >= DIRECT else int32(0)
        symbols[first + i] = bases[i] + token
        raw_bits[first + i] = bits
        total += bits
    return total


@jit
def add_to(histograms: Any, symbols: Any, first: Any) -> None:
    """Count the symbols of the tile from `first` on."""
    # Several histograms, as an addition to the same counter would wait for the one before.
    for i in range(first, first + uint64(TILE), uint64(HISTOGRAMS)):
        for k in range(uint64(HISTOGRAMS)):
            histograms[k, symbols[i + k]] += 1


@jit
def put_zeros(symbols: Any, raw_bits: Any, first: Any, own: Any, other: Any, histograms: Any) -> None:
    """Symbols and raw bits of the tile of zeros from `first` on: `own` in round 0, then the `other`."""
    for i in range(first, first + uint64(TILE)):
        raw_bits[i] = 0
        symbols[i] = other
    for i in range(first, first + uint64(LANES)):
        symbols[i] = own
    histograms[0, own] += LANES
    histograms[0, other] += TILE - LANES


@jit
def count(q: Any, histograms: Any, symbols: Any, raw_bits: Any, scratch: Any, n_raw: Any) -> None:
    """Fill histograms (HISTOGRAMS, tables * TOKENS) with how often tokens occur in q (components, tiles *
    4096), their sum being in the first one; symbols (uint16) and raw_bits (uint8), shaped like q; and n_raw
    (1) with the number of raw bits.

    `scratch` are magnitudes (int32, 4096 + 32, which end in zeros); buckets and bases (int32, a tile each);
    and the `work` of `fill_symbols`.
    """
    # Invariant: q has whole tiles. Tiles are given by where they begin: slices take long to compile.
    magnitudes, buckets, bases, work = scratch
    most, two = int32(LARGEST_MAGNITUDE), q.shape[0] == 2
    last = q.shape[0] - 1
    reals, real_symbols, real_bits = unowned(q[0]), unowned(symbols[0]), unowned(raw_bits[0])
    imaginaries, symbols_beside = unowned(q[last]), unowned(symbols[last])
    bits_beside = unowned(raw_bits[last])
    total, tile = int64(0), uint64(TILE)
    for k in range(HISTOGRAMS):
        for symbol in range(histograms.shape[1]):
            histograms[k, symbol] = 0
    for first in range(uint64(0), uint64(q.shape[1]), tile):
        some = int32(0)
        for i in range(tile):
            number = reals[first + i]
            some = int32(some | number)
            size = np.uint32(abs(number))
            magnitudes[i] = size if size < np.uint32(most) else np.uint32(most)
        if two:
            for i in range(tile):
                number = imaginaries[first + i]
                some = int32(some | number)
                size = abs(number)
                both = int32(magnitudes[i] + (size if size < most else most))
                magnitudes[i] = both if both < most else most
        # A tile of zeros needs no contexts: all are the lowest, but in round 0.
        if some == 0:
            put_zeros(real_symbols, real_bits, first, FIRST * TOKENS, 0, histograms)
            if two:
                own, other = (BUCKETS + CLASSES * FIRST) * TOKENS, BUCKETS * TOKENS
                put_zeros(symbols_beside, bits_beside, first, own, other, histograms)
            continue
        fill_buckets(magnitudes, work[1], work[3], buckets)
        for i in range(TILE):
            bases[i] = buckets[i] * int32(TOKENS)
        total += fill_symbols(reals, first, bases, work, real_symbols, real_bits)
        add_to(histograms, real_symbols, first)
        if two:
            for i in range(tile):
                size = abs(reals[first + i])
                kind = (size if size < 2 else int32(2)) + int32(size >= 4)
                bases[i] = (int32(BUCKETS) + int32(CLASSES) * buckets[i] + kind) * int32(TOKENS)
            total += fill_symbols(imaginaries, first, bases, work, symbols_beside, bits_beside)
            add_to(histograms, symbols_beside, first)
    for k in range(1, HISTOGRAMS):
        for symbol in range(histograms.shape[1]):
            histograms[0, symbol] += histograms[k, symbol]
    n_raw[0] = total


@jit
def weigh(histogram: Any, n_raw: Any, logs: Any, units: Any) -> None:
    """Fill units (1) with what tokens of such a histogram (tables * TOKENS) and raw bits (1) take, by the
    `logs` of how often they occur, n log2 n."""
    total = n_raw[0] << int64(LOG2_BITS)
    for first in range(0, histogram.size, TOKENS):
        table = int64(0)
        for token in range(first, first + TOKENS):
            table += histogram[token]
            total -= logs[histogram[token]]
        total += logs[table]
    units[0] = total


@inline
def spill(work: Any, words: Any, top: Any, lanes: Any) -> Any:
    """States that are full put a word each, the last lane first; words[top - 1] is free. Returns the
    new top."""
    # Words are written downwards, the last lane first, so that a decoder reads the first lane's
    # first. A word is written in any case and counts where the state was full.
    at = uint64(top)
    for back in range(lanes):
        lane = uint64(LANES - 1) - back
        words[at - uint64(1)] = uint16(work[STATE + lane])
        at -= uint64(work[FULL + lane])
    for lane in range(lanes):
        work[STATE + lane] = uint32(work[STATE + lane] >> uint32(work[FULL + lane] << uint32(4)))
    return int64(at)


@inline
def zigzag_of(number: Any) -> Any:
    """The zigzag number, without sign, of an int32."""
    return uint32(int32(int32(2) * number - int32(1)) ^ int32(int32(number - int32(1)) >> int32(31)))


@inline
def push_bits(work: Any, words: Any, top: Any, lanes: Any) -> Any:
    """Put work[WIDTH] bits of work[VALUE] on the states."""
    # A symbol of frequency 2^(n - width): full where x / 2^(n - width) would not fit after it, that
    # is where any of the highest `width` bits is set.
    for lane in range(lanes):
        width = work[WIDTH + lane]
        above = uint32(work[STATE + lane] >> uint32(uint32(32) - width)) if width else uint32(0)
        work[FULL + lane] = uint32(above != uint32(0))
    top = spill(work, words, top, lanes)
    for lane in range(lanes):
        state, width = work[STATE + lane], work[WIDTH + lane]
        shift, ones = uint32(SLOT_LOG2 - width), uint32(uint32(uint32(1) << width) - uint32(1))
        low_bits = uint32(state & uint32(uint32(uint32(1) << shift) - uint32(1)))
        value = uint32(uint32(work[VALUE + lane] & ones) << shift)
        work[STATE + lane] = uint32(uint32(uint32(uint32(state >> shift) << SLOT_LOG2) + value) + low_bits)
    return top


@inline
def push_raw(
    numbers: Any, raw_bits: Any, offset: Any, piece: Any, work: Any, words: Any, top: Any, lanes: Any
) -> Any:
    """Put a part of the raw bits of a round's numbers on the states; the first part may be shorter."""
    most = int32(RAW_LOG2)
    for lane in range(lanes):
        bits = int32(raw_bits[offset + lane])
        parts = int32(int32(bits + most - int32(1)) // most)
        below = int32(max(int32(parts - int32(1) - int32(piece)), int32(0)) * most)
        width = uint32(min(int32(bits - below), most)) if bits > most * int32(piece) else uint32(0)
        work[WIDTH + lane] = width
        work[VALUE + lane] = uint32(zigzag_of(numbers[offset + lane]) >> uint32(below))
    return push_bits(work, words, top, lanes)


@inline
def push_symbols(work: Any, words: Any, top: Any, lanes: Any) -> Any:
    """Put a symbol a lane on the states: work[SYMBOL] has frequencies above PACKED_LOG2 bits of first
    slots."""
    # Full where x >= f 2^(32 - n): then x / f * 2^n would pass 2^32.
    any_full, total = uint32(0), uint32(TOTAL)
    for lane in range(lanes):
        frequency = uint32(work[SYMBOL + lane] >> uint32(PACKED_LOG2))
        full = uint32(uint32(work[STATE + lane] >> uint32(32 - TOTAL_LOG2)) >= frequency)
        work[FULL + lane] = full
        any_full |= full
    if any_full:
        top = spill(work, words, top, lanes)
    for lane in range(lanes):
        state, symbol = work[STATE + lane], work[SYMBOL + lane]
        frequency = uint32(symbol >> uint32(PACKED_LOG2))
        # Below 2^20, and so wrong by less than a quarter before it is cut off.
        quotient = uint32(int32(np.float32(state) * (np.float32(1) / np.float32(frequency))))
        remainder = int32(uint32(state - uint32(quotient * frequency)))
        more, less = uint32(remainder >= int32(frequency)), uint32(remainder < int32(0))
        quotient = uint32(uint32(quotient + more) - less)
        above = uint32(quotient * uint32(total - frequency))
        work[STATE + lane] = uint32(uint32(state + above) + uint32(symbol & uint32((1 << PACKED_LOG2) - 1)))
    return top


@jit
def encode_segment(coded: Any, begin: Any, stop: Any, packed: Any, states: Any, words: Any) -> Any:
    """Encode places begin .. stop - 1 of q (components, ...), the last one first: returns where in `words`
    they start, -1 where they do not fit. The first 32 of `states` are set to what the decoder starts with."""
    # The reverse of the decoder's order in everything: rounds, components, raw bits before tokens,
    # parts from the last.
    q, symbols, raw_bits = coded
    work, into, frequencies = unowned(states), unowned(words), unowned(packed)
    lanes, top = uint64(work.size) // uint64(WORK_ROWS), int64(words.size)
    for lane in range(lanes):
        work[STATE + lane] = uint32(LOW)
    for position in range(stop - LANES, begin - LANES, -LANES):
        # Looked at once a round: no round writes more.
        if top < MOST_ROUND_WORDS:
            return -1
        first = uint64(position)
        for c in range(q.shape[0] - 1, -1, -1):
            own, raw, numbers = unowned(symbols[c]), unowned(raw_bits[c]), unowned(q[c])
            # The symbol of zeros among zeros.
            zero = uint16(0) if c == 0 else uint16(BUCKETS * TOKENS)
            other = uint16(0)
            for lane in range(lanes):
                other |= own[first + lane] ^ zero
            if other:
                longest = np.uint8(0)
                for lane in range(lanes):
                    longest = max(longest, raw[first + lane])
                if longest > RAW_LOG2:
                    for piece in range((int64(longest) + RAW_LOG2 - 1) // RAW_LOG2 - 1, -1, -1):
                        top = push_raw(numbers, raw, first, piece, work, into, top, lanes)
                elif longest:
                    for lane in range(lanes):
                        work[WIDTH + lane] = uint32(raw[first + lane])
                        work[VALUE + lane] = zigzag_of(numbers[first + lane])
                    top = push_bits(work, into, top, lanes)
                for lane in range(lanes):
                    work[SYMBOL + lane] = frequencies[uint64(own[first + lane])]
            else:
                for lane in range(lanes):
                    work[SYMBOL + lane] = frequencies[zero]
            top = push_symbols(work, into, top, lanes)
    return top


@jit
def encode_segments(
    coded: Any, step: Any, packed: Any, words: Any, counts: Any, out: Any, states: Any
) -> Any:
    """Put segments of `step` places into out (uint16): states, words, and filling up to 32 bits. Returns how
    many were written, -1 where they do not fit; counts (segments) gets the words of each.

    `coded` are q, and symbols and raw_bits of `count`; packed (symbols, uint32): the frequency of each, and
    in the lower 16 bits its first slot. A segment's places are put the last one first. `words` and `states`
    are for work.
    """
    at = 0
    for segment in range(counts.size):
        begin = segment * step
        stop = min(begin + step, coded[0].shape[1])
        top = encode_segment(coded, begin, stop, packed, states, words)
        size = words.size - top
        if top < 0 or at + 2 * LANES + size + 1 > out.size:
            return -1
        for lane in range(LANES):
            out[at + 2 * lane] = uint16(states[lane])
            out[at + 2 * lane + 1] = uint16(states[lane] >> 16)
        at += 2 * LANES
        for i in range(size):
            out[at + i] = words[top + i]
        at += size
        if size % 2:
            out[at] = 0
            at += 1
        counts[segment] = size
    return at
