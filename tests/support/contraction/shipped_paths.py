"""The paths that come with the project, by the network that they contract."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tests.support.root import ROOT
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import structure_key
from tnplan.planner.networks.path_file import load_path


@cache
def shipped_workloads() -> dict[str, list[ContractionPath]]:
    """The paths of each network, by the first of their names; a path has the name of its file."""
    found: dict[str, list[ContractionPath]] = {}
    for source in sorted((ROOT / "paths").glob("*.json")):
        path = replace(load_path(source), name=source.stem)
        found.setdefault(structure_key(path.network), []).append(path)
    return {group[0].name: group for group in found.values()}
