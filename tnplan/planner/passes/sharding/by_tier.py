"""Pass 3, distribute, one tier of interconnect after the other, the slowest first.

The digits of a tier take their modes as if faster digits split everything evenly, at no cost; the next tier
works around them. So the few states that a search keeps differ where bytes are dearest. Every stage may
leave a digit free until a mode comes that stays for longer. Knows no policy but ours.
"""

from __future__ import annotations

from tnplan.planner.hardware.process_grid import Grid
from tnplan.planner.passes.sharding import policies
from tnplan.planner.passes.sharding.persistent_sharding import persistent_shardings
from tnplan.planner.passes.sharding.search import Distribution, StepModes, distribute
from tnplan.planner.passes.sharding.states import StateSpace
from tnplan.planner.passes.tree.build import Tree


def distribute_by_tier(
    tree: Tree, grid: Grid, space: StateSpace, steps: tuple[StepModes, ...], persistent: bool = False
) -> Distribution:
    """Choose the states under the memory limit of `space`, tier by tier. Raises DoesNotFit.

    With `persistent` every stage is proposed shardings that keep for long (`persistent_sharding`).
    """
    chosen: Distribution | None = None
    for tier in sorted({digit.tier for digit in grid}, reverse=True):
        stage = StateSpace(tree, grid, space.model, space.limit_bytes, tier=tier)
        proposal = persistent_shardings(tree, stage, steps, chosen) if persistent else ()
        chosen = distribute(tree, stage, steps, policies.waiting, chosen, proposal)
    assert chosen is not None
    return chosen
