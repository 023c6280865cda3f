"""The rows and columns of a network that is a square lattice: by the sites that it names, or by its graph.

A graph is a lattice if its distances from corners are: in a box, the coordinate of a vertex along the edge
from corner o to corner a is (d(o, v) - d(a, v) + d(o, a)) / 2. Boxes of few layers, such as norms of PEPS,
are lattices with several tensors on a site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

Site = tuple[int, int]
"""Row and column."""
Graph = dict[int, set[int]]
MOST_LAYERS = 3
CORNERS = {2: 4, 3: 8}
"""How many a box has, by its dimensions, which are the bonds of a corner."""


def sites_of(
    bonds: Sequence[Mapping[int, int]], n_arrays: int, named: Sequence[Site | None] | None
) -> list[Site] | None:
    """The site of each tensor of a connected network; None where it is no lattice of two rows and columns.

    Parameters
    ----------
    bonds
        For each tensor its neighbours; negative ones are open indices.
    n_arrays
        How many tensors come before copy tensors.
    named
        The sites that tensors name; None for a tensor that names none. It lies where a neighbour lies.
    """
    graph = {n: {other for other in ends if other >= 0} for n, ends in enumerate(bonds)}
    if named is not None and any(named):
        sites = _spread(graph, named)
        return sites if _is_lattice(graph, sites) else None
    for merged in _merged(graph, n_arrays):
        of_group = {n: group for group, members in merged.items() for n in members}
        quotient = {
            group: {of_group[other] for n in members for other in graph[n]} - {group}
            for group, members in merged.items()
        }
        found = _box(quotient)
        if found is not None:
            return [found[of_group[n]] for n in range(len(graph))]
    return None


def _spread(graph: Graph, named: Sequence[Site | None]) -> list[Site]:
    """The sites of all tensors: those without one are where a neighbour is."""
    sites = {n: site for n, site in enumerate(named) if site is not None}
    reached = [*sites]
    for number in reached:
        new = [other for other in sorted(graph[number]) if other not in sites]
        sites |= dict.fromkeys(new, sites[number])
        reached += new
    return [sites[n] for n in range(len(graph))]


def _is_lattice(graph: Graph, sites: Sequence[Site]) -> bool:
    """Whether bonds end at neighbouring sites, and there are two rows and columns at least."""
    near = all(
        max(abs(x - y) for x, y in zip(sites[n], sites[other], strict=True)) <= 1
        for n, others in graph.items() for other in others
    )  # fmt: skip
    return near and all(len({site[axis] for site in sites}) > 1 for axis in (0, 1))


def _merged(graph: Graph, n_arrays: int) -> list[dict[int, list[int]]]:
    """Ways to see tensors as groups, each by the number of one: each alone, and around indices of many."""
    ways = [{n: [n] for n in graph}]
    # The copy tensors of an index are one site. Tensors with two such sites at most, as the factors of bonds
    # and fields are, go to one of them.
    owner: dict[int, int] = {}
    for start in range(n_arrays, len(graph)):
        if start not in owner:
            reached = [start]
            for number in reached:
                owner[number] = start
                reached += [m for m in sorted(graph[number]) if m >= n_arrays and m not in reached]
    if owner:
        waiting = [*owner]
        for number in waiting:
            for n in sorted(graph[number]):
                if n in owner:
                    continue
                ends = {owner[other] for other in graph[n] if other in owner}
                # A corner without a field is no index of many: its two factors are one site.
                mate = next((m for m in graph[n] if m not in owner and len(graph[m]) == 2), None)
                if mate is not None and len(graph[n]) == 2:
                    owner[n] = owner[mate] = n
                    waiting += [n, mate]
                else:
                    owner[n] = min(ends)
                    waiting.append(n)
        groups: dict[int, list[int]] = {}
        for n, group in owner.items():
            groups.setdefault(group, []).append(n)
        ways.append(groups)
    return ways


def _box(graph: Graph) -> dict[int, Site] | None:
    """Row and column of each vertex of a grid, or of a box with few layers."""
    least = min(map(len, graph.values()))
    corners = [n for n, others in graph.items() if len(others) == least]
    if len(corners) != CORNERS.get(least, 0):
        return None
    first, *others = corners
    distances = {corner: _distances(graph, corner) for corner in corners}
    for ends in combinations(others, least):
        lengths = [distances[first][end] for end in ends]
        if prod(length + 1 for length in lengths) != len(graph):
            continue
        places = {
            n: tuple(
                (distances[first][n] - distances[end][n] + length) // 2
                for end, length in zip(ends, lengths, strict=True)
            )
            for n in graph
        }
        if len(set(places.values())) == len(graph) and all(
            sum(abs(x - y) for x, y in zip(places[n], places[other], strict=True)) == 1
            for n, neighbours in graph.items() for other in neighbours
        ):  # fmt: skip
            layers = lengths.index(min(lengths)) if least > 2 else least
            if least > 2 and lengths[layers] >= MOST_LAYERS:
                return None
            axes = [axis for axis in range(least) if axis != layers]
            return {n: (place[axes[0]], place[axes[1]]) for n, place in places.items()}
    return None


def _distances(graph: Graph, start: int) -> dict[int, int]:
    """Of each vertex from one."""
    found, reached = {start: 0}, [start]
    for number in reached:
        for other in graph[number]:
            if other not in found:
                found[other] = found[number] + 1
                reached.append(other)
    return found
