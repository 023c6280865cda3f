"""Paths for many calls: what depends on constants alone is contracted first; limits."""

from __future__ import annotations

import random

from tests.support.networks import random_path
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.tree.build import build
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import search_for_calls

N_PATHS = 30
CPU = load_profile("cpu")


def products(path: ContractionPath, changing: set[int], calls: int) -> int:
    """The multiply-adds of all calls: of steps without a tensor that changes once."""
    tree = build(path)
    changes = [number in changing for number in range(tree.n_leaves)]
    total = 0
    for left, right in tree.children:
        changes.append(changes[left] or changes[right])
        size = tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
        total += size * (calls if changes[-1] else 1)
    return total


def vector_and_matrices(n: int, extent: int) -> Network:
    terms = (("i0",), *((f"i{k}", f"i{k + 1}") for k in range(n)))
    return Network(terms, (f"i{n}",), {f"i{k}": extent for k in range(n + 1)})


def test_matrices_are_multiplied_first_for_many_vectors() -> None:
    n, extent, calls = 12, 64, 100_000
    path = search_for_calls(vector_and_matrices(n, extent), "float64", CPU, [0], calls)
    assert products(path, {0}, calls) == (n - 1) * extent**3 + calls * extent**2


def test_limits_hold_and_paths_are_complete() -> None:
    for seed in range(N_PATHS):
        chance = random.Random(seed)
        network = random_path(seed, 4000).network
        changing = sorted(chance.sample(range(len(network.inputs)), chance.randint(1, len(network.inputs))))
        limit = chance.choice([float("inf"), 64])
        path = search_for_calls(network, "complex64", CPU, changing, chance.choice([1, 7, 1000]), limit)
        assert path.network == network
        assert set(path.sliced_inds) <= set(network.size_dict)
        assert len(build(path).children) == max(len(network.inputs) - 1, 0)
        if limit < float("inf"):
            largest_input = max(
                build(path).extent(tuple(legs)) for legs in build(path).legs[: len(network.inputs)]
            )
            assert 2 ** path_cost(path).log2_largest <= max(limit, largest_input) * 1.001
