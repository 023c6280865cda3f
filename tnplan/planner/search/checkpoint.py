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
from math import inf, isfinite
from pathlib import Path
from typing import Any

from tnplan.planner.common.convert import converted
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import identity_of, plain, read_json, write_text
from tnplan.planner.search.annealing import Found, Task
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

    def restore(self, task: Task) -> tuple[Pools, float] | None:
        """The pools of trees of a task, and the seconds used, where there is a file."""
        if not self.path.exists():
            return None
        import msgspec

        document = read_json(self.path, FORMAT, VERSION, FRESH)
        try:
            pools, used_s = converted((document["pools"], document["used_s"]), tuple[Pools, float])
        except (KeyError, msgspec.ValidationError):
            pools, used_s = None, 0.0
        if pools is None or not _fits(pools, task) or not 0 <= used_s < inf:
            raise InputError(str(self.path), "is damaged", FRESH)
        return pools, used_s

    def write(self, pools: Pools, used_s: float) -> None:
        """Keep the pools."""
        document = {
            "format": FORMAT, "version": VERSION, "search": self.search, "used_s": used_s,
            "pools": plain(pools),
        }  # fmt: skip
        write_text(self.path, json.dumps(document) + "\n")


def _fits(pools: Pools, task: Task) -> bool:
    """Whether all trees in the pools are trees of the task, and the pools such as rounds leave them."""
    for pool in filter(None, (pools.limited, pools.unlimited)):
        trees = [pool.first, *pool.pool, *filter(None, (pool.fastest,))]
        figures = (pool.power, pool.given, *pool.asked, *pool.origins.values())
        if not pool.pool or not all(_is_tree(tree, task) for tree in trees):
            return False
        if not all(map(isfinite, figures)) or not 0 < pool.power <= 1 or pool.number < 0:
            return False
    return pools.sliced is None or isfinite(pools.sliced)


def _is_tree(found: Found, task: Task) -> bool:
    """Whether each step joins two tensors that are there, one is left, and what is sliced may be."""
    left = {*range(len(task.inputs))}
    for number, pair in enumerate(found.ssa_path, len(task.inputs)):
        if len(pair) != 2 or len({*pair}) != 2 or not left >= {*pair}:
            return False
        left = (left - {*pair}) | {number}
    summed = {*task.sizes} - {*task.output}
    sliced_once = len({*found.sliced}) == len(found.sliced) and summed >= {*found.sliced}
    return len(left) == 1 and sliced_once and isfinite(found.score)


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
