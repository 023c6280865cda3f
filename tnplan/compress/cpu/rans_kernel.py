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

from tnplan.common.kernels.kernel import Late, kernel
from tnplan.common.kernels.vector_operations import unowned_views

jit = kernel(keeps_subnormals=True, nogil=True, error_model="numpy")
inline = kernel(keeps_subnormals=True, nogil=True, error_model="numpy", forceinline=True)
unowned: Any = Late(unowned_views)
int32: Any = np.int32
int64: Any = np.int64
uint32: Any = np.uint32
uint64: Any = np.uint64

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
MOST_AHEAD = MOST_ROUND_WORDS + LANES
"""Words behind the last one that may be looked at before a round's end says that they are missing."""

POPCOUNT = np.array([bin(r).count("1") for r in range(ROUNDS)], np.int64)
NEIGHBOURS = np.array(
    [[(r ^ (1 << b) if r >> b & 1 else ROUNDS) * LANES for b in range(ROUND_AXES)] for r in range(ROUNDS)],
    np.uint64,
)
"""Where the magnitudes of a round's neighbours begin; those that come later are a row of zeros."""
USED_BY = np.array(
    [[sum(1 << (r ^ 1 << b) % 64 for b in range(ROUND_AXES) if r >> b & 1 and (r ^ 1 << b) // 64 == half)
      for half in (0, 1)] for r in range(ROUNDS)],
    np.uint64,
)  # fmt: skip
"""Bits of a round's neighbours among the first 64 rounds, and among the others."""
SCALE = np.array([0] + [8 * 65536 // n for n in range(1, ROUND_AXES + 1)], np.int64)

SLOT_LOG2 = np.uint32(TOTAL_LOG2)
SLOTS = np.uint32(TOTAL - 1)
STATE, CONTEXT, NUMBER, BITS, SIZE = (np.uint64(row * LANES) for row in range(5))
"""Where the 32 lanes' values start in the memory for work: all in one array, so that the compiler sees that
they do not overlap. A context is its table's first slot; a number is an entry of `slots`, then a zigzag."""
WORK_ROWS = 5

TOKEN_ROOM = 1 << 7
FREQUENCY_AT = 7
OFFSET_AT = 20
"""Of an entry of `slots`: a token, its frequency from this bit on, and how far the slot is behind its
first one."""


# rANS with state x in [2^16, 2^32), n = TOTAL_LOG2 bits of probability: a symbol of frequency f and
# first slot s is encoded by x -> (x / f) 2^n + x mod f + s, and decoded by slot = x mod 2^n, x -> f
# (x / 2^n) + slot - s. Words of 16 bits leave the state before it grows past 2^32, and come back
# when it falls below 2^16.
@inline
def push(states: Any, lane: Any, start: Any, frequency: Any, words: Any, top: Any) -> Any:
    """Put a symbol on a lane's state; `words` is filled downwards from `top`, which is returned."""
    # Invariant: encoding runs from the last symbol to the first, so words are written downwards and
    # are read upwards.
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
def fill_contexts(magnitudes: Any, r: Any, work: Any, floats: Any, lanes: Any) -> None:
    """The context tables of round r, as their first slots, from the magnitudes (129 * 32) of earlier rounds
    and a row of zeros; `floats` is `work` as float32."""
    # A round's neighbours along the seven axes of rounds; later ones are a row of zeros, so that
    # seven loads and no branch serve every round. SCALE divides by how many there are, in 16 bits
    # behind the point.
    o0, o1, o2, o3 = NEIGHBOURS[r, 0], NEIGHBOURS[r, 1], NEIGHBOURS[r, 2], NEIGHBOURS[r, 3]
    o4, o5, o6 = NEIGHBOURS[r, 4], NEIGHBOURS[r, 5], NEIGHBOURS[r, 6]
    scale = int32(SCALE[POPCOUNT[r]])
    # Sums are at most 7 * 255, and exact as float32. Converting to a float and reading its exponent
    # is a bit length in vector instructions.
    for at in range(lanes):
        near = magnitudes[o0 + at] + magnitudes[o1 + at] + magnitudes[o2 + at] + magnitudes[o3 + at]
        total = near + magnitudes[o4 + at] + magnitudes[o5 + at] + magnitudes[o6 + at]
        floats[CONTEXT + at] = np.float32(int32(int32(int32(total) * scale) >> int32(16)))
    # A float32 from 1/2 on has its bit length in its exponent, less 126.
    for at in range(lanes):
        length = max(int32(work[CONTEXT + at] >> uint32(23)) - int32(126), int32(0))
        work[CONTEXT + at] = uint32(length) << SLOT_LOG2


@inline
def add_classes(work: Any, lanes: Any) -> None:
    """The context tables of imaginary parts from those of a round and the real parts' sizes."""
    # Classes of |q|: 0, 1, 2 to 3, more; the tables of imaginary parts come behind those of real
    # ones.
    for lane in range(lanes):
        size = work[SIZE + lane]
        kind = uint32(min(size, uint32(2)) + uint32(size >= uint32(4)))
        context = uint32(work[CONTEXT + lane] * uint32(CLASSES))
        work[CONTEXT + lane] = uint32(uint32(context + uint32(BUCKETS << TOTAL_LOG2)) + (kind << SLOT_LOG2))


@inline
def take_words(work: Any, words: Any, at: Any, lanes: Any) -> Any:
    """States below LOW take a word each, the first lane first; the place of the next word."""
    # Most rounds take no word: one minimum shows it.
    least = work[STATE]
    for lane in range(lanes):
        least = min(least, work[STATE + lane])
    if least >= uint32(LOW):
        return at
    # Lanes in turn, as each has to know how many words those before it have taken. Without a
    # branch: a word is read in any case, which is why MOST_AHEAD words stand behind the last one.
    offset = uint64(at)
    for lane in range(lanes):
        state = work[STATE + lane]
        low = state < uint32(LOW)
        refilled = uint32(uint32(state << uint32(16)) | uint32(words[offset]))
        work[STATE + lane] = refilled if low else state
        offset += uint64(low)
    return int64(offset)


@inline
def take_zeros(work: Any, zeros: Any, words: Any, at: Any, lanes: Any) -> Any:
    """Take a token 0 of one table from every state, where all have one: the place of the next word, or -1.
    `zeros`: the frequency of that token, the table's first."""
    # Token 0 is a table's first: its slots are 0 .. zeros-1, and s = 0. If the largest slot of all
    # lanes is below, all have it.
    largest = uint32(0)
    for lane in range(lanes):
        largest = max(largest, uint32(work[STATE + lane] & SLOTS))
    if largest >= zeros:
        return -1
    for lane in range(lanes):
        state = work[STATE + lane]
        work[STATE + lane] = uint32(uint32(zeros * uint32(state >> SLOT_LOG2)) + uint32(state & SLOTS))
    return take_words(work, words, at, lanes)


@inline
def take_raw(work: Any, longest: Any, words: Any, at: Any, lanes: Any) -> Any:
    """Raw bits below what numbers have of their zigzags, in parts."""
    # Raw bits are symbols of equal frequency 2^(n - width): the highest `width` bits of the slot
    # are the bits, and x -> (x / 2^n) 2^(n - width) + the lower bits of the slot. At most RAW_LOG2
    # at a time; the first part takes what does not fill a whole one.
    for _ in range((int64(longest) + RAW_LOG2 - 1) // RAW_LOG2):
        for lane in range(lanes):
            bits, state = work[BITS + lane], work[STATE + lane]
            first = uint32(uint32(uint32(bits - uint32(1)) % uint32(RAW_LOG2)) + uint32(1))
            width = bits if longest <= RAW_LOG2 else (first if bits else uint32(0))
            shift = uint32(SLOT_LOG2 - width)
            slot = uint32(state & SLOTS)
            low_bits = uint32(slot & uint32(uint32(uint32(1) << shift) - uint32(1)))
            work[STATE + lane] = uint32(uint32(uint32(state >> SLOT_LOG2) << shift) + low_bits)
            n_lower = uint32(bits - width)
            work[BITS + lane] = n_lower
            work[NUMBER + lane] |= uint32(uint32(slot >> shift) << n_lower)
        at = take_words(work, words, at, lanes)
    return at


@inline
def take_round(work: Any, slots: Any, words: Any, at: Any, lanes: Any) -> Any:
    """A zigzag number a lane from the states: the tokens of all lanes, then the first part of raw bits of all
    lanes that have one, then the second. Returns the place of the next word, past the end of `words` where
    they are used up. `slots` is what `slot_table` gives."""
    # Loops of one kind of work each over all lanes: gathers, then arithmetic, so that each becomes
    # vector instructions.
    for lane in range(lanes):
        work[NUMBER + lane] = uint32(work[CONTEXT + lane] + uint32(work[STATE + lane] & SLOTS))
    for lane in range(lanes):
        work[NUMBER + lane] = slots[uint64(work[NUMBER + lane])]
    longest, direct = uint32(0), uint32(DIRECT)
    for lane in range(lanes):
        entry = work[NUMBER + lane]
        token = uint32(entry & uint32(TOKEN_ROOM - 1))
        frequency = uint32(uint32(entry >> uint32(FREQUENCY_AT)) & uint32(2 * TOTAL - 1))
        above = uint32(frequency * uint32(work[STATE + lane] >> SLOT_LOG2))
        work[STATE + lane] = uint32(above + uint32(entry >> uint32(OFFSET_AT)))
        # Tokens from DIRECT on have the bit length and the second highest bit: raw bits follow
        # below these two.
        raw = (
            uint32(uint32(uint32(token - direct) >> uint32(1)) + uint32(3)) if token >= direct else uint32(0)
        )
        high = uint32(uint32(2) + uint32(token & uint32(1)))
        work[NUMBER + lane] = uint32(high << raw) if token >= direct else token
        work[BITS + lane] = raw
        longest = max(longest, raw)
    at = take_words(work, words, at, lanes)
    return take_raw(work, longest, words, at, lanes) if longest else at


@inline
def put_round(work: Any, row: Any, offset: Any, lanes: Any) -> None:
    """Bring a round's numbers to their place, and add what counts of their sizes."""
    # z = 2 |q| - (q > 0): an odd z is positive. (size ^ sign) - sign negates where sign is all
    # ones, that is where z is even.
    for lane in range(lanes):
        zigzag = work[NUMBER + lane]
        odd = uint32(zigzag & uint32(1))
        size, sign = uint32(uint32(zigzag >> uint32(1)) + odd), uint32(odd - uint32(1))
        work[SIZE + lane] += min(size, uint32(LARGEST_MAGNITUDE))
        row[offset + lane] = uint32(uint32(size ^ sign) - sign)


@inline
def take_part(
    work: Any, zeros: Any, slots: Any, words: Any, at: Any, row: Any, offset: Any, lanes: Any
) -> Any:
    """A round of one component, the shorter way where `zeros` is not 0 and all its tokens are 0: returns the
    place of the next word."""
    after = take_zeros(work, zeros, words, at, lanes) if zeros else -1
    if after >= 0:
        for lane in range(lanes):
            row[offset + lane] = uint32(0)
        return after
    at = take_round(work, slots, words, at, lanes)
    put_round(work, row, offset, lanes)
    return at


@inline
def any_size(work: Any, lanes: Any) -> Any:
    """Whether any number of a round so far is not 0."""
    bits = uint32(0)
    for lane in range(lanes):
        bits |= work[SIZE + lane]
    return bits != uint32(0)


@inline
def remember(work: Any, magnitudes: Any, first: Any, lanes: Any) -> Any:
    """Keep a round's magnitudes; whether any is not 0."""
    largest = uint32(0)
    for lane in range(lanes):
        size = min(work[SIZE + lane], uint32(LARGEST_MAGNITUDE))
        largest |= size
        magnitudes[first + lane] = int32(size)
    return largest != uint32(0)


@jit
def normalize(counts: Any, frequencies: Any) -> None:
    """Fill frequencies (tables, tokens), zeros before, from counts: those of a used table add to TOTAL, and
    what occurs has 1."""
    # Frequencies proportional to counts, rounded down but at least 1; the most frequent tokens take
    # what is missing or too much, where it changes the length of the code least. Invariant: what
    # occurs has frequency 1 or more, else it could not be coded.
    for table in range(counts.shape[0]):
        total, missing = int64(0), TOTAL
        for token in range(counts.shape[1]):
            total += counts[table, token]
        if total == 0:
            continue
        for token in range(counts.shape[1]):
            if counts[table, token]:
                frequencies[table, token] = max(1, counts[table, token] * TOTAL // total)
                missing -= frequencies[table, token]
        while missing:
            largest = 0
            for token in range(counts.shape[1]):
                largest = token if frequencies[table, token] > frequencies[table, largest] else largest
            change = max(missing, -(frequencies[table, largest] // 2))
            frequencies[table, largest] += change
            missing -= change


@jit
def fill_slots(frequencies: Any, slots: Any) -> None:
    """Entries of `slots` for frequencies (tables, tokens), table after table."""
    # A look-up for each of the 2^12 slots: token, frequency and offset in one 32-bit word, so that
    # decoding a symbol takes one access.
    for table in range(frequencies.shape[0]):
        at = table * TOTAL
        for token in range(frequencies.shape[1]):
            frequency = frequencies[table, token]
            for offset in range(frequency):
                slots[at + offset] = token | frequency << FREQUENCY_AT | offset << OFFSET_AT
            at += frequency


@jit
def zeros_of(slots: Any, table: Any) -> Any:
    """The frequency of token 0 in a table, whose slots are the first ones."""
    first = int64(slots[table * TOTAL])
    return (first >> FREQUENCY_AT) & (2 * TOTAL - 1) if first & (TOKEN_ROOM - 1) == 0 else int64(0)


@jit
def decode_segments(data: Any, counts: Any, slots: Any, step: Any, q: Any, scratch: Any) -> Any:
    """Fill q (components, tiles * 4096; uint32) from segments of `step` places: 32-bit states and 16-bit
    words, filled up to 32 bits, in data (uint16), which has as many words as `counts` say, and behind them
    MOST_AHEAD of anything. 0 where words or states do not come out even, else 1.

    `scratch` are magnitudes (int32, 4096 + 32, which end in zeros), work (uint32, WORK_ROWS * 32), and the
    same memory as float32.
    """
    # Invariant: `data` is not trusted. Words may be read up to MOST_AHEAD behind the last; each
    # round begins with a look whether the place is past the end, and states have to end at LOW,
    # where the encoder began.
    words, slots, magnitudes = unowned(data), unowned(slots), unowned(scratch[0])
    work, floats = unowned(scratch[1]), unowned(scratch[2])
    rows = unowned(q)
    lanes = uint64(work.size) // uint64(WORK_ROWS)
    zeros, at, used, later = uint32(zeros_of(slots, 0)), 0, uint64(0), uint64(0)
    zeros_behind = uint32(zeros_of(slots, BUCKETS)) if q.shape[0] == 2 else uint32(0)
    for segment in range(counts.size):
        for lane in range(LANES):
            high = uint32(uint32(words[at + 2 * lane + 1]) << uint32(16))
            work[STATE + uint64(lane)] = uint32(words[at + 2 * lane]) | high
        at += 2 * LANES
        end = at + counts[segment]
        for position in range(segment * step, min(q.shape[1], segment * step + step), LANES):
            if at > end:
                return 0
            r, first = position // LANES % ROUNDS, uint64(position)
            if r == 0:
                used, later = uint64(0), uint64(0)
            # Where all neighbours are 0 the context is that of zeros, and a tile of mostly zeros
            # takes the short way.
            quiet = r > 0 and (used & USED_BY[r, 0]) | (later & USED_BY[r, 1]) == uint64(0)
            for lane in range(lanes):
                work[SIZE + lane] = uint32(0)
                work[CONTEXT + lane] = uint32(0) if r else uint32(FIRST << TOTAL_LOG2)
            if r and not quiet:
                fill_contexts(magnitudes, r, work, floats, lanes)
            for c in range(q.shape[0]):
                if c:
                    quiet = quiet and not any_size(work, lanes)
                    add_classes(work, lanes)
                own = (zeros if c == 0 else zeros_behind) if quiet else uint32(0)
                at = take_part(work, own, slots, words, at, rows[c], first, lanes)
            if remember(work, magnitudes, uint64(r * LANES), lanes):
                used |= uint64(r < 64) << uint64(r % 64)
                later |= uint64(r >= 64) << uint64(r % 64)
        for lane in range(lanes):
            if work[STATE + lane] != uint32(LOW):
                return 0
        if at != end:
            return 0
        at += counts[segment] % 2
    return 1


@jit
def encode_bytes(data: Any, starts: Any, states: Any, words: Any) -> Any:
    """Encode bytes, byte i on lane i % 32, by the cumulative frequencies starts (257); as encode_segment.
    A byte takes at most one of `words`."""
    top = words.size
    for lane in range(LANES):
        states[lane] = LOW
    for i in range(data.size - 1, -1, -1):
        start = int64(starts[data[i]])
        top = push(states, i % LANES, start, int64(starts[int64(data[i]) + 1]) - start, words, top)
    return top


@jit
def decode_bytes(words: Any, states: Any, starts: Any, lookup: Any, data: Any) -> Any:
    """Fill `data`; 0 where words or states do not come out even, else 1."""
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
                return 0
            state = (state << 16) | int64(words[at])
            at += 1
        states[lane] = state
        data[i] = byte
    for lane in range(LANES):
        if states[lane] != LOW:
            return 0
    return int64(at == words.size)
