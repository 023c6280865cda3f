"""What rank a bond has at most: the least cut through the tensors that its ends are made of.

A tensor of a network, as a matrix with one bond as its columns, has no larger rank than the product of the
extents of any bonds that part its columns from its rows: a largest flow, of the logarithms of extents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import log2

BEGIN, END = -(10**9), -(10**9) - 1
"""The ends of a flow."""
Flows = dict[int, dict[int, float]]


class BondRanks:
    """The tensors of a network, each as what it is made of, while pairs are contracted and bonds cut."""

    def __init__(self, network: Sequence[Mapping[int, int]]) -> None:
        self._inside = {number: {number} for number in range(len(network))}
        self._edges: Flows = defaultdict(dict)
        for number, bonds in enumerate(network):
            for other, extent in bonds.items():
                self._edges[number][other] = self._edges[other][number] = log2(extent)
        self._n_inputs = len(network)
        self._free = 10**6
        """The number of the next projector."""

    def contract(self, left: int, right: int, new: int) -> None:
        """Two tensors become one."""
        self._inside[new] = self._inside.pop(left) | self._inside.pop(right)

    def of_bond(self, left: int, right: int, neighbours: Mapping[int, Collection[int]]) -> int:
        """The largest rank that the bond has, between its ends and what these are weighted with."""
        return round(2.0 ** min(self._flow(*ends, neighbours) for ends in ((left, right), (right, left))))

    def _flow(self, number: int, other: int, neighbours: Mapping[int, Collection[int]]) -> float:
        """From a bond of a tensor to the ends of all its other ones, and of its neighbours' ones."""
        inside = dict.fromkeys(self._inside[number], number)
        for one in neighbours[number]:
            if one >= self._n_inputs and one != other:
                inside |= dict.fromkeys(self._inside[one], one)
        flows: Flows = defaultdict(lambda: defaultdict(float))
        for node, tensor in inside.items():
            for end, size in self._edges[node].items():
                if end in self._inside[other] and tensor == number:
                    flows[BEGIN][node] += size
                elif end in inside and (inside[end] == tensor or number in (tensor, inside[end])):
                    flows[node][end] += size
                else:
                    flows[node][END] += size
        return _largest(flows)

    def cut(self, left: int, right: int, extent: int) -> None:
        """The bond has a smaller extent: what it is made of ends at two projectors."""
        pair = self._free, self._free + 1
        self._free += 2
        for projector, (one, other) in zip(pair, ((left, right), (right, left)), strict=True):
            for node in self._inside[one]:
                gone = [end for end in self._edges[node] if end in self._inside[other]]
                size = sum(self._edges[node].pop(end) for end in gone)
                if gone:
                    self._edges[node][projector] = self._edges[projector][node] = size
        for projector, end, number in zip(pair, pair[::-1], (left, right), strict=True):
            self._edges[projector][end] = log2(extent)
            self._inside[number].add(projector)


def _largest(flows: Flows) -> float:
    """The largest flow, along shortest ways (Edmonds and Karp)."""
    total = 0.0
    while True:
        before, waiting = {BEGIN: BEGIN}, [BEGIN]
        for node in waiting:
            for end, size in flows[node].items():
                if size > 1e-9 and end not in before:
                    before[end] = node
                    waiting.append(end)
        if END not in before:
            return total
        way = [END]
        while way[-1] != BEGIN:
            way.append(before[way[-1]])
        steps = list(zip(way[1:], way, strict=False))
        size = min(flows[a][b] for a, b in steps)
        for a, b in steps:
            flows[a][b] -= size
            flows[b][a] += size
        total += size
