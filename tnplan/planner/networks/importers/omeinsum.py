"""The JSON of OMEinsumContractionOrders.jl (`writejson`) as a contraction path.

{"label-type", "inputs", "output", "tree", "slices"}; a node of the tree is {"isleaf": true, "tensorindex"},
counted from 1, or {"isleaf": false, "args", "eins": {"ixs", "iy"}}. The file has no extents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError, located
from tnplan.common.files import load_json, write_text
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.checks import field, index_names
from tnplan.planner.networks.network import Network

REMEDY = "give the file that OMEinsumContractionOrders.jl writes"


def load_omeinsum(
    path: str | Path, *, sizes: Mapping[Any, int] | int = 2, dtype: str = "complex64"
) -> ContractionPath:
    """Read a contraction order that OMEinsum's `writejson` wrote.

    Parameters
    ----------
    path : path
        The file.
    sizes : mapping or int
        The extents by label, or its string, or one for all: the file has none.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the tensors while they are contracted.

    Returns
    -------
    ContractionPath
        The network and the path.

    Raises
    ------
    InputError
        For a file that cannot be read, or is none of OMEinsum's.

    Examples
    --------
    >>> path = tnplan.load_omeinsum("order.json", sizes=4)  # doctest: +SKIP
    """
    return from_document(load_json(path), str(path), sizes=sizes, dtype=dtype)


def from_document(
    document: Any, place: str, *, sizes: Mapping[Any, int] | int = 2, dtype: str = "complex64"
) -> ContractionPath:
    """Build the path from the JSON document; `place` names the file in errors."""
    inputs = field(document, "inputs", list, place, REMEDY)
    output = field(document, "output", list, place, REMEDY)
    tree = field(document, "tree", dict, place, REMEDY)
    slices = document.get("slices", [])
    if not isinstance(slices, list) or not all(isinstance(term, list) for term in inputs):
        raise InputError(place, "its inputs or slices are not lists of labels", REMEDY)
    names = index_names((label for term in [*inputs, output, slices] for label in term), place)
    terms = tuple(tuple(names[label] for label in term) for term in inputs)
    extents = {name: _size(sizes, label, name, place) for label, name in names.items()}
    ssa_path = _ssa_path(tree, inputs, f"{place}: tree")
    sliced = tuple(dict.fromkeys(names[label] for label in slices))

    def build() -> ContractionPath:
        network = Network(terms, tuple(names[label] for label in output), extents)
        return ContractionPath(network, ssa_path, sliced, dtype, Path(place).stem)

    return located(place, build)


def _size(sizes: Mapping[Any, int] | int, label: Any, name: str, place: str) -> int:
    if isinstance(sizes, int):
        return sizes
    if label in sizes:
        return sizes[label]
    if name in sizes:
        return sizes[name]
    raise InputError(f"{place}: sizes", f"label {label!r} has none", "give every label an extent")


def _ssa_path(tree: dict[str, Any], inputs: list[list[Any]], place: str) -> tuple[tuple[int, ...], ...]:
    """Walk the tree from its leaves up without recursion: trees may be thousands of nodes deep."""
    steps: list[tuple[int, ...]] = []
    finished: list[int] = []
    stack: list[tuple[dict[str, Any], str, bool]] = [(tree, place, False)]
    while stack:
        node, where, seen = stack.pop()
        if field(node, "isleaf", bool, where, REMEDY):
            finished.append(_leaf(node, inputs, where))
            continue
        args = field(node, "args", list, where, REMEDY)
        if not args:
            raise InputError(f"{where}: args", "is empty", REMEDY)
        if seen:
            steps.append(tuple(finished[-len(args) :]))
            del finished[-len(args) :]
            finished.append(len(inputs) + len(steps) - 1)
            continue
        stack.append((node, where, True))
        terms = field(field(node, "eins", dict, where, REMEDY), "ixs", list, where, REMEDY)
        if len(terms) != len(args):
            raise InputError(f"{where}: eins", f"has {len(terms)} terms for {len(args)} args", REMEDY)
        for number in reversed(range(len(args))):
            inner = f"{where}.args[{number}]"
            _check_term(args[number], terms[number], inputs, inner)
            stack.append((args[number], inner, False))
    return tuple(steps)


def _leaf(node: dict[str, Any], inputs: list[list[Any]], where: str) -> int:
    number = field(node, "tensorindex", int, where, REMEDY)
    if not 1 <= number <= len(inputs):
        raise InputError(f"{where}: tensorindex", f"is {number}", f"use 1 to {len(inputs)}")
    return number - 1


def _check_term(node: Any, term: Any, inputs: list[list[Any]], where: str) -> None:
    """The labels that a step gives a leaf must be those of `inputs`, or the order is another."""
    if field(node, "isleaf", bool, where, REMEDY):
        number = _leaf(node, inputs, where)
        if inputs[number] != term:
            raise InputError(where, f"has labels {term}, but inputs[{number}] has {inputs[number]}", REMEDY)


def save_omeinsum(path: ContractionPath, file: str | Path) -> dict[str, int]:
    """Write a path as `writejson` does, and give the extents by label, which the file has not."""
    network, labels = path.network, path.network.characters

    def text(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"))

    def labelled(term: Iterable[str]) -> list[str]:
        return [labels[index] for index in term]

    terms: dict[int, tuple[str, ...]] = dict(enumerate(network.inputs))
    # Nodes are texts: a tree may be deeper than Python's encoder of JSON goes.
    nodes = {number: text({"isleaf": True, "tensorindex": number + 1}) for number in terms}
    # A lone tensor is a step too: what it sums, and the order of its axes.
    result = 0
    for result, step in enumerate(path.ssa_path or ((0,),), len(terms)):
        operands = [terms.pop(tensor) for tensor in step]
        needed = set(network.output).union(*terms.values())
        indices = dict.fromkeys(index for term in operands for index in term)
        terms[result] = tuple(index for index in indices if index in needed)
        if len(terms) == 1:
            terms[result] = network.output
        eins = text({"ixs": list(map(labelled, operands)), "iy": labelled(terms[result])})
        args = ",".join(nodes.pop(tensor) for tensor in step)
        nodes[result] = f'{{"isleaf":false,"args":[{args}],"eins":{eins}}}'
    document: dict[str, Any] = {
        "label-type": "Char",
        "inputs": list(map(labelled, network.inputs)),
        "output": labelled(network.output),
    }
    if path.sliced_inds:
        document["slices"] = labelled(path.sliced_inds)
    write_text(file, f'{text(document)[:-1]},"tree":{nodes[result]}}}\n')
    return {label: network.size_dict[name] for name, label in labels.items()}
