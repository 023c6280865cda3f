"""Every importer against the library that it reads from, by values: the path is contracted step by step."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import cotengra
import numpy as np
import opt_einsum
import pytest

from tests.support.networks import random_path
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers import (
    from_cotengra,
    from_cotengra_json,
    from_cutensornet,
    from_einsum,
    from_opt_einsum,
    load_jet,
    load_omeinsum,
    read_any,
    read_network,
)
from tnplan.planner.networks.importers.subscripts import parse_equation
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import load_path, save_network, save_path
from tnplan.planner.networks.tensors import random_tensors


def replay(path: ContractionPath, arrays: list[np.ndarray]) -> np.ndarray:
    """Contract along the path in complex128, all slices summed: slow, obvious, independent of the planner."""
    network = path.network
    total = np.zeros(network.output_shape, dtype=np.complex128)
    for values in np.ndindex(*(network.size_dict[index] for index in path.sliced_inds)):
        fixed = dict(zip(path.sliced_inds, values, strict=True))
        live: dict[int, tuple[tuple[str, ...], np.ndarray]] = {}
        for number, (term, array) in enumerate(zip(network.inputs, arrays, strict=True)):
            key = tuple(fixed.get(index, slice(None)) for index in term)
            live[number] = (tuple(i for i in term if i not in fixed), array[key].astype(np.complex128))
        for number, step in enumerate(path.ssa_path):
            parts = [live.pop(tensor) for tensor in step]
            needed = {index for term, _ in live.values() for index in term} | set(network.output)
            indices = dict.fromkeys(index for term, _ in parts for index in term)
            kept = tuple(index for index in indices if index in needed)
            live[len(network.inputs) + number] = (
                kept,
                einsum([p[1] for p in parts], [p[0] for p in parts], kept),
            )
        ((term, array),) = live.values()
        total += einsum([array], [term], network.output)
    return total


def einsum(arrays: list[np.ndarray], terms: list[tuple[str, ...]], output: tuple[str, ...]) -> np.ndarray:
    """NumPy's einsum with index names of any length."""
    numbers: dict[str, int] = {}
    operands: list[Any] = []
    for array, term in zip(arrays, terms, strict=True):
        operands += [array, [numbers.setdefault(index, len(numbers)) for index in term]]
    return np.asarray(np.einsum(*operands, [numbers[index] for index in output]))


def check(path: ContractionPath, arrays: list[np.ndarray], expected: np.ndarray) -> None:
    """Replay the path and compare."""
    result = replay(path, arrays)
    assert result.shape == np.shape(expected)
    assert np.allclose(result, expected, rtol=1e-10, atol=1e-12 * (1 + np.abs(expected).max()))


def exact(network: Network, arrays: list[np.ndarray]) -> np.ndarray:
    """The whole network in one einsum."""
    return einsum([array.astype(np.complex128) for array in arrays], list(network.inputs), network.output)


CASES = {
    "chain": "ab,bc,cd->ad",
    "hyper-index": "ah,bh,ch,h->abc",
    "hyper-index, summed": "ah,bh,ch->a",
    "open on two": "ab,ab,bc->ab",
    "trace": "aab,bcc->",
    "diagonal": "aab,bc->ac",
    "lone index": "ab,bcz->a",
    "scalars": ",ab,,b->a",
    "disconnected": "ab,cd,e->aec",
    "single": "abc->ca",
    "single trace": "aa->",
    "two": "ab,bc->ca",
    "nothing": "->",
    "repeated term": "ab,ab,ab->",
}
EXTENTS = dict(zip("abcdehz", (2, 3, 1, 4, 2, 3, 5), strict=True))


def operands_of(equation: str, seed: int = 0) -> list[np.ndarray]:
    """Random arrays of the extents above for an equation."""
    shapes = [[EXTENTS[index] for index in term] for term in equation.split("->")[0].split(",")]
    return random_tensors(parse_equation(equation, shapes), "complex128", seed)


@pytest.mark.parametrize("equation", CASES.values(), ids=CASES)
def test_einsum(equation: str) -> None:
    arrays = operands_of(equation)
    expected = np.einsum(equation, *arrays)
    check(from_einsum(equation, arrays), arrays, expected)
    check(from_einsum(equation, [array.shape for array in arrays]), arrays, expected)


