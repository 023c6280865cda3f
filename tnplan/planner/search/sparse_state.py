"""Paths and steps for a batch of bit strings, whose tensors have rows (sparse-state contraction).

A tensor that carries some final qubits has a row for each distinct assignment of the given strings to these
qubits: at most as many as there are strings, and at most 2 to the number of the qubits. That is the sparse
state of Pan, Chen and Zhang, arXiv 2111.03011. Paths are searched with the cost of the whole batch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.schedule.row_schedule import BatchedStep, BatchPlan
from tnplan.planner.search.annealing import Effort, Start, Task, in_symbols
from tnplan.planner.search.driver import search_joint
from tnplan.planner.search.orders.uncompiled import are_compiled
from tnplan.planner.search.search_in_proportion import LONGER, MUCH_LONGER, greedy_path

SEARCH_FROM_S = 0.05
"""Predicted seconds from which on a path is searched; below that the greedy one is taken."""
SEARCH_SHARE = 0.3
SHORTEST_SEARCH_S, LONGEST_SEARCH_S = 2.0, 60.0
FIRST_SEARCH_S = 0.4
"""The first search where kernels are compiled."""
WORD_BITS, FEW_BITS = 64, 16
TABLED = 16
"""Numbers are told apart by a table where it has at most so many entries for each of them."""
MOST_EXTENT = 1.999
"""A final index counts less than others for the trees that a search begins with, which know no rows."""


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor.

    Parameters
    ----------
    of_strings
        The row of each string, int64 [string].
    first
        The first string of each row, int64 [row].
    """

    of_strings: Array
    first: Array

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.first)


def distinct_strings(bitstrings: Array) -> tuple[Array, Array]:
    """The distinct strings, uint8 [string, qubit], and the number of each given one among them."""
    rows = rows_of_bits(bitstrings)
    return bitstrings[rows.first], rows.of_strings


