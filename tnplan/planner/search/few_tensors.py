"""The contraction path of a few tensors with the fewest multiply-adds, without a search."""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from math import inf
from operator import or_

from tnplan.planner.networks.network import Network

MOST_TENSORS = 10
MOST_PAIRS = 10_000
"""Pairs of sets of tensors that are looked at: a fraction of a microsecond each."""
ALL_PAIRS = 6
"""Up to so many tensors, sets without a common index are joined too."""

Sets = dict[int, tuple[int, float, int]]
"""Of sets of tensors, as bits: the indices that are left, the multiply-adds of the best order, and one of the
two sets of its last step."""


def cheapest_path(network: Network) -> tuple[tuple[int, ...], ...] | None:
    """The path of pairs with the fewest multiply-adds, by dynamic programming over sets of tensors; SSA
    numbers.

    Of more than `ALL_PAIRS` tensors those steps are looked at whose tensors share an index. None where there
    are too many tensors or pairs, and where such steps do not join all tensors.
    """
    n_tensors = len(network.inputs)
    if n_tensors > MOST_TENSORS:
        return None
    indices = _Indices(network)
    # An order with more multiply-adds than `bound` is in no better path.
    n_pairs, bound = 0, indices.greedy_products()
    sets: list[Sets] = [{}, {1 << k: (indices.left(1 << k), 0, 0) for k in range(n_tensors)}]
    for length in range(2, n_tensors + 1):
        sets.append({})
        for shorter in range(1, length // 2 + 1):
            n_pairs += len(sets[shorter]) * len(sets[length - shorter])
            if n_pairs > MOST_PAIRS:
                return None
            _join(sets, shorter, indices, bound)
    return _steps(sets) if sets[n_tensors] else None


def _join(sets: list[Sets], shorter: int, indices: _Indices, bound: float) -> None:
    """Join sets of so many tensors with others to those of the last length."""
    joined, size = sets[-1], indices.size
    others = sets[len(sets) - 1 - shorter].items()
    joins_all = indices.n_tensors <= ALL_PAIRS
    for a, (left_a, products_a, _) in sets[shorter].items():
        for b, (left_b, products_b, _) in others:
            if a & b or not (joins_all or left_a & left_b):
                continue
            products = products_a + products_b + size(left_a | left_b)
            if products > bound:
                continue
            both = a | b
            if both not in joined:
                joined[both] = indices.left(both), products, a
            elif products < joined[both][1]:
                joined[both] = joined[both][0], products, a


def _steps(sets: list[Sets]) -> tuple[tuple[int, ...], ...]:
    """The steps of the best order of all tensors."""
    steps: list[tuple[int, ...]] = []
    n_tensors = len(sets) - 1

    def number(tensors: int) -> int:
        if tensors.bit_count() == 1:
            return tensors.bit_length() - 1
        a = sets[tensors.bit_count()][tensors][2]
        steps.append(tuple(sorted((number(a), number(tensors ^ a)))))
        return n_tensors + len(steps) - 1

    number((1 << n_tensors) - 1)
    return tuple(steps)


class _Indices:
    """The indices of a network as bits."""

    def __init__(self, network: Network) -> None:
        bit = {index: 1 << number for number, index in enumerate(network.size_dict)}
        self._extents = list(network.size_dict.values())
        self._of_tensors = [reduce(or_, (bit[index] for index in term), 0) for term in network.inputs]
        self._output = reduce(or_, (bit[index] for index in network.output), 0)
        self._sizes: dict[int, int] = {}
        self.n_tensors = len(network.inputs)

    def size(self, indices: int) -> int:
        """The elements of a tensor with these indices."""
        if indices not in self._sizes:
            elements, rest = 1, indices
            while rest:
                elements *= self._extents[(rest & -rest).bit_length() - 1]
                rest &= rest - 1
            self._sizes[indices] = elements
        return self._sizes[indices]

    def left(self, tensors: int) -> int:
        """The indices that the contraction of some tensors has."""
        inside, outside = 0, self._output
        for number, indices in enumerate(self._of_tensors):
            if tensors >> number & 1:
                inside |= indices
            else:
                outside |= indices
        return inside & outside

    def greedy_products(self) -> float:
        """The multiply-adds of a path that takes the cheapest step next; infinity where none joins all."""
        live = {1 << number: self.left(1 << number) for number in range(self.n_tensors)}
        total = 0.0
        while len(live) > 1:
            pairs = [pair for pair in combinations(live, 2) if live[pair[0]] & live[pair[1]]]
            if not pairs:
                return inf
            products, a, b = min((self.size(live[a] | live[b]), a, b) for a, b in pairs)
            total += products
            del live[a], live[b]
            live[a | b] = self.left(a | b)
        return total
