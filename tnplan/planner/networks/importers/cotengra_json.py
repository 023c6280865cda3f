"""cotengra's network JSON (`utils.save_to_json`: inputs, output, size_dict) with a list of steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError, located
from tnplan.common.files import load_json
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers.checks import field, index_names, integer_steps
from tnplan.planner.networks.network import Network

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

    def build() -> ContractionPath:
        ssa_path = pairs if ssa else ssa_from_linear(pairs, len(structure.inputs))
        return ContractionPath(structure, ssa_path, tuple(sliced_inds), dtype, Path(network).stem)

    return located(place, build)
