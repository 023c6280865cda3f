"""The use-chain of a schedule: its large steps, in order (paper, section IV-B and Fig. 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tnplan.common.arrays import ITEM_BYTES
from tnplan.planner.schedule.schedule import STATES, Schedule, StepAnnotation


@dataclass(frozen=True)
class Link:
    """Step `number` of a schedule. Sizes are those of whole tensors, after slicing."""

    number: int
    step: StepAnnotation
    a_bytes: int
    b_bytes: int
    c_bytes: int


def links(schedule: Schedule) -> list[Link]:
    """Every step with the sizes of its tensors."""
    item_bytes = ITEM_BYTES[schedule.dtype]

    def size(modes: tuple[int, ...]) -> int:
        return prod(schedule.modes[mode].extent for mode in modes) * item_bytes

    return [
        Link(number, step, size(step.a_modes), size(step.b_modes), size(step.c_modes))
        for number, step in enumerate(schedule.steps)
    ]


def use_chain(schedule: Schedule) -> list[Link]:
    """The steps that are distributed, or whose largest tensor reaches the threshold."""
    return [
        link
        for link in links(schedule)
        if link.step.state != "local" or link.step.size_bytes >= schedule.threshold_bytes
    ]


def state_counts(schedule: Schedule) -> dict[str, int]:
    """How many steps are in each state, in the order of `STATES`; states that do not occur are left out."""
    counts = Counter(step.state for step in schedule.steps)
    return {state: counts[state] for state in STATES if counts[state]}


def fused_counts(schedule: Schedule) -> tuple[int, int]:
    """How many steps are fused, and in how many chains."""
    fused = [step.fused for step in schedule.steps if step.fused is not None]
    return len(fused), len(set(fused))


def used_groups(schedule: Schedule, devices: int) -> int:
    """How many groups have work on `devices` devices: no more than there are slices."""
    return max(min(devices // schedule.ranks_per_group, schedule.n_slices), 1)


def repeats(schedule: Schedule, n_groups: int) -> Callable[[StepAnnotation], int]:
    """How often one group of `n_groups` carries out a step of the whole contraction."""
    rounds = -(-schedule.n_slices // n_groups)
    return lambda step: 1 if step.once else -(-rounds // step.serves) * step.repeats


def largest(chain: list[Link], count: int) -> list[Link]:
    """The `count` steps of most predicted time, in the order of the schedule."""
    chosen = sorted(chain, key=lambda link: (-link.step.predicted_s, link.number))[:count]
    return sorted(chosen, key=lambda link: link.number)


def mode_names(
    schedule: Schedule, modes: tuple[int, ...], distributed: tuple[int | None, ...] = ()
) -> list[str]:
    """Modes by the names of their indices; part of an index carries its place, a distributed mode a star."""
    names = []
    for mode in modes:
        index = schedule.modes[mode].index
        parts = schedule.indices[index]
        position = f".{parts.index(mode)}" if len(parts) > 1 else ""
        names.append(f"{index}{position}{'*' if mode in distributed else ''}")
    return names
