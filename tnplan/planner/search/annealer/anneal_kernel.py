"""The compiled moves of the joint search: annealing by rotations of a contraction tree, and by slicing.

Knows bitsets and numbers only: no names, files, machine or clock.

Arguments `problem`, `state`, `best` and `heat` are the records of `anneal_state`.
"""

from __future__ import annotations

from math import log, log2
from typing import Any

import numpy as np

from tnplan.common.kernels.bits_kernel import draw_below, draw_uniform, draw_word
from tnplan.planner.search.annealer.anneal_state import COST, HELD, LARGEST, OVER, REACHED, WAIST
from tnplan.planner.search.annealer.slices_kernel import CANCELLED, slice_to_limit, toggle
from tnplan.planner.search.annealer.waist_kernel import (
    add_up,
    excess,
    jit,
    ones_of,
    restore,
    set_cost,
    settle,
    step_cost,
    take_sides,
    turn,
)

BLOCK = 4000
"""Moves at one temperature; sums are taken afresh after each block, so that no error of rounding grows."""
SLICE_MOVES, SLICE_NODES = 0.03, 200.0
"""The share of moves that change slices, and of nodes that one may reach: where they are more, the share is
less, so that these moves take no more time than rotations."""
POLISH = 0.15
"""The last share of a round, in which the total alone decides."""
POLISH_HOT, POLISH_COLD = 3e-3, 3e-4
LAST_PENALTY = 3.0
DRAWS = 10
"""A busy node is the best of so many drawn ones."""
WAIST_ODDS = 4
"""One in so many moves of the waist is tried: each takes as long as some thirty others."""
SMALL = 3e-5
RESTORE, SETTLE, SLICE, ANNEAL = 0, 1, 2, 3
"""What `work` does."""
LN_2 = 0.6931471805599453


@jit
def _note(state: Any) -> None:
    for i in range(state.totals.size):
        state.noted[i] = state.totals[i]


@jit
def _take_back(state: Any) -> None:
    """The totals that were noted, to the last bit."""
    for i in range(state.totals.size):
        state.totals[i] = state.noted[i]


@jit
def _busy_bit(problem: Any, state: Any) -> int:
    """A bit that may be sliced, of a tensor over the limit or else of a costly step; -1 if that has none."""
    random = state.random
    nodes = state.left.size
    n = (nodes + 1) // 2
    v = -1
    # Seven of eight draws go to tensors over the limit while there are any: without them no tree counts as
    # best.
    if state.counts[1] and draw_below(random, 8):
        largest = draw_below(random, 2) == 1
        seen = 0
        for u in range(n, nodes):
            if state.size[u] > problem.limit:
                seen += 1
                # Of `seen` candidates the last replaces the choice with odds 1 / seen, so that each is as
                # likely (reservoir sampling): no list of them is needed.
                if v < 0 or (state.size[u] > state.size[v] if largest else draw_below(random, seen) == 0):
                    v = u
    if v < 0:
        v = n + draw_below(random, n - 1)
        for _ in range(DRAWS):
            # A tournament of DRAWS nodes: the chance of a step grows with its cost, and no sum of costs is
            # kept.
            u = n + draw_below(random, n - 1)
            if state.span[u] * state.share[state.side[u]] > state.span[v] * state.share[state.side[v]]:
                v = u
        if draw_below(random, 2):
            v = state.left[v] if draw_below(random, 2) else state.right[v]
    return _bit_of(problem, state, v)


@jit
def _bit_of(problem: Any, state: Any, v: int) -> int:
    """A random bit of a node that may be sliced and is not; -1 if it has none."""
    # Counted first, then selected by rank: each bit of the node is as likely, and nothing is allocated.
    ones = 0
    for i in range(state.unsliced.size):
        ones += ones_of(state.legs[v, i] & state.unsliced[i] & problem.sliceable[i])
    if ones == 0:
        return -1
    rank = draw_below(state.random, ones)
    for i in range(state.unsliced.size):
        word = state.legs[v, i] & state.unsliced[i] & problem.sliceable[i]
        ones = ones_of(word)
        if rank < ones:
            for _ in range(rank):
                # w & (w - 1) clears the lowest bit; afterwards the lowest one left is that of the rank.
                word &= word - np.uint64(1)
            return i * 64 + ones_of((word & (~word + np.uint64(1))) - np.uint64(1))
        rank -= ones
    return -1