@pytest.mark.parametrize("equation", CASES.values(), ids=CASES)
@pytest.mark.parametrize("optimize", ["greedy", "optimal"])
def test_opt_einsum(equation: str, optimize: str) -> None:
    arrays = operands_of(equation)
    expected = np.einsum(equation, *arrays)
    pair = opt_einsum.contract_path(equation, *arrays, optimize=optimize)
    for form in (pair, pair[0], pair[1]):
        check(from_opt_einsum(equation, arrays, form), arrays, expected)
    numpy_path = np.einsum_path(equation, *arrays, optimize=optimize)
    for form in (numpy_path, numpy_path[0]):
        check(from_opt_einsum(equation, arrays, form), arrays, expected)


@pytest.mark.parametrize("equation", CASES.values(), ids=CASES)
def test_cotengra_tree(equation: str) -> None:
    arrays = operands_of(equation)
    inputs, output = cotengra.utils.eq_to_inputs_output(equation)
    tree = cotengra.array_contract_tree(
        inputs, output, {index: EXTENTS[index] for term in inputs for index in term}, optimize="greedy"
    )
    check(from_cotengra(tree), arrays, np.einsum(equation, *arrays))


@pytest.mark.parametrize("seed", range(30))
def test_cotengra_trees_with_slices(seed: int) -> None:
    inputs, output, _, sizes = cotengra.utils.rand_equation(
        8, 3, n_out=2, n_hyper_in=2, n_hyper_out=1, d_min=1, d_max=4, seed=seed
    )
    tree = cotengra.array_contract_tree(inputs, output, sizes, optimize="greedy", canonicalize=False)
    generator = np.random.default_rng(seed)
    closed = sorted({index for term in inputs for index in term} - set(output))
    for index in generator.choice(closed, size=2, replace=False):
        tree.remove_ind_(str(index))
    path = from_cotengra(tree, dtype="complex128", name="random")
    assert set(path.sliced_inds) == set(tree.sliced_inds)
    assert path.n_slices == tree.nslices
    arrays = random_tensors(path.network, "complex128", seed)
    check(path, arrays, tree.contract(arrays))


def test_cotengra_labels_of_any_kind() -> None:
    tree = cotengra.ContractionTree.from_path(
        [(0, ("x", 1)), (("x", 1), 2)], (0,), {0: 2, ("x", 1): 3, 2: 4}, path=[(0, 1)]
    )
    path = from_cotengra(tree)
    assert path.network.inputs == (("0", "('x', 1)"), ("('x', 1)", "2"))
    assert path.network.size_dict == {"0": 2, "('x', 1)": 3, "2": 4}
    clash = cotengra.ContractionTree.from_path(
        [(0, "0"), ("0", 2)], (0,), {0: 2, "0": 3, 2: 4}, path=[(0, 1)]
    )
    with pytest.raises(InputError, match="labels 0 and '0' have one name"):
        from_cotengra(clash)


def test_cotengra_trees_that_are_refused() -> None:
    inputs, output, sizes = [("a", "b"), ("b", "c"), ("c",)], ("a",), {"a": 2, "b": 3, "c": 4}
    with pytest.raises(InputError, match="is not complete"):
        from_cotengra(cotengra.ContractionTree(inputs, output, sizes))
    tree = cotengra.ContractionTree.from_path(inputs, output, sizes, path=[(0, 1), (0, 1)])
    assert from_cotengra(tree.remove_ind("a")).sliced_inds == ("a",)
    with pytest.raises(InputError, match="index 'b' is fixed at 1"):
        from_cotengra(tree.remove_ind("b", project=1))


