"""The compiled moves of the joint search: annealing by rotations of a contraction tree, and by slicing.

Imported lazily (numba loads slowly). Knows bitsets and numbers only: no names, files, machine or clock.

Arguments `problem`, `state`, `best` and `heat` are the records of planner.search.anneal_state.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, log2
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from planner.search.anneal_state import LARGEST

BLOCK = 4000
"""Moves at one temperature; sums are taken afresh after each block, so that no error of rounding grows."""
EXACT = 2.0**53
SLICE_MOVES = 0.03
POLISH = 0.15
"""The last share of a round, in which the total alone decides."""
POLISH_HOT, POLISH_COLD = 3e-3, 3e-4
LAST_PENALTY = 3.0
COST, OVER = 0, 1
BARE: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
"""No counts of references to arrays, which would take four times as long as a move; nothing is allocated."""
INLINE: dict[str, Any] = {**BARE, "forceinline": True}
"""Taken apart, the records have some 150 fields: handing them over takes longer than a move."""
DRAWS = 10
"""A busy node is the best of so many drawn ones."""
SMALL = 3e-5
LN_2 = 0.6931471805599453


def _set_bits(typing_context: Any, word: Any) -> tuple[Any, Callable[..., Any]]:
    """The number of set bits of a 64-bit word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


_ones: Any = intrinsic(_set_bits)


@numba.njit(**INLINE)
def _draw(state: Any) -> Any:
    """64 random bits (xorshift128+)."""
    a, b = state[0], state[1]
    state[0] = b
    a ^= a << np.uint64(23)
    state[1] = a ^ b ^ (a >> np.uint64(17)) ^ (b >> np.uint64(26))
    return state[1] + b


