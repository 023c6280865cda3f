"""The values of a network's tensors: reading, writing, and random ones. Knows no path and no device."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import write_file
from tnplan.planner.networks.network import Network

REMEDY = "give the arrays t0, t1, ... that belong to this network"


def load_tensors(path: str | Path, network: Network, dtype: str) -> list[np.ndarray]:
    """Read the arrays t0, t1, ... of an .npz, check their shapes and cast them to `dtype`.

    Real values may become complex and the precision may change; complex values for a real dtype are refused.
    """
    arrays = _read(path, len(network.inputs))
    return check_tensors(arrays, network, dtype, str(path))


def check_tensors(arrays: Sequence[np.ndarray], network: Network, dtype: str, place: str) -> list[np.ndarray]:
    """Check the number, shapes and kinds of arrays against a network and cast them to `dtype`."""
    if len(arrays) != len(network.inputs):
        raise InputError(place, f"has {len(arrays)} arrays for {len(network.inputs)} tensors", REMEDY)
    return [_cast(array, network.shape(i), dtype, f"{place}: t{i}") for i, array in enumerate(arrays)]


def save_tensors(arrays: Sequence[np.ndarray], path: str | Path) -> None:
    """Write arrays as t0, t1, ... of an .npz, to a temporary name first, then moved into place."""
    named = {f"t{i}": np.asarray(array) for i, array in enumerate(arrays)}
    write_file(path, lambda stream: np.savez(stream, **named))  # type: ignore[arg-type]


def values_identity(arrays: Sequence[np.ndarray]) -> str:
    """The SHA-256 of the dtypes, shapes and values of some arrays, in order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def random_tensors(network: Network, dtype: str, seed: int) -> list[np.ndarray]:
    """Normal values with variance prod(extent^(-1/c)) over the summed indices, each on c tensors.

    Every element of the network's contraction then has a variance near 1, whatever its size.
    """
    generator = np.random.default_rng(seed)
    counts = Counter(index for term in network.inputs for index in set(term))
    arrays = []
    for term in network.inputs:
        shape = tuple(network.size_dict[index] for index in term)
        log_variance = -sum(
            np.log(network.size_dict[index]) / counts[index]
            for index in sorted(set(term))
            if index not in network.output
        )
        values = generator.standard_normal(shape)
        if dtype.startswith("complex"):
            values = (values + 1j * generator.standard_normal(shape)) / np.sqrt(2)
        arrays.append(np.asarray(values * np.exp(log_variance / 2)).astype(dtype))
    return arrays


def _read(path: str | Path, n_tensors: int) -> list[np.ndarray]:
    """The arrays t0, t1, ... of an .npz, no more and no fewer."""
    try:
        with Path(path).open("rb") as stream:
            return _arrays(stream, [f"t{i}" for i in range(n_tensors)], str(path))
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read ({error.strerror or error})", "check the name and its rights"
        ) from None


def _arrays(stream: BinaryIO, names: Sequence[str], place: str) -> list[np.ndarray]:
    try:
        archive = np.load(stream, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise InputError(place, "is not an .npz file", REMEDY) from None
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError(place, "holds a single array", REMEDY)
    with archive:
        for name in names:
            if name not in archive:
                raise InputError(f"{place}: {name}", f"is missing ({len(archive)} arrays are there)", REMEDY)
        extra = sorted(set(archive) - set(names))
        if extra:
            problem = f"is no tensor of the network, which has {len(names)}"
            raise InputError(f"{place}: {extra[0]}", problem, REMEDY)
        arrays = []
        for name in names:
            try:
                arrays.append(archive[name])
            except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                raise InputError(f"{place}: {name}", f"cannot be read ({error})", REMEDY) from None
    return arrays


def _cast(array: np.ndarray, shape: tuple[int, ...], dtype: str, place: str) -> np.ndarray:
    try:
        array = np.asarray(array)
    except ValueError:
        raise InputError(place, "is no array of one shape", "give real or complex numbers") from None
    if array.shape != shape:
        raise InputError(place, f"has shape {array.shape}, the network says {shape}", REMEDY)
    if array.dtype.kind not in "iufc":
        raise InputError(place, f"has dtype {array.dtype}", "give real or complex numbers")
    if array.dtype.kind == "c" and not dtype.startswith("complex"):
        raise InputError(
            place,
            f"has dtype {array.dtype}, the path says {dtype}",
            "give real values, or a path of complex dtype",
        )
    with np.errstate(over="ignore"):
        values = array.astype(dtype)
    if np.isfinite(array).all() and not np.isfinite(values).all():
        raise InputError(place, f"has values beyond the range of {dtype}", "scale them, or use a wider dtype")
    return values
