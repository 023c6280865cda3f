"""A path for a batch of bit strings: the joint search with the cost of the whole batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.schedule.batch_plan import BatchPlan
from tnplan.planner.search.annealing import Effort, Start, Task, in_symbols
from tnplan.planner.search.driver import search_joint
from tnplan.planner.search.orders.uncompiled import are_compiled
from tnplan.planner.search.search_in_proportion import (
    LONGER,
    MUCH_LONGER,
    greedy_path,
)
from tnplan.planner.sparse_state.plan_batch import batch_plan
from tnplan.planner.sparse_state.rows import most_rows

SEARCH_FROM_S = 0.05
"""Predicted seconds from which on a path is searched; below that the greedy one is taken."""
SEARCH_SHARE = 0.3
SHORTEST_SEARCH_S, LONGEST_SEARCH_S = 2.0, 60.0
FIRST_SEARCH_S = 0.4
"""The first search where kernels are compiled."""
MOST_EXTENT = 1.999
"""A final index counts less than others for the trees that a search begins with, which know no rows."""


@dataclass(frozen=True)
class BatchSearch:
    """How a path for a batch is searched.

    No tensor has more than `max_elements` elements, its rows among them; summed indices are sliced for that.
    `element_weight` is what an element read or written counts, in multiply-adds. A search without `time_s`
    goes on for `longest_s` at most.
    """

    time_s: float | None = None
    max_elements: int | None = None
    seed: int = 0
    element_weight: float = 0.0
    longest_s: float = LONGEST_SEARCH_S


def search_batch_in_proportion(
    network: Network, bitstrings: Array, products_per_s: float, options: BatchSearch,
    start: BatchPlan | None = None,
) -> BatchPlan:  # fmt: skip
    """The plan for distinct bit strings, of a search as long as it can gain, or as `options` say.

    A search goes on from the plan `start`, of a first one.
    """
    asked, path = options.time_s, None
    if start is None:
        closed = dict.fromkeys(network.output, 1)
        single = Network(network.inputs, network.output, {**network.size_dict, **closed})
        plan = batch_plan(ContractionPath(network, greedy_path(single)), bitstrings)
        most = options.max_elements or inf
        if asked is None and plan.largest <= most and plan.products < SEARCH_FROM_S * products_per_s:
            return plan
        # Where kernels have to be compiled that takes longer than a short search.
        spent_s = asked or (FIRST_SEARCH_S if are_compiled() else SHORTEST_SEARCH_S)
    else:
        path = ContractionPath(network, tuple((step.left, step.right) for step in start.steps), start.sliced)
        spent_s = asked or SHORTEST_SEARCH_S
    # Short searches come first: often the path that they find is worth no long one.
    while True:
        path = search_batch(network, len(bitstrings), replace(options, time_s=spent_s), path)
        plan = batch_plan(path, bitstrings)
        worth_s = min(SEARCH_SHARE * plan.products / products_per_s, options.longest_s)
        if asked is not None or worth_s <= LONGER * spent_s:
            return plan
        spent_s = min(worth_s, MUCH_LONGER * spent_s)


def worth_searching_s(plan: BatchPlan, products_per_s: float) -> float:
    """The seconds of a further search that are in proportion to a plan; 0 where the first was long enough."""
    worth_s = min(SEARCH_SHARE * plan.products / products_per_s, LONGEST_SEARCH_S)
    return worth_s if worth_s > SHORTEST_SEARCH_S else 0.0


def search_batch(
    network: Network, n_strings: int, options: BatchSearch, start: ContractionPath | None = None
) -> ContractionPath:
    """A path of few operations for so many strings on the open indices of a network.

    They are taken to differ on few indices as much as they can: as all values of some qubits do, and about as
    random strings do.
    """
    max_elements = options.max_elements
    if max_elements is not None and max_elements < n_strings:
        raise InputError(
            "memory", f"holds tensors of {max_elements} elements, and there are {n_strings} strings",
            "allow more, or ask for fewer strings at once",
            topic="memory",
        )  # fmt: skip
    symbols, inputs = in_symbols(network)
    names = {symbol: index for index, symbol in symbols.items()}
    extent = min(n_strings ** (1 / len(network.output)), MOST_EXTENT) if n_strings > 1 else 1.0
    sizes: dict[str, float] = {symbol: network.size_dict[index] for symbol, index in names.items()}
    sizes.update({symbols[index]: extent for index in network.output})
    starts: tuple[Start, ...] = ()
    if start is not None:
        starts = ((start.ssa_path, tuple(symbols[index] for index in start.sliced_inds)),)
    task = Task(
        inputs, tuple(symbols[index] for index in network.output), sizes, max_elements, "flops", ("greedy",),
        options.seed, Effort(time_s=options.time_s or 0.0), starts, options.element_weight,
        row_counts=most_rows(n_strings, len(network.output)) if n_strings > 1 else (),
    )  # fmt: skip
    found = search_joint(task)
    pairs = tuple((a, b) for a, b in found.ssa_path)
    return ContractionPath(network, pairs, tuple(names[symbol] for symbol in found.sliced))