@jit
def change_slices(problem: Any, state: Any, penalty: float, threshold: float) -> None:
    """Slice a bit, unslice one, or both; taken back where the energy rises over the threshold."""
    random, totals = state.random, state.totals
    _note(state)
    cost, over = totals[COST], totals[OVER] + totals[HELD]
    # Of ten: 0, 1 slice a bit; 2, 3 unslice one; 4-6 replace one by another bit of one of its own inputs; 7-9
    # replace one by a bit of a costly step.
    kind = draw_below(random, 10)
    away, come = -1, -1
    if kind >= 2:
        if state.counts[0] == 0:
            return
        away = state.sliced[draw_below(random, state.counts[0])]
        first, last = problem.leaf_starts[away], problem.leaf_starts[away + 1]
    if 4 <= kind < 7:
        come = _bit_of(problem, state, problem.leaves[first + draw_below(random, last - first)])
        if come < 0:
            return
    # `totals[COST]` is a mean over slices. `shift` is the change of log2 of the number of slices, so that
    # `rise` is that of log2 of the cost of all slices.
    shift = 0.0
    if away >= 0:
        # The bit leaves first: `come` is then chosen from the tensors as they are without it.
        toggle(problem, state, away)
        shift -= log2(problem.extents[away])
    if kind < 2 or kind >= 7:
        come = _busy_bit(problem, state)
        if come < 0 or come == away:
            if away >= 0:
                toggle(problem, state, away)
                _take_back(state)
            return
    if come >= 0:
        toggle(problem, state, come)
        shift += log2(problem.extents[come])
    # The energy is log2 of the cost of all slices + penalty log2(1 + what is over the limits).
    rise = shift + log2(totals[COST] / cost)
    rise += penalty * log2((1.0 + totals[OVER] + totals[HELD]) / (1.0 + over))
    if rise > threshold:
        # Toggling is its own inverse for the tree, not for sums in floating point: those come back from the
        # note.
        if come >= 0:
            toggle(problem, state, come)
        if away >= 0:
            toggle(problem, state, away)
        _take_back(state)


@jit
def _log2_of_change(change: float) -> float:
    """log2(1 + change), to 1e-13 where the change is small."""
    if abs(change) < SMALL:
        return change * (1.0 - 0.5 * change) / LN_2
    return log2(1.0 + change)


