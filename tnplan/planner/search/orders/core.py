"""What is left of a network after contractions that cost next to nothing and close no way to a good tree.

In the line graph, where indices are vertices and the indices of a tensor a clique, two things are safe:

- indices that all are neighbours are put on one tensor: the graph stays as it is. Doubles, dominated
  tensors and the edges of a clique go this way;
- an index is summed where the result is no larger than the largest of its tensors: what is left is a minor of
  the graph (simplicial, almost simplicial and series vertices; Bodlaender, Koster and van den Eijkhof, 2005).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, log2

SLACK = 1e-9


@dataclass(frozen=True)
class Core:
    """The tensors that are left, and the pairs (SSA) that make them."""

    n_inputs: int
    pairs: tuple[tuple[int, int], ...]
    inputs: tuple[tuple[str, ...], ...]
    names: tuple[int, ...]
    """What each of them is called in the path: an input, or a product of `pairs`."""

    def whole(self, pairs: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
        """The path of the network from one of the core."""
        first, n_core = self.n_inputs + len(self.pairs), len(self.names)

        def name(tensor: int) -> int:
            return self.names[tensor] if tensor < n_core else first + tensor - n_core

        return (*self.pairs, *((name(a), name(b)) for a, b in pairs))


def core_of(
    inputs: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, float], most_bits: float
) -> Core:
    """The core, by contractions of which none has more than 2^most_bits multiply-adds."""
    reducer = _Reducer(inputs, output, sizes, most_bits)
    reducer.run()
    numbers = sorted(reducer.terms)
    return Core(
        len(inputs), tuple(reducer.pairs), tuple(tuple(sorted(reducer.terms[t])) for t in numbers),
        tuple(numbers),
    )  # fmt: skip


class _Reducer:
    """Tensors as sets of indices, and `holders` the tensors of each index."""

    def __init__(
        self, inputs: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, float], most: float
    ) -> None:
        self.bits = {index: log2(size) for index, size in sizes.items()}
        self.most = most
        self.open = {index for index in output if sizes[index] > 1}
        self.terms = {t: {i for i in term if sizes[i] > 1} for t, term in enumerate(inputs)}
        self.next = len(inputs)
        self.pairs: list[tuple[int, int]] = []
        self.holders: dict[str, set[int]] = {}
        for tensor, term in self.terms.items():
            for index in term:
                self.holders.setdefault(index, set()).add(tensor)
        # Invariant: beside[index] is what `_near` gives. It is kept for open indices and for those of more
        # than two tensors alone: of the others, which are nearly all of a large network, it is made when it
        # is asked for, from two terms.
        self.beside: dict[str, set[str]] = {}
        many = {index for index, holders in self.holders.items() if len(holders) > 2} | self.open
        self.beside = {index: self._near(index) for index in many}

    def _near(self, index: str) -> set[str]:
        """The neighbours of an index: what is on its tensors, itself included; the result is one of these."""
        if index in self.beside:
            return self.beside[index]
        terms = [self.terms[tensor] for tensor in self.holders.get(index, ())]
        return set().union(*terms, self.open if index in self.open else ())

    def run(self) -> None:
        """Contract until nothing is left to do; indices again where a neighbour is gone."""
        # Least degree first, as in elimination. An index comes back only where a neighbour is gone, since the
        # test depends on its neighbours alone.
        queue = deque(sorted(self.holders, key=lambda index: (len(self._near(index)), index)))
        waiting = set(queue)
        self._merge_cliques(list(self.terms))
        while queue:
            index = queue.popleft()
            waiting.discard(index)
            if index in self.open or index not in self.holders:
                continue
            near = self._near(index)
            if self._sum_out(index):
                again = sorted((near & self.holders.keys()) - waiting)
                queue += again
                waiting.update(again)

    def _size(self, term: set[str]) -> float:
        bits = self.bits
        # Exact before it is rounded: the order of a set of names differs from process to process.
        return fsum([bits[index] for index in term])

    def _merge_cliques(self, todo: list[int]) -> None:
        todo.sort(key=lambda tensor: len(self.terms[tensor]), reverse=True)
        while todo:
            tensor = todo.pop()
            if tensor not in self.terms:
                continue
            other = self._host(tensor)
            if other is not None:
                todo.append(self._contract(tensor, other))

    def _host(self, tensor: int) -> int | None:
        """The tensor that makes one clique with this one, of several that with the smallest union."""
        term = self.terms[tensor]
        if not term:
            return None
        # A host must have an index in common; the rarest has the fewest candidates.
        rarest = min(term, key=lambda index: (len(self.holders[index]), index))
        common = set.intersection(*map(self._near, term))
        best, least = None, self.most + SLACK
        for other in sorted(self.holders[rarest]):
            if other == tensor or not self.terms[other] <= common:
                continue
            size = self._size(term | self.terms[other])
            if size < least:
                best, least = other, size
        return best

    def _sum_out(self, index: str) -> bool:
        """Contract all tensors of an index if that is safe; whether it was."""
        holders = self.holders[index]
        union = self._near(index)
        size = self._size(union)
        if size > self.most + SLACK:
            return False
        # The result has all neighbours but the index itself. No larger than one of its tensors, it is a minor
        # of the line graph in which the index is contracted into a neighbour: the treewidth does not rise.
        if size - self.bits[index] > max(self._size(self.terms[t]) for t in holders) + SLACK:
            return False
        while len(holders) > 1:
            first, second = sorted(holders, key=lambda t: (len(self.terms[t]), t))[:2]
            new = self._contract(first, second)
        if index in self.holders:  # of one tensor from the start
            return False
        self._merge_cliques([new])
        return True

    def _contract(self, a: int, b: int) -> int:
        new, self.next = self.next, self.next + 1
        self.pairs.append((a, b))
        first, second = self.terms.pop(a), self.terms.pop(b)
        union = first | second
        gone = set()
        for index in union:
            holders = self.holders[index]
            holders.discard(a)
            holders.discard(b)
            if not holders and index not in self.open:
                gone.add(index)
                del self.holders[index]
            else:
                holders.add(new)
        # Where one term contains the other and no index is gone, all neighbours stay the same.
        for index in union if not (first <= second or second <= first) or gone else ():
            if index in self.beside and index not in gone:
                self.beside[index] |= union
                self.beside[index] -= gone
        self.terms[new] = union - gone
        return new
