"""cuTensorNet's linear pairs and sliced modes as a contraction path. Imports no cuQuantum."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers.checks import index_names, integer_steps, relabelled


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
        mode, kept = entry if isinstance(entry, tuple | list) else (entry, 1)
        if mode not in names:
            raise InputError(
                f"slices[{number}]", f"mode {mode!r} is on no tensor", "slice modes of the network"
            )
        # The whole mode in a slice: no slice at all.
        if kept == extents[mode] and kept != 1:
            continue
        if kept != 1:
            raise InputError(
                f"slices[{number}]",
                f"mode {mode!r} keeps extent {kept} of {extents[mode]}",
                "slice modes to extent 1",
            )
        sliced.append(names[mode])
    network = relabelled(inputs, output, extents, names)
    steps = ssa_from_linear(integer_steps(path, "path"), len(network.inputs))
    return ContractionPath(network, steps, tuple(sliced), dtype, name)
