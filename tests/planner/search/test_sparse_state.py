"""Rows of bit strings, the steps of a batch and what they cost, and the search that counts rows."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import greedy_path
from tnplan.planner.search.sparse_state import (
    BatchSearch,
    batch_plan,
    distinct_strings,
    most_rows,
    rows_of_bits,
    rows_of_product,
    search_batch,
    with_slices,
)
from tnplan.planner.workloads.lattice import lattice_circuit


def strings(count: int, n_qubits: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (count, n_qubits), dtype=np.uint8)


def lattice(n_cycles: int) -> Network:
    """A circuit on 3 x 4 sites with all qubits open."""
    network, _ = simplify(*circuit_network(lattice_circuit("rectangular", 3, 4, n_cycles, 0), "." * 12))
    return network


def test_rows_of_a_product_are_those_of_both_columns() -> None:
    bits = strings(300, 9)
    left, right = rows_of_bits(bits[:, :5]), rows_of_bits(bits[:, 3:])
    rows, pairs = rows_of_product(left, right)
    whole = rows_of_bits(bits)
    assert rows.count == whole.count == len(np.unique(bits, axis=0))
    np.testing.assert_array_equal(pairs[rows.of_strings, 0], left.of_strings)
    np.testing.assert_array_equal(pairs[rows.of_strings, 1], right.of_strings)
    np.testing.assert_array_equal(bits[rows.first][rows.of_strings], bits)
    assert rows_of_bits(bits[:, :0]).count == 1


@pytest.mark.parametrize("n_qubits", [1, 6, 8, 16, 17, 40, 63, 64, 65, 130])
def test_distinct_strings_give_back_all(n_qubits: int) -> None:
    """By tables, by numbers and by bytes; in rising order."""
    bits = strings(300, n_qubits)
    bits = np.concatenate([bits, bits[::7]])
    distinct, inverse = distinct_strings(bits)
    assert sorted({tuple(row) for row in bits.tolist()}) == [tuple(row) for row in distinct.tolist()]
    np.testing.assert_array_equal(distinct[inverse], bits)


@pytest.mark.parametrize("seed", range(8))
def test_pairs_of_rows_lead_to_every_string(seed: int) -> None:
    """Of tensors that tell none, some or all strings apart, by tables and by sorting."""
    chance = np.random.default_rng(seed)
    bits = distinct_strings(strings(int(chance.integers(1, 400)), 40, seed))[0]
    for first, last in ((0, 0), (0, 3), (0, 40), (3, 12), (12, 40), (20, 23)):
        for begin, end in ((0, 0), (2, 7), (5, 40), (30, 40)):
            left, right = rows_of_bits(bits[:, first:last]), rows_of_bits(bits[:, begin:end])
            rows, pairs = rows_of_product(left, right)
            columns = sorted({*range(first, last), *range(begin, end)})
            assert rows.count == len(pairs) == rows_of_bits(bits[:, columns]).count
            np.testing.assert_array_equal(pairs[rows.of_strings, 0], left.of_strings)
            np.testing.assert_array_equal(pairs[rows.of_strings, 1], right.of_strings)
            np.testing.assert_array_equal(rows.of_strings[rows.first], np.arange(rows.count))
            if len(pairs) == left.count * right.count:  # each with each, in the order of both
                whole = np.stack(np.divmod(np.arange(len(pairs)), right.count), axis=1)
                np.testing.assert_array_equal(pairs, whole)


def test_a_batch_of_one_costs_what_its_path_costs() -> None:
    network = lattice(10)
    single = Network(
        network.inputs, network.output, {**network.size_dict, **dict.fromkeys(network.output, 1)}
    )
    path = ContractionPath(network, greedy_path(single))
    plan = batch_plan(path, strings(1, 12))
    cost = path_cost(ContractionPath(single, path.ssa_path))
    assert np.log10(plan.products) == pytest.approx(cost.log10_mnk_all_slices)
    assert np.log2(plan.largest) <= cost.log2_largest + 1e-9


def test_a_batch_of_all_strings_costs_what_open_indices_cost() -> None:
    network = lattice(6)
    path = ContractionPath(network, greedy_path(network))
    everything = np.array([[n >> q & 1 for q in range(12)] for n in range(2**12)], np.uint8)
    plan = batch_plan(path, everything)
    assert np.log10(plan.products) == pytest.approx(path_cost(path).log10_mnk_all_slices)


def test_the_search_counts_rows() -> None:
    network, bits = lattice(12), distinct_strings(strings(200, 12))[0]
    single = search_batch(network, 1, BatchSearch(0.5))
    found = search_batch(network, len(bits), BatchSearch(0.5))
    batch, alone = batch_plan(found, bits), batch_plan(single, bits)
    assert batch.products <= alone.products
    assert batch.products < len(bits) * batch_plan(single, bits[:1]).products / 4


def test_random_strings_of_a_deep_circuit_branch_late() -> None:
    """Once the state is smaller than the rest of the circuit, its bulk is contracted once for all strings."""
    chosen, _ = distinct_strings(strings(500, 12))
    alone = batch_plan(search_batch(lattice(30), 1, BatchSearch(0.7)), chosen[:1])
    found = batch_plan(search_batch(lattice(30), len(chosen), BatchSearch(0.7)), chosen)
    assert len(chosen) > 400
    assert found.products < 2 * alone.products


def test_the_search_keeps_its_limit() -> None:
    network, bits = lattice(10), distinct_strings(strings(60, 12))[0]
    plan = batch_plan(search_batch(network, len(bits), BatchSearch(0.5, max_elements=256)), bits)
    assert plan.n_slices > 1
    assert plan.largest <= 256
    with pytest.raises(InputError, match="memory: holds tensors of 32 elements"):
        search_batch(network, len(bits), BatchSearch(0.5, max_elements=32))


def test_more_slices_are_indices_that_are_summed() -> None:
    network, bits = lattice(8), strings(5, 12)
    single = Network(
        network.inputs, network.output, {**network.size_dict, **dict.fromkeys(network.output, 1)}
    )
    plan = batch_plan(ContractionPath(network, greedy_path(single)), bits)
    more = with_slices(plan, 20)
    assert more.n_slices == 32
    assert not set(more.sliced) & set(network.output)
    steps = tuple((step.left, step.right) for step in plan.steps)
    anew = batch_plan(ContractionPath(network, steps, more.sliced), bits)
    assert [(one.products, one.elements) for one in more.steps] == [
        (one.products, one.elements) for one in anew.steps
    ]
    assert plan.products <= more.products <= 32 * plan.products
    closed = prod(size for index, size in network.size_dict.items() if index not in network.output)
    with pytest.raises(InputError, match="slices: are"):
        with_slices(plan, 2 * closed)


def test_the_most_rows_are_values_or_strings() -> None:
    assert most_rows(10, 6) == (1, 2, 4, 8, 10, 10, 10)
