"""The judge of what fits: a path fits a group of ranks where the planner makes a schedule for it.

All verdicts come from here: the projection, the causes of plateaus and what memory alone buys. Every question
is put to the planner once. Knows no estimate of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tnplan.common.errors import InputError
from tnplan.planner.passes.pipeline import Planner
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.schedule.schedule import Schedule


@dataclass(frozen=True)
class Verdict:
    """A path, by its position, on one group of `ranks` ranks: its schedule, or why the planner refuses it."""

    path: int
    ranks: int
    schedule: Schedule | None
    reason: str = ""


class Judge:
    """Verdicts on several paths under one policy, each made once."""

    def __init__(self, planners: Sequence[Planner], policy: str) -> None:
        self.planners, self.policy = [*planners], policy
        self._verdicts: dict[tuple[int, int, tuple[LoopNest, ...]], Verdict] = {}
        self._fits: dict[tuple[int, int, tuple[LoopNest, ...]], bool] = {}

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All so far, in the order of the requests."""
        return tuple(self._verdicts.values())

    def add(self, planner: Planner) -> None:
        """One more path, whose position is the next."""
        self.planners.append(planner)

    def verdict(self, path: int, ranks: int, groups: int) -> Verdict:
        """What the planner makes of a path on `groups` groups of `ranks` ranks."""
        key = path, ranks, self.planners[path].loop_nests(ranks, groups)
        if key not in self._verdicts:
            self._verdicts[key] = verdict = self._planned(path, ranks, groups)
            self._fits[key] = verdict.schedule is not None
        return self._verdicts[key]

    def fits(self, path: int, ranks: int, groups: int) -> bool:
        """Whether a path fits groups of `ranks` ranks: what its verdict says, or else the planner."""
        key = path, ranks, self.planners[path].loop_nests(ranks, groups)
        if key not in self._fits:
            self._fits[key] = self.planners[path].fits(ranks, self.policy, groups)
        return self._fits[key]

    def _planned(self, path: int, ranks: int, groups: int) -> Verdict:
        try:
            return Verdict(path, ranks, self.planners[path].plan(ranks, self.policy, groups))
        except InputError as error:
            return Verdict(path, ranks, None, f"{error.place}: {error.problem}")
