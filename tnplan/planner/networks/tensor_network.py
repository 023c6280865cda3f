"""A network with the values of its tensors, and its files: NAME.json, and NAME.npz beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.files import check_writable
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_network
from tnplan.planner.networks.tensors import save_tensors


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
