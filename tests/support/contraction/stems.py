"""Stems that meet one branch after the other, and chains that work in place on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.schedule.schedule import Fused, Schedule

Change = Callable[[list[str], int], tuple[list[str], int]]
"""What a step does to the modes held, by the steps still to come: those that it sums, how many it brings."""


def stem(rank: int, n_steps: int, changes: Change) -> ContractionPath:
    """A stem that meets one branch after the other."""
    held = [f"s{number}" for number in range(rank)]
    terms, steps, made = [tuple(held)], [], 0
    for number in range(n_steps):
        summed, more = changes(held, n_steps - number)
        brought = [f"n{made + place}" for place in range(more)]
        made += more
        terms.append((*summed, *brought))
        held = [mode for mode in held if mode not in summed] + brought
        steps.append((0 if not number else n_steps + number, number + 1))
    sizes = {index: 2 for term in terms for index in term}
    return ContractionPath(Network(tuple(terms), tuple(sorted(held)), sizes), tuple(steps))


def steady_path(seed: int, rank: int = 13, n_steps: int = 22) -> ContractionPath:
    """A stem whose size stays the same, as every branch brings as many modes as it sums; the last ones bring
    none."""
    chance = random.Random(seed)

    def changes(held: list[str], left: int) -> tuple[list[str], int]:
        count = 2 if left <= 4 else chance.choice((1, 1, 2))
        return chance.sample(held, count), 0 if left <= 4 else count

    return stem(rank, n_steps, changes)


def in_place(schedule: Schedule) -> Iterator[Fused]:
    """The chains whose result lies where their operand does, in part or as a whole."""
    for item in schedule.instructions:
        if isinstance(item, Fused):
            operand, out = schedule.buffers[item.operand], schedule.buffers[item.out]
            ahead, behind = (
                one.offset_bytes + one.size_bytes <= other.offset_bytes
                for one, other in ((operand, out), (out, operand))
            )
            if not ahead and not behind:
                yield item
