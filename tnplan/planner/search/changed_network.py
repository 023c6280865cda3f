"""A path for a network that differs a little from the one whose path is known. Knows no search.

Tensors are matched by their indices. Those that are gone leave their steps, new ones are contracted in where
that adds least to the cost, and everything else stays as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import log2

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_pairs
from tnplan.planner.networks.network import Network

LEAST_SHARE = 0.5
"""Of the tensors must be on the path that is known."""
CLIMB = 24
"""Steps above a tensor with common indices at which a new one may be contracted in."""
Terms = list[frozenset[str]]


def path_of_changed(path: ContractionPath, network: Network) -> ContractionPath:
    """The path with tensors, indices and extents of another network.

    Raises InputError where fewer than half of its tensors can be matched.
    """
    if path.network == network:
        return path
    sliced = tuple(
        index
        for index in path.sliced_inds
        if index not in network.output
        and index in network.size_dict
        and any(index in term for term in network.inputs)
    )
    pairs: tuple[tuple[int, ...], ...] = path.ssa_path
    if path.network.inputs != network.inputs:
        pairs = _pairs(path, network)
    return ContractionPath(network, pairs, sliced, path.dtype)


def _pairs(path: ContractionPath, network: Network) -> tuple[tuple[int, int], ...]:
    old = [frozenset(term) for term in path.network.inputs]
    new = [frozenset(term) for term in network.inputs]
    known = _matched(old, new)
    if len(known) < LEAST_SHARE * len(new):
        raise InputError(
            "--from", "is a path of another network",
            "give a path of the network that is searched, or of one with most of its tensors",
        )  # fmt: skip
    tree = _Tree(new, network)
    # A step with a tensor that is gone is none: the other one goes on in its place.
    names = [known.get(number) for number in range(len(old))]
    for a, b in ssa_pairs(path.ssa_path, len(old)):
        first, second = names[a], names[b]
        names.append(tree.product(first, second) if first is not None and second is not None
                     else second if first is None else first)  # fmt: skip
    assert names[-1] is not None
    tree.root = names[-1]
    there = {*known.values()}
    for tensor in range(len(new)):
        if tensor not in there:
            tree.insert(tensor)
    return tree.pairs()


def _matched(old: Terms, new: Terms) -> dict[int, int]:
    """The new tensor of each old one that has one: the same indices first, then those most alike."""
    waiting: dict[frozenset[str], list[int]] = defaultdict(list)
    for number in reversed(range(len(old))):
        waiting[old[number]].append(number)
    known = {waiting[term].pop(): number for number, term in enumerate(new) if waiting.get(term)}
    left = {number for number in range(len(old)) if number not in known}
    holders: dict[str, list[int]] = defaultdict(list)
    for number in sorted(left):
        for index in old[number]:
            holders[index].append(number)
    there = {*known.values()}
    alike = [
        (-len(old[other] & term) / len(old[other] | term), number, other)
        for number, term in enumerate(new)
        if number not in there
        for other in {other for index in term for other in holders[index]}
    ]
    for _, number, other in sorted(alike):
        if other in left and number not in there:
            known[other] = number
            left.discard(other)
            there.add(number)
    return known


class _Tree:
    """A tree over some of the tensors of a network, which are its first nodes, and room for the others."""

    def __init__(self, terms: Terms, network: Network) -> None:
        self.terms = terms
        self.bits = {index: log2(size) for index, size in network.size_dict.items()}
        self.children: dict[int, tuple[int, int]] = {}
        self.parent: dict[int, int] = {}
        self.root = 0
        self._next = len(terms)
        self._holders: dict[str, list[int]] = defaultdict(list)
        for number, term in enumerate(terms):
            for index in term:
                self._holders[index].append(number)
        self._open = {*network.output}
        self._leaves_of: dict[int, frozenset[int]] = {}
        self._legs_of: dict[int, frozenset[str]] = {}

    def product(self, a: int, b: int) -> int:
        """A new node above two others."""
        node, self._next = self._next, self._next + 1
        self.children[node] = a, b
        self.parent[a] = self.parent[b] = node
        return node

    def insert(self, tensor: int) -> None:
        """Contract a tensor in where that adds least to the cost."""
        self._leaves_of.clear()
        self._legs_of.clear()
        near = {other for index in self.terms[tensor] for other in self._holders[index]}
        places = {v for other in sorted(near) for v in self._above(other)}
        below = min(sorted(places), key=lambda v: (self._added(tensor, v), v), default=self.root)
        above = self.parent.get(below)
        node = self.product(below, tensor)
        if above is None:
            self.root = node
            return
        a, b = self.children[above]
        self.children[above] = (node, b) if a == below else (a, node)
        self.parent[node] = above

    def _above(self, v: int) -> Iterator[int]:
        """A node of the tree and those above it, CLIMB in all at most."""
        for _ in range(CLIMB):
            if v in self.parent or v == self.root:
                yield v
            if v not in self.parent:
                return
            v = self.parent[v]

    def _added(self, tensor: int, below: int) -> float:
        """What the steps from a node on cost more with the tensor beside it, up to where it is summed."""
        mine, v, legs = self.terms[tensor], below, self._legs(below)
        cost = self._size(legs | mine)
        for _ in range(CLIMB):
            with_it = (legs - mine) | {i for i in mine if self._goes_on(i, self._leaves(v), tensor)}
            if v == self.root or with_it == legs:
                break
            above = self.parent[v]
            a, b = self.children[above]
            beside = self._legs(b if a == v else a)
            cost += self._size(with_it | beside) - self._size(legs | beside)
            v, legs = above, self._legs(above)
        return cost

    def _leaves(self, v: int) -> frozenset[int]:
        if v not in self._leaves_of:
            todo, leaves = [v], set()
            while todo:
                u = todo.pop()
                if u in self.children:
                    todo += self.children[u]
                else:
                    leaves.add(u)
            self._leaves_of[v] = frozenset(leaves)
        return self._leaves_of[v]

    def _legs(self, v: int) -> frozenset[str]:
        if v not in self._legs_of:
            leaves = self._leaves(v)
            indices = {index for tensor in leaves for index in self.terms[tensor]}
            self._legs_of[v] = frozenset(index for index in indices if self._goes_on(index, leaves, -1))
        return self._legs_of[v]

    def _goes_on(self, index: str, inside: frozenset[int], tensor: int) -> bool:
        """Whether an index is open, or on a tensor that is neither inside nor this one."""
        return index in self._open or any(t not in inside and t != tensor for t in self._holders[index])

    def _size(self, indices: set[str] | frozenset[str]) -> float:
        return float(2.0 ** min(sum(map(self.bits.__getitem__, sorted(indices))), 1000.0))

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The path, each pair after those that it needs."""
        order, todo = [], [self.root]
        while todo:
            v = todo.pop()
            if v in self.children:
                order.append(v)
                todo += self.children[v]
        names = {v: len(self.terms) + number for number, v in enumerate(reversed(order))}
        named = [self.children[v] for v in reversed(order)]
        return tuple((names.get(a, a), names.get(b, b)) for a, b in named)
