"""path.json: reading, writing and the identity of a contraction path, and of a network that has no path yet.

Knows the form of the file; what the contents must satisfy is said by `Network` and `ContractionPath`, and the
tensor values are read elsewhere (`tnplan.planner.networks.tensors`).

Changelog of `tnplan.path`:
1 (2026-11-21): first version. A file without `ssa_path` and `path` holds a network alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError, located
from tnplan.common.files import converted_file, file_path, identity_of, plain, read_json, write_text
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath, ssa_from_linear
from tnplan.planner.networks.network import Network

FORMAT = "tnplan.path"
VERSION = 1


_NETWORK_FIELDS: list[tuple[Any, ...]] = [
    ("inputs", list[list[str]]),
    ("output", list[str]),
    ("size_dict", dict[str, Any]),
]
_PATH_FIELDS: list[tuple[Any, ...]] = [
    ("ssa_path", list[list[int]] | None, None),
    ("path", list[list[int]] | None, None),
    ("sliced_inds", list[str], []),
    ("dtype", str, "complex64"),
    ("name", str, ""),
    ("tensors", str | None, None),
    ("meta", dict[str, Any], {}),
]


def load_path(path: str | Path) -> ContractionPath:
    """Read a path.json. `tensors` stays as the file states it: see `tensors_file`."""
    return path_from_document(read_json(path, FORMAT, VERSION), str(path))


def load_network(path: str | Path) -> tuple[Network, str, str | None]:
    """Network, dtype and `tensors` as the file states it, of a network file or a path.json."""
    place = str(path)
    form = _form(read_json(path, FORMAT, VERSION), place)
    if form.dtype not in DTYPES:
        raise InputError(f"{place}: dtype", f"{form.dtype!r} is unknown", f"choose from {', '.join(DTYPES)}")
    return located(place, lambda: _network(form)), form.dtype, form.tensors


def save_path(contraction_path: ContractionPath, path: str | Path) -> None:
    """Write a path.json, to a temporary name first, then moved into place."""
    write_text(path, _text(path_document(contraction_path)))


def save_network(
    network: Network, path: str | Path, *, dtype: str, name: str = "", tensors: str | None = None,
    meta: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write a network file: a path.json without a path. `tensors` is relative to the folder of `path`."""
    document = {**_head(name), **_network_document(network), "dtype": dtype, **_tail(tensors, meta or {})}
    write_text(path, _text(document))


def tensors_file(path: str | Path, tensors: str | None) -> Path | None:
    """Where the tensors of a path or network file lie; a relative name starts at the file's folder."""
    return None if tensors is None else Path(path).parent / file_path(tensors)


def path_identity(contraction_path: ContractionPath) -> str:
    """The SHA-256 of all that changes the result: network, order, slices, dtype; no values, no names."""
    document = path_document(contraction_path)
    present = {index for term in contraction_path.network.inputs for index in term}
    document["size_dict"] = {index: document["size_dict"][index] for index in present}
    for key in ("name", "tensors", "meta"):
        document.pop(key, None)
    return identity_of(document)


def path_document(contraction_path: ContractionPath) -> dict[str, Any]:
    """The JSON document of a contraction path."""
    return {
        **_head(contraction_path.name),
        **_network_document(contraction_path.network),
        "ssa_path": contraction_path.ssa_path,
        "sliced_inds": list(contraction_path.sliced_inds),
        "dtype": contraction_path.dtype,
        **_tail(contraction_path.tensors, contraction_path.meta),
    }


def _network_document(network: Network) -> dict[str, Any]:
    """The fields of a network. JSON writes tuples as lists."""
    return {"inputs": network.inputs, "output": network.output, "size_dict": network.size_dict}


def path_from_document(document: dict[str, Any], place: str) -> ContractionPath:
    """Build a contraction path from its JSON document; `place` names the file in errors."""
    form = _form(document, place)
    if (form.ssa_path is None) == (form.path is None):
        if form.path is None:
            raise InputError(f"{place}: ssa_path", "is missing", "find a path with 'tnplan search'")
        raise InputError(f"{place}: path", "is given together with ssa_path", "give either path or ssa_path")
    return located(place, lambda: _contraction_path(form))


def _form(document: dict[str, Any], place: str) -> Any:
    """The document as a structure of the right types, unknown fields refused."""
    import msgspec

    form = msgspec.defstruct("PathFile", _NETWORK_FIELDS + _PATH_FIELDS, forbid_unknown_fields=True)
    return converted_file(document, form, place, "see docs/reference/formats.md for the fields of path.json")


def _network(form: Any) -> Network:
    return Network(tuple(map(tuple, form.inputs)), tuple(form.output), form.size_dict)


def _contraction_path(form: Any) -> ContractionPath:
    if form.ssa_path is not None:
        ssa_path = tuple(map(tuple, form.ssa_path))
    else:
        ssa_path = ssa_from_linear(form.path, len(form.inputs))
    return ContractionPath(
        _network(form), ssa_path, tuple(form.sliced_inds), form.dtype, form.name, form.tensors, form.meta
    )


def _head(name: str) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, "name": name}


def _tail(tensors: str | None, meta: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {} if tensors is None else {"tensors": tensors}
    return {**document, "meta": plain(meta)} if meta else document


def _text(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        remedy = "give text, numbers, lists and dicts, and names of indices that are text"
        raise InputError("path.json", f"cannot hold all values ({error})", remedy) from None
