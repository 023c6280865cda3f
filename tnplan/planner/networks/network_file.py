"""A network file and its tensors beside it: NAME.json and NAME.npz."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
    network: Network,
    arrays: Sequence[np.ndarray],
    path: str | Path,
    *,
    dtype: str,
    name: str = "",
    meta: dict[str, Any] | None = None,
) -> None:
    """Write NAME.npz, then NAME.json that names it."""
    tensors = tensors_beside(path)
    save_tensors(arrays, tensors)
    save_network(network, path, dtype=dtype, name=name, tensors=tensors.name, meta=meta)
