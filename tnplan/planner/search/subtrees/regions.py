"""Annealing of a large tree part by part: memory of the network, and moves that cost what a small one's do.

A region is a product and the costliest ones below it, down to some hundred tensors. It is a network of its
own, its result the legs of the product, and is annealed as one; where that makes it cheaper the tree takes
it. What is sliced stays.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from math import inf, log2
from typing import NamedTuple

import numpy as np

from tnplan.planner.search.annealer.anneal_state import Heat, tree_of
from tnplan.planner.search.annealer.annealed import Annealed
from tnplan.planner.search.annealing import ScoredTree, Task, between
from tnplan.planner.search.orders.hypergraph import Ints
from tnplan.planner.search.orders.starts import MOST_LEGS, path_of
from tnplan.planner.search.subtrees.measure_kernel import KeptLegs, NodeSizes, kept_legs, measured, tree_cost

MOST_STATE_BYTES = 64 * 2**20
"""Of the legs as bits of all nodes, up to which a tree is annealed as a whole."""
REGIONS = (60, 400)
"""Tensors of a region are drawn between these."""
REGIONS_AT_ONCE = 16
"""Regions for which the legs of the whole tree are gone through once."""
SWEPT_SIZES = 8, 9
"""Tensors of the parts that are put in their best order first."""
MOVES_PER_TENSOR = 2000
LEG_S = 1.2e-8
"""Nominal seconds in which a leg is gone through."""
CLIMB = 6
"""Products that a region's top is above a costly one, at most."""
DEPTH_BITS = 12.0
"""Regions begin at products that cost up to 2^-DEPTH_BITS of the costliest one."""
BETTER = 1e-9


def is_large(task: Task) -> bool:
    """Whether a tree of the task is annealed part by part."""
    return (2 * len(task.inputs)) * (len(task.sizes) / 8) > MOST_STATE_BYTES


class Region(NamedTuple):
    """A part of a tree."""

    tops: Ints
    """Its tensors: nodes of the tree."""
    inner: Ints
    """Its products, each after those that need it; the first is what it makes."""