def test_cotengra_json(tmp_path: Path) -> None:
    inputs, output, _, sizes = cotengra.utils.rand_equation(7, 3, n_out=1, d_min=2, d_max=3, seed=1)
    cotengra.utils.save_to_json(inputs, output, sizes, str(tmp_path / "net.json"))
    tree = cotengra.array_contract_tree(inputs, output, sizes, optimize="greedy", canonicalize=False)
    sliced = next(index for index in sorted(sizes) if index not in output)
    (tmp_path / "path.json").write_text(json.dumps([list(step) for step in tree.get_path()]))
    paths = [
        from_cotengra_json(tmp_path / "net.json", tmp_path / "path.json", sliced_inds=[sliced]),
        from_cotengra_json(tmp_path / "net.json", tree.get_path(), sliced_inds=[sliced]),
        from_cotengra_json(tmp_path / "net.json", tree.get_ssa_path(), ssa=True, sliced_inds=[sliced]),
    ]
    assert paths[0] == paths[1]
    arrays = random_tensors(paths[0].network, "complex128", 0)
    expected = cotengra.array_contract(arrays, inputs, output)
    for path in paths:
        check(path, arrays, expected)
    with pytest.raises(
        InputError, match=r"net\.json: is a network without a path; find a path with 'tnplan search'"
    ):
        read_any(tmp_path / "net.json")
    network, dtype, place, values = read_network(tmp_path / "net.json")
    assert (network, dtype, place, values) == (paths[0].network, "complex64", None, None)


# fmt: off
WRONG_COTENGRA: list[Row] = [
    (({"inputs": [["a"]], "output": []}, []), "n.json: size_dict", "is missing", "give the file that"),
    (({"inputs": "a", "output": [], "size_dict": {}}, []), "n.json: inputs",
     "is of type str, not list", "give the file that"),
    (({"inputs": ["a"], "output": [], "size_dict": {}}, []), "n.json: inputs[0]",
     "is not a list of indices", "give the file that"),
    (({"inputs": [["a"]], "output": [], "size_dict": {}}, []), "n.json: network size_dict",
     "index 'a' has no size", "give a size for each index"),
    (({"inputs": [["a"], ["a"]], "output": [], "size_dict": {"a": 2}}, [[0, "x"]]), "path: path[0]",
     "[0, 'x'] is no", "give the tensors of"),
    (({"inputs": [["a"], ["a"]], "output": [], "size_dict": {"a": 2}}, [[0, 2]]), "path: path[0]",
     "position 2", "give an opt_einsum"),
    (({"inputs": [["a"], ["a"]], "output": [], "size_dict": {"a": 2}}, []), "path: ssa_path",
     "2 tensors are left", "contract all of them"),
]
# fmt: on


