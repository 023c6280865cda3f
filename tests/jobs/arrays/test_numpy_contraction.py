"""Contractions without a schedule: values and rounding in every layout, what suits them, what they refuse."""

from __future__ import annotations

import random
import string
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from tests.support.contraction.plain_calls import check, network_and_path, plain_call
from tests.support.effort import repeats
from tests.support.networks import TOLERANCE, random_path
from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.common.errors import InputError
from tnplan.jobs.arrays import numpy_contraction
from tnplan.jobs.arrays.numpy_contraction import NumpyContraction, direct_contraction, may_be_direct
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensors import random_tensors

CPU = ContractionOptions(device="cpu")
WAYS: dict[str, dict[str, float]] = {
    "as it is faster": {},
    "by BLAS": {"TINY": 0, "LOOPS_CALL_NS": 1e12},
    "by BLAS without copies": {
        "TINY": 0, "LOOPS_CALL_NS": 1e12, "COPY_NS": 1e6, "CALL_NS": 0.0, "PACK_NS": 0.0,
    },
    "by BLAS with copies": {"TINY": 0, "LOOPS_CALL_NS": 1e12, "CALL_NS": 1e6},
    "by loops": {"LOOP_NS": 0.0, "LOOPS_CALL_NS": 0.0},
}


@pytest.mark.parametrize("way", WAYS)
def test_large_plain_calls_equal_numpy(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(numpy_contraction, name, value)
    for seed in range(repeats(40, 120)):
        rng = random.Random(f"{way} {seed}")
        equation, arrays, dtype = plain_call(rng)
        network, path = network_and_path(equation, arrays, rng)
        copies = [array.copy() for array in arrays]
        check(NumpyContraction(network, path).call(*arrays), equation, arrays, dtype)
        assert all(map(np.array_equal, arrays, copies))


def test_large_plain_calls_of_contract_and_compile() -> None:
    for seed in range(60):
        equation, arrays, dtype = plain_call(random.Random(seed))
        check(contract(equation, *arrays, device="cpu"), equation, arrays, dtype)
        with compile_contraction(equation, *arrays, device="cpu") as compiled:
            for _ in range(2):
                check(compiled(*arrays), equation, arrays, dtype)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_paths_equal_numpy(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By BLAS wherever it can."""
    monkeypatch.setattr(numpy_contraction, "LOOPS_CALL_NS", 1e12)
    monkeypatch.setattr(numpy_contraction, "TINY", 0)
    for seed in range(first, first + 20):
        path = random_path(seed, 3000)
        network = path.network
        arrays = random_tensors(network, path.dtype, seed)
        labels = {index: number for number, index in enumerate(network.size_dict)}
        operands: list[Any] = []
        for array, term in zip(arrays, network.inputs, strict=True):
            operands += [array.astype(np.complex128), [labels[index] for index in term]]
        expected = np.asarray(np.einsum(*operands, [labels[index] for index in network.output]))
        result = NumpyContraction(network, path.ssa_path).call(*arrays)
        scale = max(1.0, np.abs(expected).max(initial=0.0))
        assert result.dtype == np.dtype(path.dtype)
        assert np.abs(result - expected).max(initial=0.0) <= TOLERANCE[path.dtype] * scale, seed


@pytest.mark.parametrize("equation", ["i->", "ij->i", "ij->j", "i,i->", "ij,ij->j", "ij,ij->i", "iji->j"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_long_sums_of_equal_signs_round_little(equation: str, dtype: str) -> None:
    """Added one after the other in single precision they would be off by far more."""
    rng = np.random.default_rng(0)
    term, output = equation.partition("->")[0].split(",")[0], equation.partition("->")[2]
    summed = next(label for label in term if label not in output)
    long = 1000 if term.count(summed) == 2 else 300_000
    shape = [long if label == summed else 3 for label in term]
    arrays = [rng.random(shape).astype(dtype) for _ in range(equation.count(",") + 1)]
    wanted = np.einsum(equation, *[array.astype(np.complex128) for array in arrays])
    result = contract(equation, *arrays)
    np.testing.assert_allclose(result, wanted, rtol=5e-6)


@pytest.mark.parametrize("equation", ["ab->", "ab->a", "ab->b", "abc->ac", "aab->b"])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_sums_of_infinities_are_infinite(equation: str, dtype: str) -> None:
    """BLAS multiplies by ones: a complex infinity is no NaN by that."""
    array = np.ones((70,) * equation.index("-"), dtype)
    array.flat[0] = np.inf
    np.testing.assert_array_equal(contract(equation, array), np.einsum(equation, array))


def network_of(equation: str, **extents: int) -> Network:
    """The network of a plain equation."""
    terms, _, output = equation.partition("->")
    return Network(tuple(map(tuple, terms.split(","))), tuple(output), extents)


def test_what_is_contracted_without_a_schedule() -> None:
    product = network_of("ij,jk->ik", i=1000, j=1000, k=1000)
    assert direct_contraction(product, ((0, 1),), "float64", CPU)
    needs = 8 * 5 * 10**6
    assert direct_contraction(product, ((0, 1),), "float64", CPU.changed(memory=2 * needs))
    assert not direct_contraction(product, ((0, 1),), "float64", CPU.changed(memory=needs / 2))
    # Eight tensors whose steps read and write much, and multiply little.
    letters = string.ascii_lowercase[:20]
    state = Network((tuple(letters), *((i, i.upper()) for i in letters[:7])), (), dict.fromkeys(
        (*letters, *letters[:7].upper()), 2))  # fmt: skip
    path = ((0, 1), *((k + 6, k) for k in range(2, 8)))
    assert not direct_contraction(state, path, "float64", CPU)
    assert direct_contraction(product, ((0, 1),), "float64", CPU.changed(threads=1))


@pytest.mark.parametrize(
    "options",
    [{"hardware": "cpu"}, {"strip_exponent": True}, {"devices": 2}, {"device": "gpu"}, {"precision": "fp64"}],
)
def test_options_that_a_schedule_is_for(options: dict[str, Any]) -> None:
    assert may_be_direct(CPU)
    assert not may_be_direct(CPU.changed(**options))


def test_threads_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        counts.append({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
        return x @ y

    matrices = np.ones((4, 100, 100))
    with compile_contraction("bij,bjk->bik", matrices, matrices, threads=1, device="cpu") as compiled:
        monkeypatch.setattr(np, "matmul", matmul)
        contract("bij,bjk->bik", matrices, matrices, threads=1, device="cpu")
        compiled(matrices, matrices)
    assert counts == [{1}, {1}]


def test_compiled_calls_without_a_schedule() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.random((30, 30)) for _ in range(3))
    with compile_contraction("ij,jk,kl->il", a, b, c, device="cpu") as product:
        with pytest.raises(InputError, match="update: comes before the first call"):
            product.update({1: b})
        np.testing.assert_allclose(product(a, b, c), a @ b @ c)
        np.testing.assert_allclose(product.update({1: c}), a @ c @ c)
        np.testing.assert_allclose(product.update({}), a @ c @ c)
        np.testing.assert_allclose(product(a.astype(np.float32), b, c), a.astype(np.float32) @ b @ c)
        np.testing.assert_allclose(product.update({0: a}), a @ b @ c)
        np.testing.assert_allclose(product(a.T, b[::-1], c), a.T @ b[::-1] @ c)
        with pytest.raises(InputError, match="array 1: has shape"):
            product(a, b[:-1], c)
        with pytest.raises(InputError, match="array 1: has dtype complex128, and would be rounded"):
            product(a, b + 0j, c)
        value, (gradient,) = product.vjp((a, b, c), np.ones((30, 30)), wrt=[1])
        np.testing.assert_allclose(value, a @ b @ c)
        np.testing.assert_allclose(gradient, a.T @ np.ones((30, 30)) @ c.T)
    with pytest.raises(InputError, match="is closed"):
        product(a, b, c)
