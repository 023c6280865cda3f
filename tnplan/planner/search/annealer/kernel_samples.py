"""The kernel of the annealer with arguments of the types that it is called with."""

from __future__ import annotations

import numpy as np

from tnplan.common.kernels.ahead import Sample, Samples
from tnplan.planner.search.annealer.anneal_kernel import RESTORE, work
from tnplan.planner.search.annealer.anneal_state import Best, Heat, make_problem, new_state

MOVES = Samples(__name__, "of_moves")
"""What anneals."""


def of_moves() -> list[Sample]:
    """The one kernel."""
    problem = make_problem((("a",), ("a",)), (), {"a": 2}, 2.0, 0.0)
    state = new_state(problem, 2, 0)
    best = Best(state.left, state.right, state.parent, state.kept, np.zeros(1))
    heat, room = Heat(0.0, 0.0, 0.0, 0.0), np.zeros((2, *state.legs.shape), np.uint64)
    return [(work, (RESTORE, problem, state, best, heat, (0, 0, 1), room))]
