"""The manifest of a checkpoint: which run it belongs to, and how the slices that are left are divided.

Changelog of `tnplan.checkpoint`:
1 (2026-11-21): first version.
2 (2026-11-23): a group computes a run of consecutive slices. Version 1 is refused.
3 (2026-11-25): what is left of an even division of the slices goes to other groups. Version 2 is refused.
4 (2026-11-26): `groups` and `left` for `n_groups`; `identity`; names with the division. Version 3 is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tnplan.executor.contraction.run.slice_partition import SliceRanges, slices_of_group
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import identity_of, read_json, write_file

FORMAT = "tnplan.checkpoint"
VERSION = 4
RESTART = "delete the folder to start again"


@dataclass(frozen=True)
class RunIdentity:
    """What a checkpoint belongs to: a run of the same parts with as many groups gives the same bits."""

    schedule: str
    slices: tuple[int, int]
    dtype: str
    values: str

    def document(self) -> dict[str, Any]:
        """Its part of the manifest."""
        return {
            "format": FORMAT, "version": VERSION, "schedule": self.schedule, "slices": list(self.slices),
            "dtype": self.dtype, "values": self.values,
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


def read_manifest(path: Path, run: RunIdentity) -> Division:
    """The division in a manifest; InputError where it is of another run, or was changed."""
    found = read_json(path, FORMAT, VERSION, RESTART)
    for name, value in run.document().items():
        if found.get(name) != value:
            raise InputError(
                f"{path}: {name}", f"is {found.get(name)!r}, this run has {value!r}",
                "resume with the schedule, tensors, --slices and --compress of that run, "
                "or delete the folder",
            )  # fmt: skip
    identity = found.pop("identity", None)
    if identity is None or identity != _identity(found):
        raise InputError(str(path), "was changed after it was written", RESTART)
    return Division(tuple(found["groups"]), SliceRanges.of(*(range(*ends) for ends in found["left"])))


def write_manifest(path: Path, run: RunIdentity, division: Division) -> None:
    """Replace the manifest, whole and through to the disk: what an older one names is deleted next."""
    left = [[one.start, one.stop] for one in division.left.ranges]
    document = {**run.document(), "groups": list(division.groups), "left": left}
    text = json.dumps({**document, "identity": _identity(document)}, indent=1) + "\n"

    def write(stream: BinaryIO) -> None:
        stream.write(text.encode())
        stream.flush()
        os.fsync(stream.fileno())

    write_file(path, write)


def _identity(document: dict[str, Any]) -> str | None:
    """That of a manifest without it; None where no manifest could hold such values."""
    try:
        return identity_of(document)
    except ValueError:
        return None
