"""Jet's JSON (github XanaduAI/jet) as a contraction path with its tensors' values.

{"path": [[a, b], ...], "tensors": [[tags, indices, shape, [[re, im], ...]], ...]}; the path numbers results
after the tensors (static single assignment) and values run row-major.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.errors import InputError, located
from tnplan.common.files import load_json
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.checks import field, integer_steps
from tnplan.planner.networks.network import Network

REMEDY = "give the file that Jet's TensorNetworkSerializer writes"


def load_jet(path: str | Path, *, dtype: str = "complex64") -> tuple[ContractionPath, list[np.ndarray]]:
    """Read the JSON of Jet, which has the tensors' values too.

    Parameters
    ----------
    path : path
        The file.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the tensors while they are contracted.

    Returns
    -------
    ContractionPath, list of arrays
        The network and the path, and the tensors in complex128.

    Raises
    ------
    InputError
        For a file that cannot be read, or is none of Jet's.

    Examples
    --------
    >>> path, tensors = tnplan.load_jet("m10.json")  # doctest: +SKIP
    """
    return from_document(load_json(path), str(path), dtype=dtype)


def from_document(
    document: Any, place: str, *, dtype: str = "complex64"
) -> tuple[ContractionPath, list[np.ndarray]]:
    """Build the path and tensors from the JSON document; `place` names the file in errors.

    Indices that occur once are open, in the order in which they occur.
    """
    steps = integer_steps(field(document, "path", list, place, REMEDY), place)
    terms: list[tuple[str, ...]] = []
    arrays: list[np.ndarray] = []
    sizes: dict[str, int] = {}
    for number, entry in enumerate(field(document, "tensors", list, place, REMEDY)):
        where = f"{place}: tensors[{number}]"
        term, array = _tensor(entry, where)
        for index, extent in zip(term, array.shape, strict=True):
            if sizes.setdefault(index, extent) != extent:
                raise InputError(
                    where,
                    f"index {index!r} has extent {extent}, and {sizes[index]} on an earlier tensor",
                    "correct the file",
                )
        terms.append(term)
        arrays.append(array)
    counts = Counter(index for term in terms for index in term)
    output = tuple(index for index, count in counts.items() if count == 1)

    def build() -> ContractionPath:
        return ContractionPath(Network(tuple(terms), output, sizes), steps, (), dtype, Path(place).stem)

    return located(place, build), arrays


def _tensor(entry: Any, where: str) -> tuple[tuple[str, ...], np.ndarray]:
    if not isinstance(entry, list) or len(entry) != 4:
        raise InputError(where, "is not [tags, indices, shape, values]", REMEDY)
    _, indices, shape, values = entry
    if not isinstance(shape, list) or not all(type(extent) is int and extent >= 1 for extent in shape):
        raise InputError(where, f"{str(shape)[:40]} is not a shape", "give a list of extents of 1 or more")
    try:
        pairs = np.asarray(values, dtype=np.float64, order="C").reshape(-1, 2)
        array = pairs.view(np.complex128).reshape(shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(where, f"its values do not fill its shape ({error})", REMEDY) from None
    if not isinstance(indices, list) or len(indices) != array.ndim:
        raise InputError(where, f"has {array.ndim} extents for the indices {indices}", REMEDY)
    return tuple(str(index) for index in indices), array