def rows_of_bits(bitstrings: Array) -> Rows:
    """The rows of a tensor whose final qubits are the columns of some bits, uint8 [string, qubit]."""
    count, n_columns = bitstrings.shape
    if n_columns == 0:
        return Rows(np.zeros(count, np.int64), np.zeros(1, np.int64))
    if n_columns <= FEW_BITS:
        few = bitstrings[:, 0].astype(np.int32)
        for column in range(1, n_columns):
            few = 2 * few + bitstrings[:, column]
        return _rows_of_numbers(few, 2**n_columns)[0]
    packed = np.packbits(bitstrings, axis=1)
    if n_columns > WORD_BITS:
        _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        return Rows(inverse.reshape(-1), first)
    # The first column is the most significant bit, so that numbers are in the order of the strings.
    words = np.zeros((count, WORD_BITS // 8), np.uint8)
    words[:, : packed.shape[1]] = packed
    numbers = words.view(">u8").reshape(-1).astype(np.uint64) >> np.uint64(WORD_BITS - n_columns)
    return _rows_of_numbers(numbers, 2**n_columns)[0]


def _rows_of_numbers(numbers: Array, most: int) -> tuple[Rows, Array]:
    """Rows of equal numbers, all below `most`, in rising order, and the number of each."""
    if most > TABLED * len(numbers):
        keys, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        return Rows(inverse.reshape(-1), first), keys
    # Few possible numbers: a table of them in place of sorting. Of several strings the first comes last.
    firsts = np.full(most, -1, np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
    keys = np.flatnonzero(firsts >= 0)
    place = np.empty(most, np.int64)
    place[keys] = np.arange(len(keys))
    return Rows(place[numbers], firsts[keys]), keys


def rows_of_product(left: Rows, right: Rows) -> tuple[Rows, Array]:
    """The rows of the product of two tensors, and the rows of both that make each, int32 [row, 2].

    Where both have several rows, and are not all strings apart, pairs rise.
    """
    count = len(left.of_strings)
    # One of the two tells all strings apart that the product does: its rows are the product's.
    if right.count == 1 or left.count == count:
        return left, _pairs(np.arange(left.count), right.of_strings[left.first])
    if left.count == 1 or right.count == count:
        return right, _pairs(left.of_strings[right.first], np.arange(right.count))
    # A pair of rows as one number. Invariant: rows of the product are in the order of these numbers, so that
    # `divmod` of the distinct ones gives both rows back.
    numbers = left.of_strings * right.count + right.of_strings
    rows, keys = _rows_of_numbers(numbers, left.count * right.count)
    return rows, _pairs(*np.divmod(keys, right.count))


def _pairs(left: Array, right: Array) -> Array:
    return np.stack((left, right), axis=1).astype(np.int32)


def most_rows(n_strings: int, n_qubits: int) -> tuple[float, ...]:
    """The most rows that a tensor with 0, 1, ... n_qubits final qubits has for so many strings."""
    return tuple(float(min(2**bits, n_strings)) for bits in range(n_qubits + 1))


def closed_network(network: Network) -> Network:
    """The network of one string, whose values fix the open indices: without these."""
    inputs = tuple(tuple(index for index in term if index not in network.output) for term in network.inputs)
    return Network(inputs, (), network.size_dict)


def batch_plan(path: ContractionPath, bitstrings: Array) -> BatchPlan:
    """The steps of a path for distinct bit strings, uint8 [string, qubit].

    The open indices of the path's network are those of the qubits, in their order, and its steps are pairs.
    """
    network = path.network
    if not {*path.sliced_inds}.isdisjoint(network.output):
        raise InputError("path", "slices open indices, which are those of the strings", "slice summed ones")
    column = {index: number for number, index in enumerate(network.output)}
    sizes = {**network.size_dict, **dict.fromkeys(path.sliced_inds, 1)}
    # How many tensors still have an index; one that is on two tensors of a step and no other is summed there.
    # Open indices are in the rows, not among the legs.
    left_over = Counter(index for term in network.inputs for index in set(term))
    rows: dict[int, Rows] = {}
    legs: dict[int, tuple[str, ...]] = {}
    leaf_bits, leaf_legs = [], []
    columns = np.ascontiguousarray(bitstrings.T)
    for number, term in enumerate(network.inputs):
        final = tuple(index for index in term if index in column)
        bits = columns[[column[index] for index in final]].T
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


def with_slices(plan: BatchPlan, least: int) -> BatchPlan:
    """The plan with further indices sliced until there are `least` slices, each time that which costs least.

    Indices beside the final qubits come last: a slice of theirs has strings that it gives nothing, and a
    share of such slices is no state of the same kind. Raises InputError where the indices that are summed do
    not make so many.
    """
    sizes = plan.network.size_dict
    legs = [set(term) for term in plan.leaf_legs]
    spans: list[set[str]] = []
    for step in plan.steps:
        spans.append(legs[step.left] | legs[step.right])
        legs.append(set(step.legs))
    products = [float(step.products) for step in plan.steps]
    sliced = list(plan.sliced)
    ends = {
        index
        for (final, _), own in zip(plan.leaf_bits, plan.leaf_legs, strict=True) if final for index in own
    }  # fmt: skip
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
        costs = {index: cost for index, cost in costs.items() if index not in ends} or costs
        if not costs:
            n_slices = prod(sizes[index] for index in sliced)
            raise InputError("slices", f"are {n_slices}, and {least} are asked for", "ask for fewer slices")
        chosen = min(costs, key=lambda index: costs[index])
        sliced.append(chosen)
        products = [
            cost / (sizes[chosen] if chosen in span else 1)
            for cost, span in zip(products, spans, strict=True)
        ]
    return _sliced_as(plan, spans, tuple(sliced))


def _sliced_as(plan: BatchPlan, spans: list[set[str]], sliced: tuple[str, ...]) -> BatchPlan:
    """The plan with other sliced indices; rows stay as they are. `spans` has all indices of each step."""
    sizes = {**plan.network.size_dict, **dict.fromkeys(sliced, 1)}
    steps = tuple(
        replace(
            step, products=len(step.pairs) * prod(sizes[index] for index in span),
            elements=len(step.pairs) * prod(sizes[index] for index in step.legs),
        )
        for step, span in zip(plan.steps, spans, strict=True)
    )  # fmt: skip
    return replace(plan, steps=steps, sliced=sliced)


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
    network: Network,
    bitstrings: Array,
    products_per_s: float,
    options: BatchSearch,
    start: ContractionPath | None = None,
) -> BatchPlan:
    """The plan for distinct bit strings, of a search as long as it can gain, or as `options` say.

    It begins with the path `start`, or else with a greedy one.
    """
    asked, path = options.time_s, start
    first = start or ContractionPath(network, greedy_path(closed_network(network)))
    plan = batch_plan(first, bitstrings)
    most = options.max_elements or inf
    if asked is None and plan.largest <= most and plan.products < SEARCH_FROM_S * products_per_s:
        return plan
    # Where kernels have to be compiled that takes longer than a short search.
    spent_s = asked or (FIRST_SEARCH_S if are_compiled() else SHORTEST_SEARCH_S)
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
            "allow more memory, or ask for fewer strings at once",
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
        options.seed, Effort(time_s=options.time_s or 0.0), starts, element_weight=options.element_weight,
        row_counts=most_rows(n_strings, len(network.output)) if n_strings > 1 else (),
    )  # fmt: skip
    tree = search_joint(task)
    pairs = tuple((a, b) for a, b in tree.ssa_path)
    return ContractionPath(network, pairs, tuple(names[symbol] for symbol in tree.sliced))