@jit
def rotate(problem: Any, state: Any, local: float, penalty: float, threshold: float) -> None:
    """(a b) c becomes (a c) b at a random inner product, unless the energy rises over the threshold."""
    random, totals, legs, size = state.random, state.totals, state.legs, state.size
    nodes = state.left.size
    n = (nodes + 1) // 2
    # A rotation (nearest-neighbour interchange) leaves all nodes but x as they are: only the size of x and
    # the steps of x and p change, so that a move takes the words of four legs, whatever the size of the tree.
    x = n + draw_below(random, n - 1)
    p = state.parent[x]
    if p < 0:
        return
    a, b = state.left[x], state.right[x]
    if draw_word(random) >> np.uint64(63):
        a, b = b, a
    c = state.right[p] if state.left[p] == x else state.left[p]
    legs_a, legs_b, legs_c, legs_p, unsliced = legs[a], legs[b], legs[c], legs[p], state.unsliced
    x_span, x_size, p_span = 1.0, 1.0, 1.0
    for s in range(problem.segments.size - 1):
        ones_x, ones_legs, ones_p = 0, 0, 0
        for i in range(problem.segments[s], problem.segments[s + 1]):
            # Legs of the new x = (a c): what is on a or c, and on b or above p. Its step has all of a and c;
            # that of p has x and b. Invariant: legs contain sliced bits, and `unsliced` takes them out.
            either = (legs_a[i] | legs_c[i]) & unsliced[i]
            stays = either & (legs_b[i] | legs_p[i])
            ones_x += ones_of(either)
            ones_legs += ones_of(stays)
            ones_p += ones_of(stays | (legs_b[i] & unsliced[i]))
        x_span *= problem.powers[s, ones_x]
        x_size *= problem.powers[s, ones_legs]
        p_span *= problem.powers[s, ones_p]
    x_span, x_size, p_span = min(x_span, LARGEST), min(x_size, LARGEST), min(p_span, LARGEST)
    x_cost = step_cost(problem.price, x_span, size[a], size[c], x_size)
    p_cost = step_cost(problem.price, p_span, x_size, size[b], size[p])
    before, now = state.cost[x] + state.cost[p], x_cost + p_cost
    more = (x_size > problem.limit) - (size[x] > problem.limit)
    over = totals[OVER]
    if x_size > problem.limit or size[x] > problem.limit:
        over += excess(problem.limit, x_size) - excess(problem.limit, size[x])
        # What rounding leaves of the excess is cleared where no tensor is over the limit.
        if state.counts[1] + more == 0:
            over = 0.0
    side = state.side[p]
    # At the root a rotation moves whole sub-trees from side to side: slow, and tried less often.
    if side == WAIST:
        if draw_below(random, WAIST_ODDS) == 0:
            new = x_size, x_span, p_span
            move_waist(problem, state, x, p, a, b, c, new, over, more, penalty, threshold)
        return
    cost = state.sums[side] - before + now
    # A sum that falls by nine orders of magnitude has lost its digits. Such a move is taken, and all is
    # summed afresh below.
    cancelled = cost < CANCELLED * state.sums[side] or 0.0 != over < CANCELLED * totals[OVER]
    if not cancelled:
        rise = local * log2(now / before) if local > 0.0 and now != before else 0.0
        # The terms still to come can only add to the rise: refused before any further logarithm is taken.
        if rise > threshold and now >= before and over >= totals[OVER]:
            return
        rise += _log2_of_change((now - before) * state.share[side] / totals[COST])
        if over != totals[OVER]:
            rise += penalty * log2((1.0 + over + totals[HELD]) / (1.0 + totals[OVER] + totals[HELD]))
        # Metropolis: taken with probability min(1, exp(-rise / T)), as `threshold` is -T ln(u), see `anneal`.
        if rise > threshold:
            return
    turn(state, x, p, a, b, c)
    size[x], state.span[x], state.span[p] = x_size, x_span, p_span
    state.cost[x], state.cost[p] = x_cost, p_cost
    state.sums[side] = cost
    totals[OVER] = over
    state.counts[1] += more
    if cancelled:
        add_up(problem, state)
    else:
        set_cost(problem, state)


@jit
def move_waist(
    problem: Any, state: Any, x: int, p: int, a: int, b: int, c: int, new: Any, over: float, more: int,
    penalty: float, threshold: float,
) -> None:  # fmt: skip
    """Rotate at the root p, x and its size and spans then the new ones, unless the energy rises too much.

    The steps stay those they were, but for the last one: only their sides change.
    """
    totals, left, right, size, span, cost = (
        state.totals, state.left, state.right, state.size, state.span, state.cost
    )  # fmt: skip
    _note(state)
    old = size[x], span[x], span[p]
    # `turn` always puts x left and a left: which were right is needed to undo it exactly.
    costs, mirrored, x_right = (cost[x], cost[p]), left[x] != a, right[p] == x
    turn(state, x, p, a, b, c)
    size[x], span[x], span[p] = new
    cost[x] = step_cost(problem.price, span[x], size[a], size[c], size[x])
    cost[p] = step_cost(problem.price, span[p], size[x], size[b], size[p])
    # All nodes below change sides, so that the cost is known only after the move, which may be undone.
    take_sides(problem, state, p)
    rise = log2(totals[COST] / state.noted[COST])
    excess_before = state.noted[HELD]
    rise += penalty * log2((1.0 + over + totals[HELD]) / (1.0 + totals[OVER] + excess_before))
    if rise <= threshold:
        totals[OVER] = over
        state.counts[1] += more
        return
    # The inverse rotation gives the old pairs; the order of the children is then put back by hand.
    turn(state, x, p, a, c, b)
    if mirrored:
        left[x], right[x] = b, a
    if x_right:
        left[p], right[p] = c, x
    size[x], span[x], span[p] = old
    cost[x], cost[p] = costs
    take_sides(problem, state, p)
    _take_back(state)


