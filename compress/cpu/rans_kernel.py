"""The numba kernels of the coder `small`: tokens in contexts, coded by interleaved rANS. Imported lazily.

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
SCALE = np.array([0] + [8 * 65536 // n for n in range(1, ROUND_AXES + 1)], np.int64)
BIT_LENGTH = np.array([n.bit_length() for n in range(8 * LARGEST_MAGNITUDE + 1)], np.uint8)


@jit
def buckets_of(magnitudes: Any, r: Any, sums: Any, buckets: Any) -> None:
    """The context buckets of round r from the magnitudes (128 * 32) of earlier rounds."""
    if r == 0:
        buckets[:] = FIRST
        return
    sums[:] = 0
    for b in range(ROUND_AXES):
        if (r >> b) & 1:
            other = (r ^ (1 << b)) * LANES
            for lane in range(LANES):
                sums[lane] += magnitudes[other + lane]
    scale = SCALE[POPCOUNT[r]]
    for lane in range(LANES):
        buckets[lane] = BIT_LENGTH[(sums[lane] * scale) >> 16]


@inline
def zigzag(number: Any) -> Any:
    """0, 1, -1, 2, -2 ... as 0, 1, 2, 3, 4 ..."""
    return 2 * number - 1 if number > 0 else -2 * number


@inline
def split(z: Any) -> Any:
    """The token of a zigzag number and how many raw bits follow."""
    if z < DIRECT:
        return z, 0
    length = 5
    while z >> length:
        length += 1
    return DIRECT + 2 * (length - 5) + ((z >> (length - 2)) & 1), length - 2


@inline
def class_of(number: Any) -> Any:
    """The class of the real part's magnitude."""
    size = abs(number)
    return size if size < 2 else (2 if size < 4 else 3)


@jit
def magnitudes_of(q: Any, first: Any, magnitudes: Any) -> None:
    """min(255, sum of |q|) of the tile that starts at `first`."""
    for i in range(TILE):
        total = abs(int64(q[0, first + i]))
        if q.shape[0] == 2:
            total += abs(int64(q[1, first + i]))
        magnitudes[i] = min(total, LARGEST_MAGNITUDE)


@jit
def count(q: Any, counts: Any) -> Any:
    """Add to counts (tables, TOKENS) how often tokens occur; the number of raw bits is returned."""
    magnitudes = np.zeros(TILE, np.int32)
    sums = np.zeros(LANES, np.int32)
    buckets = np.zeros(LANES, np.int64)
    raw = 0
    for first in range(0, q.shape[1], TILE):
        magnitudes_of(q, first, magnitudes)
        for r in range(ROUNDS):
            buckets_of(magnitudes, r, sums, buckets)
            for lane in range(LANES):
                place = first + r * LANES + lane
                token, bits = split(zigzag(int64(q[0, place])))
                counts[buckets[lane], token] += 1
                raw += bits
                if q.shape[0] == 2:
                    table = BUCKETS + CLASSES * buckets[lane] + class_of(int64(q[0, place]))
                    token, bits = split(zigzag(int64(q[1, place])))
                    counts[table, token] += 1
                    raw += bits
    return raw


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
def push_round(states: Any, numbers: Any, tables: Any, starts: Any, words: Any, top: Any) -> Any:
    """Put a number a lane on the states: everything that `take_round` takes, the other way round."""
    longest = 0
    for lane in range(LANES):
        longest = max(longest, split(zigzag(numbers[lane]))[1])
    for part in range(parts_of(longest) - 1, -1, -1):
        for back in range(LANES):
            lane = LANES - 1 - back
            z = zigzag(numbers[lane])
            bits = split(z)[1]
            if parts_of(bits) > part:
                below = RAW_LOG2 * (parts_of(bits) - 1 - part)
                width = min(RAW_LOG2, bits - below)
                value = (z >> below) & ((1 << width) - 1)
                frequency = 1 << (TOTAL_LOG2 - width)
                top = push(states, lane, value * frequency, frequency, words, top)
    for back in range(LANES):
        lane = LANES - 1 - back
        token = split(zigzag(numbers[lane]))[0]
        start = int64(starts[tables[lane], token])
        frequency = int64(starts[tables[lane], token + 1]) - start
        top = push(states, lane, start, frequency, words, top)
    return top


