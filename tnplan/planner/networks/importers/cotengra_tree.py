"""A live cotengra `ContractionTree` as a contraction path. Reads its attributes; imports no cotengra."""

from __future__ import annotations

from typing import Any

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.checks import index_names, integer_steps, relabelled

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
        if label in tree.output:
            raise InputError(
                PLACE, f"index {label!r} is open and sliced",
                "search with slicing_opts={'allow_outer': False}",
            )  # fmt: skip
    network = relabelled(tree.inputs, tree.output, tree.size_dict, names)
    sliced = tuple(names[label] for label in tree.sliced_inds)
    return ContractionPath(network, integer_steps(tree.get_ssa_path(), PLACE), sliced, dtype, name)
