"""cotengra's network JSON (`utils.save_to_json`: inputs, output, size_dict) with a list of steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError, located
from tnplan.common.files import load_json
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers.checks import field, index_names, integer_steps, relabelled
from tnplan.planner.networks.network import Network

# A live cotengra `ContractionTree` as a contraction path. Reads its attributes; imports no cotengra.


PLACE = "cotengra tree"


def from_cotengra(tree: Any, *, dtype: str = "complex64", name: str = "") -> ContractionPath:
    """Take the network, the path and the sliced indices of a live cotengra tree.

    Parameters
    ----------
    tree : cotengra.ContractionTree
        A complete tree. Index names become strings.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the tensors while they are contracted.
    name : str
        A short name.

    Returns
    -------
    ContractionPath
        The same contraction.

    Raises
    ------
    InputError
        For what is no complete tree; for sliced open indices and projected ones, since slices are summed.

    Examples
    --------
    >>> import cotengra
    >>> tree = cotengra.array_contract_tree([("a", "b"), ("b", "c")], ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> tnplan.from_cotengra(tree)
    ContractionPath(2 tensors, 3 indices, 1 step, 1 slice, complex64)
    """
    if not hasattr(tree, "is_complete"):
        raise InputError(PLACE, f"is {type(tree).__name__}", "give a cotengra ContractionTree")
    if not tree.is_complete():
        raise InputError(PLACE, "is not complete", "contract all tensors in the tree first")
    names = index_names((label for term in tree.inputs for label in term), PLACE)
    for label, info in tree.sliced_inds.items():
        if info.project is not None:
            raise InputError(
                PLACE, f"index {label!r} is projected on {info.project}", "select from the tensors instead"
            )
        # Slices are summed, so that an open index cannot be one.
        if label in tree.output:
            raise InputError(
                PLACE, f"index {label!r} is open and sliced",
                "search with slicing_opts={'allow_outer': False}",
            )  # fmt: skip
    network = relabelled(tree.inputs, tree.output, tree.size_dict, names)
    sliced = tuple(names[label] for label in tree.sliced_inds)
    return ContractionPath(network, integer_steps(tree.get_ssa_path(), PLACE), sliced, dtype, name)


# cotengra's network JSON (`utils.save_to_json`: inputs, output, size_dict) with a list of steps.


REMEDY = "give the file that cotengra's save_to_json writes"


def network_from_json(path: str | Path) -> Network:
    """The network of a file that `cotengra.utils.save_to_json` wrote."""
    place = str(path)
    document = load_json(path)
    inputs = field(document, "inputs", list, place, REMEDY)
    output = field(document, "output", list, place, REMEDY)
    sizes = field(document, "size_dict", dict, place, REMEDY)
    for number, term in enumerate(inputs):
        if not isinstance(term, list):
            raise InputError(f"{place}: inputs[{number}]", "is no list of indices", REMEDY)
    names = index_names((label for term in [*inputs, output] for label in term), place)
    terms = tuple(tuple(names[label] for label in term) for term in inputs)
    return located(place, lambda: Network(terms, tuple(names[label] for label in output), sizes))


def from_cotengra_json(
    network: str | Path,
    path: str | Path | Sequence[Sequence[int]],
    *,
    ssa: bool = False,
    sliced_inds: Sequence[str] = (),
    dtype: str = "complex64",
) -> ContractionPath:
    """Read cotengra's network JSON (`utils.save_to_json`), with a path.

    Parameters
    ----------
    network : path
        The file.
    path : path or sequence of sequences of int
        A JSON file that holds a list of steps, or the list itself.
    ssa : bool
        Whether it is an ssa path, as `tree.get_ssa_path()` gives it; `tree.get_path()` gives a linear one.
    sliced_inds : sequence of str
        The sliced indices.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the tensors while they are contracted.

    Returns
    -------
    ContractionPath
        The network and the path.

    Raises
    ------
    InputError
        For files that cannot be read, or a path of another network.

    Examples
    --------
    >>> path = tnplan.from_cotengra_json("network.json", [(0, 1)])  # doctest: +SKIP
    """
    structure = network_from_json(network)
    place = str(path) if isinstance(path, str | Path) else "path"
    steps: Any = load_json(path) if isinstance(path, str | Path) else path
    if not isinstance(steps, Sequence):
        raise InputError(place, "is no list of steps", "give the tensors of each step")
    pairs = integer_steps(steps, place)

    # Errors of the network and of the path are told with the name of the file of steps.
    def build() -> ContractionPath:
        ssa_path = pairs if ssa else ssa_from_linear(pairs, len(structure.inputs))
        return ContractionPath(structure, ssa_path, tuple(sliced_inds), dtype, Path(network).stem)

    return located(place, build)
