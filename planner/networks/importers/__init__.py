"""Contraction paths from what people have in hand: one adapter a source, and `read_any` for files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from planner.errors import InputError
from planner.files import load_json
from planner.networks.contraction_path import ContractionPath

__all__ = ["read_any"]


def read_any(path: str | Path) -> tuple[ContractionPath, list[np.ndarray] | None]:
    """Read a JSON file that holds a network with a path: path.json, Jet or OMEinsum (all extents 2).

    The kind is told by the keys. Also the tensors, where the file itself has their values.
    """
    from planner.networks import path_file
    from planner.networks.importers import jet, omeinsum

    document = load_json(path)
    keys = set(document) if isinstance(document, dict) else set()
    if "format" in keys:
        return path_file.load_path(path), None
    if {"path", "tensors"} <= keys:
        return jet.from_document(document, str(path))
    if "tree" in keys:
        return omeinsum.from_document(document, str(path)), None
    if {"inputs", "size_dict"} <= keys:
        raise InputError(
            str(path), "is a network without a path", "convert it with 'tnplan search', which finds a path"
        )
    raise InputError(
        str(path), "is no kind of path that we read", "give a path.json, or the JSON of Jet or OMEinsum"
    )
