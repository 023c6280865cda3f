"""path.json and the tensors beside it: what is written comes back, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import (
    FORMAT,
    VERSION,
    load_network,
    load_path,
    path_identity,
    save_network,
    save_path,
    tensors_file,
)
from tnplan.planner.networks.tensor_network import store_network
from tnplan.planner.networks.tensors import load_tensors, random_tensors, save_tensors

NETWORK = Network(
    (("a", "b"), ("b", "h"), ("h", "c"), ("h",), ()), ("a", "c"), {"a": 2, "b": 3, "c": 1, "h": 4}
)
PATH = ContractionPath(
    NETWORK, ((0, 1), (2, 5), (3, 6), (4, 7)), ("b",), "complex128", "demo", "demo.npz", {"what": "a test"}
)
DOCUMENT = {
    "format": FORMAT,
    "version": VERSION,
    "inputs": [["a", "b"], ["b", "c"], ["c"]],
    "output": ["a"],
    "size_dict": {"a": 2, "b": 3, "c": 4},
    "ssa_path": [[0, 1], [2, 3]],
    "dtype": "float64",
}


def write(folder: Path, **changes: object) -> Path:
    """The document with changes; a value of None removes the field."""
    document = {key: value for key, value in {**DOCUMENT, **changes}.items() if value is not None}
    path = folder / "path.json"
    path.write_text(json.dumps(document))
    return path


def test_round_trip(tmp_path: Path) -> None:
    save_path(PATH, tmp_path / "p.json")
    assert load_path(tmp_path / "p.json") == PATH
    document = json.loads((tmp_path / "p.json").read_text())
    assert (document["format"], document["version"]) == ("tnplan.path", 1)


def test_linear_path_is_converted(tmp_path: Path) -> None:
    path = load_path(write(tmp_path, ssa_path=None, path=[[0, 1], [0, 1]]))
    assert path.ssa_path == ((0, 1), (2, 3))
    assert path.dtype == "float64"
    assert path.sliced_inds == ()


def test_network_file(tmp_path: Path) -> None:
    save_network(NETWORK, tmp_path / "n.json", dtype="float32", name="n", tensors="n.npz", meta={"x": 1})
    assert load_network(tmp_path / "n.json") == (NETWORK, "float32", "n.npz")
    with pytest.raises(InputError, match="ssa_path: is missing; find a path with 'tnplan search'"):
        load_path(tmp_path / "n.json")


def test_network_of_a_path_file(tmp_path: Path) -> None:
    save_path(PATH, tmp_path / "p.json")
    assert load_network(tmp_path / "p.json") == (NETWORK, "complex128", "demo.npz")


def test_tensors_start_at_the_folder_of_the_file() -> None:
    assert tensors_file("some/where/p.json", "t.npz") == Path("some/where/t.npz")
    assert tensors_file("some/where/p.json", None) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, r"format: is 'other'"),
        ({"format": None}, r"format: is missing"),
        ({"version": 2}, r"version: is 2"),
        ({"inputs": None}, r"missing required field `inputs`"),
        ({"inputs": [["a", 1]]}, r"inputs\[0\]\[1\]: Expected `str`, got `int`"),
        ({"size_dict": {"a": 2.5, "b": 3, "c": 4}}, r"size_dict: index 'a' has size 2\.5"),
        ({"sliced": ["b"]}, r"unknown field `sliced`"),
        ({"dtype": "int8"}, r"dtype: 'int8' is unknown"),
        ({"size_dict": {"a": 2, "b": 3}}, r"size_dict: index 'c' has no size"),
        ({"size_dict": {"a": 2, "b": 3, "c": 0}}, r"size_dict: index 'c' has size 0"),
        ({"output": ["z"]}, r"output: index 'z' is on no tensor"),
        ({"output": ["a", "a"]}, r"output: index 'a' stands 2 times"),
        ({"inputs": []}, r"inputs: there is no tensor"),
        ({"ssa_path": None}, r"ssa_path: is missing"),
        ({"path": [[0, 1], [0, 1]]}, r"path: stands beside ssa_path"),
        ({"ssa_path": [[0, 1], [0, 2]]}, r"ssa_path\[1\]: tensor 0 is used a second time"),
        ({"ssa_path": [[0, 4], [2, 3]]}, r"ssa_path\[0\]: tensor 4 does not exist yet"),
        ({"ssa_path": [[0, 1]]}, r"ssa_path: 2 tensors are left at its end"),
        ({"ssa_path": None, "path": [[0, 3]]}, r"path\[0\]: position 3 is outside the 3 tensors"),
        ({"ssa_path": None, "path": [[0, 0]]}, r"path\[0\]: a position stands twice"),
        ({"sliced_inds": ["a"]}, r"sliced_inds: index 'a' is open"),
        ({"sliced_inds": ["z"]}, r"sliced_inds: index 'z' is on no tensor"),
        ({"sliced_inds": ["b", "b"]}, r"sliced_inds: index 'b' stands twice"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load_path(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_text_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"format": ')
    with pytest.raises(InputError, match=r"p\.json: line 1 column 12: not JSON"):
        load_path(tmp_path / "p.json")
    with pytest.raises(InputError, match="cannot be read"):
        load_path(tmp_path / "none.json")


def test_unwritable_place_leaves_files_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        save_path(PATH, tmp_path / "no" / "p.json")
    assert list(tmp_path.iterdir()) == []


def test_identity_is_of_what_changes_the_result(tmp_path: Path) -> None:
    base = load_path(write(tmp_path))
    same = [
        load_path(write(tmp_path, name="n", tensors="t.npz", meta={"a": 1})),
        load_path(write(tmp_path, ssa_path=None, path=[[0, 1], [0, 1]])),
        load_path(write(tmp_path, size_dict={"c": 4, "b": 3, "a": 2, "unused": 7})),
    ]
    other = [
        load_path(write(tmp_path, dtype="float32")),
        load_path(write(tmp_path, sliced_inds=["b"])),
        load_path(write(tmp_path, ssa_path=[[1, 2], [0, 3]])),
        load_path(write(tmp_path, size_dict={"a": 2, "b": 3, "c": 5})),
        load_path(write(tmp_path, inputs=[["b", "a"], ["b", "c"], ["c"]])),
        load_path(write(tmp_path, output=[])),
    ]
    assert {path_identity(path) for path in same} == {path_identity(base)}
    assert len({path_identity(path) for path in [base, *other]}) == len(other) + 1


def test_tensors_round_trip_and_casts(tmp_path: Path) -> None:
    arrays = random_tensors(NETWORK, "complex128", 1)
    assert [array.shape for array in arrays] == [(2, 3), (3, 4), (4, 1), (4,), ()]
    save_tensors(arrays, tmp_path / "t.npz")
    for dtype in ("complex128", "complex64"):
        loaded = load_tensors(tmp_path / "t.npz", NETWORK, dtype)
        for array, original in zip(loaded, arrays, strict=True):
            assert array.dtype == dtype
            assert np.array_equal(array, original.astype(dtype))
    save_tensors([np.ones(array.shape, dtype=int) for array in arrays], tmp_path / "i.npz")
    assert load_tensors(tmp_path / "i.npz", NETWORK, "complex64")[0].dtype == "complex64"
    assert load_tensors(tmp_path / "i.npz", NETWORK, "float32")[0].dtype == "float32"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("t2"), "t2: is missing"),
        (lambda arrays: arrays.update(t5=np.ones(2)), "t5: is no tensor of the network, which has 5"),
        (
            lambda arrays: arrays.update(t1=np.ones((4, 3))),
            r"t1: has shape \(4, 3\), the network says \(3, 4\)",
        ),
        (
            lambda arrays: arrays.update(t1=np.ones((3, 4), complex)),
            "t1: has dtype complex128, the path says",
        ),
        (lambda arrays: arrays.update(t1=np.full((3, 4), "x")), "t1: has dtype <U1"),
        (
            lambda arrays: arrays.update(t1=np.full((3, 4), 1e300)),
            "t1: has values beyond the range of float32",
        ),
        (lambda arrays: arrays.update(t1=np.full((3, 4), None)), "t1: cannot be read"),
    ],
)
def test_wrong_tensors_are_named(tmp_path: Path, change: object, message: str) -> None:
    arrays = {f"t{i}": array for i, array in enumerate(random_tensors(NETWORK, "float64", 1))}
    assert callable(change)
    change(arrays)
    np.savez(tmp_path / "t.npz", allow_pickle=True, **arrays)
    with pytest.raises(InputError, match=message):
        load_tensors(tmp_path / "t.npz", NETWORK, "float32")


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(InputError, match="holds a single array"):
        load_tensors(tmp_path / "one.npy", NETWORK, "float32")
    for name in ("text.npz", "empty.npz", "broken.npz"):
        with pytest.raises(InputError, match=r"is not an \.npz file"):
            load_tensors(tmp_path / name, NETWORK, "float32")
    with pytest.raises(InputError, match="cannot be read"):
        load_tensors(tmp_path / "none.npz", NETWORK, "float32")


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_random_tensors_keep_results_near_one(dtype: str) -> None:
    network = Network(
        (("a", "b", "h"), ("b", "c", "h"), ("c", "d", "h"), ("d", "e")),
        ("a", "e"),
        {"a": 40, "b": 6, "c": 7, "d": 8, "e": 40, "h": 5},
    )
    arrays = random_tensors(network, dtype, 3)
    assert all(np.array_equal(x, y) for x, y in zip(arrays, random_tensors(network, dtype, 3), strict=True))
    result = np.einsum("abh,bch,cdh,de->ae", *arrays)
    assert 0.5 < np.sqrt(np.mean(np.abs(result) ** 2)) < 2


def test_store_writes_both_files(tmp_path: Path) -> None:
    arrays = random_tensors(NETWORK, "float64", 0)
    store_network(NETWORK, arrays, tmp_path / "n.json", dtype="float64")
    network, dtype, tensors = load_network(tmp_path / "n.json")
    place = tensors_file(tmp_path / "n.json", tensors)
    assert place == tmp_path / "n.npz"
    loaded = load_tensors(place, network, dtype)
    assert all(np.array_equal(x, y) for x, y in zip(loaded, arrays, strict=True))


def test_tensors_of_no_file_s_name_are_refused() -> None:
    assert tensors_file("folder/p.json", "t.npz") == Path("folder/t.npz")
    with pytest.raises(InputError, match="is no name of a file"):
        tensors_file("p.json", "\0")
