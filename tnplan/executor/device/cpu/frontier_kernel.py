"""The kernels of least costs on a frontier: a table of the values of binary variables, changed bit by bit.

A step takes a variable u out of the table and puts a variable v in its bit: the cost of v and the others'
values becomes the least over u of the cost so far plus a weight w(u, v). Weights depend on other bits too,
the context. Those of the lane number are spread over vectors of weights; the others choose such vectors.

A pass takes a tile into the cache at a time: some rows of the table, with the bits of its steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.common.kernels.kernel import kernel
from tnplan.common.kernels.vector_operations import (
    copy_least,
    lowered,
    relax,
    relax_lane_bit_0,
    relax_lane_bit_1,
    relax_lane_bit_2,
    relax_lane_bit_3,
    relax_lane_bit_4,
    relax_lane_bit_5,
    relax_reversed,
)

jit = kernel(nogil=True, error_model="numpy")
inline = kernel(nogil=True, error_model="numpy", inline="always")


class FrontierPass(NamedTuple):
    """The arrays of a pass."""

    tiles: NDArray[np.int64]
    """Where each tile begins in the table; `rows`, where a row begins in a tile."""
    rows: NDArray[np.int64]
    steps: NDArray[np.int64]
    """[step | 5]: the bit of the tile, where its weights begin, the vectors of weights of a choice, and how
    many bits of the context are in the tile and, with them, in the tile's number."""
    context: NDArray[np.int64]
    """[step | bit]: those bits."""
    weights: NDArray[Any]
    less: NDArray[Any]
    """(1): what is taken off all costs first."""
    lane_bits: int
    """log2 of the lanes of a vector."""


@inline
def chosen(context: Any, first: int, last: int, number: int) -> int:
    """The bits of a number that a context names, as bits from `first` on."""
    choice = 0
    for k in range(first, last):
        choice |= (number >> context[k] & 1) << k
    return choice


@jit
def relax_bit(costs: Any, step: Any, context: Any, tile: int, weights: Any, lane_bits: int) -> None:
    """One step on a tile."""
    # cost'[v] = the least over u of cost[u] + w[context, u, v], for each value of the other bits. A bit of
    # the lane number is exchanged within a vector, by an operation for each bit: shuffles are constants.
    bit, begin, n_vectors, inner, last = step[0], step[1], step[2], step[3], step[4]
    lanes, stride = 1 << lane_bits, n_vectors << lane_bits
    fixed = chosen(context, inner, last, tile)
    n = costs.size >> lane_bits
    if bit >= lane_bits:
        half = 1 << (bit - lane_bits)
        for high in range(0, n, 2 * half):
            for i in range(high, high + half):
                offset = begin + (chosen(context, 0, inner, i) | fixed) * stride
                relax((costs, i * lanes, (i + half) * lanes, weights, offset))
        return
    for i in range(n):
        offset = begin + (chosen(context, 0, inner, i) | fixed) * stride
        if bit == 0:
            relax_lane_bit_0((costs, i * lanes, weights, offset))
        elif bit == 1:
            relax_lane_bit_1((costs, i * lanes, weights, offset))
        elif bit == 2:
            relax_lane_bit_2((costs, i * lanes, weights, offset))
        elif bit == 3:
            relax_lane_bit_3((costs, i * lanes, weights, offset))
        elif bit == 4:
            relax_lane_bit_4((costs, i * lanes, weights, offset))
        else:
            relax_lane_bit_5((costs, i * lanes, weights, offset))


@jit
def relax_tiles(table: Any, costs: Any, given: Any, first: int, last: int, least: Any) -> None:
    """All steps of a pass on the tiles from `first` on; `least` gets the least cost of each lane."""
    tiles, rows, steps, context, weights, less, lane_bits = given
    width, lanes = costs.size // rows.size, 1 << lane_bits
    for tile in range(first, last):
        for r in range(rows.size):
            for k in range(0, width, lanes):
                lowered((costs, r * width + k, table, tiles[tile] + rows[r] + k, less))
        for s in range(steps.shape[0]):
            relax_bit(costs, steps[s], context[s], tile, weights, lane_bits)
        for r in range(rows.size):
            for k in range(0, width, lanes):
                copy_least((table, tiles[tile] + rows[r] + k, costs, r * width + k, least, 0))


@jit
def fold_table(table: Any, context: Any, weights: Any, first: int, last: int, lane_bits: int) -> None:
    """One step on the variable that a symmetric table leaves out, which is 0: with 1 it is the reverse.

    For the vectors from `first` on, below the middle, and those that they are in reverse.
    """
    n, lanes = table.size >> lane_bits, 1 << lane_bits
    for i in range(first, last):
        j = n - 1 - i
        own = chosen(context, 0, context.size, i) * 2 * lanes
        other = chosen(context, 0, context.size, j) * 2 * lanes
        relax_reversed((table, weights, i * lanes, j * lanes, own, other))


@inline
def weight_of(state: int, u: int, given: Any, s: int, tile: int) -> int:
    """The weight of step s of a pass from the state with u to this one."""
    step, context, weights, lane_bits = given.steps[s], given.context[s], given.weights, given.lane_bits
    bit, n_vectors = step[0], step[2]
    v, lane = state >> bit & 1, state & ((1 << lane_bits) - 1)
    choice = chosen(context, 0, step[3], state >> lane_bits) | chosen(context, step[3], step[4], tile)
    number = 2 * u + v if n_vectors == 4 else u ^ v
    return weights[step[1] + ((choice * n_vectors + number) << lane_bits) + lane]


