"""On which sliced indices each node of a tree depends, and what its step costs.

A set of sliced indices is a mask, one bit each in the order of the path. Knows no loops and no machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from tnplan.planner.passes.tree.build import Tree

HALVES_OF_AN_ELEMENT = 7
"""What an element that a step reads or writes costs, in halves of multiply-adds.

docs/explanation/search.md has it as `fused`.
"""


class Dependence:
    """The sliced indices of the inputs under every node, and the work of every step, in multiply-adds."""

    def __init__(self, tree: Tree, sliced: Sequence[str], size_dict: Mapping[str, int]) -> None:
        position = {tree.indices[index][0]: number for number, index in enumerate(sliced)}
        self.tree, self.sliced = tree, tuple(sliced)
        self.extents = tuple(size_dict[index] for index in sliced)
        self.sizes = tree.sizes
        self.below = [sum(1 << position[mode] for mode in modes) for modes in tree.leaf_sliced]
        self.work: list[int] = []
        self.elements: list[int] = []
        for number, (left, right) in enumerate(tree.children):
            self.below.append(self.below[left] | self.below[right])
            products = tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
            self.elements.append(sum(self.sizes[node] for node in (left, right, tree.n_leaves + number)))
            # As in the search: a step costs its multiply-adds or the traffic of its tensors, whichever is
            # more.
            self.work.append(max(products, work_of_elements(self.elements[-1])))

    @property
    def everything(self) -> int:
        """All sliced indices."""
        return (1 << len(self.sliced)) - 1

    def count(self, mask: int) -> int:
        """The product of the extents of some sliced indices."""
        return prod(self.extents[bit] for bit in bits_of(mask))

    def summed_under(self) -> list[int]:
        """Of every node, the sliced indices of which all inputs are under it."""
        tree, inputs = self.tree, [0] * len(self.sliced)
        for mask in self.below[: tree.n_leaves]:
            for bit in bits_of(mask):
                inputs[bit] += 1
        # By node and sliced index, the inputs under it that have the index; all of them: it can be summed
        # there.
        counts = [dict.fromkeys(bits_of(mask), 1) for mask in self.below[: tree.n_leaves]]
        for left, right in tree.children:
            both = dict(counts[left])
            for bit, count in counts[right].items():
                both[bit] = both.get(bit, 0) + count
            counts.append(both)
        return [sum(1 << bit for bit, count in below.items() if count == inputs[bit]) for below in counts]


def work_of_elements(count: int) -> int:
    """What it costs to read or write so many elements."""
    return HALVES_OF_AN_ELEMENT * count // 2


@lru_cache(1 << 14)
def bits_of(mask: int) -> tuple[int, ...]:
    """The positions of the set bits of a mask, the lowest first."""
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return tuple(positions)
