"""`contract` against numpy.einsum, for every syntax, dtype and kind of network."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import cotengra
import numpy as np
import pytest

from tests.support.contraction.random_calls import Call, check, libraries, random_call
from tests.support.kernels.gpus import needs_gpus
from tests.support.networks import random_path
from tests.support.slow import slow_after
from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.calls.optimizer import Optimizer
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.arrays import with_dtype
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers import from_cotengra
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.networks.tensors import random_tensors


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("numbers", slow_after(1, [range(200), range(200, 1000)]))
def test_random_calls_are_right_or_refused(numbers: range) -> None:
    ways, counts = libraries(), Counter[str]()
    for number in numbers:
        call = random_call(random.Random(f"tests/{number}"), *ways)
        try:
            counts[check(call)] += 1
        except Exception as error:
            raise AssertionError(f"call {number} of {call}") from error
    assert counts["right"] > 0.6 * len(numbers)
    assert counts["refused, as it has to be"] > 0.1 * len(numbers)


def test_a_wrong_result_is_seen() -> None:
    """The comparison of the random calls: each fault of a result is one."""
    call = Call([], [np.ones(2, np.float32)], "a->a", [np.ones(2, np.float32)])
    call.arguments = [call.equation, *call.operands]
    assert check(call) == "right"
    for values in (np.ones(2), np.ones(3, np.float32), np.full(2, 1 + 1e-4, np.float32)):
        call.arguments = ["a->a", values]
        with pytest.raises(AssertionError):
            check(call)
    call.arguments, call.is_wrong = ["a->a", *call.operands], True
    with pytest.raises(AssertionError, match="was to be refused"):
        check(call)
    call.arguments, call.is_wrong = ["ab->a", *call.operands], False
    with pytest.raises(AssertionError, match="was refused"):
        check(call)


def test_interleaved_lists() -> None:
    a, b = np.random.default_rng(0).random((2, 3)), np.random.default_rng(1).random((3, 4))
    np.testing.assert_allclose(contract(a, ["i", "k"], b, ["k", "j"], ["j", "i"]), (a @ b).T)
    listed = a.tolist(), ["i", "k"], b.tolist(), ["k", "j"]
    np.testing.assert_allclose(contract(*listed), a @ b)
    np.testing.assert_allclose(contract(*listed, ["j", "i"]), (a @ b).T)
    labels = [np.array(one) for one in ([0, 1], [1, 2], [2, 0])]
    np.testing.assert_allclose(contract(a, labels[0], b, labels[1], labels[2]), (a @ b).T)
    assert contract(2.0, [], [3.0, 4.0], ["i"], ["i"]).tolist() == [6.0, 8.0]


def test_extents_of_zero() -> None:
    with pytest.raises(InputError, match=r"shapes: index 'a' has extent 0.*; use tnplan.contract"):
        compile_contraction("ab,bc->ac", (0, 2), (2, 3), dtype="float64")
    assert contract("ab,bc->ac", np.zeros((2, 0)), np.zeros((0, 3))).tolist() == [[0.0] * 3] * 2
    assert contract("ab,bc->ac", np.zeros((0, 2)), np.zeros((2, 3))).shape == (0, 3)


def test_a_single_operand() -> None:
    cube = np.arange(27.0).reshape(3, 3, 3)
    for equation in ("iij->j", "ijk->kji", "ijk->", "iii->i"):
        np.testing.assert_allclose(contract(equation, cube), np.einsum(equation, cube))
    assert contract("->", np.float64(3.0)) == 3.0


def test_networks_paths_and_files(tmp_path: Path) -> None:
    network = Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"), {"a": 2, "b": 3, "c": 4, "d": 5})
    arrays = random_tensors(network, "float64", 0)
    wanted = np.linalg.multi_dot(arrays)
    path = ContractionPath(network, ((1, 2), (0, 3)), ("b",), "float64")
    save_path(path, tmp_path / "path.json")
    for given in (network, path, tmp_path / "path.json", str(tmp_path / "path.json")):
        np.testing.assert_allclose(contract(given, *arrays), wanted)
        np.testing.assert_allclose(contract(given, *(array.tolist() for array in arrays)), wanted)


def test_a_path_of_complex64_takes_float64_as_it_is() -> None:
    """The dtype of the arrays counts: values are never rounded to that of a path."""
    network = Network((("a",), ("a",)), (), {"a": 2})
    path = ContractionPath(network, ((0, 1),), (), "complex64")
    tiny = 1 + 1e-12
    assert contract(path, np.array([tiny, 0.0]), np.ones(2)) == tiny


@pytest.mark.filterwarnings("error")
def test_real_arrays_in_a_complex_schedule_give_real_results() -> None:
    from tnplan import plan

    network = Network((("a",), ("a",)), (), {"a": 2})
    schedule = plan(ContractionPath(network, ((0, 1),), (), "complex64"))
    found = contract(schedule, np.ones(2, np.float32), np.ones(2, np.float32))
    assert found == 2
    assert found.dtype == np.float32


def test_a_schedule_takes_arrays_of_its_own_dtype() -> None:
    from tnplan import plan

    network = Network((("a",), ("a",)), (), {"a": 2})
    schedule = plan(ContractionPath(network, ((0, 1),), (), "float32"))
    assert contract(schedule, np.ones(2, np.float32), np.ones(2, np.float32)) == 2


@pytest.mark.parametrize(
    "optimize", ["auto", True, False, None, "greedy", "optimal", [(0, 1), (0, 1)], ((1, 2), (0, 1))]
)
def test_ways_to_a_path(optimize: Any) -> None:
    arrays = [np.random.default_rng(seed).random((3, 3)) for seed in range(3)]
    found = contract("ab,bc,cd->ad", *arrays, optimize=optimize)
    np.testing.assert_allclose(found, np.linalg.multi_dot(arrays))


def test_random_networks() -> None:
    for seed in range(20):
        network = random_path(seed, 2000).network
        arrays = random_tensors(network, "complex128", seed)
        labels = {index: number for number, index in enumerate(network.size_dict)}
        arguments: list[Any] = []
        for array, term in zip(arrays, network.inputs, strict=True):
            arguments += [array, [labels[index] for index in term]]
        wanted = np.einsum(*arguments, [labels[index] for index in network.output])
        np.testing.assert_allclose(contract(network, *arrays), wanted, rtol=1e-9, atol=1e-12)


class Foreign:
    """An array of a library that is known by DLPack alone."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.dtype, self.shape = values, values.dtype, values.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose `from_dlpack` makes such arrays."""
    module = ModuleType("foreign")
    module.__dict__["from_dlpack"] = lambda values: Foreign(np.from_dlpack(values))
    monkeypatch.setitem(sys.modules, "foreign", module)
    monkeypatch.setattr(Foreign, "__module__", "foreign.arrays")
    return module


