"""Small arrays, which NumPy contracts alone: values, layouts, what is remembered, and what stays apart."""

from __future__ import annotations

import gc
import random
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.first_call import read_by_a_first_call
from tests.support.networks import TOLERANCE
from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.common.errors import InputError
from tnplan.jobs.arrays import contracted
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_path

MOST_FILES = 60
N_THREADS = 8
PRODUCTS = (
    "ij,jk->ik", "ij,jk->ki", "ji,kj->ik", "ij,ij->", "i,j->ji", "bij,bjk->bik", "bij,bjk->kbi", "ij,ij->ij",
    "aij,jbk->kiab", "ijk,jki->", "ii,ij->j", "ij,kl->ik", "ij,i->i", "ijk,kl->lji",
)  # fmt: skip


def values(equation: str, extents: dict[str, int], dtype: str, seed: int) -> list[np.ndarray]:
    """An array for each term."""
    generator = np.random.default_rng(seed)
    shapes = [tuple(extents[label] for label in term) for term in equation.partition("->")[0].split(",")]
    real = [generator.standard_normal(shape) for shape in shapes]
    if dtype.startswith("complex"):
        real = [one + 1j * generator.standard_normal(one.shape) for one in real]
    return [one.astype(dtype) for one in real]


def wanted(equation: str, arrays: list[np.ndarray]) -> np.ndarray:
    """The contraction in double precision."""
    return np.asarray(np.einsum(equation, *(one.astype(np.complex128) for one in arrays)))


def in_another_layout(array: np.ndarray, kind: int) -> np.ndarray:
    """The same values: in Fortran's order, strided, backwards, not aligned, or read only."""
    if kind == 0 or not array.ndim:
        return np.asfortranarray(array)
    if kind == 1:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if kind == 2:
        return np.ascontiguousarray(array[::-1])[::-1]
    if kind == 3:
        block = np.empty(array.nbytes + 1, np.uint8)[1:]
        moved = block.view(array.dtype).reshape(array.shape)
        moved[...] = array
        return moved
    fixed = array.copy()
    fixed.flags.writeable = False
    return fixed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [4, 9, 17])
def test_products_equal_numpy_in_every_layout(dtype: str, largest: int) -> None:
    for seed, equation in enumerate(PRODUCTS):
        chance = random.Random(1000 * largest + seed)
        extents = {label: chance.randint(1, largest) for label in equation if label.isalpha()}
        arrays = values(equation, extents, dtype, seed)
        expected = wanted(equation, arrays)
        scale = max(1.0, np.abs(expected).max(initial=0.0))
        for kind in range(-1, 5):
            given = arrays if kind < 0 else [in_another_layout(one, kind) for one in arrays]
            found = contract(equation, *given)
            assert isinstance(found, np.ndarray)
            assert (found.dtype, found.shape) == (np.dtype(dtype), expected.shape), equation
            assert found.flags.writeable
            assert np.abs(found - expected).max(initial=0.0) <= TOLERANCE[dtype] * scale, (equation, extents)


def test_single_and_mixed_dtypes() -> None:
    half = np.linspace(0, 1, 20, dtype=np.float16).reshape(4, 5)
    swapped, single = half.astype(">f8"), half.astype(np.float32)
    for first, second in ((half, half), (half, single), (swapped, swapped), (swapped, single)):
        found = contract("ij,kj->ik", first, second)
        assert found.dtype == np.result_type(first, second)
        np.testing.assert_allclose(found, first.astype(float) @ second.astype(float).T, rtol=2e-3)
    found = contract("ij,kj->ik", np.arange(20).reshape(4, 5), single)
    assert found.dtype == np.float64


class Named(np.ndarray):
    """A subclass of another library than NumPy."""


