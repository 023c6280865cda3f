"""The values of a network's tensors: reading, writing, and random ones; and a network together with them.

Files are NAME.json, and NAME.npz beside it. Knows no path and no device.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.array_file import Check, open_archive
from tnplan.common.errors import InputError
from tnplan.common.files import check_writable, write_file
from tnplan.common.units import plural
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_network

REMEDY = "give the arrays t0, t1, ... that belong to this network"


Exactly = Callable[[np.ndarray, str], np.ndarray]
"""Converts the values of an array, at a place that errors name, without changing any."""


def load_tensors(
    path: str | Path, network: Network, dtype: str, exactly: Exactly | None = None
) -> list[np.ndarray]:
    """Read the arrays t0, t1, ... of an .npz, check their shapes and cast them to `dtype`.

    Real values may become complex and the precision may change, unless values are converted `exactly`;
    complex values for a real dtype are refused.
    """
    arrays = _read(path, network, dtype)
    return check_tensors(arrays, network, dtype, str(path), exactly)


def check_tensors(
    arrays: Sequence[np.ndarray], network: Network, dtype: str, place: str, exactly: Exactly | None = None
) -> list[np.ndarray]:
    """Check the number, shapes and kinds of arrays against a network and cast them to `dtype`, or convert
    them `exactly`."""
    if len(arrays) != len(network.inputs):
        counts = plural(len(arrays), "array", "arrays"), plural(len(network.inputs), "tensor", "tensors")
        raise InputError(place, f"has {counts[0]} for {counts[1]}", REMEDY)
    return [
        _cast(array, network.shape(i), dtype, f"{place}: t{i}", exactly) for i, array in enumerate(arrays)
    ]


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


def _read(path: str | Path, network: Network, dtype: str) -> list[np.ndarray]:
    """The arrays t0, t1, ... of an .npz, no more and no fewer, each of the shape that the network says."""
    names = [f"t{i}" for i in range(len(network.inputs))]
    with open_archive(path, REMEDY) as archive:
        there = set(archive.names)
        for name in names:
            if name not in there:
                raise InputError(f"{path}: {name}", f"is missing ({len(there)} arrays are there)", REMEDY)
        extra = sorted(there - set(names))
        if extra:
            problem = f"is not a tensor of the network, which has {len(names)}"
            raise InputError(f"{path}: {extra[0]}", problem, REMEDY)

        def check(number: int) -> Check:
            place = f"{path}: t{number}"
            return lambda header: _check_kind(header.shape, header.dtype, network.shape(number), dtype, place)

        return [archive.read(name, check(number)) for number, name in enumerate(names)]


def _check_kind(
    shape: tuple[int, ...], kind: np.dtype[Any], wanted: tuple[int, ...], dtype: str, place: str
) -> None:
    """Refuse an array of another shape, or one whose values are none that `dtype` can hold."""
    if shape != wanted:
        raise InputError(place, f"has shape {shape}, the network says {wanted}", REMEDY)
    if kind.kind not in "biufc":
        raise InputError(place, f"has dtype {kind}", "give real or complex numbers")
    if kind.kind == "c" and not dtype.startswith("complex"):
        raise InputError(
            place, f"has dtype {kind}, the path says {dtype}", "give real values, or a path of complex dtype"
        )


def _cast(
    array: np.ndarray, shape: tuple[int, ...], dtype: str, place: str, exactly: Exactly | None
) -> np.ndarray:
    try:
        array = np.asarray(array)
    except ValueError:
        raise InputError(place, "is not an array of one shape", "give real or complex numbers") from None
    _check_kind(array.shape, array.dtype, shape, dtype, place)
    if exactly is not None:
        return exactly(array, place)
    with np.errstate(over="ignore"):
        values = array.astype(dtype)
    if np.isfinite(array).all() and not np.isfinite(values).all():
        raise InputError(place, f"has values beyond the range of {dtype}", "scale them, or use a wider dtype")
    return values


def tensors_beside(path: str | Path) -> Path:
    """The .npz that goes with a network file: NAME.npz beside NAME.json."""
    return Path(path).with_name(Path(path).name.removesuffix(".json") + ".npz")


def check_store(path: str | Path, *inputs: object) -> None:
    """Refuse a network file that could not be written with its tensors, before any work is done."""
    check_writable(path, *inputs)
    check_writable(tensors_beside(path), *inputs)


def store_network(
    network: Network, arrays: Sequence[np.ndarray], path: str | Path, *, dtype: str, name: str = "",
    meta: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write NAME.npz, then NAME.json that names it."""
    tensors = tensors_beside(path)
    save_tensors(arrays, tensors)
    save_network(network, path, dtype=dtype, name=name, tensors=tensors.name, meta=meta)


@dataclass(frozen=True, eq=False, repr=False)
class TensorNetwork:
    """A network with the values of its tensors.

    Parameters
    ----------
    network : Network
        The indices of every tensor, and the open ones.
    tensors : list of arrays
        The values, in the order of the network.
    dtype : str
        The dtype in which the network is to be contracted.
    name : str
        A short name, also of files.
    meta : dict
        What is known of it, as the file keeps it; `meta["what"]` says in words what the result is.
    notes : tuple of str
        Lines for people, such as the largest value that the result may have.

    Examples
    --------
    >>> tnplan.workload.lattice(3, 3, 2, kind="trotter")
    TensorNetwork(rectangular_3x3_trotter2: 33 tensors, 18 indices, complex64)
    """

    network: Network
    tensors: list[NDArray[Any]]
    dtype: str = "complex64"
    name: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return f"TensorNetwork({name}{self.network.sizes}, {self.dtype})"

    def save(self, path: str | Path) -> None:
        """Write the network file, and its tensors as .npz beside it."""
        check_store(path)
        store_network(self.network, self.tensors, path, dtype=self.dtype, name=self.name, meta=self.meta)
