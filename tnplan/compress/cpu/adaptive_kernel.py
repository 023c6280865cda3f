"""The numba kernels of residuals that are nearly all 0, by adaptive binary arithmetic coding. Imported lazily.

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
SEEN_LOG2 = 6
RATES = np.array([round(2**17 / (2 * k + 3)) for k in range(1 << SEEN_LOG2)], np.int64)
"""How far a probability goes to what was seen, in units of 2^-16, after so many decisions."""
LEAST = 24
"""Probabilities are from this to 2^16 less this, in units of 2^-16."""
ANY, ZERO, SIGN, LARGER, LENGTH = 0, 4, 36, 45, 61
"""Where the contexts of each kind of decision begin."""
CONTEXTS = LENGTH + 8 * 32
BEGIN = 1 << (15 + SEEN_LOG2)
"""The state of a context: its probability of yes, and below that how many decisions it has seen."""
WHOLE_LOG2 = 48
WORD_LOG2 = 16
FULL = np.uint64(1 << (WHOLE_LOG2 - WORD_LOG2))
"""Below this an interval gives up a word."""
ROOM = 1 << 12
"""Words that a row takes at most: 32 numbers of 70 decisions and 31 bits."""
ENDING = 3
"""Words of an interval."""


@jit
def learnt(state: Any, yes: Any) -> Any:
    """The state of a context after a decision."""
    seen, chance = state & int64((1 << SEEN_LOG2) - 1), state >> int64(SEEN_LOG2)
    # Both ends are out of reach, so that no decision is ever impossible.
    aim = int64(65536 - LEAST) if yes else int64(LEAST)
    chance += ((aim - chance) * RATES[seen]) >> int64(16)
    seen += int64(seen < (1 << SEEN_LOG2) - 1)
    return chance << int64(SEEN_LOG2) | seen


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
    state = states[context]
    bound = (width >> uint64(WORD_LOG2)) * uint64(state >> int64(SEEN_LOG2))
    low = low if yes else low + bound
    width = bound if yes else width - bound
    states[context] = learnt(state, yes)
    if width < FULL:
        return shifted(low, width, words, at)
    return low, width, at


@jit
def take(states: Any, context: Any, code: Any, width: Any, words: Any, at: Any) -> Any:
    """Read a decision: it, what the stream says of the interval, its width, and the place of the next word."""
    state = states[context]
    bound = (width >> uint64(WORD_LOG2)) * uint64(state >> int64(SEEN_LOG2))
    yes = code < bound
    code = code if yes else code - bound
    width = bound if yes else width - bound
    states[context] = learnt(state, yes)
    if width < FULL:
        code = code << uint64(WORD_LOG2) | uint64(words[min(at, words.size - 1)])
        width, at = width << uint64(WORD_LOG2), at + 1
    return yes, code, width, at


@jit
def size_of(number: Any) -> Any:
    """A magnitude, as far as contexts look at it."""
    return int64(min(uint32(abs(number)), uint32(MOST_SIZE)))


@jit
def sign_of(number: Any) -> Any:
    """1 and two of them for numbers that are not 0."""
    return int64(number > 0) + int64(number != 0)


@jit
def fill_above(q: Any, first: Any, above: Any) -> None:
    """What the rows above add to the contexts of a row, and behind them whether the number above is not 0."""
    for k in range(ROW):
        total, up = int64(0), int64(0)
        if first >= ROW:
            up = size_of(q[first + k - ROW])
            total = 2 * up + (size_of(q[first + k - ROW + 1]) if k < ROW - 1 else int64(0))
        if first > ROW:
            total += size_of(q[first + k - ROW - 1]) + size_of(q[first + k - 2 * ROW])
        above[k] = total
        above[ROW + k] = 2 * int64(up > 0)


@jit
def put_large(
    states: Any, level: Any, beyond: Any, low: Any, width: Any, words: Any, at: Any
) -> Any:
    """Write a whole number from 1 on: its length, and its bits below the highest one."""
    length = 0
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
    if n_steps > most:
        return -1
    for k in range(states.size):
        states[k] = BEGIN
    low, width, at = uint64(0), uint64(1 << WHOLE_LOG2), 0
    for row in range(q.size // ROW):
        yes = flags[row + 2]
        low, width, at = put(
            states, ANY + int64(flags[row + 1]) + 2 * int64(flags[row]), yes, low, width, words, at
        )
        if not yes:
            continue
        if at + ROOM > words.size:
            return -1
        first = row * ROW
        fill_above(q, first, above)
        before, earlier = int64(0), int64(0)
        for k in range(ROW):
            number = q[first + k]
            level = LEVELS[min(above[k] + 2 * before + earlier, MOST_SUM)]
            context = ZERO + 4 * level + int64(before > 0) + above[ROW + k]
            low, width, at = put(states, context, number == 0, low, width, words, at)
            earlier, before = before, size_of(number)
            if number == 0:
                continue
            left = sign_of(q[first + k - 1]) if k else int64(0)
            up = sign_of(q[first + k - ROW]) if row else int64(0)
            low, width, at = put(states, SIGN + 3 * left + up, number > 0, low, width, words, at)
            size = uint64(uint32(abs(number)))
            low, width, at = put(states, LARGER + 2 * level, size > 1, low, width, words, at)
            if size > 1:
                low, width, at = put(states, LARGER + 2 * level + 1, size > 2, low, width, words, at)
            if size > 2:
                low, width, at = put_large(states, level, size - uint64(2), low, width, words, at)
    for _ in range(ENDING):
        low, width, at = shifted(low, width, words, at)
    return at


@jit
def take_large(states: Any, level: Any, code: Any, width: Any, words: Any, at: Any) -> Any:
    """The reverse of `put_large`."""
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
    return number, code, width, at


@jit
def decode(words: Any, states: Any, above: Any, q: Any) -> Any:
    """Fill q from words, behind which a 0 stands; returns how many were read."""
    # Invariant: `words` is not trusted. Behind the last word the same 0 is read again and again, and how many
    # numbers there are does not depend on what is read.
    for k in range(states.size):
        states[k] = BEGIN
    code, width, at = uint64(0), uint64(1 << WHOLE_LOG2), 0
    for _ in range(ENDING):
        code = code << uint64(WORD_LOG2) | uint64(words[min(at, words.size - 1)])
        at += 1
    flag, other = int64(0), int64(0)
    for row in range(q.size // ROW):
        first = row * ROW
        yes, code, width, at = take(states, ANY + flag + 2 * other, code, width, words, at)
        flag, other = int64(yes), flag
        if not yes:
            for k in range(ROW):
                q[first + k] = 0
            continue
        fill_above(q, first, above)
        before, earlier = int64(0), int64(0)
        for k in range(ROW):
            level = LEVELS[min(above[k] + 2 * before + earlier, MOST_SUM)]
            context = ZERO + 4 * level + int64(before > 0) + above[ROW + k]
            none, code, width, at = take(states, context, code, width, words, at)
            size, number = uint64(0), int32(0)
            if not none:
                left = sign_of(q[first + k - 1]) if k else int64(0)
                up = sign_of(q[first + k - ROW]) if row else int64(0)
                positive, code, width, at = take(states, SIGN + 3 * left + up, code, width, words, at)
                size = uint64(1)
                yes, code, width, at = take(states, LARGER + 2 * level, code, width, words, at)
                if yes:
                    size = uint64(2)
                    yes, code, width, at = take(states, LARGER + 2 * level + 1, code, width, words, at)
                    if yes:
                        size, code, width, at = take_large(states, level, code, width, words, at)
                        size += uint64(2)
                number = int32(uint32(size))
                number = number if positive else int32(-number)
            q[first + k] = number
            earlier, before = before, size_of(number)
    return at
