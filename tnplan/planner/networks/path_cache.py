"""Paths that searches have found before, on disk: by the structure of the network and the limit of a tensor.

Names of indices do not matter; the order of tensors does. Knows no search.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from tnplan.common.cache_folder import cache_folder, own_folder, read_entry, write_entry
from tnplan.common.errors import InputError
from tnplan.common.files import identity_of
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network

FOLDER_VARIABLE = "TNPLAN_PATH_CACHE"
"""The folder of the cache; empty or 0: no cache."""
LARGEST_BYTES = 64 << 20
"""The size of all files of the cache; those used longest ago go first."""
SUFFIXES = (".path", ".json")
"""Of entries, and of those of earlier versions, which count among the files only."""
PRUNED_ONE_IN = 16
"""One of so many paths that are kept has the sizes of all files added up, which takes a tenth of a second."""


@dataclass(frozen=True)
class CachedPath:
    """A path, its cost in the unit of the caller, and the seconds that were spent on finding it."""

    path: ContractionPath
    cost: float
    time_s: float


def path_cache_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where paths are kept: the folder named for them, or `paths` in tnplan's cache; None where that is
    turned off, or no place can be used."""
    folder = environment.get(FOLDER_VARIABLE)
    if folder is not None:
        return None if folder in ("", "0") else Path(folder)
    return cache_folder("paths", environment)


class PathCache:
    """The paths of one folder.

    - `folder`: It is made where it is not there. None, or one that others may write: nothing is kept.
    - `largest_bytes`: The size of all files.
    """

    def __init__(self, folder: Path | None, largest_bytes: int = LARGEST_BYTES) -> None:
        self._folder, self._largest_bytes = folder and own_folder(folder), largest_bytes

    def find(self, network: Network, dtype: str, max_elements: float = inf) -> CachedPath | None:
        """The path that was kept for such a network and limit; an entry that cannot be read is none."""
        if self._folder is None:
            return None
        name = _name(network, max_elements)
        content = read_entry(self._folder, name)
        if content is None:
            return None
        try:
            entry = json.loads(content)
            names = list(_numbers(network))
            steps = tuple(tuple(map(int, step)) for step in entry["ssa_path"])
            sliced = tuple(names[int(number)] for number in entry["sliced"])
            path = ContractionPath(network, steps, sliced, dtype)
            cached = CachedPath(path, float(entry["cost"]), float(entry["time_s"]))
            os.utime(self._folder / name, follow_symlinks=False)
        except (OSError, ValueError, KeyError, TypeError, IndexError, InputError):
            return None
        return cached

    def keep(self, cached: CachedPath, max_elements: float = inf) -> None:
        """Keep a path, unless a cheaper one is there. Where nothing can be written, nothing is kept."""
        if self._folder is None:
            return
        path = cached.path
        before = self.find(path.network, path.dtype, max_elements)
        if before is not None and before.cost <= cached.cost:
            cached = replace(before, time_s=before.time_s + cached.time_s)
        numbers = _numbers(path.network)
        entry: dict[str, Any] = {
            "ssa_path": cached.path.ssa_path,
            "sliced": [numbers[index] for index in cached.path.sliced_inds],
            "cost": cached.cost,
            "time_s": cached.time_s,
        }
        name = _name(path.network, max_elements)
        write_entry(self._folder, name, json.dumps(entry, separators=(",", ":")).encode())
        if int(name[:8], 16) % PRUNED_ONE_IN == 0:
            with suppress(OSError):
                self._prune()

    def _prune(self) -> None:
        """Remove files, those used longest ago first, until all are within the size."""
        assert self._folder is not None
        facts = [(file.lstat(), file) for file in self._folder.iterdir() if file.suffix in SUFFIXES]
        total = sum(fact.st_size for fact, _ in facts)
        for fact, file in sorted(facts, key=lambda entry: entry[0].st_mtime):
            if total <= self._largest_bytes:
                return
            file.unlink(missing_ok=True)
            total -= fact.st_size


def _name(network: Network, max_elements: float) -> str:
    """The name of the entry of a network."""
    numbers = _numbers(network)
    structure = [
        [[numbers[index] for index in term] for term in network.inputs],
        sorted(numbers[index] for index in network.output),
        [network.size_dict[index] for index in numbers],
        None if max_elements == inf else int(max_elements),
    ]
    return f"{identity_of(structure)}{SUFFIXES[0]}"


def _numbers(network: Network) -> dict[str, int]:
    """The indices in the order in which they occur."""
    numbers: dict[str, int] = {}
    for term in network.inputs:
        for index in term:
            numbers.setdefault(index, len(numbers))
    return numbers
