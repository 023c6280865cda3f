"""What a change of one sliced index does to the state, and slices until all tensors are within the limit.

Compiled. Knows bitsets and numbers only, as `anneal_kernel`.
"""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from tnplan.planner.search.annealer.anneal_state import COST, LARGEST, OVER, REACHED, WAIST
from tnplan.planner.search.annealer.waist_kernel import (
    EXACT,
    add_up,
    count_inside,
    excess,
    jit,
    ones_of,
    set_cost,
    settle,
    side_of_bit,
    size_of,
    step_cost,
    sum_up,
    take_sides,
)

ENERGY = 0
"""The row of `AnnealState.weighed` with energies."""
CANCELLED = 1e-9
"""A sum that a move leaves with less than this share of what it was is taken afresh."""
BITS_AT_ONCE = 12.0
"""For so many bits that a tensor is over the limit, one more index is sliced before all are scored again."""
NEGLIGIBLE = 2.0**-50
"""The share of the whole cost below which a step has no say in what is sliced."""


@jit
def _has(legs: Any, v: int, j: int) -> bool:
    return (legs[v, j >> 6] >> np.uint64(j & 63)) & np.uint64(1) != np.uint64(0)


@jit
def _restore_digits(problem: Any, state: Any, before: Any) -> None:
    """Take the sums afresh where little is left of one; `before`: what the sides and the excess were."""
    sums, over = state.sums, state.totals[OVER]
    lost = sums[0] < CANCELLED * before[0] or sums[1] < CANCELLED * before[1]
    lost = lost or sums[WAIST] < CANCELLED * before[2]
    if lost or (state.counts[1] and over < CANCELLED * before[3]):
        sum_up(problem, state)


@jit
def toggle(problem: Any, state: Any, j: int) -> None:
    """Slice bit j, or no longer. It is on the paths from its inputs to where they meet, and nowhere else."""
    legs, size, span = state.legs, state.size, state.span
    # Invariant: position[j] >= 0 just where bit j of `unsliced` is 0; sliced[position[j]] == j.
    slicing = state.position[j] < 0
    extent = problem.extents[j]
    # Sizes are integers in floating point: below 2^53 one division or multiplication is exact. Beyond, the
    # size is counted from the legs again, so that no error is carried from move to move.
    below = LARGEST if log2(extent) % 1.0 == 0.0 else EXACT  # a power of 2 changes no digit
    sums = state.sums
    sums_before = sums[0], sums[1], sums[WAIST], state.totals[OVER]
    state.unsliced[j >> 6] ^= np.uint64(1) << np.uint64(j & 63)
    # A new stamp marks what this call has reached, in place of clearing an array of N marks.
    state.counts[2] += 1
    stamp = state.counts[2]
    many = 0
    for q in range(problem.leaf_starts[j], problem.leaf_starts[j + 1]):
        v = problem.leaves[q]
        # Up from each input until the bit is summed, or where another input's way was; an open one to the
        # root.
        while v >= 0 and _has(legs, v, j) and state.stamps[0, v] != stamp:
            state.stamps[0, v] = stamp
            before = size[v]
            if before < below:
                size[v] = before / extent if slicing else min(before * extent, LARGEST)
            else:
                size[v] = size_of(problem, state.unsliced, legs[v], legs[v])
            if before > problem.limit or size[v] > problem.limit:
                state.totals[OVER] += excess(problem.limit, size[v]) - excess(problem.limit, before)
                state.counts[1] += (size[v] > problem.limit) - (before > problem.limit)
            v = state.parent[v]
            # The step of the parent has the bit whether or not its product has.
            if v >= 0 and state.stamps[1, v] != stamp:
                state.stamps[1, v] = stamp
                state.reached[many] = v
                many += 1
    state.counts[REACHED] += many
    for q in range(many):
        v = state.reached[q]
        # Sizes of all tensors are final by now: a step's cost needs those of both operands.
        a, b = state.left[v], state.right[v]
        if span[v] < below:
            span[v] = span[v] / extent if slicing else min(span[v] * extent, LARGEST)
        else:
            span[v] = size_of(problem, state.unsliced, legs[a], legs[b])
        cost = step_cost(problem.price, span[v], size[a], size[b], size[v])
        sums[state.side[v]] += cost - state.cost[v]
        state.cost[v] = cost
    _restore_digits(problem, state, sums_before)
    # Removal from the middle of `sliced`: the last one takes the free position.
    if slicing:
        state.position[j] = state.counts[0]
        state.sliced[state.counts[0]] = j
        state.counts[0] += 1
    else:
        state.counts[0] -= 1
        last = state.sliced[state.counts[0]]
        state.sliced[state.position[j]] = last
        state.position[last] = state.position[j]
        state.position[j] = -1
    if state.counts[1] == 0:
        state.totals[OVER] = 0.0
    # The first bit sliced, or the last one no longer: only now do the two sides have a meaning, or lose it.
    if state.counts[0] == slicing:
        take_sides(problem, state, state.counts[3])
        return
    side = side_of_bit(problem, state, j)
    if side != WAIST:
        if state.inside[side] < EXACT:
            state.inside[side] = state.inside[side] * extent if slicing else state.inside[side] / extent
        else:
            count_inside(problem, state)
    set_cost(problem, state)


