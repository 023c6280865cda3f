"""A joint search on disk: its pools of trees and the time it has used, after every round.

The file says which search it belongs to, and is replaced whole. Knows no moves, no clock and no processes.

Changelog of `tnplan.search`:
5 (2026-11-26): `pools`, which was `ladder`: two, one without the limit.
4 (2026-11-25): `power` of a ladder.
3 (2026-11-25): `starts` of a search, several.
2 (2026-11-23): scores count sides of the waist apart.
1 (2026-11-21): first version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from tnplan.planner.common.convert import converted
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import identity_of, plain, read_json, write_text
from tnplan.planner.search.annealing import Task
from tnplan.planner.search.ranking import Target
from tnplan.planner.search.round_policy import Pools

FORMAT = "tnplan.search"
VERSION = 5
FRESH = "delete it to start again"


@dataclass(frozen=True)
class SearchCheckpoint:
    """The file of one search."""

    path: Path
    search: dict[str, Any]
    """What a search must have in common with the interrupted one."""

    def check(self, resume: bool) -> None:
        """Refuse a file of another search, or of this one where it is not to be resumed."""
        if not self.path.exists():
            return
        if not resume:
            raise InputError(
                str(self.path), "holds the checkpoint of an interrupted search",
                f"continue it with --resume, or {FRESH}",
            )  # fmt: skip
        found = read_json(self.path, FORMAT, VERSION, FRESH).get("search")
        for name, value in self.search.items():
            stated = found.get(name) if isinstance(found, dict) else None
            if stated != value:
                raise InputError(
                    f"{self.path}: search.{name}", f"is {stated!r}, this search has {value!r}",
                    f"resume with the network and the options of that search, or {FRESH}",
                )  # fmt: skip

    def restore(self) -> tuple[Pools, float] | None:
        """The pools and the seconds used, where there is a file."""
        if not self.path.exists():
            return None
        import msgspec

        document = read_json(self.path, FORMAT, VERSION, FRESH)
        try:
            return converted((document["pools"], document["used_s"]), tuple[Pools, float])
        except (KeyError, msgspec.ValidationError):
            raise InputError(str(self.path), "is damaged", FRESH) from None

    def write(self, pools: Pools, used_s: float) -> None:
        """Keep the pools."""
        document = {
            "format": FORMAT, "version": VERSION, "search": self.search, "used_s": used_s,
            "pools": plain(pools),
        }  # fmt: skip
        write_text(self.path, json.dumps(document) + "\n")


def described(task: Task, target: Target | None) -> dict[str, Any]:
    """What makes a search this one: all but how long it may take and on how many processes."""
    return {
        "limit": task.limit,
        "network": identity_of(plain((task.inputs, task.output, sorted(task.sizes.items())))),
        "minimize": task.minimize,
        "element_weight": task.element_weight,
        "waist_limit": None if task.waist_limit == inf else task.waist_limit,
        "seed": task.seed,
        "methods": list(task.methods),
        "starts": [identity_of(plain(start)) for start in task.starts],
        "dtype": None if target is None else target.frame.dtype,
        "devices": None if target is None else target.devices,
        "precision": None if target is None else target.precision,
        "profile": None if target is None else identity_of(target.profile.document()),
    }
