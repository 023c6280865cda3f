"""The kernels of the search, with arguments of the types that they are called with."""

from __future__ import annotations

import numpy as np

from tnplan.common.kernels.ahead import Sample, Samples
from tnplan.planner.search.annealer.anneal_kernel import RESTORE, work
from tnplan.planner.search.annealer.anneal_state import Best, Heat, Price, make_problem, new_state
from tnplan.planner.search.orders.bisection_kernel import new_room
from tnplan.planner.search.orders.dissection_kernel import Cuts, cut_all, new_dissection
from tnplan.planner.search.orders.elimination_kernel import FILL, Rule, begin, go_on, new_elimination
from tnplan.planner.search.orders.front_kernel import SIDEWAYS, new_front, run_front
from tnplan.planner.search.orders.hypergraph import make_hypergraph
from tnplan.planner.search.subtrees.ancestor_kernel import (
    HeavyPaths,
    add_up,
    count_at_ancestors,
    follow_paths,
)
from tnplan.planner.search.subtrees.legs_kernel import join_all, leaf_legs, put_in_order, total_bits
from tnplan.planner.search.subtrees.measure_kernel import KeptLegs, NodeSizes, run_measure, take_indices
from tnplan.planner.search.subtrees.optimal_kernel import new_sweep, region_below, run_sweep

PAIR = make_hypergraph((("a",), ("a",)), (), {"a": 2})
MOVES = Samples(__name__, "of_moves")
"""What anneals."""
DIVISIONS, PLAIN_ORDERS = Samples(__name__, "of_divisions"), Samples(__name__, "of_plain_orders")
"""What divides networks; and what makes other orders, and improves trees."""


def of_moves() -> list[Sample]:
    """The kernel of the annealer."""
    problem = make_problem((("a",), ("a",)), (), {"a": 2}, 2.0, Price())
    state = new_state(problem, 2, 0)
    best = Best(state.left, state.right, state.parent, state.unsliced, np.zeros(1))
    heat, scratch = Heat(0.0, 0.0, 0.0, 0.0), np.zeros((2, *state.legs.shape), np.uint64)
    return [(work, (RESTORE, problem, state, best, heat, (0, 0, 1), scratch))]


def of_divisions() -> list[Sample]:
    """The kernel of nested dissection."""
    return [(cut_all, (PAIR, Cuts(1, 0.1, 1, 1, 1.0), new_dissection(PAIR), new_room(PAIR, 0)))]


def of_plain_orders() -> list[Sample]:
    """The kernels of the other orders, and of parts of trees."""
    rule, state = Rule(FILL, 0.0, 0.0), new_elimination(PAIR, 0)
    stages = np.zeros(1, np.int64)
    return [
        (run_front, (PAIR, 0.0, SIDEWAYS, 0.0, new_front(PAIR, 0))),
        (begin, (PAIR, stages, rule, state)),
        (go_on, (PAIR, stages, rule, state)),
        *of_trees(),
    ]


def of_trees() -> list[Sample]:
    """The kernels of parts of trees."""
    legs, weights, numbers = leaf_legs(PAIR, PAIR.weights, 2), PAIR.weights, np.zeros(3, np.int64)
    stored = KeptLegs(numbers, numbers, numbers, weights, 0.0)
    tree, sums = (numbers, numbers, numbers), np.zeros((2, 2, 3), np.int64)
    paths = HeavyPaths(*np.zeros((5, 3), np.int32))
    return [
        (follow_paths, (tree, paths)),
        (count_at_ancestors, ((PAIR.index_starts, numbers, numbers), paths, numbers, sums)),
        (add_up, (tree, sums)),
        (put_in_order, (numbers, numbers, 2, numbers, numbers)),
        (join_all, (legs, weights, numbers, numbers, numbers, 0)),
        (total_bits, (weights, weights, Price(), numbers, numbers)),
        (run_measure, (PAIR, weights, (numbers, numbers, numbers), legs, stored)),
        (run_sweep, (legs, weights, (numbers, numbers, numbers), 0, new_sweep(2, 1), (1.0, Price()))),
        (region_below, (weights, numbers, numbers, 2, numbers, numbers)),
        (take_indices, (stored, NodeSizes(weights, weights, numbers), numbers, 1.0, numbers, numbers)),
    ]
