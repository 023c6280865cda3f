"""What several slices share: which part of the schedule computes each node, and how many slices it serves.

Knows numbers of loops and nodes; `passes.loops` chooses among the ways to nest them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Nesting:
    """The loops, and the part of the schedule that computes each node.

    `order` has the sliced indices, that of the outermost loop first. Part 0 is done once, the last part for
    every slice; `depths` says how many loops each part is inside of, `serves` how many slices in a row its
    results serve. A sliced input belongs to the part of the step that takes it, any other to part 0.
    """

    order: tuple[str, ...]
    depths: tuple[int, ...]
    serves: tuple[int, ...]
    part: tuple[int, ...]


def flat(
    order: Sequence[str], extents: Sequence[int], sliced_leaves: Sequence[bool],
    children: Sequence[tuple[int, int]],
) -> Nesting:  # fmt: skip
    """No part between what is done once and the body. `extents` are those of the loops."""
    levels = [int(is_sliced) for is_sliced in sliced_leaves]
    for left, right in children:
        levels.append(max(levels[left], levels[right]))
    depths = (0, len(order)) if order else (0,)
    serves = (prod(extents), 1) if order else (1,)
    return Nesting(tuple(order), depths, serves, parts_of(levels, (0, 1), children, len(sliced_leaves)))


def parts_of(
    levels: Sequence[int], depths: Sequence[int], children: Sequence[tuple[int, int]], n_leaves: int
) -> tuple[int, ...]:
    """The part of every node: the first whose depth is at least the number of loops that it is inside of."""
    of_level: list[int] = []
    for part, depth in enumerate(depths):
        of_level += [part] * (depth + 1 - len(of_level))
    parts = [of_level[level] for level in levels]
    for number, pair in enumerate(children):
        for child in pair:
            if child < n_leaves and levels[child]:
                parts[child] = parts[n_leaves + number]
    return tuple(parts)