class WithUnits(Named):
    """One with an arithmetic of its own."""

    def __array_ufunc__(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("its arithmetic is not used")


def test_subclasses_and_lists_give_plain_arrays() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    masked, record = np.ma.masked_array(a), a.view(np.recarray)
    for given in ((masked, b), (record, b), (a.view(Named), b), (a.tolist(), b), (a.tolist(), b.tolist())):
        found = contract("ij,jk->ik", *given)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, a @ b)
    with pytest.raises(InputError, match="are of tests, which tnplan cannot return; give NumPy arrays"):
        contract("ij,jk->ik", a.view(WithUnits), b)
    assert contract(",i->i", 2.0, [1.0, 2.0]).tolist() == [2.0, 4.0]
    assert contract("i,i->", [1, 2], [3, 4]).dtype == np.int64


@pytest.mark.parametrize("dtype", ["float64", "complex64", "float16", "int64", "bool"])
@pytest.mark.parametrize("equation", ["ii->", "ij->j", "ij,jk->ik", "ij,jk->ki", "i,ij->ij"])
def test_results_share_no_memory(equation: str, dtype: str) -> None:
    extents = dict.fromkeys("ijk", 7)
    arrays = [np.abs(one).astype(dtype) for one in values(equation, extents, "float64", 0)]
    copies = [one.copy() for one in arrays]
    results = [contract(equation, *arrays) for _ in range(3)]
    expected = results[0].copy()
    for number, found in enumerate(results):
        assert not any(np.shares_memory(found, one) for one in (*arrays, *results[:number]))
        found[...] = 0
        assert all(map(np.array_equal, arrays, copies))
        np.testing.assert_array_equal(contract(equation, *arrays), expected)
    kept = contract(equation, *arrays)
    for one in arrays:
        one[...] = 0
    np.testing.assert_array_equal(kept, expected)
    assert not contract(equation, *arrays).any()


@pytest.mark.parametrize("dtype", ["float64", "complex64", "float16", "int64", "bool"])
@pytest.mark.parametrize("equation", ["ij->ij", "ij->ji", "ii->i", "ijj->ij", "iijj->ji", "...j->j..."])
def test_nothing_summed_is_a_view_as_in_numpy(equation: str, dtype: str) -> None:
    """It may be written where the array may."""
    n_axes = len(equation.partition("->")[0].replace("...", "i"))
    array = np.arange(5**n_axes).reshape((5,) * n_axes).astype(dtype)
    for kind in range(-1, 5):
        operand = array.copy() if kind < 0 else in_another_layout(array, kind)
        expected = np.einsum(equation, operand)
        # A call of another extent, or of a compiled contraction, is as good as the first.
        results = [contract(equation, operand), contract(equation, operand, device="cpu", threads=1)]
        if dtype in DTYPES:
            with compile_contraction(equation, operand) as compiled:
                results.append(compiled(operand))
        for result in results:
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == operand.dtype
            assert np.shares_memory(result, operand)
            assert result.flags.writeable is operand.flags.writeable


def test_changing_arrays_are_told_apart() -> None:
    """The same equation with other extents, dtypes, layouts and axes that are broadcast, in turn."""
    for seed in range(200):
        chance = random.Random(seed)
        dtype, extents = chance.choice(DTYPES), {label: chance.randint(1, 4) for label in "ijk"}
        arrays = values("ij,jk->ik", extents, dtype, seed)
        if chance.random() < 0.3:
            arrays[0] = arrays[0][:, :1]
        arrays = [in_another_layout(one, chance.randrange(5)) for one in arrays]
        expected = (np.broadcast_to(arrays[0], (extents["i"], extents["j"])) @ arrays[1]).astype(dtype)
        found = contract("ij,jk->ik", *arrays)
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_threads_at_once() -> None:
    equations = ["ij,jk->ik", "ij,jk,kl->il", "ij,ij->", "ij->ji", "ij,jk->ki", "ij,jk,ki->"]
    cases = []
    for seed in range(48):
        equation, extents = equations[seed % len(equations)], dict.fromkeys("ijkl", 2 + seed % 5)
        arrays = values(equation, extents, DTYPES[seed % 4], seed)
        cases.append((equation, arrays, wanted(equation, arrays)))
    contracted.forget()

    def work(number: int) -> float:
        worst = 0.0
        for turn in range(100):
            equation, arrays, expected = cases[(7 * number + turn) % len(cases)]
            found = contract(equation, *arrays)
            worst = max(worst, float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max())))
            found[...] = np.nan
        return worst

    with ThreadPoolExecutor(N_THREADS) as pool:
        assert max(pool.map(work, range(N_THREADS))) < 1e-5


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij->ji", "ij,jk,kl->il"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int64"])
def test_arrays_are_not_kept_alive(equation: str, dtype: str) -> None:
    arrays = [one.astype(dtype) for one in values(equation, dict.fromkeys("ijkl", 3), "float64", 0)]
    found = contract(equation, *arrays)
    watched = [weakref.ref(one) for one in (*arrays, found)]
    del arrays, found
    gc.collect()
    assert not any(one() is not None for one in watched)


