"""What several slices share: which loop level of the schedule computes each node, and how often.

Knows numbers of loops and nodes; `loop_nest` chooses among the ways to nest them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class LoopDepth:
    """The loops that a level is inside of: the first `depth` of those over slices, and the first `inner` of
    those of the early sum."""

    depth: int
    inner: int = 0


@dataclass(frozen=True)
class LoopNest:
    """The loops, and the loop level that computes each node.

    `order` has the indices that slices differ in, that of the outermost loop first. Those in `summed` are
    summed within a slice: `waist` is a node under which all inputs with such an index are, so that only what
    is under it is computed for each of their values, and added up there. Level 0 is done once, the last for
    every slice; `levels` says which loops each is inside of. A run of levels is inside the early sum's loops,
    between one with what they need besides and one that goes on with the sum, both of the same depth. What a
    level computes serves `serves` slices in a row, for which it is done `repeats` times. `level_of` has the
    level of every node: a sliced input is on that of the step that takes it, any other on level 0.
    """

    order: tuple[str, ...]
    summed: tuple[str, ...]
    waist: int | None
    levels: tuple[LoopDepth, ...]
    serves: tuple[int, ...]
    repeats: tuple[int, ...]
    level_of: tuple[int, ...]

    @property
    def n_slices(self) -> int:
        """The number of slices."""
        return self.serves[0]

    @property
    def early_sum_levels(self) -> range:
        """The levels inside the loops of the early sum."""
        return early_sum_levels(self.levels)


def early_sum_levels(levels: Sequence[LoopDepth]) -> range:
    """The levels inside the loops of an early sum."""
    inside = [number for number, level in enumerate(levels) if level.inner]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def last_level_needed(levels: Sequence[LoopDepth], writer: int, reader: int) -> int:
    """The last level until whose end a tensor lives that level `writer` makes and level `reader` reads, which
    may be replayed with it."""
    summing = early_sum_levels(levels)
    if levels[writer] == levels[reader]:
        return reader
    if reader in summing and writer >= summing.start - 1:
        return summing.stop - 1
    return len(levels) - 1


def flat_nest(
    order: Sequence[str], extents: Sequence[int], sliced_leaves: Sequence[bool],
    children: Sequence[tuple[int, int]],
) -> LoopNest:  # fmt: skip
    """No level between what is done once and the body. `extents` are those of the loops."""
    level_of = [int(is_sliced) for is_sliced in sliced_leaves]
    for left, right in children:
        level_of.append(max(level_of[left], level_of[right]))
    levels = (LoopDepth(0), LoopDepth(len(order))) if order else (LoopDepth(0),)
    serves = (prod(extents), 1) if order else (1,)
    of_nodes = with_leaves(level_of[len(sliced_leaves) :], sliced_leaves, children, len(levels) - 1)
    return LoopNest(tuple(order), (), None, levels, serves, (1,) * len(levels), of_nodes)


def with_leaves(
    steps: Sequence[int], sliced_leaves: Sequence[bool], children: Sequence[tuple[int, int]], last: int
) -> tuple[int, ...]:
    """The level of every node, from those of the steps; a sliced leaf that no step takes is on the `last`."""
    leaves = [last if is_sliced else 0 for is_sliced in sliced_leaves]
    for level, pair in zip(steps, children, strict=True):
        for child in pair:
            if child < len(leaves) and sliced_leaves[child]:
                leaves[child] = level
    return (*leaves, *steps)
