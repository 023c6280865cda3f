"""Rank simplification: the same result from fewer, not larger tensors, the same every time."""

from __future__ import annotations

import math

import cotengra
import numpy as np
import pytest

from tests.support.networks import random_path
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.simplify import Simplified, simplify
from tnplan.planner.networks.tensors import random_tensors


def exact(network: Network, arrays: list[np.ndarray]) -> np.ndarray:
    """The result and, in case it is tiny, the einsum of absolute values, both in complex128."""
    return np.asarray(
        cotengra.array_contract(
            [array.astype(np.complex128) for array in arrays],
            network.inputs,
            network.output,
            optimize="greedy",
        )
    )


@pytest.mark.parametrize("seed", range(150))
def test_result_is_unchanged(seed: int) -> None:
    network = random_path(seed).network
    arrays = random_tensors(network, "complex128", seed)
    small, values = simplify(network, arrays)
    assert small.output == network.output
    assert len(small.inputs) <= len(network.inputs)
    largest = max(math.prod(array.shape) for array in arrays)
    assert all(math.prod(array.shape) <= largest for array in values)
    assert [array.shape for array in values] == [small.shape(i) for i in range(len(small.inputs))]
    bound = exact(network, [np.abs(array) for array in arrays]).real
    assert np.all(np.abs(exact(small, values) - exact(network, arrays)) <= 1e-12 * bound)


@pytest.mark.parametrize("seed", range(60))
def test_derivatives_go_back(seed: int) -> None:
    """The network is linear in each tensor: its derivative along a change is the network with the change."""
    network = random_path(seed, 4000).network
    network = Network(network.inputs, (), network.size_dict)
    arrays = random_tensors(network, "complex128", seed)
    wanted = range(seed % 2, len(arrays), 1 + seed % 3)
    simple = Simplified(network, arrays, wanted)
    again, values = simplify(network, arrays)
    assert again == simple.network
    assert all(np.array_equal(one, other) for one, other in zip(values, simple.arrays, strict=True))
    cotangents = {}
    for place in simple.depending:
        others = [term for k, term in enumerate(again.inputs) if k != place]
        rest = [array for k, array in enumerate(values) if k != place]
        term = again.inputs[place]
        cotangents[place] = exact(
            Network((*others, *(() if others else ((),))), term, again.size_dict),
            rest or [np.ones(())],
        )
    found = simple.back(cotangents)
    assert list(found) == [*wanted]
    for number, gradient in found.items():
        change = random_tensors(network, "complex128", seed + 1)[number]
        moved = [change if k == number else array for k, array in enumerate(arrays)]
        expected = complex(exact(network, moved))
        bound = complex(exact(network, [np.abs(array) for array in moved])).real
        assert abs(np.sum(gradient * change) - expected) <= 1e-12 * bound


def test_nothing_is_left_to_merge() -> None:
    chain = Network(
        tuple((f"i{k}", f"i{k + 1}") for k in range(9)), ("i0", "i9"), {f"i{k}": 3 for k in range(10)}
    )
    small, values = simplify(chain, random_tensors(chain, "float64", 0))
    assert small.inputs == (("i0", "i9"),)
    assert values[0].shape == (3, 3)


def test_traces_and_lone_indices_are_summed() -> None:
    network = Network((("a", "a", "b", "c"), ("b",)), (), {"a": 2, "b": 3, "c": 4})
    arrays = random_tensors(network, "float64", 0)
    small, values = simplify(network, arrays)
    assert small.inputs == ((),)
    assert np.allclose(values[0], np.einsum("aabc,b->", *arrays))


def test_open_indices_stay() -> None:
    network = Network((("a", "b"), ("b", "c"), ("d",)), ("c", "a", "d"), {"a": 2, "b": 3, "c": 4, "d": 5})
    small, _ = simplify(network, random_tensors(network, "float64", 0))
    assert {index for term in small.inputs for index in term} >= {"a", "c", "d"}
    assert small.output == ("c", "a", "d")


def test_a_pair_that_would_grow_stays() -> None:
    network = Network((("a", "b", "c"), ("c", "d", "e")), ("a", "b", "d", "e"), dict.fromkeys("abcde", 2))
    small, _ = simplify(network, random_tensors(network, "float64", 0))
    assert small.inputs == network.inputs


def test_scalars_and_disconnected_parts() -> None:
    network = Network(((), ("a",), ("a",), ("b", "c"), ("b", "c"), ()), (), {"a": 2, "b": 3, "c": 4})
    arrays = random_tensors(network, "complex128", 0)
    small, values = simplify(network, arrays)
    assert small.inputs == ((),)
    expected = arrays[0] * arrays[5] * np.einsum("a,a->", *arrays[1:3]) * np.einsum("bc,bc->", *arrays[3:5])
    assert np.allclose(values[0], expected, rtol=1e-14)


def test_deterministic() -> None:
    network = random_path(5).network
    arrays = random_tensors(network, "complex128", 5)
    first, second = simplify(network, arrays), simplify(network, arrays)
    assert first[0] == second[0]
    assert all(np.array_equal(x, y) for x, y in zip(first[1], second[1], strict=True))
