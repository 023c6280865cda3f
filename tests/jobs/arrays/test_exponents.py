"""Exponents: values beyond the range of the dtype, against exact results and double precision."""

from __future__ import annotations

import random
from dataclasses import replace
from math import cosh, inf, log10, sinh

import numpy as np
import pytest

from tests.support.networks import TOLERANCE, random_path
from tnplan import plan
from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensors import random_tensors

N_PATHS = 40
CPU = ContractionOptions(device="cpu")


def ising_ring(n: int, beta: float, dtype: str) -> tuple[Network, list[np.ndarray], float]:
    """The partition function of a ring of n spins, its matrices, and log10 of the exact value."""
    terms = tuple((f"i{k}", f"i{(k + 1) % n}") for k in range(n))
    matrix = np.exp(beta * np.array([[1.0, -1.0], [-1.0, 1.0]])).astype(dtype)
    first, second = n * log10(2 * cosh(beta)), n * log10(2 * sinh(abs(beta)))
    exact = first + log10(1 + 10 ** (second - first))
    return Network(terms, (), {f"i{k}": 2 for k in range(n)}), [matrix] * n, exact


@pytest.mark.parametrize(("beta", "dtype"), [(0.44, "float64"), (0.44, "float32"), (2.0, "float32")])
def test_a_large_ring(beta: float, dtype: str) -> None:
    network, matrices, exact = ising_ring(2000, beta, dtype)
    mantissa, exponent = contract(network, *matrices, optimize="greedy", strip_exponent=True)
    assert 0.5 <= mantissa < 1
    assert log10(mantissa) + exponent == pytest.approx(exact, abs=1e-9 if dtype == "float64" else 1e-3)


def test_a_small_value() -> None:
    network, matrices, exact = ising_ring(1500, 0.44, "float64")
    tiny = [matrix * 1e-3 for matrix in matrices]
    mantissa, exponent = contract(network, *tiny, optimize="greedy", strip_exponent=True)
    assert log10(mantissa) + exponent == pytest.approx(exact - 4500, abs=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30, 0.0])
def test_random_networks_equal_those_without_exponents(scale: float) -> None:
    """Slices and early sums too; float32 tensors of 1e30 overflow without exponents."""
    rng = random.Random(0)
    for seed in range(N_PATHS):
        path = random_path(seed, 4000)
        dtype = rng.choice(["float32", "complex64"])
        network = path.network
        arrays = random_tensors(network, dtype, seed)
        wide = plan(ContractionPath(network, path.ssa_path, path.sliced_inds, "complex128"), memory=inf)
        narrow = plan(ContractionPath(network, path.ssa_path, path.sliced_inds, dtype), memory=inf)
        with CompiledContraction(wide, CPU) as exact:
            wanted = exact(*arrays)
        scaled = [array * np.array(scale, array.dtype) for array in arrays]
        with CompiledContraction(narrow, replace(CPU, strip_exponent=True)) as stripped:
            for _ in range(2):
                mantissa, exponent = stripped(*scaled)
        if scale == 0:
            assert not np.any(mantissa)
            assert exponent == 0
            continue
        factor = 10.0 ** (exponent - len(arrays) * log10(scale))
        largest = np.abs(wanted).max()
        limit = 100 * TOLERANCE[dtype] * largest + 1e-6
        np.testing.assert_allclose(mantissa * factor, wanted, rtol=0, atol=limit)


def test_slices_of_very_different_size() -> None:
    """What a slice adds is neither lost nor too large: 10^-200, 10^200 and 1 in double precision."""
    network = Network((("s",), ("s", "a"), ("a",)), (), {"s": 3, "a": 2})
    path = ContractionPath(network, ((1, 2), (0, 3)), ("s",), "float64")
    large = np.array([1e-200, 1e200, 1.0])
    matrix = np.array([[1e-200, 0.0], [1e200, 1e200], [1.0, 1.0]])
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        arrays = [large[order], matrix[order], np.array([1.0, 1.0])]
        mantissa, exponent = contract(path, *arrays, strip_exponent=True)
        assert log10(mantissa) + exponent == pytest.approx(400 + log10(2))


def test_updates_keep_exponents() -> None:
    network, matrices, exact = ising_ring(900, 1.5, "float64")
    with compile_contraction(network, dtype="float64", keep=True, strip_exponent=True) as ring:
        ring(*matrices)
        mantissa, exponent = ring.update({7: matrices[7] * 1e250})
        assert log10(mantissa) + exponent == pytest.approx(exact + 250, abs=1e-9)
        mantissa, exponent = ring.update({7: matrices[7]})
        assert log10(mantissa) + exponent == pytest.approx(exact, abs=1e-9)


def test_values_that_are_not_finite_stay_so() -> None:
    matrices = [np.array([[np.inf, 1.0], [1.0, 1.0]]), np.ones((2, 2))]
    assert np.isinf(contract("ab,ba->", *matrices, strip_exponent=True)[0])