def test_another_library_gets_its_arrays_back(foreign: ModuleType) -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    found = contract("ab,b->a", Foreign(a), b)
    assert isinstance(found, Foreign)
    np.testing.assert_array_equal(found.values, a @ b)


def test_two_libraries_are_refused(foreign: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Foreign):
        pass

    monkeypatch.setattr(Other, "__module__", "other")
    with pytest.raises(InputError, match="array 1: is of other, and array 0 of foreign"):
        contract("a,a", Foreign(np.ones(2)), Other(np.ones(2)))


JAX_ARRAYS = """
import jax, numpy as np, tnplan
a = jax.numpy.arange(6.0).reshape(2, 3)
found = tnplan.contract("ab,cb->ac", a, jax.numpy.ones((2, 3), np.float32))
assert isinstance(found, jax.Array)
np.testing.assert_allclose(found, np.asarray(a) @ np.ones((3, 2)))
"""


@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
def test_jax() -> None:
    """In a process of its own: where JAX is loaded, later tests may not fork."""
    subprocess.run([sys.executable, "-c", JAX_ARRAYS], check=True, timeout=120)


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    a = torch.arange(6.0).reshape(2, 3)
    found = contract("ab,cb->ac", a, torch.ones(2, 3).conj())
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, a @ torch.ones(3, 2))
    contract("ab->a", a.requires_grad_())[0].backward()
    torch.testing.assert_close(a.grad, torch.tensor([[1.0, 1, 1], [0, 0, 0]]))


