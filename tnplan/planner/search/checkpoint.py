"""A joint search on disk: its pools of trees and the time it has used, after every round.

The file says which search it belongs to, and is replaced whole. Knows no moves, no clock and no processes.

Changelog of `tnplan.search`:
8 (2026-12-01): `near_log2` of a pool, and what rounds near the fastest tree count. Version 7 is refused.
7 (2026-11-30): `running` of `pools`.
6 (2026-11-29): as `tnplan.common.checkpoint`. Version 5 is refused.
5 (2026-11-26): `pools`, which was `ladder`: two, one without the limit.
4 (2026-11-25): `power` of a ladder.
3 (2026-11-25): `starts` of a search, several.
2 (2026-11-23): scores count sides of the waist apart.
1 (2026-11-21): first version.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.errors import InputError
from tnplan.common.files import converted, identity_of, plain
from tnplan.planner.search.annealing import ScoredTree, Task
from tnplan.planner.search.ranking import Target
from tnplan.planner.search.round_policy import Pools


class SearchCheckpoint(CheckpointFile):
    """The file of one search, whose identity is `described`."""

    FORMAT, VERSION = "tnplan.search", 8
    JOB, OTHERS = "search", "network and the options"
    RESTART = "delete it to start again"

    def check(self, resume: bool) -> None:
        """Refuse a file of another search, or of this one where it is not to be resumed."""
        self.restored(resume, lambda *_: None)

    def is_own(self) -> bool:
        """Whether there is a file, of this search."""
        try:
            return self.restored(True, lambda *_: True) or False
        except InputError:
            return False

    def restore(self, task: Task) -> tuple[Pools, float] | None:
        """The pools of trees of a task, and the seconds used, where there is a file."""
        import msgspec

        def read_pools(document: dict[str, Any], _: dict[str, Array]) -> tuple[Pools, float]:
            try:
                pools, used_s = converted((document["pools"], document["used_s"]), tuple[Pools, float])
            except msgspec.ValidationError:
                raise ValueError from None
            if not _fits(pools, task) or not 0 <= used_s < inf:
                raise ValueError
            return pools, used_s

        return self.restored(True, read_pools)

    def write(self, pools: Pools, used_s: float) -> None:
        """Write the pools."""
        self.replace({"used_s": used_s, "pools": plain(pools)})


def _fits(pools: Pools, task: Task) -> bool:
    """Whether all trees in the pools are trees of the task, and the pools such as rounds leave them."""
    for pool in filter(None, (pools.limited, pools.unlimited)):
        trees = [pool.first, *pool.pool, *filter(None, (pool.fastest,))]
        figures = (pool.power, pool.given, *pool.asked, *pool.origins.values(), *pool.near_log2.values())
        if not pool.pool or not all(_is_tree(tree, task) for tree in trees):
            return False
        if not all(map(isfinite, figures)) or not 0 < pool.power <= 1 or pool.number < 0:
            return False
    sources = (tree for given in pools.running for tree in (given.source, given.rival) if tree is not None)
    if not all(_is_tree(tree, task) for tree in sources):
        return False
    return pools.sliced is None or isfinite(pools.sliced)


def _is_tree(tree: ScoredTree, task: Task) -> bool:
    """Whether each step joins two tensors that are there, one is left, and what is sliced may be."""
    left = {*range(len(task.inputs))}
    for number, pair in enumerate(tree.ssa_path, len(task.inputs)):
        if len(pair) != 2 or len({*pair}) != 2 or not left >= {*pair}:
            return False
        left = (left - {*pair}) | {number}
    sliceable = {*task.sizes} - ({*task.output} if not task.slices_open else set())
    sliced_once = len({*tree.sliced}) == len(tree.sliced) and sliceable >= {*tree.sliced}
    return len(left) == 1 and sliced_once and isfinite(tree.score)


def described(task: Task, target: Target | None, n_starts: int) -> dict[str, Any]:
    """What makes a search this one: all but how long it may take and on how many processes, and the paths
    after the first `n_starts` that it starts from."""
    return {
        "limit": task.limit,
        "network": identity_of((task.inputs, task.output, sorted(task.sizes.items()))),
        "minimize": task.minimize,
        "element_weight": task.element_weight,
        "seed": task.seed,
        "methods": list(task.methods),
        "starts": [identity_of(start) for start in task.starts[:n_starts]],
        "dtype": None if target is None else target.frame.dtype,
        "devices": None if target is None else target.devices,
        "precision": None if target is None else target.precision,
        "exceeds": target is not None and target.exceeds,
        "profile": None if target is None else identity_of(target.profile.document()),
    }
