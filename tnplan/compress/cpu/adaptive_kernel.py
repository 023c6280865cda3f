"""The numba kernels of residuals that are nearly all 0: adaptive binary arithmetic coding. Imported lazily.

A number is some decisions, each with a probability that follows what its context has seen (Martin, 1979, as
in LZMA: an interval of 48 bits, from which words of 16 bits are taken). In turn: whether any of 32 numbers is
not 0, by the two before; of such 32 whether each is 0, its sign, whether it is larger than 1 and than 2, and
what is above 3 by an Elias-gamma code.

Contexts are sums of magnitudes of numbers before: those 1 and 2 before it, in its strip of `format.box`, and
those 31 to 33 and 64 before it, in the rows above.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import Late, kernel
from tnplan.common.kernels.vector_operations import unowned_views

jit = kernel(keeps_subnormals=True, nogil=True, error_model="numpy")
unowned: Any = Late(unowned_views)
int32: Any = np.int32
int64: Any = np.int64
uint64: Any = np.uint64
uint32: Any = np.uint32

ROW = 32
MOST_SIZE, MOST_SUM = 255, 127
LEVELS = np.array([n.bit_length() for n in range(MOST_SUM + 1)], np.int64)
"""Of a sum of magnitudes."""
MOST_SEEN = 63
RATES = np.array([round(2**17 / (2 * k + 3)) for k in range(MOST_SEEN + 1)], np.int64)
"""How far a probability goes to what was seen, in units of 2^-16, after so many decisions."""
LEAST = 24
"""Probabilities are from this to 2^16 less this, in units of 2^-16."""
ANY, ZERO, SIGN, LARGER, LENGTH = 0, 4, 36, 45, 61
"""Where the contexts of each kind of decision begin."""
CONTEXTS = LENGTH + 8 * 32
"""The state of a context: its probability of yes; so many places behind how many decisions it has seen."""
WHOLE_LOG2 = 48
WORD_LOG2 = 16
FULL = np.uint64(1 << (WHOLE_LOG2 - WORD_LOG2))
"""Below this an interval gives up a word."""
ROOM = 1 << 12
"""Words that a row takes at most: 32 numbers of 70 decisions and 31 bits."""
ENDING = 3
"""Words of an interval."""


@jit
def begin(states: Any) -> None:
    """All contexts before their first decision."""
    for k in range(CONTEXTS):
        states[k], states[CONTEXTS + k] = 1 << 15, 0


@jit
def learn(states: Any, context: Any, yes: Any) -> None:
    """The state of a context after a decision."""
    # What was seen is by itself: a next decision in the same context then waits for one product alone. Both
    # ends are out of reach, so that no decision is ever impossible.
    chance, seen = states[context], states[uint64(CONTEXTS) + context]
    aim = int64(65536 - LEAST) if yes else int64(LEAST)
    states[context] = chance + (((aim - chance) * RATES[seen]) >> int64(16))
    states[uint64(CONTEXTS) + context] = seen + int64(seen < MOST_SEEN)


@jit
def shifted(low: Any, width: Any, words: Any, at: Any) -> Any:
    """The interval from `low`, so wide, once its first word is written."""
    # What a sum carried beyond 48 bits is added to the words before.
    k = at
    carried = low >> uint64(WHOLE_LOG2)
    while carried:
        k -= 1
        carried = uint64(words[k] == 0xFFFF)
        words[k] += 1
    words[at] = (low >> uint64(WHOLE_LOG2 - WORD_LOG2)) & uint64(0xFFFF)
    return (low & (FULL - uint64(1))) << uint64(WORD_LOG2), width << uint64(WORD_LOG2), at + 1


@jit
def put(states: Any, context: Any, yes: Any, low: Any, width: Any, words: Any, at: Any) -> Any:
    """Write a decision: the interval and the place of the next word."""
    context = uint64(context)
    bound = (width >> uint64(WORD_LOG2)) * uint64(states[context])
    low = low if yes else low + bound
    width = bound if yes else width - bound
    learn(states, context, yes)
    if width < FULL:
        return shifted(low, width, words, at)
    return low, width, at


@jit
def take(states: Any, context: Any, code: Any, width: Any, words: Any, at: Any) -> Any:
    """Read a decision: it, where the stream is in the interval, its width, and the place of the next word."""
    context = uint64(context)
    bound = (width >> uint64(WORD_LOG2)) * uint64(states[context])
    yes = code < bound
    code = code if yes else code - bound
    width = bound if yes else width - bound
    learn(states, context, yes)
    if width < FULL:
        code = code << uint64(WORD_LOG2) | uint64(words[min(at, words.size - 1)])
        width, at = width << uint64(WORD_LOG2), at + 1
    return yes, code, width, at


@jit
def size_of(number: Any) -> Any:
    """A magnitude, as far as contexts look at it."""
    return int32(min(uint32(abs(number)), uint32(MOST_SIZE)))


@jit
def sign_of(number: Any) -> Any:
    """1 and two of them for numbers that are not 0."""
    return int32(number > 0) + int32(number != 0)


@jit
def fill_above(q: Any, first: Any, above: Any) -> None:
    """What the rows above add to the contexts of a row (ROW), and behind them whether the number above is not
    0, and its sign (ROW each)."""
    if first < 2 * ROW:
        for k in range(3 * ROW):
            above[k] = 0
        if first == 0:
            return
        for k in range(ROW):
            above[k] = 2 * size_of(q[k])
    else:
        # One loop over numbers in memory, so that it becomes vector instructions.
        before, behind, high = first - uint64(ROW + 1), first - uint64(ROW - 1), first - uint64(2 * ROW)
        for k in range(ROW):
            at = uint64(k)
            total = 2 * size_of(q[before + uint64(1) + at]) + size_of(q[before + at])
            above[at] = int32(total + size_of(q[behind + at]) + size_of(q[high + at]))
        # The number behind the row above is this row's own first one.
        above[ROW - 1] -= size_of(q[first])
    for k in range(ROW):
        up = q[first - uint64(ROW) + uint64(k)]
        above[ROW + k] = 2 * int32(up != 0)
        above[2 * ROW + k] = int32(up > 0) + int32(up != 0)


@jit
def put_size(states: Any, level: Any, number: Any, low: Any, width: Any, words: Any, at: Any) -> Any:
    """Write the magnitude of a number that is not 0."""
    size = uint64(uint32(abs(number)))
    for k in range(2):
        low, width, at = put(states, LARGER + 2 * level + k, size > uint64(k + 1), low, width, words, at)
        if size <= uint64(k + 1):
            return low, width, at
    # What is above 2: its length, and its bits below the highest one.
    beyond, length = size - uint64(2), 0
    while beyond >> uint64(length + 1):
        length += 1
    for k in range(length + 1):
        low, width, at = put(states, LENGTH + 32 * level + k, k < length, low, width, words, at)
    while length:
        part = min(length, WORD_LOG2)
        length -= part
        width >>= uint64(part)
        low += (beyond >> uint64(length) & uint64((1 << part) - 1)) * width
        if width < FULL:
            low, width, at = shifted(low, width, words, at)
    return low, width, at


@jit
def encode(q: Any, flags: Any, most: Any, states: Any, above: Any, words: Any) -> Any:
    """Write q (flat, whole tiles); returns how many words it takes, or -1 where it takes more than there is
    room for, or more than `most` steps. `flags`: a byte for each row of 32 numbers, and two before them."""
    n_steps = 0
    for row in range(q.size // ROW):
        some, count = int32(0), 0
        for k in range(ROW):
            some |= q[row * ROW + k]
        flags[row + 2] = some != 0
        if some:
            for k in range(ROW):
                count += q[row * ROW + k] != 0
            n_steps += ROW + 3 * count
            # Coarse points come first, of which most are not 0: what is dense shows it early.
            if n_steps > most:
                return -1
    begin(states)
    low, width, at = uint64(0), uint64(1 << WHOLE_LOG2), 0
    numbers, rows, own = unowned(q), unowned(above), unowned(states)
    for row in range(q.size // ROW):
        yes = flags[row + 2]
        context = ANY + int64(flags[row + 1]) + 2 * int64(flags[row])
        low, width, at = put(own, context, yes, low, width, words, at)
        if not yes:
            continue
        if at + ROOM > words.size:
            return -1
        first = uint64(row * ROW)
        fill_above(numbers, first, rows)
        before, earlier, left = int32(0), int32(0), int32(0)
        for k in range(ROW):
            number = numbers[first + uint64(k)]
            level = LEVELS[min(rows[k] + 2 * before + earlier, MOST_SUM)]
            context = ZERO + 4 * level + int64(before > 0) + rows[ROW + k]
            low, width, at = put(own, context, number == 0, low, width, words, at)
            earlier, before = before, size_of(number)
            if number != 0:
                context = SIGN + 3 * left + rows[2 * ROW + k]
                low, width, at = put(own, context, number > 0, low, width, words, at)
                low, width, at = put_size(own, level, number, low, width, words, at)
            left = sign_of(number)
    for _ in range(ENDING):
        low, width, at = shifted(low, width, words, at)
    return at


@jit
def take_size(states: Any, level: Any, code: Any, width: Any, words: Any, at: Any) -> Any:
    """The reverse of `put_size`."""
    for k in range(2):
        yes, code, width, at = take(states, LARGER + 2 * level + k, code, width, words, at)
        if not yes:
            return uint64(k + 1), code, width, at
    number, length = uint64(1), 0
    for k in range(32):
        yes, code, width, at = take(states, LENGTH + 32 * level + k, code, width, words, at)
        if not yes:
            break
        length += 1
    while length:
        part = min(length, WORD_LOG2)
        length -= part
        width >>= uint64(part)
        bits = min(code // width, uint64((1 << part) - 1))
        code -= bits * width
        number = number << uint64(part) | bits
        if width < FULL:
            code = code << uint64(WORD_LOG2) | uint64(words[min(at, words.size - 1)])
            width, at = width << uint64(WORD_LOG2), at + 1
    return number + uint64(2), code, width, at


@jit
def decode(words: Any, states: Any, above: Any, q: Any) -> Any:
    """Fill q from words, behind which a 0 stands; returns how many were read."""
    # Invariant: `words` is not trusted. Behind the last word the same 0 is read again and again, and how many
    # numbers there are does not depend on what is read.
    begin(states)
    code, width, at = uint64(0), uint64(1 << WHOLE_LOG2), 0
    for _ in range(ENDING):
        code = code << uint64(WORD_LOG2) | uint64(words[min(at, words.size - 1)])
        at += 1
    flag, other = int64(0), int64(0)
    numbers, rows, own = unowned(q), unowned(above), unowned(states)
    for row in range(q.size // ROW):
        first = uint64(row * ROW)
        yes, code, width, at = take(own, ANY + flag + 2 * other, code, width, words, at)
        flag, other = int64(yes), flag
        for k in range(ROW):
            numbers[first + uint64(k)] = 0
        if not yes:
            continue
        fill_above(numbers, first, rows)
        before, earlier, left = int32(0), int32(0), int32(0)
        for k in range(ROW):
            level = LEVELS[min(rows[k] + 2 * before + earlier, MOST_SUM)]
            context = ZERO + 4 * level + int64(before > 0) + rows[ROW + k]
            none, code, width, at = take(own, context, code, width, words, at)
            number = int32(0)
            if not none:
                context = SIGN + 3 * left + rows[2 * ROW + k]
                positive, code, width, at = take(own, context, code, width, words, at)
                size, code, width, at = take_size(own, level, code, width, words, at)
                number = int32(uint32(size))
                number = number if positive else int32(-number)
                numbers[first + uint64(k)] = number
            earlier, before, left = before, size_of(number), sign_of(number)
    return at
