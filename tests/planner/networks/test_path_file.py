"""path.json and the tensors beside it: what is written comes back, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.robustness.refusals import Refusal, Row, table
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
from tnplan.planner.networks.tensors import load_tensors, random_tensors, save_tensors, store_network

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


# fmt: off
WRONG_PATHS: list[Row] = [
    ({"format": "other"}, "path.json: format", "is 'other'", "give a file whose"),
    ({"format": None}, "path.json: format", "is missing", "give a file whose"),
    ({"version": 2}, "path.json: version", "is 2", "this tnplan reads"),
    ({"inputs": None}, "path.json", "missing required field `inputs`", "formats.md"),
    ({"inputs": [["a", 1]]}, "path.json: inputs[0][1]", "Expected `str`, got `int`", "formats.md"),
    ({"size_dict": {"a": 2.5, "b": 3, "c": 4}}, "path.json: network size_dict",
     "index 'a' has size 2.5", "give an integer from"),
    ({"sliced": ["b"]}, "path.json", "unknown field `sliced`", "formats.md"),
    ({"dtype": "int8"}, "path.json: path dtype", "'int8' is unknown", "choose from float32"),
    ({"size_dict": {"a": 2, "b": 3}}, "path.json: network size_dict",
     "index 'c' has no size", "give a size for each index"),
    ({"size_dict": {"a": 2, "b": 3, "c": 0}}, "path.json: network size_dict",
     "index 'c' has size 0", "give an integer from"),
    ({"output": ["z"]}, "path.json: network output", "index 'z' is on no tensor", "list only indices of"),
    ({"output": ["a", "a"]}, "path.json: network output", "index 'a' appears 2 times",
    "list each open index"),
    ({"inputs": []}, "path.json: network inputs", "there is no tensor", "give at least one tensor"),
    ({"ssa_path": None}, "path.json: ssa_path", "is missing", "find a path with"),
    ({"path": [[0, 1], [0, 1]]}, "path.json: path", "is given together with ssa_path", "give either path or"),
    ({"ssa_path": [[0, 1], [0, 2]]}, "path.json: ssa_path[1]",
     "tensor 0 is used a second time", "contract each tensor"),
    ({"ssa_path": [[0, 4], [2, 3]]}, "path.json: ssa_path[0]",
     "tensor 4 does not exist yet", "contract each tensor"),
    ({"ssa_path": [[0, 1]]}, "path.json: ssa_path", "2 tensors are left at its end", "contract all of them"),
    ({"ssa_path": None, "path": [[0, 3]]}, "path.json: path[0]",
     "position 3 is outside the 3 tensors", "give an opt_einsum"),
    ({"ssa_path": None, "path": [[0, 0]]}, "path.json: path[0]",
     "a position appears twice", "name each tensor once"),
    ({"sliced_inds": ["z"]}, "path.json: sliced_inds",
     "index 'z' is on no tensor", "slice indices of"),
    ({"sliced_inds": ["b", "b"]}, "path.json: sliced_inds",
     "index 'b' stands twice", "slice indices of"),
]
# fmt: on


@table(WRONG_PATHS)
def test_what_is_wrong_is_named(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refusal.raised_by(lambda: load_path(write(Path(), **refusal.given)))


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


# fmt: off
WRONG_TENSORS: list[Row] = [
    (lambda arrays: arrays.pop("t2"), "t.npz: t2", "is missing", "give the arrays t0, t1"),
    (lambda arrays: arrays.update(t5=np.ones(2)), "t.npz: t5",
     "is not a tensor of the network, which has 5", "give the arrays t0, t1"),
    (lambda arrays: arrays.update(t1=np.ones((4, 3))), "t.npz: t1",
     "has shape (4, 3), the network says (3, 4)", "give the arrays t0, t1"),
    (lambda arrays: arrays.update(t1=np.ones((3, 4), complex)), "t.npz: t1",
     "has dtype complex128, the path says", "give real values, or a"),
    (lambda arrays: arrays.update(t1=np.full((3, 4), "x")), "t.npz: t1",
     "has dtype <U1", "give real or complex"),
    (lambda arrays: arrays.update(t1=np.full((3, 4), 1e300)), "t.npz: t1",
     "has values beyond the range of float32", "scale them, or use a"),
    (lambda arrays: arrays.update(t1=np.full((3, 4), None)), "t.npz: t1",
     "cannot be read", "give an array that"),
]
# fmt: on


@table(WRONG_TENSORS)
def test_wrong_tensors_are_named(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = {f"t{i}": array for i, array in enumerate(random_tensors(NETWORK, "float64", 1))}
    refusal.given(arrays)
    np.savez(Path("t.npz"), allow_pickle=True, **arrays)
    refusal.raised_by(lambda: load_tensors(Path("t.npz"), NETWORK, "float32"))


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
    with pytest.raises(InputError, match="is not the name of a file"):
        tensors_file("p.json", "\0")
