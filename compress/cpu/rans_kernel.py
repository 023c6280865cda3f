"""The numba kernels that read the coder `small`: tokens in contexts, coded by interleaved rANS. Imported
lazily. `cpu.rans_encode_kernel` writes it. The kernels of bytes without contexts are here as well.

rANS: Duda, arXiv 1311.2540; 32-bit states, 16-bit words, probabilities in 1/4096. A tile has 128 rounds of 32
lanes; a segment of some tiles has one state a lane, and one sequence of words that its lanes read in turn.

The context of an element is how large its neighbours of earlier rounds are, those whose round differs in one
bit: the bit length of 8 times their mean of min(255, sum of |q| over components), or `FIRST` in round 0. The
imaginary part's context adds the class of |q| of the real part: 0, 1, 2 to 3, more.

A token is the zigzag number z = 2 |q| - (q > 0) itself below 16, else its bit length and second highest bit;
the bits below follow as they are. In a round, real parts come before imaginary ones, tokens before raw bits,
and these in parts, each for all lanes in turn: so 32 threads of a GPU can take them together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.compress.cpu.numba_cache import cached_njit

jit = cached_njit(nogil=True, error_model="numpy")
inline = cached_njit(nogil=True, error_model="numpy", inline="always")
int64: Any = np.int64

TILE = 4096
LANES = 32
ROUNDS = 128
ROUND_AXES = 7
DIRECT = 16
TOKENS = 72
LARGEST_MAGNITUDE = 255
FIRST = 12
BUCKETS = 13
CLASSES = 4
TABLES = (BUCKETS, BUCKETS + BUCKETS * CLASSES)
"""Tables for one and for two components."""

TOTAL_LOG2 = 12
TOTAL = 1 << TOTAL_LOG2
LOW = 1 << 16
RAW_LOG2 = 12
MOST_ROUND_WORDS = 8 * LANES
"""A number takes at most four words: a token and three parts of raw bits."""

POPCOUNT = np.array([bin(r).count("1") for r in range(ROUNDS)], np.int64)
NEIGHBOURS = np.array(
    [[(r ^ (1 << b) if r >> b & 1 else ROUNDS) * LANES for b in range(ROUND_AXES)] for r in range(ROUNDS)],
    np.uint64,
)
"""Where the magnitudes of a round's neighbours begin; those that come later are a row of zeros."""
SCALE = np.array([0] + [8 * 65536 // n for n in range(1, ROUND_AXES + 1)], np.int64)

TOKEN_ROOM = 1 << 7
FREQUENCY_AT = 7
OFFSET_AT = 20
"""Of an entry of `slots`: a token, its frequency from this bit on, and how far the slot is behind its
first one."""


@inline
def push(states: Any, lane: Any, start: Any, frequency: Any, words: Any, top: Any) -> Any:
    """Put a symbol on a lane's state; `words` is filled downwards from `top`, which is returned."""
    state = states[lane]
    # Without a branch, whose misprediction would cost more than the rest; words[top - 1] is free.
    full = int64(state >= frequency << (32 - TOTAL_LOG2))
    words[top - 1] = state & 0xFFFF
    top -= full
    state >>= 16 * full
    # Exact, since both are below 2^33, and faster than a division of whole numbers.
    quotient = int64(float(state) / float(frequency))
    states[lane] = (quotient << TOTAL_LOG2) + (state - quotient * frequency) + start
    return top


@inline
def parts_of(bits: Any) -> Any:
    """How many parts of at most 12 raw bits there are; the first and highest one may be shorter."""
    return (bits + RAW_LOG2 - 1) // RAW_LOG2


@jit
def fill_round(magnitudes: Any, used: Any, r: Any, floats: Any, buckets: Any) -> Any:
    """The context buckets of round r from the magnitudes (129 * 32) of earlier rounds, of which `used` says
    whether any is not 0, and a row of zeros; whether any bucket is not 0."""
    if r == 0:
        buckets[:] = FIRST
        return True
    any_used = False
    for b in range(ROUND_AXES):
        any_used |= ((r >> b) & 1) != 0 and used[r ^ (1 << b)]
    if not any_used:
        buckets[:] = 0
        return False
    o0, o1, o2, o3 = NEIGHBOURS[r, 0], NEIGHBOURS[r, 1], NEIGHBOURS[r, 2], NEIGHBOURS[r, 3]
    o4, o5, o6 = NEIGHBOURS[r, 4], NEIGHBOURS[r, 5], NEIGHBOURS[r, 6]
    scale = np.int32(SCALE[POPCOUNT[r]])
    for lane in range(LANES):
        at = np.uint64(lane)
        near = magnitudes[o0 + at] + magnitudes[o1 + at] + magnitudes[o2 + at] + magnitudes[o3 + at]
        total = near + magnitudes[o4 + at] + magnitudes[o5 + at] + magnitudes[o6 + at]
        floats[lane] = np.float32((np.int32(total) * scale) >> np.int32(16))
    # A float32 from 1/2 on has its bit length in its exponent, less 126.
    exponents = floats.view(np.int32)
    for lane in range(LANES):
        buckets[lane] = max((exponents[lane] >> np.int32(23)) - np.int32(126), np.int32(0))
    return True


@jit
def take_words(states: Any, words: Any, at: Any) -> Any:
    """States below LOW take a word each, the first lane first; the place of the next word. Beyond the
    last word they take that one."""
    least = states[0]
    for lane in range(LANES):
        least = min(least, states[lane])
    if least >= LOW:
        return at
    last = words.size - 1
    for lane in range(LANES):
        low = states[lane] < LOW
        word = int64(words[np.uint64(min(at, last))])
        states[lane] = (states[lane] << 16) | word if low else states[lane]
        at += int64(low)
    return at


@jit
def take_zeros(states: Any, zeros: Any, words: Any, at: Any) -> Any:
    """Take a 0 in context 0 from every state, where all have one: the place of the next word, or -1.
    `zeros`: the frequency of that token."""
    largest = int64(0)
    for lane in range(LANES):
        largest = max(largest, states[lane] & (TOTAL - 1))
    if largest >= zeros:
        return -1
    for lane in range(LANES):
        states[lane] = zeros * (states[lane] >> TOTAL_LOG2) + (states[lane] & (TOTAL - 1))
    return take_words(states, words, at)


@jit
def take_raw(states: Any, longest: Any, bits: Any, widths: Any, words: Any, at: Any, numbers: Any) -> Any:
    """Raw bits below what `numbers` have of their zigzags, in parts; `bits` (32) are how many, and are used
    up. `widths` (32) is for work."""
    for _ in range((longest + RAW_LOG2 - 1) // RAW_LOG2):
        if longest <= RAW_LOG2:
            widths[:] = bits
        else:
            for lane in range(LANES):
                widths[lane] = (bits[lane] - 1) % RAW_LOG2 + 1 if bits[lane] else 0
        for lane in range(LANES):
            rest = TOTAL_LOG2 - widths[lane]
            slot = states[lane] & (TOTAL - 1)
            states[lane] = ((states[lane] >> TOTAL_LOG2) << rest) + (slot & ((int64(1) << rest) - 1))
            bits[lane] -= widths[lane]
            numbers[lane] |= (slot >> rest) << bits[lane]
        at = take_words(states, words, at)
    return at


@jit
def take_round(
    states: Any, tables: Any, slots: Any, words: Any, at: Any, numbers: Any, bits: Any, widths: Any
) -> Any:
    """A number a lane from the states: the tokens of all lanes, then the first part of raw bits of all lanes
    that have one, then the second. Returns the place of the next word, past the end of `words` where they are
    used up. `slots` is what `slot_table` gives; `bits` and `widths` (32) are for work."""
    longest = int64(0)
    for lane in range(LANES):
        numbers[lane] = slots[np.uint64(tables[lane] * TOTAL + (states[lane] & (TOTAL - 1)))]
    for lane in range(LANES):
        found = numbers[lane]
        token, frequency = found & (TOKEN_ROOM - 1), (found >> FREQUENCY_AT) & (2 * TOTAL - 1)
        states[lane] = frequency * (states[lane] >> TOTAL_LOG2) + (found >> OFFSET_AT)
        raw = max(3 + ((token - DIRECT) >> 1), int64(0)) if token >= DIRECT else int64(0)
        numbers[lane] = (2 + (token & 1)) << raw if token >= DIRECT else token
        bits[lane] = raw
        longest = max(longest, raw)
    at = take_words(states, words, at)
    if longest:
        at = take_raw(states, longest, bits, widths, words, at, numbers)
    for lane in range(LANES):
        z = numbers[lane]
        numbers[lane] = ((z >> 1) ^ ((z & 1) - 1)) + 1
    return at


@jit
def zeros_of(slots: Any, table: Any) -> Any:
    """The frequency of token 0 in a table, whose slots are the first ones."""
    first = int64(slots[table * TOTAL])
    return (first >> FREQUENCY_AT) & (2 * TOTAL - 1) if first & (TOKEN_ROOM - 1) == 0 else int64(0)


@jit
def remember(sizes: Any, magnitudes: Any) -> Any:
    """Keep a round's magnitudes; whether any is not 0."""
    largest = int64(0)
    for lane in range(LANES):
        magnitudes[lane] = min(sizes[lane], LARGEST_MAGNITUDE)
        largest |= sizes[lane]
    return largest != 0


@jit
def put(numbers: Any, into: Any, sizes: Any) -> None:
    """Bring a round's numbers to their place, and add their sizes."""
    for lane in range(LANES):
        into[lane] = numbers[lane]
        sizes[lane] += abs(numbers[lane])


@jit
def decode_segments(data: Any, counts: Any, slots: Any, step: Any, q: Any) -> Any:
    """Fill q (components, tiles * 4096) from segments of `step` places: 32-bit states and 16-bit words,
    filled up to 32 bits, in data (uint16), which has as many words as `counts` say. False where words or
    states do not come out even."""
    magnitudes, used = np.zeros(TILE + LANES, np.int32), np.zeros(ROUNDS, np.bool_)
    floats = np.zeros(LANES, np.float32)
    buckets, tables = np.zeros(LANES, np.int32), np.zeros(LANES, np.int32)
    states, bits = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    widths = np.zeros(LANES, np.int64)
    numbers, sizes = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    zeros, at = zeros_of(slots, 0), 0
    for segment in range(counts.size):
        for lane in range(LANES):
            states[lane] = int64(data[at + 2 * lane]) | int64(data[at + 2 * lane + 1]) << 16
        at += 2 * LANES
        end = at + counts[segment]
        for place in range(segment * step, min(q.shape[1], segment * step + step), LANES):
            r = place // LANES % ROUNDS
            if at > end:
                return False
            alone = not fill_round(magnitudes, used, r, floats, buckets)
            after = take_zeros(states, zeros, data, at) if alone else -1
            numbers[:] = 0
            sizes[:] = 0
            at = after if after >= 0 else take_round(states, buckets, slots, data, at, numbers, bits, widths)
            put(numbers, q[0, place : place + LANES], sizes)
            if q.shape[0] == 2:
                for lane in range(LANES):
                    kind = min(sizes[lane], 2) + int64(sizes[lane] >= 4)
                    tables[lane] = BUCKETS + CLASSES * buckets[lane] + kind
                at = take_round(states, tables, slots, data, at, numbers, bits, widths)
                put(numbers, q[1, place : place + LANES], sizes)
            used[r] = remember(sizes, magnitudes[r * LANES : r * LANES + LANES])
        for lane in range(LANES):
            if states[lane] != LOW:
                return False
        if at != end:
            return False
        at += counts[segment] % 2
    return True


@jit
def encode_bytes(data: Any, starts: Any, states: Any, words: Any) -> Any:
    """Encode bytes, byte i on lane i % 32, by the cumulative frequencies starts (257); as encode_segment.
    A byte takes at most one of `words`."""
    top = words.size
    states[:] = LOW
    for i in range(data.size - 1, -1, -1):
        start = int64(starts[data[i]])
        top = push(states, i % LANES, start, int64(starts[int64(data[i]) + 1]) - start, words, top)
    return top


@jit
def decode_bytes(words: Any, states: Any, starts: Any, lookup: Any, data: Any) -> Any:
    """Fill `data`; False where words or states do not come out even."""
    at = 0
    for i in range(data.size):
        lane = i % LANES
        state = states[lane]
        slot = state & (TOTAL - 1)
        byte = int64(lookup[slot])
        start = int64(starts[byte])
        state = (int64(starts[byte + 1]) - start) * (state >> TOTAL_LOG2) + slot - start
        if state < LOW:
            if at >= words.size:
                return False
            state = (state << 16) | int64(words[at])
            at += 1
        states[lane] = state
        data[i] = byte
    for lane in range(LANES):
        if states[lane] != LOW:
            return False
    return at == words.size
