"""Networks and paths of Python libraries: cotengra, cuTensorNet, opt_einsum, quimb. Imports none of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError, located
from tnplan.common.files import load_json
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers.checks import field, index_names, integer_steps, relabelled
from tnplan.planner.networks.importers.subscripts import from_einsum
from tnplan.planner.networks.network import Network

PLACE = "cotengra tree"
REMEDY = "give the file that cotengra's save_to_json writes"


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
        For what is no complete tree, and for projected indices.

    Examples
    --------
    >>> import cotengra
    >>> tree = cotengra.array_contract_tree([("a", "b"), ("b", "c")], ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> tnplan.from_cotengra(tree)
    ContractionPath(2 tensors, 3 indices, 1 step, 1 slice, complex64)
    """
    if not hasattr(tree, "is_complete"):
        raise InputError(PLACE, f"is of type {type(tree).__name__}", "give a cotengra ContractionTree")
    if not tree.is_complete():
        raise InputError(PLACE, "is not complete", "contract all tensors in the tree first")
    names = index_names((label for term in tree.inputs for label in term), PLACE)
    for label, info in tree.sliced_inds.items():
        if info.project is not None:
            raise InputError(
                PLACE, f"index {label!r} is fixed at {info.project}", "take this value in the tensors instead"
            )
    network = relabelled(tree.inputs, tree.output, tree.size_dict, names)
    sliced = tuple(names[label] for label in tree.sliced_inds)
    return ContractionPath(network, integer_steps(tree.get_ssa_path(), PLACE), sliced, dtype, name)


def network_from_json(path: str | Path) -> Network:
    """The network of a file that `cotengra.utils.save_to_json` wrote."""
    place = str(path)
    document = load_json(path)
    inputs = field(document, "inputs", list, place, REMEDY)
    output = field(document, "output", list, place, REMEDY)
    sizes = field(document, "size_dict", dict, place, REMEDY)
    for number, term in enumerate(inputs):
        if not isinstance(term, list):
            raise InputError(f"{place}: inputs[{number}]", "is not a list of indices", REMEDY)
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
        raise InputError(place, "is not a list of steps", "give the tensors of each step")
    pairs = integer_steps(steps, place)

    # Errors of the network and of the path are given the name of the file of steps.
    def build() -> ContractionPath:
        ssa_path = pairs if ssa else ssa_from_linear(pairs, len(structure.inputs))
        return ContractionPath(structure, ssa_path, tuple(sliced_inds), dtype, Path(network).stem)

    return located(place, build)


def from_cutensornet(
    inputs: Sequence[Sequence[Hashable]],
    output: Sequence[Hashable],
    extents: Mapping[Any, int],
    path: Sequence[Sequence[int]],
    slices: Sequence[Any] = (),
    *,
    dtype: str = "complex64",
    name: str = "",
) -> ContractionPath:
    """Take what cuTensorNet's optimizer found.

    Parameters
    ----------
    inputs, output : sequences of modes
        The modes of each tensor, and of the result.
    extents : mapping
        The extent of every mode.
    path : sequence of pairs of int
        `OptimizerInfo.path`: positions in the shrinking list of tensors.
    slices : sequence
        `OptimizerInfo.slices`: modes, or pairs (mode, extent that it keeps in a slice). This must be 1,
        the mode fixed to one value at a time, or the whole one, which slices nothing.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the tensors while they are contracted.
    name : str
        A short name.

    Returns
    -------
    ContractionPath
        The network and the path.

    Raises
    ------
    InputError
        For modes without extents, slices of another kind, or a path of another network.

    Examples
    --------
    >>> tnplan.from_cutensornet(["ab", "bc"], "ac", {"a": 4, "b": 8, "c": 2}, [(0, 1)], ["b"]).n_slices
    8
    """
    names = index_names((mode for term in [*inputs, output] for mode in term), "modes")
    for mode in names:
        if mode not in extents:
            raise InputError("extents", f"mode {mode!r} has none", "give every mode an extent")
    sliced = []
    for number, entry in enumerate(slices):
        mode, extent = entry if isinstance(entry, tuple | list) else (entry, 1)
        if mode not in names:
            raise InputError(
                f"slices[{number}]", f"mode {mode!r} is on no tensor", "slice modes of the network"
            )
        # The whole mode in a slice: no slice at all.
        if extent == extents[mode] and extent != 1:
            continue
        if extent != 1:
            raise InputError(
                f"slices[{number}]",
                f"mode {mode!r} keeps extent {extent} of {extents[mode]}",
                "slice modes to extent 1",
            )
        sliced.append(names[mode])
    network = relabelled(inputs, output, extents, names)
    steps = ssa_from_linear(integer_steps(path, "path"), len(network.inputs))
    return ContractionPath(network, steps, tuple(sliced), dtype, name)


