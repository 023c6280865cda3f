"""Wrong arguments of compiled contractions, paths and networks: right, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tnplan.common.errors import InputError

A = np.ones((3, 3))
VALUES: list[Callable[[], Any]] = [
    lambda: None, lambda: 5, lambda: -1, lambda: 0, lambda: 1.5, lambda: float("nan"), lambda: True,
    lambda: "x", lambda: "", lambda: "a" * 300, lambda: "\0", lambda: b"x", lambda: ..., object, lambda: int,
    list, dict, set, lambda: [None], lambda: ["a"], lambda: [1.5], lambda: (0, 0), lambda: [0, 5],
    lambda: [[0]], lambda: [[None]], lambda: {(0,)}, lambda: {0: None}, lambda: {"a": 1}, lambda: {5: A},
    lambda: {0: A[:2]}, lambda: {None: A}, lambda: {0.0: A}, lambda: {True: A}, lambda: {np.int64(0): A},
    lambda: np.array(None), lambda: np.array(0), lambda: np.array([0, 1]), lambda: np.array([[0]]),
    lambda: np.array("x"), lambda: np.zeros((0, 3)), lambda: A.astype(object), lambda: np.float64(1),
    lambda: np.int64(0), lambda: np.str_("a"), lambda: np.ma.masked, lambda: [np.int64(0)],
    lambda: Path("new"), lambda: Path("."), lambda: Path("no/file"), lambda: A, lambda: [A] * 3,
    lambda: iter([A] * 3), lambda: range(3), lambda: slice(None), lambda: 10**30,
]  # fmt: skip
RING: tuple[Any, ...] = (("a", "b"), ("b", "c"), ("c", "a")), (), {"a": 3, "b": 3, "c": 3}
FIELDS: dict[str, Any] = {
    "network": tnplan.Network(*RING), "ssa_path": ((0, 1), (2, 3)), "sliced_inds": ("a",), "name": "ring",
    "tensors": None, "meta": {}, "dtype": "float64",
}  # fmt: skip


def use(path: tnplan.ContractionPath) -> None:
    """All that a path does."""
    path.save("path.json")
    loaded = tnplan.load_path("path.json")
    assert (loaded.network, loaded.ssa_path) == (path.network, path.ssa_path)
    assert repr(path).startswith("ContractionPath(")
    assert path.to_cotengra().nslices == path.n_slices
    assert len(path.to_cutensornet()["slicing"]) == len(path.sliced_inds)


def methods(contraction: Any) -> dict[str, Callable[[Any], Any]]:
    """Each argument of what a compiled contraction of three matrices does."""
    arrays = [A] * len(contraction.changing)
    result = contraction(*arrays)
    return {
        "array": lambda value: contraction(value, *arrays[1:]),
        "arrays": lambda value: contraction(*value) if isinstance(value, list) else contraction(value),
        "out": lambda value: contraction(*arrays, out=value),
        "update": contraction.update,
        "new array": lambda value: contraction.update({1: value}),
        "vjp's arrays": lambda value: contraction.vjp(value, result),
        "cotangent": lambda value: contraction.vjp(arrays, value),
        "wrt": lambda value: contraction.vjp(arrays, result, value),
        "one of wrt": lambda value: contraction.vjp(arrays, result, [value]),
        "value_and_grad": lambda value: contraction.value_and_grad(value, *arrays[1:]),
        "its wrt": lambda value: contraction.value_and_grad(*arrays, wrt=value),
    }


def check(name: str, call: Callable[[Any], Any]) -> int:
    """Make a call with each of the values; how many are refused."""
    refusals = []
    for make in VALUES:
        try:
            call(make())
        except InputError as error:
            refusals.append(error)
        except Exception as error:
            raise AssertionError(f"{name} with {make()!r}") from error
    for error in refusals:
        assert all((error.place, error.problem, error.remedy)), error
        assert "\n" not in str(error), error
    return len(refusals)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"keep": True}, {"constants": {0: A}}], ids=str)
def test_arguments_of_compiled_contractions(options: dict[str, Any]) -> None:
    for equation in ("ij,jk,ki->", "ij,jk,kl->il"):
        shapes = [(3, 3)] * 3
        with tnplan.compile(equation, *shapes, dtype="float64", device="cpu", **options) as contraction:
            for name, call in methods(contraction).items():
                assert check(name, call) > 20, name


@pytest.mark.filterwarnings("ignore")
def test_arguments_of_paths_and_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tnplan.ContractionPath(**FIELDS)
    calls: dict[str, Callable[[Any], Any]] = {"save": path.save, "to_omeinsum": path.to_omeinsum}
    for name in FIELDS:
        calls[name] = lambda value, name=name: use(tnplan.ContractionPath(**{**FIELDS, name: value}))
    for number in range(3):
        calls[f"network {number}"] = lambda value, number=number: tnplan.Network(
            *RING[:number], value, *RING[number + 1 :])  # fmt: skip
    calls["step"] = lambda value: tnplan.ContractionPath(**{**FIELDS, "ssa_path": ((0, 1), value)})
    for name, call in calls.items():
        assert check(name, call) > 5, name


def test_more_arrays_than_tensors_are_refused() -> None:
    with tnplan.compile("ij->ji", A, device="cpu") as transpose:
        for more in ((None,), ("x",), (A,), (A.tolist(), A)):
            with pytest.raises(InputError, match=rf"call: has {len(more) + 1} arrays, and takes 1"):
                transpose(A, *more)


def test_numbers_of_numpy_name_tensors() -> None:
    with tnplan.compile("ij,jk,ki->", A, A, A, device="cpu") as trace:
        wanted = trace.value_and_grad(A, A, A, wrt=[2, 0])
        numbers: list[Any] = [np.array([2, 0]), [np.int64(2), np.uint8(0)], iter([2, 0])]
        for wrt in numbers:
            for one, other in zip(trace.value_and_grad(A, A, A, wrt=wrt)[1], wanted[1], strict=True):
                np.testing.assert_array_equal(one, other)
