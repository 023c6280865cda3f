"""The paths that come with the project, by the network that they contract."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

from tests.support.root import ROOT
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import load_path

Tensors = tuple[tuple[tuple[int, int, bool], ...], ...]


@cache
def shipped_workloads() -> dict[str, list[ContractionPath]]:
    """The paths of each network, by the first of their names; a path has the name of its file."""
    found: dict[Tensors, list[ContractionPath]] = {}
    for source in sorted((ROOT / "paths").glob("*.json")):
        path = replace(load_path(source), name=source.stem)
        found.setdefault(tensors_of(path.network), []).append(path)
    return {group[0].name: group for group in found.values()}


def tensors_of(network: Network) -> Tensors:
    """What tells these networks apart whatever their indices are named: extents, and how often they occur."""
    counts = Counter(index for term in network.inputs for index in term)
    legs = {index: (network.size_dict[index], counts[index], index in network.output) for index in counts}
    return tuple(sorted(tuple(sorted(legs[index] for index in term)) for term in network.inputs))