@inline
def add_words(more: Any, number: Any) -> None:
    """Add a number of several words of 64 bits, the lowest first, to another one."""
    carry = np.uint64(0)
    for word in range(more.size):
        total = number[word] + more[word]
        with_carry = total + carry
        carry = np.uint64(total < more[word]) | np.uint64(with_carry < total)
        number[word] = with_carry


@jit
def multiply_residues(residues: Any, factors: Any, primes: Any, inverses: Any) -> None:
    """Products with factors, modulo primes below 2^23: of residues, or sums of two."""
    for word in range(residues.size):
        # Below 2^47: exact in floating point, and the quotient is at most 1 too small.
        product = residues[word] * factors[word]
        quotient = np.uint64(np.float64(product) * inverses[word])
        rest = product - quotient * primes[word]
        residues[word] = min(rest, rest - primes[word])


@jit
def trace_tile(table: Any, levels: Any, given: Any, tile: int, followed: Any, n: int) -> int:
    """Go back through the steps of a pass from n states of a tile; gives how many states there are before it.

    What is followed are (states, counts, slots). The first two have two sides, of which the first is read,
    and the one of the number of steps modulo 2 has the result. A state's count is that of the optima behind
    it, in words of 64 bits, the lowest first. `slots` is -1 all over. `levels` gets the costs before each
    step, and behind the last.
    """
    tiles, rows, steps, context, weights, less, lane_bits = given
    states, counts, slots = followed
    start = tiles[tile]
    width, lanes = levels.shape[1] // rows.size, 1 << lane_bits
    n_steps, n_words = steps.shape[0], counts.shape[2]
    for r in range(rows.size):
        for k in range(0, width, lanes):
            lowered((levels[0], r * width + k, table, start + rows[r] + k, less))
    for s in range(n_steps):
        for k in range(levels.shape[1]):
            levels[s + 1, k] = levels[s, k]
        relax_bit(levels[s + 1], steps[s], context[s], tile, weights, lane_bits)
    # Backwards: u was a choice of step s where its cost and weight give the state's cost. States that meet
    # before a step add their counts.
    side = 0
    for s in range(n_steps - 1, -1, -1):
        m = 0
        for i in range(n):
            state = states[side, i]
            for u in range(2):
                before = state & ~(1 << steps[s, 0]) | u << steps[s, 0]
                weight = weight_of(state, u, given, s, tile)
                if levels[s, before] + weight != levels[s + 1, state]:
                    continue
                slot = slots[before]
                if slot < 0:
                    slot = slots[before] = m
                    states[1 - side, m] = before
                    for word in range(n_words):
                        counts[1 - side, m, word] = 0
                    m += 1
                add_words(counts[side, i], counts[1 - side, slot])
        side, n = 1 - side, m
        for i in range(n):
            slots[states[side, i]] = -1
    return n


@jit
def count_entry(old: Any, n: int, change: Any, context: Any, weights: Any, new: Any) -> tuple[int, int]:
    """Numbers of configurations of n states, as a variable leaves, one enters, or both.

    Old and new are (keys, counts): states in rising order, and their numbers, in words of 64 bits. The change
    is (bit, whether one leaves, whether one enters). The one that leaves has that bit of the key, and the one
    that enters becomes the lowest. Weights are (shifts, factors, primes, inverses). Shifts,
    [context | u | v], are in words, -1 where something is not allowed. With primes, words are residues, with
    factors, [v | word]; inverses are those of the primes, less 2^-50 of them. Gives how many states there are
    then, and half of a number that has all bits of the highest words.
    """
    (keys, counts), (new_keys, new_counts), (bit, leaves, enters) = old, new, change
    shifts, factors, primes, inverses = weights
    n_words, new_words = counts.shape[1], new_counts.shape[1]
    m, top = 0, np.uint64(0)
    first = 0
    while first < n:
        # States with equal bits above that of u: those with u = 0 from `first` on, those with 1 from `j` on.
        above = keys[first] >> (bit + 1) if leaves else keys[first]
        i, middle = first, first
        while leaves and middle < n and keys[middle] >> bit == above << 1:
            middle += 1
        j = middle = middle if leaves else first + 1
        while True:
            has_i = i < middle
            has_j = leaves and j < n and keys[j] >> (bit + 1) == above
            if not (has_i or has_j):
                break
            low = 0
            if leaves:
                low_i = keys[i] & ((1 << bit) - 1) if has_i else 1 << bit
                low_j = keys[j] & ((1 << bit) - 1) if has_j else 1 << bit
                low = min(low_i, low_j)
                has_i, has_j = has_i and low_i == low, has_j and low_j == low
            state = above << (bit + 1) | low if leaves else above
            choice = 4 * chosen(context, 0, context.size, state)
            rest = above << bit | low if leaves else above
            for v in range(2 if enters else 1):
                shift_i = shifts[choice + v] if has_i else -1
                shift_j = shifts[choice + 2 + v] if has_j else -1
                if shift_i < 0 and shift_j < 0:
                    continue
                new_keys[m] = rest << 1 | v if enters else rest
                for word in range(new_words):
                    is_in = shift_i >= 0 and 0 <= word - shift_i < n_words
                    new_counts[m, word] = counts[i, word - shift_i] if is_in else np.uint64(0)
                if shift_j >= 0:
                    add_words(counts[j], new_counts[m, shift_j : shift_j + n_words])
                if primes.size:
                    multiply_residues(new_counts[m], factors[v], primes, inverses)
                top |= new_counts[m, new_words - 1]
                m += 1
            i, j = i + has_i, j + has_j
        first = j
    return m, int(top >> np.uint64(1))