@jit
def encode_segment(q: Any, begin: Any, stop: Any, starts: Any, states: Any, words: Any) -> Any:
    """Encode places begin .. stop - 1 of q (components, ...): returns where in `words` they start, -1 where
    they do not fit. starts (tables, TOKENS + 1) are the tokens' cumulative frequencies; states (32) is set to
    what the decoder starts with."""
    magnitudes = np.zeros(TILE, np.int32)
    sums = np.zeros(LANES, np.int32)
    buckets = np.zeros(LANES, np.int64)
    tables = np.zeros(LANES, np.int64)
    numbers = np.zeros(LANES, np.int64)
    top = words.size
    states[:] = LOW
    for first in range(stop - TILE, begin - TILE, -TILE):
        magnitudes_of(q, first, magnitudes)
        for r in range(ROUNDS - 1, -1, -1):
            if top < MOST_ROUND_WORDS:
                return -1
            place = first + r * LANES
            buckets_of(magnitudes, r, sums, buckets)
            if q.shape[0] == 2:
                for lane in range(LANES):
                    tables[lane] = BUCKETS + CLASSES * buckets[lane] + class_of(int64(q[0, place + lane]))
                    numbers[lane] = q[1, place + lane]
                top = push_round(states, numbers, tables, starts, words, top)
            for lane in range(LANES):
                numbers[lane] = q[0, place + lane]
            top = push_round(states, numbers, buckets, starts, words, top)
    return top


@jit
def take_round(
    states: Any, tables: Any, starts: Any, lookup: Any, words: Any, at: Any, numbers: Any, bits: Any
) -> Any:
    """A number a lane from the states: the tokens of all lanes, then the first part of raw bits of all lanes
    that have one, then the second. Returns the place of the next word, past the end of `words` where they are
    used up. `bits` (32) is for work."""
    longest = 0
    for lane in range(LANES):
        state = states[lane]
        slot = state & (TOTAL - 1)
        token = int64(lookup[tables[lane], slot])
        start = int64(starts[tables[lane], token])
        state = (int64(starts[tables[lane], token + 1]) - start) * (state >> TOTAL_LOG2) + slot - start
        if state < LOW:
            state = (state << 16) | (int64(words[at]) if at < words.size else 0)
            at += 1
        states[lane] = state
        bits[lane] = 0
        if token >= DIRECT:
            bits[lane] = 3 + (token - DIRECT) // 2
            longest = max(longest, bits[lane])
            token = (2 + (token & 1)) << bits[lane]
        numbers[lane] = token
    for _ in range(parts_of(longest)):
        for lane in range(LANES):
            if bits[lane] == 0:
                continue
            width = (bits[lane] - 1) % RAW_LOG2 + 1
            rest = TOTAL_LOG2 - width
            slot = states[lane] & (TOTAL - 1)
            state = ((states[lane] >> TOTAL_LOG2) << rest) + (slot & ((1 << rest) - 1))
            if state < LOW:
                state = (state << 16) | (int64(words[at]) if at < words.size else 0)
                at += 1
            states[lane] = state
            bits[lane] -= width
            numbers[lane] |= (slot >> rest) << bits[lane]
    for lane in range(LANES):
        z = numbers[lane]
        numbers[lane] = (z >> 1) + 1 if z & 1 else -(z >> 1)
    return at


@jit
def decode_segment(words: Any, states: Any, starts: Any, lookup: Any, q: Any, begin: Any, stop: Any) -> Any:
    """Fill places begin .. stop - 1 of q; False where words or states do not come out even."""
    magnitudes = np.zeros(TILE, np.int32)
    sums = np.zeros(LANES, np.int32)
    buckets = np.zeros(LANES, np.int64)
    tables = np.zeros(LANES, np.int64)
    numbers = np.zeros(LANES, np.int64)
    sizes = np.zeros(LANES, np.int64)
    bits = np.zeros(LANES, np.int64)
    at = 0
    for first in range(begin, stop, TILE):
        for r in range(ROUNDS):
            if at > words.size:
                return False
            place = first + r * LANES
            buckets_of(magnitudes, r, sums, buckets)
            at = take_round(states, buckets, starts, lookup, words, at, numbers, bits)
            for lane in range(LANES):
                q[0, place + lane] = numbers[lane]
                sizes[lane] = abs(numbers[lane])
            if q.shape[0] == 2:
                for lane in range(LANES):
                    tables[lane] = BUCKETS + CLASSES * buckets[lane] + class_of(numbers[lane])
                at = take_round(states, tables, starts, lookup, words, at, numbers, bits)
                for lane in range(LANES):
                    q[1, place + lane] = numbers[lane]
                    sizes[lane] += abs(numbers[lane])
            for lane in range(LANES):
                magnitudes[r * LANES + lane] = min(sizes[lane], LARGEST_MAGNITUDE)
    for lane in range(LANES):
        if states[lane] != LOW:
            return False
    return at == words.size


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
