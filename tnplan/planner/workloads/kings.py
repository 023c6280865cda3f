"""Independent sets of random King's subgraphs: the graphs, and the networks that count their sets.

Sites on a rectangle, kept at random; two that a chess king's move joins are adjacent. Assumed, as the paper
names only size and density: exactly the rounded share of the sites is kept, any choice of them equally
likely, and parts that hang together with nothing else stay in. Knows no path and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, log2

import numpy as np

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network

Site = tuple[int, int]
Edge = tuple[int, int]

LARGEST_EXACT_LOG2 = 53
"""Every whole number up to 2^53 is a float64."""
LARGEST_LOG2 = 1023
"""Below the largest float64."""
MOST_OPEN = 63
"""No tensor that can be stored has more indices of extent 2."""
LARGEST_CLIQUE = 16
"""Its tensor has 2^16 elements."""
FORWARD = ((0, 1), (1, -1), (1, 0), (1, 1))


def kings_sites(rows: int, columns: int, density: float, seed: int) -> list[Site]:
    """The kept sites (row, column) row by row: round(density x rows x columns) of them."""
    check_count("--rows", rows)
    check_count("--columns", columns)
    if not 0 < density <= 1:
        raise InputError("--density", f"is {density}", "give a share above 0 and up to 1")
    check_count("--seed", seed, 0)
    n_sites = round(density * rows * columns)
    if n_sites == 0:
        raise InputError("--density", f"{density} keeps no site of {rows} x {columns}", "give a larger share")
    generator = np.random.default_rng(seed)
    sites = np.sort(generator.choice(rows * columns, size=n_sites, replace=False))
    return [divmod(int(number), columns) for number in sites]


def kings_edges(sites: Sequence[Site]) -> list[Edge]:
    """The pairs of sites, by their places in `sites`, that one king's move joins."""
    number = {site: vertex for vertex, site in enumerate(sites)}
    return [
        (vertex, number[row + down, column + right])
        for vertex, (row, column) in enumerate(sites)
        for down, right in FORWARD
        if (row + down, column + right) in number
    ]


def kings_cliques(sites: Sequence[Site]) -> list[tuple[int, ...]]:
    """The maximal cliques of two sites or more, by their places in `sites`: what 2 x 2 blocks hold.

    Each edge lies in one at least.
    """
    number = {site: vertex for vertex, site in enumerate(sites)}
    blocks: dict[frozenset[int], None] = {}
    for row, column in sites:
        for top, left in ((row - 1, column - 1), (row - 1, column), (row, column - 1), (row, column)):
            corners = ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1))
            blocks[frozenset(number[site] for site in corners if site in number)] = None
    holders: list[list[frozenset[int]]] = [[] for _ in sites]
    for block in blocks:
        for vertex in block:
            holders[vertex].append(block)
    maximal = (b for b in blocks if len(b) > 1 and not any(b < other for other in holders[min(b)]))
    return sorted(tuple(sorted(block)) for block in maximal)


def independent_set_network(
    n_vertices: int, cliques: Sequence[Sequence[int]], weight: float = 1
) -> tuple[Network, list[np.ndarray]]:
    """The sum of weight^|S| over the independent sets S of a graph, the empty one among them; float64.

    `cliques` are sets of adjacent vertices that together have every edge, such as the edges themselves; few
    large ones make a network that is easier to search. A vertex is an index of extent 2 (1: in the set) that
    sits on the vertex's own tensor (1, weight) and on a tensor of each of its cliques, 1 where at most one
    vertex is in the set, else 0: a hyper-index. With weight 1 the result is the number of sets, and no
    element of a tensor on the way, where an index is summed once all its tensors are in, is larger: below
    2^53 float64 holds each of them exactly, in any order.
    """
    if n_vertices < 1:
        raise InputError("graph", f"has {n_vertices} vertices", "give 1 or more")
    if not (isfinite(weight) and weight > 0):
        raise InputError("--weight", f"is {weight}", "give a finite number above 0")
    inputs: list[tuple[str, ...]] = [(f"v{vertex}",) for vertex in range(n_vertices)]
    arrays = [np.array([1.0, weight])] * n_vertices
    for clique in map(tuple, cliques):
        outside = [vertex for vertex in clique if not 0 <= vertex < n_vertices]
        if outside:
            raise InputError(f"clique {clique}", f"names vertex {outside[0]}", f"use 0 to {n_vertices - 1}")
        if len(set(clique)) < len(clique):
            raise InputError(f"clique {clique}", "has a self-loop", "name each vertex once")
        if len(clique) > LARGEST_CLIQUE:
            raise InputError(
                f"clique of vertex {clique[0]}",
                f"has {len(clique)} vertices",
                f"give its edges in parts of at most {LARGEST_CLIQUE} vertices",
            )
        inputs.append(tuple(f"v{vertex}" for vertex in clique))
        arrays.append((np.indices((2,) * len(clique)).sum(axis=0) <= 1).astype(np.float64))
    return Network(tuple(inputs), (), {f"v{vertex}": 2 for vertex in range(n_vertices)}), arrays


def log2_bound(sites: Sequence[Site], weight: float = 1) -> float:
    """An upper bound of log2 of the sum over independent sets of a King's subgraph.

    It is the sum's product over strips of two rows each, without the edges between them. In a strip all sites
    of two neighbouring columns are adjacent, so that a column holds one site of the set or none, and one that
    holds a site has empty neighbours.
    """
    filled: dict[int, dict[int, int]] = {}
    for row, column in sites:
        strip = filled.setdefault(row // 2, {})
        strip[column] = strip.get(column, 0) + 1
    total = 0.0
    for strip in filled.values():
        columns = sorted(strip)
        empty, taken = 1.0, strip[columns[0]] * weight
        for last, column in pairwise(columns):
            free = empty + taken
            taken = strip[column] * weight * (empty if column == last + 1 else free) / free
            total += log2(free)
            empty = 1.0
        total += log2(empty + taken)
    return total


def check_range(log2_sum: float, weight: float = 1) -> None:
    """Refuse a sum whose tensors could leave the range of float64.

    An element of a tensor on the way is at most the whole sum times the weight of the open vertices.
    """
    if not log2_sum + MOST_OPEN * log2(max(weight, 1)) <= LARGEST_LOG2:
        raise InputError(
            "the sum over independent sets",
            f"may reach 2^{log2_sum:.0f}, too near float64's largest, 2^1024",
            "give fewer sites or a smaller weight",
        )