class LargeTree:
    """A tree, and the regions that are made better in it."""

    def __init__(self, task: Task, source: ScoredTree) -> None:
        self.task = task
        self.graph, self.names, _ = task.structure
        self.sliceable = task.sliceable
        self.weights = self.graph.weights.copy()
        self.n = len(task.inputs)
        self.left, self.right, self.parent = tree_of(source.ssa_path, self.n)
        self.root = 2 * self.n - 2
        self.limit_bits = inf if task.limit is None else log2(task.limit)
        if source.sliced:
            numbers = {name: number for number, name in enumerate(self.names)}
            self.weights[[numbers[symbol] for symbol in source.sliced]] = 0.0
        self.fits = task.limit is None or self._slice()

    def _slice(self) -> bool:
        from tnplan.planner.search.subtrees.measure_kernel import slice_to_bits

        return slice_to_bits(self.graph, self.weights, self.sliceable, self.left, self.right, self.limit_bits)

    def scored(self) -> ScoredTree:
        """The tree as it is, its score log2 of the cost of all slices."""
        bits, *_ = tree_cost(self.graph, self.weights, self.left, self.right, self.task.price)
        sliced = np.flatnonzero((self.weights == 0.0) & (self.graph.weights > 0.0))
        return ScoredTree(
            float(bits + self.graph.weights[sliced].sum()), path_of(self.left, self.right),
            tuple(self.names[number] for number in sliced),
        )  # fmt: skip

    def improve(self, heat: Heat, moves: float, ends: float, draw: random.Random) -> int:
        """Optimal small parts, then regions until the moves are made or time is up; how many were made."""
        nodes = measured(self.graph, self.weights, self.left, self.right)
        if nodes.length.sum() <= MOST_LEGS:
            nodes = self._sweep(ends)
        # All legs are gone through for each pass; nothing is done where that alone takes too long.
        if time.monotonic() + LEG_S * int(nodes.length.sum()) > ends:
            return 0
        done = 0
        while done < moves and time.monotonic() < ends:
            regions = self._regions(nodes, draw)
            tops = np.unique(np.concatenate([np.append(region.tops, region.inner[0]) for region in regions]))
            legs = kept_legs(self.graph, self.weights, self.left, self.right, nodes, tops)
            for region in regions:
                if done < moves and time.monotonic() < ends:
                    done += self._improve_region(region, nodes, legs, heat, ends, draw)
            nodes = measured(self.graph, self.weights, self.left, self.right)
        return done

    def _sweep(self, ends: float) -> NodeSizes:
        """Put small parts of the whole tree in their best order."""
        from tnplan.planner.search.subtrees.optimal_kernel import sweep

        for size in SWEPT_SIZES:
            sweep(
                self.graph, self.weights, self.left, self.right, self.root, size, self.limit_bits,
                self.task.price, ends,
            )  # fmt: skip
        products = np.arange(self.n, self.root + 1)
        self.parent[self.left[products]] = self.parent[self.right[products]] = products
        return measured(self.graph, self.weights, self.left, self.right)

    def _regions(self, nodes: NodeSizes, draw: random.Random) -> list[Region]:
        """Regions with no product in common, one at least."""
        from tnplan.planner.search.subtrees.optimal_kernel import region_below

        near = np.flatnonzero(nodes.span > nodes.span.max() - draw.uniform(0.0, DEPTH_BITS))
        taken = np.zeros(self.left.size, bool)
        regions: list[Region] = []
        for _ in range(REGIONS_AT_ONCE):
            v, most = self._top(near, draw), round(between(draw, *REGIONS))
            tops, inner = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
            k, opened = region_below(nodes.span, self.left, self.right, v, tops, inner)
            # Regions of one pass have no product in common: each reads legs that were measured before any was
            # changed.
            if not taken[inner[:opened]].any():
                taken[inner[:opened]] = True
                regions.append(Region(tops[:k], inner[:opened]))
        return regions

    def _top(self, near: Ints, draw: random.Random) -> int:
        """The product at which a region begins: above one of these."""
        v = int(near[draw.randrange(len(near))])
        for _ in range(draw.randrange(CLIMB)):
            v = int(self.parent[v]) if self.parent[v] >= 0 else v
        return v

    def _improve_region(
        self, region: Region, nodes: NodeSizes, legs: KeptLegs, heat: Heat, ends: float, draw: random.Random
    ) -> int:
        k = len(region.tops)
        if k < 3:
            return 1
        places = np.empty(self.left.size, np.int64)
        places[region.tops] = np.arange(k)
        # Reversed, products come after those that they need: that is the order of an SSA path, the top last.
        inner = region.inner[::-1]
        places[inner] = np.arange(k, k + len(inner))
        pairs = tuple(zip(places[self.left[inner]].tolist(), places[self.right[inner]].tolist(), strict=True))
        task = self._part(region, nodes, legs)
        annealed = Annealed(task, ScoredTree(0.0, pairs, ()), draw.getrandbits(30))
        moves = annealed.run(heat, MOVES_PER_TENSOR * k, ends, None)
        best = annealed.best_tree()
        if best is not None and (annealed.given is None or best.score < annealed.given.score - BETTER):
            self._graft(best, region)
        return moves

    def _part(self, region: Region, nodes: NodeSizes, legs: KeptLegs) -> Task:
        """The region as a network: its tensors are nodes of the tree."""

        def term(node: int) -> tuple[str, ...]:
            row = legs.indices[legs.first[node] : legs.first[node] + nodes.length[node]]
            return tuple(self.names[number] for number in row[self.weights[row] > 0.0])

        inputs = tuple(term(int(node)) for node in region.tops)
        sizes = {name: self.task.sizes[name] for term_names in inputs for name in term_names}
        return replace(
            self.task, inputs=inputs, output=term(int(region.inner[0])), sizes=sizes, starts=(), arrays=None,
            slices_open=False,
        )  # fmt: skip

    def _graft(self, best: ScoredTree, region: Region) -> None:
        """Take a region's new tree: its products, last of all the top, have the numbers of the old ones."""
        nodes = np.concatenate((region.tops, region.inner[::-1]))
        children = nodes[np.array(best.ssa_path)]
        # Invariant: the last product keeps the number of the top, so that the tree above needs no change.
        products = nodes[len(region.tops) :]
        self.left[products], self.right[products] = children.T
        self.parent[children.T] = products
