"""Contraction paths from what people have in hand: one adapter a source, and `read_any` for files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.files import load_json
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.jet import load_jet
from tnplan.planner.networks.importers.libraries import (
    from_cotengra,
    from_cotengra_json,
    from_cutensornet,
    from_opt_einsum,
)
from tnplan.planner.networks.importers.omeinsum import load_omeinsum
from tnplan.planner.networks.importers.subscripts import from_einsum
from tnplan.planner.networks.network import Network

__all__ = [
    "from_cotengra",
    "from_cotengra_json",
    "from_cutensornet",
    "from_einsum",
    "from_opt_einsum",
    "load_jet",
    "load_omeinsum",
    "read_any",
    "read_network",
]


def read_any(path: str | Path) -> tuple[ContractionPath, list[np.ndarray] | None]:
    """Read a JSON file that holds a network with a path: path.json, Jet or OMEinsum (all extents 2).

    The keys say which kind it is. Also the tensors, where the file itself has their values.
    """
    from tnplan.planner.networks import path_file
    from tnplan.planner.networks.importers import jet, omeinsum

    document = load_json(path)
    keys = set(document) if isinstance(document, dict) else set()
    if "format" in keys:
        return path_file.load_path(path), None
    if {"path", "tensors"} <= keys and "inputs" not in keys:
        return jet.from_document(document, str(path))
    if "tree" in keys:
        return omeinsum.from_document(document, str(path)), None
    if keys & {"path", "ssa_path"}:
        return path_file.load_path(path), None
    if {"inputs", "size_dict"} <= keys:
        raise InputError(str(path), "is a network without a path", "find a path with 'tnplan search'")
    raise InputError(
        str(path), "has no contraction path in a known format",
        "give a path.json, or the JSON of Jet or OMEinsum",
    )


def read_network(path: str | Path) -> tuple[Network, str, Path | None, list[np.ndarray] | None]:
    """Read the network of a file of any kind: network, dtype, where its tensors lie, or their values.

    Besides what `read_any` reads, that is a network file, and the network JSON of cotengra (complex64).
    """
    from tnplan.planner.networks import path_file
    from tnplan.planner.networks.importers.libraries import network_from_json

    document = load_json(path)
    keys = set(document) if isinstance(document, dict) else set()
    if "format" in keys:
        network, dtype, tensors = path_file.load_network(path)
        return network, dtype, path_file.tensors_file(path, tensors), None
    if {"inputs", "size_dict"} <= keys and "tree" not in keys:
        return network_from_json(path), "complex64", None, None
    contraction_path, arrays = read_any(path)
    return contraction_path.network, contraction_path.dtype, None, arrays
