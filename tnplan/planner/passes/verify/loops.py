"""What is wrong with the loops around the parts of a schedule; `verify` refuses the first problem.

Knows parts and their loops, no instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tnplan.planner.schedule.schedule import Schedule


def loop_problems(schedule: Schedule) -> Iterator[tuple[int, str]]:
    """The number of a part among all, and what is wrong with its loops."""
    parts, n_sliced, n_summed = schedule.parts, len(schedule.sliced), len(schedule.summed)
    rows = 0
    for number, (before, part) in enumerate(pairwise(parts), 1):
        begins_sum = number + 1 < len(parts) and parts[number + 1].inner > 0
        deepest = n_sliced if begins_sum or number + 1 == len(parts) else n_sliced - 1
        if part.inner:
            rows += not before.inner
            if part.depth != before.depth:
                yield number, f"depth {part.depth} is not that of the part before, {before.depth}"
            if not before.inner < part.inner <= n_summed:
                yield number, f"{part.inner} inner loops do not follow {before.inner} of {n_summed}"
        elif before.inner:
            if part.depth != before.depth:
                yield number, f"depth {part.depth} is not that of the sum before, {before.depth}"
            if before.inner != n_summed:
                yield number, f"the sum before is inside {before.inner} of {n_summed} inner loops"
        elif not before.depth < part.depth <= deepest:
            yield number, f"depth {part.depth} is not between those of its neighbours"
    if rows != bool(n_summed):
        yield len(parts) - 1, f"{rows} rows of parts are inside the loops of {n_summed} summed indices"
