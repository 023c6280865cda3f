"""The order of a boundary contraction of a square lattice: rows from both sides, and one in the middle.

The rows of each side are contracted one by one into a row of tensors, a matrix product state whose bonds are
cut after each (Verstraete and Cirac, arXiv cond-mat/0407066). What meets in the middle is contracted column
by column without a cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tnplan.planner.networks.lattice_sites import Site
from tnplan.planner.search.bond_limited_order import BondLimitedOrder, Pairs, follow


class _Plan(NamedTuple):
    """Pairs in turn, the rows that are cut behind some, and the side of each tensor: 1, or 0 for the rest."""

    pairs: Pairs
    rows: dict[int, tuple[int, ...]]
    sides: list[int]


def boundary_order(
    network: Sequence[Mapping[int, int]], sites: Sequence[Site], max_bond: int
) -> BondLimitedOrder | None:
    """The cheaper of the orders by rows and by columns; None where tensors of a column have no bond.

    Parameters
    ----------
    network
        For each tensor the extents of its bonds, by the neighbour.
    sites
        The row and the column of each.
    """
    plans = [_plan(network, [site[::step] for site in sites]) for step in (1, -1)]
    orders = [
        follow(network, plan.pairs, max_bond, rows=plan.rows, sides=plan.sides) for plan in plans if plan
    ]
    return min(orders, key=lambda order: order.multiply_adds, default=None)


def _plan(network: Sequence[Mapping[int, int]], sites: Sequence[tuple[int, ...]]) -> _Plan | None:
    """The order by rows; None where two tensors that would be contracted have no bond."""
    lattice: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (row, column) in enumerate(sites):
        lattice[row][column].append(number)
    numbers = sorted(lattice)
    middle = len(numbers) // 2
    sides = [0] * len(network)
    plan = _Plan([], {}, sides)
    neighbours = {n: {other for other in ends if other >= 0} for n, ends in enumerate(network)}

    def contract(tensors: list[int], side: int) -> int | None:
        """One tensor of several, each with a bond to those before it."""
        result, *left = tensors
        while left:
            other = next((n for n in left if n in neighbours[result]), None)
            if other is None:
                return None
            left.remove(other)
            plan.pairs.append((result, other))
            new = len(sides)
            sides.append(side)
            ends = (neighbours.pop(result) | neighbours.pop(other)) - {result, other}
            for end in ends:
                neighbours[end] = (neighbours[end] - {result, other}) | {new}
            neighbours[new], result = ends, new
        return result

    edges: list[dict[int, int]] = []
    for side, rows in enumerate((numbers[:middle], numbers[:middle:-1])):
        edge: dict[int, int] = {}
        for row in rows:
            before = len(plan.pairs)
            for column in sorted(lattice[row]):
                own = lattice[row][column]
                for number in own:
                    sides[number] = side
                found = contract([edge[column], *own] if column in edge else own, side)
                if found is None:
                    return None
                edge[column] = found
            chain = [edge[column] for column in sorted(edge)]
            if any(b not in neighbours[a] for a, b in pairwise(chain)):
                return None
            if len(plan.pairs) > before:
                plan.rows[len(plan.pairs) - 1] = tuple(chain)
        edges.append(edge)
    last: list[int] = []
    for column in sorted({column for row in lattice.values() for column in row}):
        ends = [[edge[column]] if column in edge else [] for edge in edges]
        found = contract([*last, *ends[0], *lattice[numbers[middle]].get(column, []), *ends[1]], 0)
        if found is None:
            return None
        last = [found]
    return plan

