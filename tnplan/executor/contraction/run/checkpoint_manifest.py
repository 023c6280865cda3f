"""The manifest of a checkpoint: which run it belongs to, and how the slices that are left are divided.

Changelog of `tnplan.checkpoint`:
1 (2026-11-21): first version.
2 (2026-11-23): a group computes a run of consecutive slices. Version 1 is refused.
3 (2026-11-25): what is left of an even division of the slices goes to other groups. Version 2 is refused.
5 (2026-11-29): as `tnplan.common.checkpoint`. Version 4 is refused.
4 (2026-11-26): `groups` and `left` for `n_groups`; `identity`; names with the division. Version 3 is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.files import identity_of
from tnplan.executor.contraction.run.slice_partition import SliceRanges, slices_of_group

RESTART = "delete the folder to start again"


@dataclass(frozen=True)
class RunIdentity:
    """What a checkpoint belongs to: a run of the same parts with as many groups gives the same bits."""

    schedule: str
    slices: tuple[int, int]
    dtype: str
    values: str

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "schedule": self.schedule, "slices": list(self.slices), "dtype": self.dtype,
            "values": self.values,
        }  # fmt: skip


@dataclass(frozen=True)
class Division:
    """A division of slices over groups.

    `groups` has the number of groups of every division of the run so far, this one's last. The slices that
    earlier ones have done are not among those `left`: their sum is where group 0 starts.
    """

    groups: tuple[int, ...]
    left: SliceRanges

    @property
    def number(self) -> int:
        """How many divisions came before."""
        return len(self.groups) - 1

    def slices_of(self, group: int) -> SliceRanges:
        """What one of the groups computes."""
        return self.left.of_group(group, self.groups[-1])

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"groups": list(self.groups), "left": [[one.start, one.stop] for one in self.left.ranges]}

    def identity(self, run: RunIdentity) -> str:
        """What tells a group's slices, in this division of a run, from those in others."""
        return identity_of({**run.document(), **self.document()})

    def next(self, done: Mapping[int, int], n_groups: int) -> Division:
        """The division, over other groups, of what is left where some have `done` so many of their slices."""
        ranges: list[range] = []
        first, count = 0, self.left.count
        for group, n_done in sorted(done.items()):
            start = slices_of_group(group, self.groups[-1], 0, count).start
            ranges += self.left.part(first, start).ranges
            first = start + n_done
        ranges += self.left.part(first, count).ranges
        return Division((*self.groups, n_groups), SliceRanges.of(*ranges))


def first_division(run: RunIdentity, n_groups: int) -> Division:
    """All slices of a run over groups."""
    return Division((n_groups,), SliceRanges.of(range(*run.slices)))


class Manifest(CheckpointFile):
    """The file that says which run a checkpoint is of, and what the division of its slices is."""

    FORMAT, VERSION, JOB = "tnplan.checkpoint", 5, "run"
    OTHERS = "schedule, tensors, --slices and --compress"
    RESTART, DURABLE = RESTART, True

    def __init__(self, path: Path, run: RunIdentity) -> None:
        super().__init__(path, run.document())

    def division(self) -> Division:
        """The division; InputError where the file is of another run, or damaged."""

        def made(document: dict[str, Any], _: dict[str, Array]) -> Division:
            return Division(
                tuple(document["groups"]), SliceRanges.of(*(range(*ends) for ends in document["left"]))
            )

        return self.content(made)

    def write(self, division: Division) -> None:
        """Replace the file."""
        self.replace(division.document())
