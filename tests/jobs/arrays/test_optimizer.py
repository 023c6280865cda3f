"""`Optimizer` in quimb, cotengra and opt_einsum: the same values, and slices where they know them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import cotengra
import numpy as np
import opt_einsum
import pytest

from tests.support.networks import random_path
from tnplan.calls.optimizer import Optimizer
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_cache import FOLDER_VARIABLE
from tnplan.planner.networks.tensors import random_tensors
from tnplan.planner.search import search_in_proportion
from tnplan.planner.search.cotengra_search import search_path
from tnplan.planner.search.search_options import SearchOptions

quimb = pytest.importorskip("quimb", reason="needs quimb")
qtn = pytest.importorskip("quimb.tensor", reason="needs quimb")

CHAIN = "ab,bc,cd,de,ef->af"


def circuit(n: int) -> Any:
    """Layers of rotations and controlled phases."""
    made = qtn.Circuit(n)
    for layer in range(4):
        for qubit in range(n):
            made.apply_gate("RX", 0.3 * qubit + layer, qubit)
        for qubit in range(layer % 2, n - 1, 2):
            made.apply_gate("CZ", qubit, qubit + 1)
    return made


def test_quimb_contracts_a_network() -> None:
    network = qtn.TN2D_rand(4, 4, 3, seed=1)
    assert network.contract(optimize=Optimizer()) == pytest.approx(
        network.contract(optimize="greedy"), rel=1e-10
    )


def test_quimb_asks_a_circuit() -> None:
    made, bits = circuit(10), "0110100110"
    wanted = made.amplitude(bits, optimize="greedy")
    assert made.amplitude(bits, optimize=Optimizer()) == pytest.approx(wanted, rel=1e-5)
    z = quimb.pauli("Z")
    found = made.local_expectation(z, 4, optimize=Optimizer())
    assert found == pytest.approx(made.local_expectation(z, 4, optimize="greedy"), abs=1e-5)


def test_cotengra_contracts_random_networks() -> None:
    rng = random.Random(0)
    for seed in range(20):
        network = random_path(seed, 2000).network
        arrays = random_tensors(network, "complex128", seed)
        names = {index: cotengra.get_symbol(number) for number, index in enumerate(network.size_dict)}
        terms = [tuple(names[index] for index in dict.fromkeys(term)) for term in network.inputs]
        diagonals = [
            np.einsum(array, [list(dict.fromkeys(term)).index(i) for i in term], list(range(len(set(term)))))
            for array, term in zip(arrays, network.inputs, strict=True)
        ]
        output = tuple(names[index] for index in network.output)
        wanted = cotengra.array_contract(diagonals, terms, output, optimize="greedy")
        optimizer = Optimizer(seed=rng.randrange(100), dtype="complex128")
        found = cotengra.array_contract(diagonals, terms, output, optimize=optimizer)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_cotengra_slices_within_the_limit() -> None:
    network = qtn.TN2D_rand(5, 5, 3, seed=2)
    names: dict[str, str] = {}
    terms = [tuple(names.setdefault(i, cotengra.get_symbol(len(names))) for i in one.inds) for one in network]
    sizes = {names[index]: size for index, size in network.ind_sizes().items()}
    tree = Optimizer(time=1.0, max_tensor=81).search(terms, (), sizes)
    assert tree.sliced_inds
    assert tree.max_size() <= 81
    found = tree.contract([one.data for one in network])
    assert found == pytest.approx(network.contract(optimize="greedy"), rel=1e-8)


def test_few_tensors_and_searches_that_were_made_take_no_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    searches: list[float] = []

    def counted(network: Network, dtype: str, options: SearchOptions) -> ContractionPath:
        searches.append(options.effort.time_s)
        return search_path(network, dtype, options)

    monkeypatch.setattr(search_in_proportion, "search_path", counted)
    network = qtn.TN2D_rand(4, 4, 3, seed=1)
    small = Optimizer(time=1e6)(["ab", "bc", "cd", "de", "ef"], "af", dict.fromkeys("abcdef", 3))
    assert len(small) == 4
    assert searches == []
    costs = [network.contraction_cost(optimize=Optimizer(time=time_s)) for time_s in (0.3, 0.3, 0.2, 0.5)]
    assert searches == [0.3, 0.5]
    assert costs == sorted(costs, reverse=True)


def test_rounds_give_the_same_tree_and_leave_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    terms = [tuple(one.inds) for one in qtn.TN2D_rand(4, 4, 3, seed=1)]
    sizes = {index: 3 for term in terms for index in term}
    paths = [Optimizer(rounds=2, seed=seed)(terms, (), sizes) for seed in (1, 1)]
    assert paths[0] == paths[1]
    assert [*tmp_path.iterdir()] == []


def test_opt_einsum() -> None:
    arrays = [np.random.default_rng(seed).random((4, 4)) for seed in range(5)]
    found = opt_einsum.contract(CHAIN, *arrays, optimize=Optimizer())
    np.testing.assert_allclose(found, np.linalg.multi_dot(arrays))
