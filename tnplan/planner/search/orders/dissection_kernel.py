"""Nested dissection: tensors are divided in two parts, time and again. Compiled.

An order of the indices follows: those in both parts of a division come after all those inside of either.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.planner.search.orders.bisection_kernel import bisect, new_room
from tnplan.planner.search.orders.heap_kernel import jit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Cuts(NamedTuple):
    """How tensors are divided time and again."""

    fewest: int
    """Tensors that stay together."""
    imbalance: float
    depth: int
    """Divisions on the way to the smallest part, at most."""
    attempts: int
    """Divisions of each part, of which the one that cuts least is taken."""
    boundary: float
    """What an index that is cut already adds to the mass of its tensors: more divides the boundary, too."""


class Dissection(NamedTuple):
    """The parts of T tensors and I indices so far."""

    stages: Ints
    """(I)."""
    free: Ints
    """(I): 1 for indices that are not cut."""
    numbers: Ints
    """(I): the number of an index in the part in hand, -1 for those outside."""
    members: Ints
    """(T): the tensors, those of a part side by side."""
    mass: Floats
    """(T): what a tensor counts where parts are to be as large as each other."""
    side: Ints
    """(T): the best division of the part in hand."""
    todo: Ints
    """(T + 1, 3): where parts begin and end in `members`, and the divisions that made them."""


def dissect(graph: Any, cuts: Cuts, seed: int) -> Ints:
    """The stage of each index: those that part the whole come last, those of parts of few tensors first."""
    parts = new_dissection(graph)
    cut_all(graph, cuts, parts, new_room(graph, seed))
    return parts.stages


def new_dissection(graph: Any) -> Dissection:
    """All tensors as one part."""
    n, n_indices = graph.tensor_starts.size - 1, graph.weights.size
    return Dissection(
        np.zeros(n_indices, np.int64), np.ones(n_indices, np.int64), np.full(n_indices, -1), np.arange(n),
        np.ones(n), np.zeros(n, np.int64), np.zeros((n + 1, 3), np.int64),
    )  # fmt: skip


@jit
def cut_all(graph: Any, cuts: Any, parts: Any, scratch: Any) -> None:
    """Set the stages."""
    todo = parts.todo
    todo[0, 0], todo[0, 1], todo[0, 2] = 0, parts.members.size, 0
    # A stack of parts in place of recursion. Invariant: a part is a range of `members`, parts on the stack
    # are disjoint, and there are never more of them than tensors.
    many = 1
    while many > 0:
        many -= 1
        first, last, level = todo[many, 0], todo[many, 1], todo[many, 2]
        if last - first <= cuts.fewest or level >= cuts.depth:
            continue
        n_nets = _take_part(graph, parts, first, last, scratch)
        least = np.inf
        for _ in range(cuts.attempts):
            cut = bisect(scratch, n_nets, cuts.imbalance)
            if cut < least:
                least = cut
                for c in range(last - first):
                    parts.side[c] = scratch.best[c]
        _cut(graph, cuts, parts, scratch, n_nets, last - first, cuts.depth - level)
        middle = _sort_members(parts, first, last, scratch.queue)
        # A division that leaves one side empty would be tried for ever.
        if first < middle < last:
            for half in range(2):
                todo[many, 0] = middle if half else first
                todo[many, 1] = last if half else middle
                todo[many, 2] = level + 1
                many += 1


@jit
def _take_part(graph: Any, parts: Any, first: int, last: int, scratch: Any) -> int:
    """Make some tensors the cells of level 0, with their free indices by numbers; how many these are."""
    count, used = 0, 0
    scratch.begins[0, 0], scratch.begins[0, 1], scratch.begins[0, 2] = 0, 0, last - first
    scratch.starts[0] = 0
    for i in range(last - first):
        t = parts.members[first + i]
        scratch.mass[i] = parts.mass[t]
        for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
            u = graph.indices[q]
            # An index that is cut already is in a separator of a larger part: it can be cut no further, and
            # weighs only by the mass of its tensors.
            if not parts.free[u]:
                continue
            if parts.numbers[u] < 0:
                parts.numbers[u] = count
                scratch.present[count] = u
                scratch.weights[count] = graph.weights[u]
                count += 1
            scratch.items[used] = parts.numbers[u]
            used += 1
        scratch.starts[i + 1] = used
    # Invariant: `numbers` is -1 everywhere between two parts.
    for i in range(count):
        parts.numbers[scratch.present[i]] = -1
    return count


@jit
def _cut(graph: Any, cuts: Any, parts: Any, scratch: Any, n_nets: int, n: int, stage: int) -> None:
    """The indices in both halves of a part get a stage, and their tensors more mass."""
    inside = scratch.inside
    for net in range(n_nets):
        inside[0, net], inside[1, net] = 0, 0
    for row in range(n):
        for q in range(scratch.starts[row], scratch.starts[row + 1]):
            inside[parts.side[row], scratch.items[q]] += 1
    for net in range(n_nets):
        if inside[0, net] > 0 and inside[1, net] > 0:
            u = scratch.present[net]
            # Cut early means eliminated late: a division nearer to the whole has a higher stage.
            parts.free[u], parts.stages[u] = 0, stage
            for p in range(graph.index_starts[u], graph.index_starts[u + 1]):
                parts.mass[graph.tensors[p]] += cuts.boundary * graph.weights[u]


@jit
def _sort_members(parts: Any, first: int, last: int, copy: Any) -> int:
    """Put the tensors of side 0 before those of side 1; where these begin."""
    for i in range(last - first):
        copy[i] = parts.members[first + i]
    middle = first
    for i in range(last - first):
        if parts.side[i] == 0:
            parts.members[middle] = copy[i]
            middle += 1
    at = middle
    for i in range(last - first):
        if parts.side[i] == 1:
            parts.members[at] = copy[i]
            at += 1
    return middle
