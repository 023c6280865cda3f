"""What several slices share: which part of the schedule computes each node, and how often.

Knows numbers of loops and nodes; `passes.loops` chooses among the ways to nest them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class LoopDepth:
    """The loops that a part is inside of: the first `depth` of those over slices, and the first `inner` of
    those of the early sum."""

    depth: int
    inner: int = 0


@dataclass(frozen=True)
class LoopNest:
    """The loops, and the part of the schedule that computes each node.

    `order` has the indices that slices differ in, that of the outermost loop first. Those in `summed` are
    summed within a slice: `waist` is a node under which all inputs with such an index are, so that only what
    is under it is computed for each of their values, and added up there. Part 0 is done once, the last for
    every slice; `places` says which loops each part is inside of. A run of parts is inside the early sum's,
    between one with what they need besides and one that goes on with the sum, both of the same depth. A
    part's results serve `serves` slices in a row, for which it is done `repeats` times. A sliced input
    belongs to the part of the step that takes it, any other to part 0.
    """

    order: tuple[str, ...]
    summed: tuple[str, ...]
    waist: int | None
    places: tuple[LoopDepth, ...]
    serves: tuple[int, ...]
    repeats: tuple[int, ...]
    part: tuple[int, ...]

    @property
    def n_slices(self) -> int:
        """The number of slices."""
        return self.serves[0]

    @property
    def nest(self) -> range:
        """The parts inside the loops of the early sum."""
        return nest_of(self.places)


def nest_of(places: Sequence[LoopDepth]) -> range:
    """The parts inside the loops of an early sum."""
    inside = [number for number, place in enumerate(places) if place.inner]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def last_need(places: Sequence[LoopDepth], made: int, used: int) -> int:
    """The last part until whose end something is kept that part `made` makes and part `used` reads, which may
    be replayed with it."""
    nest = nest_of(places)
    if places[made] == places[used]:
        return used
    if used in nest and made >= nest.start - 1:
        return nest.stop - 1
    return len(places) - 1


def flat_nest(
    order: Sequence[str], extents: Sequence[int], sliced_leaves: Sequence[bool],
    children: Sequence[tuple[int, int]],
) -> LoopNest:  # fmt: skip
    """No part between what is done once and the body. `extents` are those of the loops."""
    levels = [int(is_sliced) for is_sliced in sliced_leaves]
    for left, right in children:
        levels.append(max(levels[left], levels[right]))
    places = (LoopDepth(0), LoopDepth(len(order))) if order else (LoopDepth(0),)
    serves = (prod(extents), 1) if order else (1,)
    part = with_leaves(levels[len(sliced_leaves) :], sliced_leaves, children, len(places) - 1)
    return LoopNest(tuple(order), (), None, places, serves, (1,) * len(places), part)


def with_leaves(
    parts: Sequence[int], sliced_leaves: Sequence[bool], children: Sequence[tuple[int, int]], last: int
) -> tuple[int, ...]:
    """The part of every node, from those of the steps; a sliced leaf that no step takes is in the `last`."""
    own = [last if is_sliced else 0 for is_sliced in sliced_leaves]
    for part, pair in zip(parts, children, strict=True):
        for child in pair:
            if child < len(own) and sliced_leaves[child]:
                own[child] = part
    return (*own, *parts)
