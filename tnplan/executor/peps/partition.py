"""Which rank holds which site of a PEPS: parts of a graph of equal work, with few edges between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

BOND = 8.0
"""Of the tensors whose sizes are balanced."""


def parts_of_graph(neighbours: Sequence[Sequence[int]], count: int) -> list[int]:
    """The part of each site, from 0 to `count` - 1.

    A part begins at a site that is far from the others, and takes in the neighbour with the most edges to it
    and the fewest elsewhere, until it has its share of the elements of all tensors. Parts are connected where
    what the parts before left is.

    Examples
    --------
    >>> parts_of_graph([[1], [0, 2], [1, 3], [2]], 2)
    [0, 0, 1, 1]
    """
    work = [BOND ** len(ends) for ends in neighbours]
    owners = [count - 1] * len(neighbours)
    left, remaining = set(range(len(neighbours))), sum(work)
    for part in range(count - 1):
        share, taken, inside = remaining / (count - part), 0.0, set[int]()
        while left:
            edge = {end for site in inside for end in neighbours[site]} & left
            if edge:
                site = max(sorted(edge), key=lambda one: _gain(neighbours[one], inside, left))
            else:
                site = _far_end(neighbours, left)
            # The last site stays out where that is nearer to the share.
            if inside and taken + work[site] / 2 > share:
                break
            inside.add(site)
            left.remove(site)
            owners[site], taken = part, taken + work[site]
        remaining -= taken
    return owners


def _gain(ends: Sequence[int], inside: Collection[int], left: Collection[int]) -> int:
    return sum((end in inside) - (end in left) for end in ends)


def _far_end(neighbours: Sequence[Sequence[int]], left: Collection[int]) -> int:
    """A site that is as far as any from another one of its part of the graph."""
    site = min(left)
    for _ in range(2):
        seen, queue = {site}, deque([site])
        while queue:
            site = queue.popleft()
            new = [end for end in neighbours[site] if end in left and end not in seen]
            seen.update(new)
            queue.extend(new)
    return site
