"""Annealing of a large tree part by part: memory of all legs, and moves that cost what a small network's do.

A region is a product and the costliest ones below it, down to some hundred tensors. It is a network of its
own, its result the legs of the product, and is annealed as one; where that makes it cheaper the tree takes
it. What is sliced stays.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from math import inf, log2
from typing import Any

import numpy as np

from tnplan.planner.search.annealer.anneal_state import Heat, tree_of
from tnplan.planner.search.annealer.annealed import Annealed
from tnplan.planner.search.annealing import Found, Task
from tnplan.planner.search.orders.hypergraph import index_names, make_hypergraph
from tnplan.planner.search.orders.starts import closed_indices
from tnplan.planner.search.orders.trees import path_of

MOST_STATE_BYTES = 64 * 2**20
"""Of the legs as bits of all nodes, up to which a tree is annealed as a whole."""
REGIONS = (60, 400)
"""Tensors of a region are drawn between these."""
MOVES_PER_TENSOR = 2000
CLIMB = 6
"""Products that a region's top is above a costly one, at most."""
DEPTH_BITS = 12.0
"""Regions begin at products that cost up to 2^-DEPTH_BITS of the costliest one."""
BETTER = 1e-9


def is_large(task: Task) -> bool:
    """Whether a tree of the task is annealed part by part."""
    return (2 * len(task.inputs)) * (len(task.sizes) / 8) > MOST_STATE_BYTES


class LargeTree:
    """A tree with its legs, and the regions that are made better in it."""

    def __init__(self, task: Task, source: Found) -> None:
        from tnplan.planner.search.subtrees import legs_kernel, slicing_kernel

        self.task, self.kernel = task, legs_kernel
        self.graph = make_hypergraph(task.inputs, task.output, task.sizes)
        self.names = index_names(task.inputs, task.output, task.sizes)
        self.weights = self.graph.weights.copy()
        self.n = len(task.inputs)
        self.left, self.right, self.parent = tree_of(source.ssa_path, self.n)
        self.root = 2 * self.n - 2
        numbers = {name: number for number, name in enumerate(self.names)}
        self.weights[[numbers[symbol] for symbol in source.sliced]] = 0.0
        self.limit_bits = inf if task.limit is None else log2(task.limit)
        self.fits = True
        if task.limit is not None:
            order = legs_kernel.products_in_order(self.left, self.right, self.root)
            self.fits = slicing_kernel.slice_to_bits(
                self.graph, self.weights, closed_indices(task), self.left, self.right, order, self.limit_bits
            )  # fmt: skip
        self._count()

    def _count(self) -> None:
        order = self.kernel.products_in_order(self.left, self.right, self.root)
        self.legs = self.kernel.all_legs(self.graph, self.weights, self.left, self.right, order)

    def found(self) -> Found:
        """The tree as it is, its score log2 of the cost of all slices."""
        bits, _ = self.kernel.total_bits(self.legs, self.task.element_weight, self.left, self.right)
        sliced = np.flatnonzero((self.weights == 0.0) & (self.graph.weights > 0.0))
        return Found(
            float(bits + self.graph.weights[sliced].sum()), path_of(self.left, self.right),
            tuple(self.names[number] for number in sliced),
        )  # fmt: skip

    def improve(self, heat: Heat, moves: float, ends: float, draw: random.Random) -> int:
        """Optimal small parts, then regions until the moves are made or time is up; how many were made."""
        from tnplan.planner.search.subtrees.optimal_kernel import sweep

        for size in (8, 9):
            sweep(
                self.graph, self.weights, self.left, self.right, self.root, size, self.limit_bits,
                self.task.element_weight,
            )  # fmt: skip
        products = np.arange(self.n, self.root + 1)
        self.parent[self.left[products]] = self.parent[self.right[products]] = products
        self._count()
        done = 0
        while done < moves and time.monotonic() < ends:
            done += self._improve_region(heat, ends, draw)
        return done

    def _top(self, draw: random.Random) -> int:
        """The product at which a region begins: above one that is drawn by its cost."""
        span = self.legs.span
        near = np.flatnonzero(span > span.max() - draw.uniform(0.0, DEPTH_BITS))
        v = int(near[draw.randrange(len(near))])
        for _ in range(draw.randrange(CLIMB)):
            v = int(self.parent[v]) if self.parent[v] >= 0 else v
        return v

    def _improve_region(self, heat: Heat, ends: float, draw: random.Random) -> int:
        from tnplan.planner.search.subtrees.optimal_kernel import region_below

        v, most = self._top(draw), round(_between(draw, *REGIONS))
        tops, inner = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
        k, opened = region_below(self.legs, self.left, self.right, v, most, tops, inner)
        if k < 3:
            return 1
        place = {int(top): number for number, top in enumerate(tops[:k])}
        place.update({int(node): k + opened - 1 - number for number, node in enumerate(inner[:opened])})
        pairs = tuple(
            (place[int(self.left[node])], place[int(self.right[node])]) for node in reversed(inner[:opened])
        )
        part = Annealed(self._part(tops[:k], v), Found(0.0, pairs, ()), draw.getrandbits(30))
        moves = part.run(heat, MOVES_PER_TENSOR * k, ends, None)
        best = part.best_found()
        if best is not None and (part.given is None or best.score < part.given.score - BETTER):
            self._graft(best, tops[:k], inner[:opened])
        return moves

    def _part(self, tops: Any, v: int) -> Task:
        """The region as a network: its tensors are nodes of the tree."""
        legs = self.legs

        def term(node: int) -> tuple[str, ...]:
            row = legs.pool[0, legs.start[node] : legs.start[node] + legs.length[node]]
            return tuple(self.names[number] for number in row[self.weights[row] > 0.0])

        inputs = tuple(term(int(node)) for node in tops)
        sizes = {name: self.task.sizes[name] for one in inputs for name in one}
        return replace(self.task, inputs=inputs, output=term(v), sizes=sizes, starts=())

    def _graft(self, best: Found, tops: Any, inner: Any) -> None:
        """Take a region's new tree: its products, last of all the top, have the numbers of the old ones."""
        nodes = [*map(int, tops), *map(int, reversed(inner))]
        for number, (a, b) in enumerate(best.ssa_path):
            node = nodes[len(tops) + number]
            self.left[node], self.right[node] = nodes[a], nodes[b]
            self.parent[nodes[a]] = self.parent[nodes[b]] = node
            need = self.legs.length[nodes[a]] + self.legs.length[nodes[b]]
            self.legs = self.kernel.with_room(self.legs, int(need))
            self.kernel.join(self.legs, self.weights, nodes[a], nodes[b], node)


def _between(draw: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** draw.random())
