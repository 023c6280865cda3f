"""Greedy paths of small networks: whole, about as cheap as cotengra's, and made without it."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest

import tnplan
from tests.support.networks import agrees, random_arrays, random_path
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.network import Network
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import FEW_TENSORS, greedy_path

MOST_DIGITS = 0.1
"""How many digits dearer than cotengra's paths ours may be in the mean."""


def random_network(seed: int) -> Network:
    """Hyper-indices, open ones, parts that share nothing, and lone tensors."""
    chance = random.Random(seed)
    n = chance.randint(1, FEW_TENSORS)
    inputs: list[list[str]] = [[] for _ in range(n)]
    names = [f"i{k}" for k in range(max(1, int(n * chance.uniform(1, 2.2))))]
    for name in names:
        for number in chance.sample(range(n), min(n, chance.choice((1, 2, 2, 2, 2, 3)))):
            inputs[number].append(name)
    output = chance.sample(names, min(len(names), chance.randint(0, 3)))
    extents = {name: chance.choice((2, 3, 4)) for name in names}
    return Network(tuple(map(tuple, inputs)), tuple(output), extents)


def test_small_paths_are_about_as_cheap_as_those_of_cotengra() -> None:
    from cotengra import array_contract_path

    dearer = []
    for seed in range(60):
        network = random_network(seed)
        theirs = array_contract_path(
            network.inputs, network.output, network.size_dict, optimize="greedy", cache=False
        )
        steps = ssa_from_linear([tuple(map(int, step)) for step in theirs], len(network.inputs))
        costs = [
            path_cost(ContractionPath(network, path, (), "complex64")).log10_mnk_all_slices
            for path in (greedy_path(network), steps)
        ]
        dearer.append(costs[0] - costs[1])
    assert mean(dearer) < MOST_DIGITS


@pytest.mark.parametrize("seed", range(12))
def test_small_paths_give_the_value_of_the_network(seed: int) -> None:
    path = random_path(seed)
    assert len(path.network.inputs) <= FEW_TENSORS
    arrays = random_arrays(path, seed)
    found = tnplan.contract(replace(path, ssa_path=greedy_path(path.network)), *arrays, device="cpu")
    agrees(np.asarray(found), path, arrays)


def test_a_small_contraction_imports_neither_cotengra_nor_numba() -> None:
    text = (
        "import sys, numpy as np, tnplan; "
        "tnplan.contract('ab,bc,cd->ad', *np.ones((3, 4, 4)), device='cpu'); "
        "print(sorted({'cotengra', 'numba', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