def test_dtypes_of_results() -> None:
    single = np.ones(2, np.float32)
    assert with_dtype(single, np.dtype(np.float32)) is single
    assert with_dtype(single, np.dtype(np.float16)).dtype == np.float16


def test_dtypes_of_results_in_torch() -> None:
    torch = pytest.importorskip("torch")
    half = torch.ones(2, 2, dtype=torch.float16)
    assert contract("ab,bc->ac", half, half).dtype == torch.float16
    assert with_dtype(torch.ones(2), np.dtype(np.float16)).dtype == torch.float16


@needs_gpus(1)
def test_halves_on_a_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    half = cupy.ones((2, 2), np.float16)
    assert contract("ab,bc->ac", half, half).dtype == np.float16


def test_quimb_networks() -> None:
    quimb = pytest.importorskip("quimb.tensor")
    network = quimb.TN2D_rand(3, 3, 2, seed=0)
    np.testing.assert_allclose(contract(network), network.contract(), rtol=1e-10)


def test_integers_beyond_float64_are_exact() -> None:
    big = np.array([2**53 + 1, 1])
    assert contract("a,a", big, np.array([1, 0])) == 2**53 + 1
    assert contract("a,a", np.array([2**40]), np.array([2**20])) == 2**60


@pytest.mark.parametrize(
    "optimize",
    [
        "auto", True, "greedy", [(0, 1), (0, 1), (0, 1)], np.array([(0, 1), (0, 1), (0, 1)]),
        ["einsum_path", (0, 1), (0, 1), (0, 1)], Optimizer(max_tensor=1000),
        cotengra.HyperOptimizer(
            methods=["greedy"], max_repeats=4, parallel=False, slicing_opts={"target_size": 100}
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("memory", ["40kB", "60kB"])
def test_paths_are_sliced_for_the_memory(optimize: Any, memory: str) -> None:
    equation = "abx,bcy,caz,xyz->"
    arrays = [np.random.default_rng(seed).random((10, 10, 10)) for seed in range(4)]
    found = contract(equation, *arrays, memory=memory, optimize=optimize, device="cpu")
    np.testing.assert_allclose(found, np.einsum(equation, *arrays, optimize=True))


def lattice_and_tree() -> tuple[Network, list[np.ndarray], Any, Any]:
    """A network whose tensors grow on the way, its arrays and result, and a tree of cotengra."""
    network = Network(
        (("a", "b", "x"), ("b", "c", "y"), ("c", "a", "z"), ("x", "y", "z")), (), dict.fromkeys("abcxyz", 10)
    )
    arrays = random_tensors(network, "float64", 3)
    tree = cotengra.array_contract_tree(network.inputs, (), network.size_dict, optimize="greedy")
    return network, arrays, np.einsum("abx,bcy,caz,xyz->", *arrays, optimize=True), tree


def test_a_tree_is_sliced_for_the_memory_and_takes_the_dtype_of_the_arrays() -> None:
    network, arrays, wanted, tree = lattice_and_tree()
    path = from_cotengra(tree)
    for given in (tree, path):
        for dtype, rtol in (("float64", 1e-12), ("complex64", 1e-4)):
            typed = [array.astype(dtype) for array in arrays]
            for options in ({"memory": "40kB"}, {}):
                found = contract(given, *typed, device="cpu", **options)
                assert found.dtype == dtype
                np.testing.assert_allclose(found, wanted, rtol=rtol)
            with compile_contraction(given, *typed, device="cpu", memory="40kB") as compiled:
                assert compiled(*typed).dtype == dtype
                assert compiled.schedule.n_slices > 1
    with pytest.raises(InputError, match=r"memory|more than the limit"):
        contract(tree, *arrays, memory="10kB", device="cpu")
    with pytest.raises(InputError, match="dtype: is missing"):
        compile_contraction(tree)
    np.testing.assert_allclose(contract(network, *arrays, optimize=path), wanted)
    with pytest.raises(InputError, match="optimize: is the path of another network"):
        contract("ab,bc->ac", np.ones((2, 2)), np.ones((2, 2)), optimize=path)


@pytest.mark.parametrize("optimize", ["auto", "greedy", False, [(0, 1), (0, 1), (0, 1)]])
def test_integers_and_objects_are_exact_in_slices(optimize: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 10, (8, 8, 8)) for _ in range(4)]
    wanted = np.einsum("abx,bcy,caz,xyz->", *arrays, optimize=True)
    for dtype in (int, object):
        typed = [array.astype(dtype) for array in arrays]
        for options in ({"memory": "20kB"}, {}):
            found = contract("abx,bcy,caz,xyz->", *typed, optimize=optimize, **options)
            assert found == wanted
            assert found.dtype == dtype


@dataclass(frozen=True)
class Remainder:
    """A number modulo 7, which is no number of Python's, as symbols are not."""

    value: int
    is_commutative = True

    def __add__(self, other: Remainder | int) -> Remainder:
        return Remainder((self.value + getattr(other, "value", other)) % 7)

    __radd__ = __add__

    def __mul__(self, other: Remainder | int) -> Remainder:
        return Remainder(self.value * getattr(other, "value", other) % 7)

    __rmul__ = __mul__


def test_objects_are_contracted_by_their_own_arithmetic() -> None:
    third = np.array([[Fraction(1, 3), Fraction(2, 3)], [0, 1]], object)
    assert contract("ij,jk->ik", third, third)[0, 1] == Fraction(8, 9)
    assert contract("i,j->", [10**30, 1], np.array([3, 4])) == 7 * (10**30 + 1)
    assert contract("i,j->", [10**12], np.array([10**12], object)) == 10**24
    assert contract("ij->ji", third).base is not None
    numbers = np.array([[3, 1], [2, 5]])
    remainders = np.vectorize(Remainder, otypes=[object])(numbers)
    found = contract("ij,jk,k->i", remainders, remainders, numbers[0])
    assert [one.value for one in found] == list(numbers @ numbers @ numbers[0] % 7)
    for wrong in ([None, 1], ["a", "b"], [[1], [2, 3]]):
        values = np.empty(2, object)
        values[:] = wrong
        with pytest.raises(InputError, match="array 0: has an object of type"):
            contract("i,i->", values, np.ones(2))
    with pytest.raises(InputError, match="hold objects that cannot be contracted"):
        contract("i,i->", np.array([Decimal(1)]), np.array([Fraction(1)]))


def test_unsigned_integers_of_64_bits_are_exact() -> None:
    large = np.array([2**63 + 1], np.uint64)
    assert contract("i,i->", large, np.array([1], np.uint64)) == 2**63 + 1
    with pytest.raises(InputError, match="beyond 64 bits"):
        contract("i,i->", large, np.array([2], np.uint64))


def test_out() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.ones((3, 2))
    out = np.empty((2, 2), order="F")
    assert contract("ij,jk->ik", a, b, out=out) is out
    np.testing.assert_array_equal(out, a @ b)
    square = np.arange(9.0).reshape(3, 3)
    contract("ij->ji", square, out=square)
    np.testing.assert_array_equal(square, np.arange(9.0).reshape(3, 3).T)
    mantissa, exponent = contract("ij,jk->ik", a, b, out=out, strip_exponent=True)
    assert mantissa is out
    np.testing.assert_allclose(out * 10**exponent, a @ b)
    with pytest.raises(InputError, match="out: has dtype float32, which would round values of float64"):
        contract("ij,jk->ik", a, b, out=np.empty((2, 2), np.float32))


def test_out_of_torch() -> None:
    torch = pytest.importorskip("torch")
    a, out = torch.arange(6.0).reshape(2, 3), torch.empty(2, dtype=torch.float64)
    assert contract("ij->i", a, out=out) is out
    assert out.tolist() == [3.0, 12.0]
    for wrong in (torch.ones(1).expand(2), torch.ones(2, requires_grad=True), np.ones(2), torch.ones(2, 1)):
        with pytest.raises(InputError, match="out: "):
            contract("ij->i", a, out=wrong)


def test_a_single_array_needs_no_optimizer() -> None:
    array = np.random.default_rng(0).random((2, 3))
    assert np.array_equal(contract("ab->ba", array, optimize="random-greedy"), array.T)