def test_so_many_calls_areremembered() -> None:
    contracted.forget()
    for extent in range(1, contracted.REMEMBERED + 20):
        assert contract("i->", np.ones(extent)) == extent
    assert contracted.remembered.cache_info().currsize == contracted.REMEMBERED
    contracted.forget()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": True}, "devices: is True"),
        ({"devices": 1.0}, "devices: is 1.0"),
        ({"devices": [1]}, r"devices: is \[1\]"),
        ({"threads": True}, "threads: is True"),
        ({"memory": "none"}, "memory"),
        ({"memory": 0}, "memory"),
        ({"memory": "8B"}, "memory: leaves room|memory: is 8"),
        ({"device": "tpu"}, "device: 'tpu' is unknown"),
        ({"precision": "fp8"}, "precision"),
        ({"hardware": "abacus"}, "abacus"),
    ],
)
def test_what_is_remembered_refuses_other_options(options: dict[str, Any], message: str) -> None:
    a, b = np.ones((4, 5)), np.ones((5, 6))
    for _ in range(2):
        assert np.all(contract("ij,jk->ik", a, b) == 5)
        assert np.all(contract("ij,jk->ik", a, b, devices=1, threads=1, device="cpu") == 5)
        with pytest.raises(InputError, match=message):
            contract("ij,jk->ik", a, b, **options)


def test_what_is_remembered_refuses_other_arrays() -> None:
    a, b = np.ones((4, 5)), np.ones((5, 6))
    for _ in range(2):
        contract("ij,jk->ik", a, b)
        with pytest.raises(InputError, match="operand 1: index 'j' has the extents 5 and 4"):
            contract("ij,jk->ik", a, np.ones((4, 6)))
        with pytest.raises(InputError, match="has 2 terms for 3 operands"):
            contract("ij,jk->ik", a, b, b)
        with pytest.raises(InputError, match="has the index 'i' 2 times in its output"):
            contract("ij,jk->ii", a, b)
        with pytest.raises(InputError, match="arrays: have dtype <U1"):
            contract("ij,jk->ik", a.astype("<U1"), b.astype("<U1"))


def test_a_file_is_read_in_each_call(tmp_path: Path) -> None:
    file = str(tmp_path / "path.json")
    for extent in (2, 3):
        network = Network((("a", "b"), ("b",)), ("a",), {"a": extent, "b": 4})
        save_path(ContractionPath(network, ((0, 1),), (), "float64"), Path(file))
        assert contract(file, np.ones((extent, 4)), np.ones(4)).tolist() == [4.0] * extent


def test_lists_of_labels_and_networks_are_remembered_by_their_terms() -> None:
    a, b = np.random.default_rng(0).random((4, 5)), np.random.default_rng(1).random((5, 6))
    network = Network((("a", "b"), ("b", "c")), ("c", "a"), {"a": 4, "b": 5, "c": 6})
    for _ in range(2):
        np.testing.assert_allclose(contract(a, [0, 1], b, [1, 2], [2, 0]), (a @ b).T)
        np.testing.assert_allclose(contract(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
        np.testing.assert_allclose(contract(network, a, b), (a @ b).T)


def test_a_first_call_reads_few_files() -> None:
    modules, entered = read_by_a_first_call()
    assert 10 < entered <= MOST_FILES
    assert modules <= MOST_FILES
