"""The order of a boundary contraction of a square lattice: rows from both sides, and one in the middle.

The rows of each side are contracted one by one into a row of tensors, a matrix product state whose bonds are
cut after each (Verstraete and Cirac, arXiv cond-mat/0407066). What meets in the middle is contracted column
by column without a cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tnplan.planner.networks.lattice_sites import Site
from tnplan.planner.search.bond_limited_order import BondLimitedOrder, Pairs, follow


class _RowPlan(NamedTuple):
    """Pairs in turn, the rows that are cut behind some, and the side of each tensor: 1, or 0 for the rest."""

    pairs: Pairs
    rows: dict[int, tuple[tuple[int, ...], ...]]
    sides: list[int]


def boundary_order(
    network: Sequence[Mapping[int, int]], sites: Sequence[Site], max_bond: int
) -> BondLimitedOrder:
    """The cheaper of the orders by rows and by columns.

    Parameters
    ----------
    network
        For each tensor the extents of its bonds, by the neighbour.
    sites
        The row and the column of each.
    """
    plans = [_plan(network, [site[::step] for site in sites]) for step in (1, -1)]
    orders = [follow(network, plan.pairs, max_bond, rows=plan.rows, sides=plan.sides) for plan in plans]
    return min(orders, key=lambda order: order.multiply_adds)


def _plan(network: Sequence[Mapping[int, int]], sites: Sequence[tuple[int, ...]]) -> _RowPlan:
    """The order by rows."""
    lattice: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (row, column) in enumerate(sites):
        lattice[row][column].append(number)
    numbers = sorted(lattice)
    middle = len(numbers) // 2
    sides = [0] * len(network)
    plan = _RowPlan([], {}, sides)
    neighbours = {n: {other for other in ends if other >= 0} for n, ends in enumerate(network)}

    def contract(tensors: list[int], side: int) -> int:
        """One tensor of several, of which those with a bond to it come first."""
        result, *left = tensors
        while left:
            other = next((n for n in left if n in neighbours[result]), left[0])
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
                edge[column] = contract([edge[column], *own] if column in edge else own, side)
            if len(plan.pairs) > before:
                plan.rows[len(plan.pairs) - 1] = _chains(edge, neighbours)
        edges.append(edge)
    last: list[int] = []
    for column in sorted({column for row in lattice.values() for column in row}):
        ends = [[edge[column]] if column in edge else [] for edge in edges]
        last = [contract([*last, *ends[0], *lattice[numbers[middle]].get(column, []), *ends[1]], 0)]
    return plan


def _chains(edge: Mapping[int, int], neighbours: Mapping[int, set[int]]) -> tuple[tuple[int, ...], ...]:
    """The tensors of an edge from column to column, apart where two have no bond."""
    chains: list[list[int]] = []
    for _, number in sorted(edge.items()):
        if chains and number in neighbours[chains[-1][-1]]:
            chains[-1].append(number)
        else:
            chains.append([number])
    return tuple(tuple(chain) for chain in chains if len(chain) > 1)