def from_opt_einsum(
    equation: str, operands: Sequence[Any], path: Any, *, dtype: str = "complex64", name: str = ""
) -> ContractionPath:
    """Take an einsum equation with the path that opt_einsum or NumPy found.

    Parameters
    ----------
    equation, operands
        As in `from_einsum`.
    path
        A list of steps, the pair (path, PathInfo) of `opt_einsum.contract_path`, its PathInfo alone, or what
        `numpy.einsum_path` returns.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the tensors while they are contracted.
    name : str
        A short name.

    Returns
    -------
    ContractionPath
        The network and the path.

    Raises
    ------
    InputError
        For what `from_einsum` refuses.

    Examples
    --------
    >>> matrices = np.ones((4, 8)), np.ones((8, 2))
    >>> tnplan.from_opt_einsum("ab,bc->ac", matrices, np.einsum_path("ab,bc->ac", *matrices)).ssa_path
    ((0, 1),)
    """
    return from_einsum(equation, operands, _steps(path), dtype=dtype, name=name)


def _steps(path: Any) -> Sequence[Sequence[int]]:
    if hasattr(path, "path"):
        path = path.path
    elif (
        isinstance(path, tuple) and len(path) == 2 and (hasattr(path[1], "path") or isinstance(path[1], str))
    ):
        path = path[0]
    if not isinstance(path, Sequence):
        raise InputError("path", f"is of type {type(path).__name__}", "give what opt_einsum or NumPy found")
    return list(path[1:] if path and path[0] == "einsum_path" else path)


def is_tree(value: Any) -> bool:
    """Whether something is a ContractionTree of cotengra."""
    return hasattr(value, "get_ssa_path") and hasattr(value, "is_complete")


def is_quimb_network(value: Any) -> bool:
    """Whether something is a TensorNetwork of quimb."""
    return hasattr(value, "tensor_map") and hasattr(value, "outer_inds")


def from_quimb(network: Any) -> tuple[Network, list[Any]]:
    """The network, its index names as strings, and the arrays of its tensors, of any library.

    Raises InputError for a network with an exponent of its own.
    """
    if getattr(network, "exponent", 0.0):
        raise InputError(
            "network", f"has the exponent {network.exponent}",
            "call its distribute_exponent() first",
        )  # fmt: skip
    tensors = list(network.tensor_map.values())
    names = index_names((index for tensor in tensors for index in tensor.inds), "network")
    inputs = tuple(tuple(names[index] for index in tensor.inds) for tensor in tensors)
    sizes = {
        names[index]: int(extent)
        for tensor in tensors
        for index, extent in zip(tensor.inds, tensor.shape, strict=True)
    }
    output = tuple(names[index] for index in network.outer_inds())
    return Network(inputs, output, sizes), [tensor.data for tensor in tensors]


def sites_in_quimb(network: Any) -> list[tuple[int, int] | None] | None:
    """Of each tensor the row and the column that its tag names; None where sites have no two numbers."""
    sites = getattr(network, "sites", None)
    if not is_quimb_network(network) or not sites or not hasattr(network, "site_tag"):
        return None
    if not all(isinstance(site, tuple) and [*map(type, site)] == [int, int] for site in sites):
        return None
    named = {network.site_tag(site): site for site in sites}
    return [
        next((named[tag] for tag in tensor.tags if tag in named), None)
        for tensor in network.tensor_map.values()
    ]
