"""What is wrong with the indices of a schedule and their modes; `verify` refuses the first problem."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tnplan.planner.networks.network import Network
from tnplan.planner.schedule.schedule import Schedule


def index_problems(schedule: Schedule) -> Iterator[str]:
    """Whether all indices have sizes and modes, and those of the loops are summed ones of the network.

    Raises InputError where the network itself is none.
    """
    network = Network(schedule.leaves, schedule.output, schedule.size_dict)
    present = {index for leaf in network.inputs for index in leaf}
    for index in sorted(present - schedule.indices.keys()):
        yield f"index {index!r} has no modes"
    loops = (*schedule.sliced, *schedule.summed)
    if len(set(loops)) != len(loops):
        yield "an index is sliced twice"
    for index in loops:
        if index not in present or index in network.output:
            yield f"sliced index {index!r} is no summed index of the network"
    for number, extent in schedule.extents.items():
        if extent <= 0:
            yield f"mode {number} has extent {extent}"
    for index, modes in schedule.indices.items():
        if index not in schedule.size_dict:
            yield f"index {index!r} has no size"
        for mode in modes:
            if mode not in schedule.extents:
                yield f"mode {mode} does not exist"
        if prod(schedule.extents[mode] for mode in modes) != schedule.size_dict[index]:
            yield f"the modes of index {index!r} do not make up its size"
    for number, described in enumerate(schedule.modes):
        if number not in schedule.indices.get(described.index, ()):
            yield f"mode {number} is none of index {described.index!r}"
