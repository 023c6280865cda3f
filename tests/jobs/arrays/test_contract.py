"""`contract` against numpy.einsum, for every syntax, dtype and kind of network."""

from __future__ import annotations

import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import cotengra
import numpy as np
import pytest

from tests.support.kernels.gpus import needs_gpus
from tests.support.networks import random_path
from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.calls.optimizer import Optimizer
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.arrays import with_dtype
from tnplan.planner.networks.contraction_path import DTYPES as DTYPES_OF_PATHS
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.networks.tensors import random_tensors

N_CALLS = 300
DTYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "complex128"]


def random_call(
    rng: random.Random, sizes: tuple[int, ...] = (1, 2, 3)
) -> tuple[str, list[np.ndarray]]:  # fmt: skip
    """A legal equation with up to four operands of any dtypes, and their values."""
    generator = np.random.default_rng(rng.getrandbits(32))
    extents = {chr(97 + i): rng.choice(sizes) for i in range(rng.randint(1, 6))}
    broadcast = [rng.choice([1, 2]) for _ in range(rng.randint(0, 2))]
    terms, operands = [], []
    for _ in range(rng.randint(1, 4)):
        term = [rng.choice(list(extents)) for _ in range(rng.randint(0, 3))]
        wide = {index: extents[index] if rng.random() < 0.9 else 1 for index in term}
        shape = [wide[index] for index in term]
        if rng.random() < 0.3:
            axes = broadcast[len(broadcast) - rng.randint(0, len(broadcast)) :]
            term, shape = ["...", *term], [*axes, *shape]
        terms.append("".join(term))
        values = generator.integers(0, 4, shape).astype(float)
        dtype = np.dtype(rng.choice(DTYPES))
        operands.append(
            (values + 1j * generator.integers(0, 4, shape)).astype(dtype)
            if dtype.kind == "c"
            else values.astype(dtype)
        )
    letters = sorted({letter for term in terms for letter in term if letter.isalpha()})
    output = rng.sample(letters, rng.randint(0, len(letters)))
    dots = "..." if any("..." in term for term in terms) else ""
    return f"{','.join(terms)}->{dots}{''.join(output)}", operands


@pytest.mark.filterwarnings("ignore:Casting complex")
def test_random_calls_equal_numpy() -> None:
    rng = random.Random(1)
    for _ in range(N_CALLS):
        equation, operands = random_call(rng)
        given = [one.tolist() if rng.random() < 0.2 else one for one in operands]  # numbers, or lists of them
        dtype = np.result_type(*map(np.asarray, given))
        exact = np.einsum(
            equation, *[one.astype(np.complex128 if dtype.kind == "c" else np.float64) for one in operands]
        )
        if dtype.kind in "iu" and exact.size and exact.max() > np.iinfo(dtype).max:
            with pytest.raises(InputError, match="the result goes from"):
                contract(equation, *given)
            continue
        found = contract(equation, *given)
        if dtype.name in DTYPES_OF_PATHS:  # compiled for the same shapes, with axes that are broadcast
            with compile_contraction(equation, *operands, dtype=dtype) as compiled:
                np.testing.assert_array_equal(compiled(*given), found)
        assert (found.dtype, found.shape) == (dtype, exact.shape), equation
        wanted = exact > 0 if dtype.kind == "b" else exact.astype(dtype)
        np.testing.assert_allclose(
            found, wanted, rtol=2e-3 if dtype == np.float16 else 1e-6, err_msg=equation
        )


def test_interleaved_lists() -> None:
    a, b = np.random.default_rng(0).random((2, 3)), np.random.default_rng(1).random((3, 4))
    np.testing.assert_allclose(contract(a, ["i", "k"], b, ["k", "j"], ["j", "i"]), (a @ b).T)
    listed = a.tolist(), ["i", "k"], b.tolist(), ["k", "j"]
    np.testing.assert_allclose(contract(*listed), a @ b)
    np.testing.assert_allclose(contract(*listed, ["j", "i"]), (a @ b).T)
    labels = [np.array(one) for one in ([0, 1], [1, 2], [2, 0])]
    np.testing.assert_allclose(contract(a, labels[0], b, labels[1], labels[2]), (a @ b).T)
    assert contract(2.0, [], [3.0, 4.0], ["i"], ["i"]).tolist() == [6.0, 8.0]


def test_random_calls_without_elements_equal_numpy() -> None:
    rng, refused = random.Random(2), 0
    for _ in range(200):
        equation, operands = random_call(rng, (0, 1, 2))
        dtype = np.result_type(*operands)
        wanted = np.einsum(equation, *(one.astype(np.complex128) for one in operands))
        found = contract(equation, *operands)
        assert (found.dtype, found.shape) == (dtype, wanted.shape), equation
        if all(one.size for one in operands):
            continue
        refused += 1
        assert not found.any()
        with pytest.raises(InputError, match=r"shapes: index '.*' has extent 0.*; use tnplan.contract"):
            compile_contraction(equation, *operands, dtype="complex128")
    assert 50 < refused < 180


def test_extents_of_zero() -> None:
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


@pytest.mark.parametrize("optimize", ["auto", "greedy", "optimal", [(0, 1), (0, 1)], ((1, 2), (0, 1))])
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


def test_a_single_array_needs_no_optimizer() -> None:
    array = np.random.default_rng(0).random((2, 3))
    assert np.array_equal(contract("ab->ba", array, optimize="random-greedy"), array.T)