@jit
def keep_best(problem: Any, state: Any, best: Any) -> None:
    """Copy the state where it keeps both limits and costs less than the best. Its totals are fresh."""
    # Invariant: `best` is always within both limits.
    if state.counts[1] or state.totals[HELD] > 0.0:
        return
    score = log2(state.totals[COST])
    for q in range(state.counts[0]):
        score += log2(problem.extents[state.sliced[q]])
    if score < best.score[0] - 1e-9:
        best.score[0] = score
        for v in range(state.left.size):
            best.left[v], best.right[v], best.parent[v] = state.left[v], state.right[v], state.parent[v]
        for i in range(state.unsliced.size):
            best.unsliced[i] = state.unsliced[i]


@jit
def anneal(problem: Any, state: Any, best: Any, heat: Any, span: Any) -> None:
    """Blocks `span[0]` .. `span[1]` - 1 of a round of `span[2]`. Temperatures fall geometrically."""
    first, last, blocks = span
    slicing = SLICE_MOVES if problem.limit < np.inf else 0.0
    reached = SLICE_NODES
    seldom = 1 + state.left.size // BLOCK
    for block in range(first, last):
        done = block / blocks
        # The weight of what is over the limit goes linearly to LAST_PENALTY; temperatures fall geometrically
        # (simulated annealing; Kirkpatrick, Gelatt and Vecchi, 1983).
        penalty = heat.penalty + (LAST_PENALTY - heat.penalty) * done
        if done < 1.0 - POLISH:
            local = heat.local
            # The energy has `local` times the change of two steps in it, and the temperature is scaled alike.
            kelvin = local * heat.hot * (heat.cold / heat.hot) ** (done / (1.0 - POLISH))
        else:
            local = 0.0
            kelvin = POLISH_HOT * (POLISH_COLD / POLISH_HOT) ** ((done - 1.0 + POLISH) / POLISH)
        state.counts[REACHED], changes = 0, 1
        for _ in range(BLOCK):
            # For u uniform in (0, 1), rise <= -T ln(u) with probability exp(-rise / T): the draw is made
            # before the move, so that it may be refused early.
            threshold = -kelvin * log(draw_uniform(state.random) + 1e-300)
            if draw_uniform(state.random) < slicing * SLICE_NODES / reached:
                change_slices(problem, state, penalty, threshold)
                changes += 1
            else:
                rotate(problem, state, local, penalty, threshold)
        # Products that a change of slices reached, in the mean of this block: in the next such changes take
        # about SLICE_MOVES of the time of rotations.
        reached = max(SLICE_NODES, state.counts[REACHED] / changes)
        add_up(problem, state)
        # A pass over all edges with all words: on large trees only after about as many moves as there are
        # nodes.
        if block % seldom == 0:
            settle(problem, state)
        keep_best(problem, state, best)


@jit
def work(action: int, problem: Any, state: Any, best: Any, heat: Any, span: Any, scratch: Any) -> None:
    """All that is done with a state, as one piece of code: parts that several of these use are compiled once.

    `best` is the tree that is restored, or takes the best one; `heat` and `span` are for annealing; `scratch`
    is written over.
    """
    # One entry for all: shared parts are compiled once, and the cache has one piece of machine code.
    if action == RESTORE:
        restore(problem, state, best, scratch)
    elif action == SETTLE:
        settle(problem, state)
    elif action == SLICE:
        slice_to_limit(problem, state)
        keep_best(problem, state, best)
    else:
        anneal(problem, state, best, heat, span)