@numba.njit(**INLINE)
def _below(state: Any, n: int) -> Any:
    """A random integer from 0 to n - 1, of n below 2**31."""
    return np.int64(((_draw(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@numba.njit(**INLINE)
def _uniform(state: Any) -> float:
    return np.float64(_draw(state) >> np.uint64(11)) * 2.0**-53


@numba.njit(**INLINE)
def _size(problem: Any, kept: Any, a: Any, b: Any) -> float:
    """Elements over the union of two sets of legs, without sliced bits."""
    size = 1.0
    for s in range(problem.segments.size - 1):
        ones = 0
        for i in range(problem.segments[s], problem.segments[s + 1]):
            ones += _ones((a[i] | b[i]) & kept[i])
        size *= problem.powers[s, ones]
    return min(size, LARGEST)


@numba.njit(**INLINE)
def _step_cost(weight: float, span: float, a: float, b: float, c: float) -> float:
    return max(span, weight * (a + b + c))


@numba.njit(**INLINE)
def _over(limit: float, size: float) -> float:
    return max(size / limit - 1.0, 0.0)


@numba.njit(**INLINE)
def _add_up(problem: Any, state: Any) -> None:
    """The totals from the costs and sizes of the nodes."""
    n = (state.left.size + 1) // 2
    cost, over, many = 0.0, 0.0, 0
    for v in range(state.left.size):
        if v >= n:
            cost += state.cost[v]
        if state.size[v] > problem.limit:
            over += _over(problem.limit, state.size[v])
            many += 1
    state.totals[COST], state.totals[OVER] = cost, over
    state.counts[1] = many


@numba.njit(cache=True, nogil=True)
def restore(problem: Any, state: Any, left: Any, right: Any, parent: Any, kept: Any) -> None:
    """Make `state` that of a tree and its kept bits. The inputs' legs must stand in it."""
    nodes = state.left.size
    n = (nodes + 1) // 2
    words = kept.size
    state.left[:], state.right[:], state.parent[:], state.kept[:] = left, right, parent, kept
    state.counts[0] = 0
    state.place[:] = -1
    for j in range(state.place.size):
        if not (kept[j >> 6] >> np.uint64(j & 63)) & np.uint64(1):
            state.place[j] = state.counts[0]
            state.sliced[state.counts[0]] = j
            state.counts[0] += 1
    order = np.empty(nodes, np.int64)
    below = state.legs.copy()
    outside = np.zeros((nodes, words), np.uint64)
    filled = 0
    for v in range(n, nodes):
        if parent[v] < 0:
            order[0], filled = v, 1
            outside[v] = problem.open
    done = 0
    while done < filled:
        v = order[done]
        done += 1
        if v >= n:
            order[filled], order[filled + 1] = left[v], right[v]
            filled += 2
    for q in range(filled - 1, -1, -1):
        v = order[q]
        if v >= n:
            below[v] = below[left[v]] | below[right[v]]
    for q in range(filled):
        v = order[q]
        if v >= n:
            outside[left[v]] = outside[v] | below[right[v]]
            outside[right[v]] = outside[v] | below[left[v]]
            state.legs[v] = below[v] & outside[v]
    for v in range(nodes):
        state.size[v] = _size(problem, kept, state.legs[v], state.legs[v])
    for v in range(n, nodes):
        a, b = left[v], right[v]
        state.span[v] = _size(problem, kept, state.legs[a], state.legs[b])
        state.cost[v] = _step_cost(
            problem.weight, state.span[v], state.size[a], state.size[b], state.size[v]
        )  # fmt: skip
    _add_up(problem, state)


@numba.njit(**INLINE)
def _has(legs: Any, v: int, j: int) -> bool:
    return (legs[v, j >> 6] >> np.uint64(j & 63)) & np.uint64(1) != np.uint64(0)


@numba.njit(**INLINE)
def toggle(problem: Any, state: Any, j: int) -> None:
    """Slice bit j, or no longer. It is on the paths from its inputs to where they meet, and nowhere else."""
    legs, size, span = state.legs, state.size, state.span
    slicing = state.place[j] < 0
    extent = problem.extents[j]
    state.kept[j >> 6] ^= np.uint64(1) << np.uint64(j & 63)
    state.counts[2] += 1
    stamp = state.counts[2]
    many = 0
    for q in range(problem.leaf_starts[j], problem.leaf_starts[j + 1]):
        v = problem.leaves[q]
        while _has(legs, v, j) and state.stamps[0, v] != stamp:
            state.stamps[0, v] = stamp
            before = size[v]
            if before < EXACT:
                size[v] = before / extent if slicing else before * extent
            else:
                size[v] = _size(problem, state.kept, legs[v], legs[v])
            if before > problem.limit or size[v] > problem.limit:
                state.totals[OVER] += _over(problem.limit, size[v]) - _over(problem.limit, before)
                state.counts[1] += (size[v] > problem.limit) - (before > problem.limit)
            v = state.parent[v]
            if state.stamps[1, v] != stamp:
                state.stamps[1, v] = stamp
                state.reached[many] = v
                many += 1
    for q in range(many):
        v = state.reached[q]
        a, b = state.left[v], state.right[v]
        if span[v] < EXACT:
            span[v] = span[v] / extent if slicing else span[v] * extent
        else:
            span[v] = _size(problem, state.kept, legs[a], legs[b])
        cost = _step_cost(problem.weight, span[v], size[a], size[b], size[v])
        state.totals[COST] += cost - state.cost[v]
        state.cost[v] = cost
    if slicing:
        state.place[j] = state.counts[0]
        state.sliced[state.counts[0]] = j
        state.counts[0] += 1
    else:
        state.counts[0] -= 1
        last = state.sliced[state.counts[0]]
        state.sliced[state.place[j]] = last
        state.place[last] = state.place[j]
        state.place[j] = -1
    if state.counts[1] == 0:
        state.totals[OVER] = 0.0


@numba.njit(**BARE)
def slice_to_limit(problem: Any, state: Any) -> None:
    """Slice bits of the largest tensor, each time the one after which the energy is least, until all fit.

    A tensor's bits that may not be sliced must fit.
    """
    totals = state.totals
    while state.counts[1]:
        v = 0
        for u in range(state.left.size):
            if state.size[u] > state.size[v]:
                v = u
        chosen, least = -1, np.inf
        for j in range(problem.extents.size):
            word = state.legs[v, j >> 6] & state.kept[j >> 6] & problem.sliceable[j >> 6]
            if (word >> np.uint64(j & 63)) & np.uint64(1):
                cost, over = totals[COST], totals[OVER]
                toggle(problem, state, j)
                energy = log2(problem.extents[j]) + log2(totals[COST]) + log2(1.0 + totals[OVER])
                toggle(problem, state, j)
                totals[COST], totals[OVER] = cost, over
                if energy < least:
                    chosen, least = j, energy
        toggle(problem, state, chosen)
        _add_up(problem, state)


@numba.njit(**INLINE)
def _busy_bit(problem: Any, state: Any) -> int:
    """A bit that may be sliced, of a tensor over the limit or else of a costly step; -1 if that has none."""
    random = state.random
    nodes = state.left.size
    n = (nodes + 1) // 2
    v = -1
    if state.counts[1] and _below(random, 8):
        largest = _below(random, 2) == 1
        seen = 0
        for u in range(n, nodes):
            if state.size[u] > problem.limit:
                seen += 1
                if v < 0 or (state.size[u] > state.size[v] if largest else _below(random, seen) == 0):
                    v = u
    if v < 0:
        v = n + _below(random, n - 1)
        for _ in range(DRAWS):
            u = n + _below(random, n - 1)
            if state.span[u] > state.span[v]:
                v = u
        if _below(random, 2):
            v = state.left[v] if _below(random, 2) else state.right[v]
    return _bit_of(problem, state, v)


@numba.njit(**INLINE)
def _bit_of(problem: Any, state: Any, v: int) -> int:
    """A random bit of a node that may be sliced and is not; -1 if it has none."""
    ones = 0
    for i in range(state.kept.size):
        ones += _ones(state.legs[v, i] & state.kept[i] & problem.sliceable[i])
    if ones == 0:
        return -1
    rank = _below(state.random, ones)
    for i in range(state.kept.size):
        word = state.legs[v, i] & state.kept[i] & problem.sliceable[i]
        ones = _ones(word)
        if rank < ones:
            for _ in range(rank):
                word &= word - np.uint64(1)
            return i * 64 + _ones((word & (~word + np.uint64(1))) - np.uint64(1))
        rank -= ones
    return -1


@numba.njit(**INLINE)
def _change_slices(problem: Any, state: Any, penalty: float, threshold: float) -> None:
    """Slice a bit, unslice one, or both; taken back where the energy rises over the threshold."""
    random, totals = state.random, state.totals
    cost, over = totals[COST], totals[OVER]
    kind = _below(random, 10)
    away, come = -1, -1
    if kind >= 2:
        if state.counts[0] == 0:
            return
        away = state.sliced[_below(random, state.counts[0])]
        first, last = problem.leaf_starts[away], problem.leaf_starts[away + 1]
    if 4 <= kind < 7:
        come = _bit_of(problem, state, problem.leaves[first + _below(random, last - first)])
        if come < 0:
            return
    shift = 0.0
    if away >= 0:
        toggle(problem, state, away)
        shift -= log2(problem.extents[away])
    if kind < 2 or kind >= 7:
        come = _busy_bit(problem, state)
        if come < 0 or come == away:
            if away >= 0:
                toggle(problem, state, away)
                totals[COST], totals[OVER] = cost, over
            return
    if come >= 0:
        toggle(problem, state, come)
        shift += log2(problem.extents[come])
    rise = shift + log2(totals[COST] / cost) + penalty * log2((1.0 + totals[OVER]) / (1.0 + over))
    if rise > threshold:
        if come >= 0:
            toggle(problem, state, come)
        if away >= 0:
            toggle(problem, state, away)
        totals[COST], totals[OVER] = cost, over


@numba.njit(**INLINE)
def _log2_of_change(change: float) -> float:
    """log2(1 + change), to 1e-13 where the change is small."""
    if abs(change) < SMALL:
        return change * (1.0 - 0.5 * change) / LN_2
    return log2(1.0 + change)


@numba.njit(**INLINE)
def _rotate(problem: Any, state: Any, local: float, penalty: float, threshold: float) -> None:
    """(a b) c becomes (a c) b at a random inner product, unless the energy rises over the threshold."""
    random, totals, legs, size = state.random, state.totals, state.legs, state.size
    nodes = state.left.size
    n = (nodes + 1) // 2
    x = n + _below(random, n - 1)
    p = state.parent[x]
    if p < 0:
        return
    a, b = state.left[x], state.right[x]
    if _draw(random) >> np.uint64(63):
        a, b = b, a
    c = state.right[p] if state.left[p] == x else state.left[p]
    legs_a, legs_b, legs_c, legs_p, kept = legs[a], legs[b], legs[c], legs[p], state.kept
    x_span, x_size, p_span = 1.0, 1.0, 1.0
    for s in range(problem.segments.size - 1):
        ones_x, ones_legs, ones_p = 0, 0, 0
        for i in range(problem.segments[s], problem.segments[s + 1]):
            either = (legs_a[i] | legs_c[i]) & kept[i]
            stays = either & (legs_b[i] | legs_p[i])
            ones_x += _ones(either)
            ones_legs += _ones(stays)
            ones_p += _ones(stays | (legs_b[i] & kept[i]))
        x_span *= problem.powers[s, ones_x]
        x_size *= problem.powers[s, ones_legs]
        p_span *= problem.powers[s, ones_p]
    x_span, x_size, p_span = min(x_span, LARGEST), min(x_size, LARGEST), min(p_span, LARGEST)
    x_cost = _step_cost(problem.weight, x_span, size[a], size[c], x_size)
    p_cost = _step_cost(problem.weight, p_span, x_size, size[b], size[p])
    before = state.cost[x] + state.cost[p]
    cost = totals[COST] - before + x_cost + p_cost
    more = (x_size > problem.limit) - (size[x] > problem.limit)
    over = totals[OVER]
    if x_size > problem.limit or size[x] > problem.limit:
        over += _over(problem.limit, x_size) - _over(problem.limit, size[x])
        if state.counts[1] + more == 0:
            over = 0.0
    cancelled = cost < 1e-9 * totals[COST]
    if not cancelled:
        now = x_cost + p_cost
        rise = local * log2(now / before) if local > 0.0 and now != before else 0.0
        if rise > threshold and now >= before and over >= totals[OVER]:
            return
        rise += _log2_of_change((now - before) / totals[COST])
        if over != totals[OVER]:
            rise += penalty * log2((1.0 + over) / (1.0 + totals[OVER]))
        if rise > threshold:
            return
    for i in range(kept.size):
        legs[x, i] = (legs_a[i] | legs_c[i]) & (legs_b[i] | legs_p[i])
    state.left[x], state.right[x], state.parent[c] = a, c, x
    state.left[p], state.right[p], state.parent[b] = x, b, p
    size[x], state.span[x], state.span[p] = x_size, x_span, p_span
    state.cost[x], state.cost[p] = x_cost, p_cost
    totals[COST], totals[OVER] = cost, over
    state.counts[1] += more
    if cancelled:
        _add_up(problem, state)


@numba.njit(**BARE)
def keep_best(problem: Any, state: Any, best: Any) -> None:
    """Copy the state where it keeps the limit and costs less than the best."""
    _add_up(problem, state)
    if state.counts[1]:
        return
    score = log2(state.totals[COST])
    for q in range(state.counts[0]):
        score += log2(problem.extents[state.sliced[q]])
    if score < best.score[0] - 1e-9:
        best.score[0] = score
        for v in range(state.left.size):
            best.left[v], best.right[v], best.parent[v] = state.left[v], state.right[v], state.parent[v]
        for i in range(state.kept.size):
            best.kept[i] = state.kept[i]


@numba.njit(**BARE)
def anneal(problem: Any, state: Any, best: Any, heat: Any, first: int, last: int, blocks: int) -> None:
    """Blocks first .. last-1 of a round of `blocks`. Temperatures fall geometrically."""
    slicing = SLICE_MOVES if problem.limit < np.inf else 0.0
    for block in range(first, last):
        done = block / blocks
        penalty = heat.penalty + (LAST_PENALTY - heat.penalty) * done
        if done < 1.0 - POLISH:
            local = heat.local
            kelvin = local * heat.hot * (heat.cold / heat.hot) ** (done / (1.0 - POLISH))
        else:
            local = 0.0
            kelvin = POLISH_HOT * (POLISH_COLD / POLISH_HOT) ** ((done - 1.0 + POLISH) / POLISH)
        for _ in range(BLOCK):
            threshold = -kelvin * log(_uniform(state.random) + 1e-300)
            if _uniform(state.random) < slicing:
                _change_slices(problem, state, penalty, threshold)
            else:
                _rotate(problem, state, local, penalty, threshold)
        keep_best(problem, state, best)
