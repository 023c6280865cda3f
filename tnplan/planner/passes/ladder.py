"""The ladder of attempts under a memory limit, as data: what is tried in which order, and what it may take.

Knows numbers and names; `pipeline` climbs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BY_TIER = "ours, tier by tier"
PERSISTENT = "ours, tier by tier, persistent"
"""Tier by tier, with persistent shardings proposed to the search."""
TIGHTENINGS = 6
"""So often the limit of a step is lowered until the arena of the whole program fits."""
HOISTED_SHARES = (1.25, 0.98, 0.7, 0.0)
"""Of the memory of all ranks, what the largest step and all that is held for other loop levels may first
take, and then: more than all, since chains may work in place."""
UNLIMITED_SHARE = 2.5
"""The same, where no step has a limit of its own: what is larger may lie between the steps of a chain."""


@dataclass(frozen=True)
class Rung:
    """One way to plan: a policy, the share of the memory of all ranks for loop-invariant tensors and the
    largest step, whether each step must fit, how often its limit may be lowered, and whether tensors may
    be spilled."""

    policy: str
    share: float
    step_limited: bool = True
    tries: int = 1
    spilled: bool = False


def ladder(policy: str, shares: Sequence[float], spills: Sequence[bool], fusing: bool) -> tuple[Rung, ...]:
    """The rungs of a policy, the most memory for loop-invariant tensors first.

    More than all of the memory is tried as it is. Otherwise steps are limited ever more; since fused chains
    never store what may be too large for that, the last rung of a share is one without a limit for each step.
    """
    rungs: list[Rung] = []
    for share in shares:
        if share > 1:
            rungs.append(Rung(policy, share))
            continue
        for spilled in spills:
            rungs.append(Rung(policy, share, tries=TIGHTENINGS, spilled=spilled))
            if fusing:
                rungs.append(Rung(policy, share, step_limited=False, spilled=spilled))
    return tuple(rungs)