@table(WRONG_COTENGRA)
def test_wrong_cotengra_json_is_named(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document, path = refusal.given
    Path("n.json").write_text(json.dumps(document))
    refusal.raised_by(lambda: from_cotengra_json(Path("n.json"), path))


# fmt: off
WRONG_EQUATIONS: list[Row] = [
    (("ab,bc->ac", [(2, 3)]), "equation 'ab,bc->ac'", "has 2 terms for 1 operand",
    "give one operand per term"),
    (("ab,bc->ac", [(2, 3), (4, 2)]), "operand 1", "index 'b' has the extents 3 and 4", "equal indices have"),
    (("ab,bc->ac", [(2, 3), (1, 2)]), "operand 1",
     "has shape (1, 2), of which axes of extent 1 are broadcast", "leave these axes out of"),
    (("ab,bc->ac", [(2, 3), (3,)]), "operand 1", "has shape (3,) for 2 indices", "give an extent for each"),
    (("ab,b.->a", [(2, 3), (3, 2)]), "equation 'ab,b.->a'",
     "has the character '.'", "name indices by single"),
    (("ab,bc->z", [(2, 3), (3, 2)]), "equation 'ab,bc->z'",
     "index 'z' of the output does not belong to any operand", "list only indices of the operands"),
    (("ab,bc->aa", [(2, 3), (3, 2)]), "equation 'ab,bc->aa'", "has the index 'a' 2 times",
     "list each open index"),
]
# fmt: on


@table(WRONG_EQUATIONS)
def test_wrong_equations_are_named(refusal: Refusal) -> None:
    equation, shapes = refusal.given
    refusal.raised_by(lambda: from_einsum(equation, shapes))


def test_implicit_output_is_numpy_s() -> None:
    arrays = operands_of("cb,ba,d")
    assert parse_equation("cb, ba, d", arrays).output == ("a", "c", "d")
    check(from_einsum("cb, ba, d", arrays), arrays, np.einsum("cb,ba,d", *arrays))


def test_cutensornet() -> None:
    arrays = operands_of("ab,bd,de->ae")
    modes = {"a": 0, "b": 1, "d": 2, "e": "x"}
    inputs = [[modes[index] for index in term] for term in ("ab", "bd", "de")]
    extents = {modes[index]: EXTENTS[index] for index in modes}
    slices = [(modes["b"], 1), modes["d"]]
    path = from_cutensornet(inputs, [0, "x"], extents, [(1, 2), (0, 1)], slices)
    assert path.sliced_inds == ("1", "2")
    check(path, arrays, np.einsum("ab,bd,de->ae", *arrays))
    assert from_cutensornet(inputs, [0, "x"], extents, [(1, 2), (0, 1)], [(2, 4)]).sliced_inds == ()
    with pytest.raises(InputError, match=r"slices\[0\]: mode 2 keeps extent 2 of 4"):
        from_cutensornet(inputs, [0, "x"], extents, [(1, 2), (0, 1)], [(2, 2)])
    with pytest.raises(InputError, match=r"slices\[0\]: mode 9 is on no tensor"):
        from_cutensornet(inputs, [0, "x"], extents, [(1, 2), (0, 1)], [9])
    with pytest.raises(InputError, match="extents: mode 1 has none"):
        from_cutensornet(inputs, [0, "x"], {0: 2}, [(1, 2), (0, 1)])


def node(ixs: list[Any], iy: list[Any], *args: Any) -> dict[str, Any]:
    """An inner node as writejson has it."""
    return {"isleaf": False, "args": list(args), "eins": {"ixs": ixs, "iy": iy}}


def leaf(number: int) -> dict[str, Any]:
    """A leaf, counted from 1."""
    return {"isleaf": True, "tensorindex": number}


OMEINSUM = {
    "label-type": "Int64",
    "inputs": [[1, 2], [2, 3], [3, 4, 4], [2]],
    "output": [1],
    "tree": node(
        [[1, 2], [2]],
        [1],
        leaf(1),
        node([[2, 3], [3, 4, 4], [2]], [2], leaf(2), leaf(3), leaf(4)),
    ),
    "slices": [3],
}


@pytest.mark.parametrize("sizes", [2, {1: 2, 2: 3, 3: 4, 4: 2}, {"1": 2, "2": 3, "3": 4, "4": 2}])
def test_omeinsum(tmp_path: Path, sizes: Any) -> None:
    (tmp_path / "o.json").write_text(json.dumps(OMEINSUM))
    path = load_omeinsum(tmp_path / "o.json", sizes=sizes)
    assert path.ssa_path == ((1, 2, 3), (0, 4))
    assert path.sliced_inds == ("3",)
    arrays = random_tensors(path.network, "complex128", 0)
    check(path, arrays, np.einsum("ab,bc,cdd,b->a", *arrays))
    if sizes == 2:
        assert read_any(tmp_path / "o.json") == (path, None)


def test_omeinsum_single_leaf_and_deep_trees(tmp_path: Path) -> None:
    single = {"label-type": "Char", "inputs": [["a"]], "output": ["a"], "tree": leaf(1)}
    (tmp_path / "o.json").write_text(json.dumps(single))
    assert load_omeinsum(tmp_path / "o.json").ssa_path == ()
    count = 300
    inputs = [[k, k + 1] for k in range(count)]
    tree: Any = leaf(1)
    for number in range(1, count):
        tree = node([[0, number], inputs[number]], [0, number + 1], tree, leaf(number + 1))
    tree["eins"]["iy"] = [0, count]
    first: Any = tree
    while not first["args"][0]["isleaf"]:
        first = first["args"][0]
    first["eins"]["ixs"][0] = inputs[0]
    (tmp_path / "o.json").write_text(json.dumps({"inputs": inputs, "output": [0, count], "tree": tree}))
    path = load_omeinsum(tmp_path / "o.json")
    assert path.ssa_path[:3] == ((0, 1), (count, 2), (count + 1, 3))
    assert len(path.ssa_path) == count - 1


# fmt: off
WRONG_OMEINSUM: list[Row] = [
    ({"tree": leaf(9)}, "o.json: tree: tensorindex", "is 9", "use 1 to 4"),
    ({"tree": {"isleaf": "no"}}, "o.json: tree: isleaf", "is of type str, not bool", "give the file that"),
    ({"tree": node([[1, 2]], [1], leaf(2))}, "o.json: tree.args[0]",
     "has labels [1, 2], but inputs[1]", "give the file that"),
    ({"tree": node([[1, 2]], [1], leaf(1), leaf(2))}, "o.json: tree: eins",
     "has 1 terms for 2 args", "give the file that"),
    ({"tree": node([[1, 2], [2, 3]], [1], leaf(1), leaf(2))}, "o.json: ssa_path",
     "tensors are left at its end", "contract all of them"),
    ({"slices": [7]}, "o.json: sliced_inds", "index '7' is on no tensor", "slice indices of"),
    ({"output": [7]}, "o.json: network output", "index '7' is on no tensor", "list only indices of"),
    ({"inputs": [1]}, "o.json", "its inputs or slices are not lists", "give the file that"),
]
# fmt: on


@table(WRONG_OMEINSUM)
def test_wrong_omeinsum_is_named(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("o.json").write_text(json.dumps({**OMEINSUM, **refusal.given}))
    refusal.raised_by(lambda: load_omeinsum(Path("o.json")))


JET = {
    "path": [[0, 1], [2, 3]],
    "tensors": [
        [["A"], ["a", "b"], [2, 3], [[k, -k] for k in range(6)]],
        [["B"], ["b"], [3], [[1, 0], [0, 1], [2, 0]]],
        [["C"], [], [], [[0, 2]]],
    ],
}


def test_jet(tmp_path: Path) -> None:
    (tmp_path / "jet.json").write_text(json.dumps(JET))
    path, arrays = load_jet(tmp_path / "jet.json")
    assert path.network.output == ("a",)
    check(path, arrays, 2j * np.arange(6).reshape(2, 3) * (1 - 1j) @ np.array([1, 1j, 2]))
    again, values = read_any(tmp_path / "jet.json")
    assert again == path
    assert values is not None
    assert all(np.array_equal(x, y) for x, y in zip(values, arrays, strict=True))


# fmt: off
WRONG_JET: list[Row] = [
    ({"path": [[0, 1]]}, "jet.json: ssa_path", "2 tensors are left", "contract all of them"),
    ({"tensors": [[["A"], ["a"], [2]]]}, "jet.json: tensors[0]",
     "is not [tags, indices, shape, values]", "give the file that"),
    ({"tensors": [[[], ["a"], [2], [[1, 0]]]]}, "jet.json: tensors[0]",
     "its values do not fill its shape", "give the file that"),
    ({"tensors": [[[], ["a"], [1, 1], [[1, 0]]]]}, "jet.json: tensors[0]",
     "has 2 extents for the indices", "give the file that"),
    ({"tensors": [[[], ["a", "b"], [-1, 3], [[1, 0]] * 6]]}, "jet.json: tensors[0]",
     "[-1, 3] is not a shape", "give a list of extents"),
    ({"tensors": [[[], ["a"], [1.0], [[1, 0]]]]}, "jet.json: tensors[0]",
     "[1.0] is not a shape", "give a list of extents"),
    ({"tensors": [[[], ["a"], ["1"], [[1, 0]]]]}, "jet.json: tensors[0]",
     "['1'] is not a shape", "give a list of extents"),
    ({"tensors": [[[], ["a"], [True], [[1, 0]]]]}, "jet.json: tensors[0]",
     "[True] is not a shape", "give a list of extents"),
    ({"tensors": [[[], ["a"], [1], [[1, 0]]], [[], ["a"], [2], [[1, 0], [1, 0]]]]}, "jet.json: tensors[1]",
     "index 'a' has extent 2, and 1 on an earlier tensor", "correct the file"),
]
# fmt: on


@table(WRONG_JET)
def test_wrong_jet_is_named(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jet.json").write_text(json.dumps({**JET, **refusal.given}))
    refusal.raised_by(lambda: load_jet(Path("jet.json")))


def test_jet_sycamore(shared: Any) -> None:
    """Jet's own circuit: our path costs what cotengra counts, and the network has an amplitude's size."""
    path, arrays = load_jet(shared / "paths/jet_sycamore_m10.json")
    assert len(arrays) == 322
    assert path.network.output == ()
    tree = cotengra.ContractionTree.from_path(
        path.network.inputs, path.network.output, path.network.size_dict, ssa_path=path.ssa_path
    )
    assert tree.is_complete()
    assert np.log2(tree.max_size()) < 40
    assert sum(array.size for array in arrays) == sum(np.prod(path.network.shape(i)) for i in range(322))


@pytest.mark.parametrize("seed", range(20))
def test_path_files_are_read_as_they_are(tmp_path: Path, seed: int) -> None:
    path = random_path(seed)
    save_path(path, tmp_path / "p.json")
    assert read_any(tmp_path / "p.json") == (path, None)
    assert read_network(tmp_path / "p.json") == (path.network, path.dtype, None, None)
    arrays = random_tensors(path.network, path.dtype, seed)
    check(path, arrays, exact(path.network, arrays))


def test_files_of_no_kind(tmp_path: Path) -> None:
    for text in ("[]", "{}", '{"a": 1}', "3"):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(InputError, match="has no contraction path in a known format"):
            read_any(tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"inputs": [], "ssa_path": []}')
    with pytest.raises(InputError, match="format: is missing"):
        read_any(tmp_path / "x.json")
    save_network(Network((("a",),), (), {"a": 2}), tmp_path / "n.json", dtype="float32")
    with pytest.raises(InputError, match="find a path with 'tnplan search'"):
        read_any(tmp_path / "n.json")
    assert read_network(tmp_path / "n.json")[1] == "float32"


def test_files_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(InputError, match="is nested too deeply"):
        read_any(tmp_path / "x.json")


@pytest.mark.parametrize("seed", range(30))
def test_paths_go_to_other_libraries_and_come_back(seed: int, tmp_path: Path) -> None:
    path = random_path(seed, 3000)
    network, arrays = path.network, random_tensors(path.network, "complex128", seed)
    wanted = exact(network, arrays)
    path.save(tmp_path / "path.json")
    assert load_path(tmp_path / "path.json") == path

    check(from_cotengra(path.to_cotengra()), arrays, wanted)
    np.testing.assert_allclose(path.to_cotengra().contract(arrays), wanted, atol=1e-9)
    given = path.to_cutensornet()
    check(
        from_cutensornet(network.inputs, network.output, network.size_dict, given["path"], given["slicing"]),
        arrays, wanted,
    )  # fmt: skip
    assert all(len(step) == 2 for step in given["path"])
    extents = path.to_omeinsum(tmp_path / "order.json")
    check(load_omeinsum(tmp_path / "order.json", sizes=extents), arrays, wanted)

    if path.sliced_inds:
        with pytest.raises(InputError, match=r"path: has .* sliced"):
            path.to_opt_einsum()
        path = dataclasses.replace(path, sliced_inds=())
    steps = path.to_opt_einsum()
    assert ssa_from_linear(steps, len(network.inputs)) == (path.ssa_path or ((0,),))
    labels = {index: opt_einsum.get_symbol(number) for number, index in enumerate(network.size_dict)}
    terms = ["".join(labels[index] for index in term) for term in (*network.inputs, network.output)]
    found = opt_einsum.contract(f"{','.join(terms[:-1])}->{terms[-1]}", *arrays, optimize=steps)
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_omeinsum_of_one_tensor_and_of_long_names(tmp_path: Path) -> None:
    one = ContractionPath(Network((("row", "column", "row"),), ("column",), {"row": 2, "column": 3}), ())
    assert one.to_omeinsum(tmp_path / "order.json") == {"a": 2, "b": 3}
    read = load_omeinsum(tmp_path / "order.json", sizes={"a": 2, "b": 3})
    check(read, [np.arange(12.0).reshape(2, 3, 2)], np.einsum("iji->j", np.arange(12.0).reshape(2, 3, 2)))


def test_a_deep_path_is_written(tmp_path: Path) -> None:
    count = 3000
    terms = tuple((str(k), str(k + 1)) for k in range(count))
    network = Network(terms, (), {str(k): 2 for k in range(count + 1)})
    steps = ((0, 1), *((count + k, k + 2) for k in range(count - 2)))
    path = ContractionPath(network, steps)
    path.to_omeinsum(tmp_path / "order.json")
    text = (tmp_path / "order.json").read_text()
    assert text.count('"isleaf":false') == count - 1
    assert ssa_from_linear(path.to_opt_einsum(), count) == steps