@jit
def slice_to_limit(problem: Any, state: Any) -> None:
    """Slice bits of the largest tensor, each time the one after which the energy is least, until all fit.

    The energy is log2 of the cost of all slices, and log2(1 + what is over the limit). What each bit would
    save of both is added up for all bits in one pass over the tree, after which one more is sliced for each
    BITS_AT_ONCE that the tensor is over the limit. A tensor's bits that may not be sliced must fit.
    """
    energy = state.weighed[ENERGY]
    goes_on = True
    while state.counts[1] and goes_on:
        v, goes_on = 0, False
        # Invariant: counts[1] > 0, so that the largest tensor, v afterwards, is over the limit.
        for u in range(state.left.size):
            if state.size[u] > state.size[v]:
                v = u
        weigh_bits(problem, state, v)
        for _ in range(1 + int(log2(state.size[v] / problem.limit) / BITS_AT_ONCE)):
            chosen = 0
            for j in range(energy.size):
                if energy[j] < energy[chosen]:
                    chosen = j
            # No bit left that may be sliced while the tensor is over: the caller has made sure that the rest
            # fits.
            if state.size[v] <= problem.limit or energy[chosen] == np.inf:
                break
            # Not to be taken twice. The energies of the others are those before this one was sliced, an
            # approximation.
            energy[chosen] = np.inf
            toggle(problem, state, chosen)
            goes_on = True
        add_up(problem, state)
    settle(problem, state)


@jit
def weigh_bits(problem: Any, state: Any, v: int) -> None:
    """The energy after each bit of a node is sliced; infinite for other bits and those that may not be.

    Exact where elements weigh nothing and a bit is sliced already.
    """
    totals, energy, saved, eased = state.totals, state.weighed[ENERGY], state.weighed[1], state.weighed[2]
    _add_up_bits(problem, state, saved, eased)
    for j in range(energy.size):
        energy[j] = np.inf
        word = state.legs[v, j >> 6] & state.unsliced[j >> 6] & problem.sliceable[j >> 6]
        if (word >> np.uint64(j & 63)) & np.uint64(1):
            # log2 of the cost of all slices: d_j times as many, each less by what slicing j saves.
            cost = totals[COST] - saved[j] - _once_for_all(problem, state, j)
            over = max(totals[OVER] - eased[j], 0.0)
            energy[j] = log2(problem.extents[j]) + log2(cost) + log2(1.0 + over)


@jit
def _add_up_bits(problem: Any, state: Any, saved: Any, eased: Any) -> None:
    """What slicing each bit takes off the cost of a slice and off what is over the limit."""
    for j in range(saved.size):
        saved[j], eased[j] = 0.0, 0.0
    least = NEGLIGIBLE * state.totals[COST]
    n = (state.left.size + 1) // 2
    for v in range(state.left.size):
        share = state.share[state.side[v]] if v >= n else 0.0
        cost, written = state.cost[v] * share, problem.price.written * state.size[v] * share
        over = state.size[v] > problem.limit
        if cost < least and not over:
            continue
        a, b = (state.left[v], state.right[v]) if v >= n else (v, v)
        for i in range(state.unsliced.size):
            # `word` has the bits of the step, `mine` those of its product: only the latter make the tensor
            # smaller.
            mine = state.legs[v, i] & state.unsliced[i]
            word = (state.legs[a, i] | state.legs[b, i]) & state.unsliced[i]
            while word:
                lowest = word & (~word + np.uint64(1))
                word ^= lowest
                j = i * 64 + ones_of(lowest - np.uint64(1))
                # A step, and a tensor, with bit j is 1 / d_j of what it was in each slice.
                less = 1.0 - 1.0 / problem.extents[j]
                saved[j] += (cost if mine & lowest else cost - written) * less
                if over and mine & lowest:
                    size = state.size[v]
                    eased[j] += excess(problem.limit, size)
                    eased[j] -= excess(problem.limit, size / problem.extents[j])


@jit
def _once_for_all(problem: Any, state: Any, j: int) -> float:
    """What is saved because the side without bit j is computed once for all of its values."""
    if state.counts[0] == 0:
        return 0.0
    side = side_of_bit(problem, state, j)
    if side == WAIST:
        return 0.0
    # Slicing j inside of one side divides the share of the other by d_j, and that of the last step where this
    # is then the smaller of the two.
    share, other = state.share, 1 - side
    last = min(share[side], share[other] / problem.extents[j])
    return float(
        state.sums[other] * share[other] * (1.0 - 1.0 / problem.extents[j])
        + state.sums[WAIST] * (share[WAIST] - last)
    )
