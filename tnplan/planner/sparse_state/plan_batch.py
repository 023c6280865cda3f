"""A path and given bit strings become steps over distinct rows, with what they cost."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.schedule.batch_plan import BatchedStep, BatchPlan
from tnplan.planner.sparse_state.rows import Rows, rows_of_bits, rows_of_product


def batch_plan(path: ContractionPath, bitstrings: Array) -> BatchPlan:
    """The steps of a path for distinct bit strings, uint8 [string, qubit].

    The open indices of the path's network are those of the qubits, in their order, and its steps are pairs.
    """
    network = path.network
    column = {index: number for number, index in enumerate(network.output)}
    sizes = {**network.size_dict, **dict.fromkeys(path.sliced_inds, 1)}
    # How many tensors still have an index; one that is on two tensors of a step and no other is summed there.
    # Open indices are in the rows, not among the legs.
    left_over = Counter(index for term in network.inputs for index in set(term))
    rows: dict[int, Rows] = {}
    legs: dict[int, tuple[str, ...]] = {}
    leaf_bits, leaf_legs = [], []
    for number, term in enumerate(network.inputs):
        final = tuple(index for index in term if index in column)
        bits = bitstrings[:, [column[index] for index in final]]
        # A tensor has a row for each distinct assignment of its final qubits among the given strings (the
        # sparse state of arXiv 2111.03011), and a product for each pair of rows that some string needs.
        rows[number] = rows_of_bits(bits)
        leaf_bits.append((final, bits[rows[number].first]))
        legs[number] = tuple(index for index in term if index not in column)
        leaf_legs.append(legs[number])
    steps = []
    for number, (left, right) in enumerate(path.ssa_path):
        new = len(network.inputs) + number
        rows[new], pairs = rows_of_product(rows.pop(left), rows.pop(right))
        first, second = legs.pop(left), legs.pop(right)
        both = tuple(dict.fromkeys(first + second))
        left_over.subtract(set(first) & set(second))
        legs[new] = tuple(index for index in both if left_over[index] > 1)
        count = rows[new].count
        steps.append(
            BatchedStep(
                left,
                right,
                pairs,
                legs[new],
                count * prod(sizes[index] for index in both),
                count * prod(sizes[index] for index in legs[new]),
            )
        )
    (last,) = rows.values()
    return BatchPlan(
        network,
        tuple(steps),
        tuple(leaf_bits),
        tuple(leaf_legs),
        path.sliced_inds,
        np.asarray(last.of_strings),
    )


def with_slices(plan: BatchPlan, bitstrings: Array, least: int) -> BatchPlan:
    """The plan with further indices sliced until there are `least` slices, each time that which costs least.

    Raises InputError where the indices that are summed do not make so many.
    """
    sizes = plan.network.size_dict
    legs = [set(term) for term in plan.leaf_legs]
    spans: list[set[str]] = []
    for step in plan.steps:
        spans.append(legs[step.left] | legs[step.right])
        legs.append(set(step.legs))
    products = [float(step.products) for step in plan.steps]
    sliced = list(plan.sliced)
    while prod(sizes[index] for index in sliced) < least:
        # Multiply-adds of all slices if this index is sliced too: steps that have it become smaller, all are
        # repeated.
        costs = {
            index: sizes[index]
            * sum(
                cost / (sizes[index] if index in span else 1)
                for cost, span in zip(products, spans, strict=True)
            )
            for index in sorted(set().union(*spans) - set(sliced))
        }
        if not costs:
            made = prod(sizes[index] for index in sliced)
            raise InputError("slices", f"are {made}, and {least} are asked for", "ask for fewer")
        chosen = min(costs, key=lambda index: costs[index])
        sliced.append(chosen)
        products = [
            cost / (sizes[chosen] if chosen in span else 1)
            for cost, span in zip(products, spans, strict=True)
        ]
    steps = tuple((step.left, step.right) for step in plan.steps)
    return batch_plan(ContractionPath(plan.network, steps, tuple(sliced)), bitstrings)
