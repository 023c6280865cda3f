"""The cache of paths on disk: what is found again, what replaces what, its size, and damaged entries."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

import pytest

from tnplan.common.cache_folder import CACHE_VARIABLE, write_entry
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_cache import (
    FOLDER_VARIABLE,
    PRUNED_ONE_IN,
    CachedPath,
    PathCache,
    path_cache_folder,
)
from tnplan.planner.search import search_in_proportion as proportion
from tnplan.planner.search.search_options import SearchOptions

SIZES = {"a": 2, "b": 3, "c": 100, "d": 5}
NETWORK = Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"), SIZES)
RENAMED = Network((("x", "y"), ("y", "z"), ("z", "w")), ("w", "x"), {"w": 5, "z": 100, "y": 3, "x": 2})
CHEAP = ContractionPath(NETWORK, ((1, 2), (0, 3)), (), "float64")
DEAR = ContractionPath(NETWORK, ((0, 1), (2, 3)), ("c",), "float64")


def kept(path: ContractionPath, time_s: float = 1.0) -> CachedPath:
    return CachedPath(path, 1.0 if path.ssa_path == CHEAP.ssa_path else 2.0, time_s)


def test_a_path_is_found_again_under_other_names(tmp_path: Path) -> None:
    cache = PathCache(tmp_path / "new")
    assert cache.find(NETWORK, "float64") is None
    cache.keep(kept(DEAR, 2.0))
    found = cache.find(RENAMED, "complex64")
    assert found is not None
    assert (found.path.ssa_path, found.path.sliced_inds, found.time_s) == (DEAR.ssa_path, ("z",), 2.0)
    assert found.path.network == RENAMED
    other = Network(NETWORK.inputs, ("a",), SIZES)
    assert cache.find(other, "float64") is None
    assert cache.find(NETWORK, "float64", 2**20) is None


def test_only_a_cheaper_path_replaces_one(tmp_path: Path) -> None:
    cache = PathCache(tmp_path)
    for path in (DEAR, CHEAP, DEAR):
        cache.keep(kept(path))
    found = cache.find(NETWORK, "float64")
    assert found is not None
    assert found.path == CHEAP
    assert found.time_s == 2.0  # what was searched in vain counts


def test_entries_that_are_no_paths_are_none_and_are_replaced(tmp_path: Path) -> None:
    cache = PathCache(tmp_path)
    cache.keep(kept(CHEAP))
    (file,) = tmp_path.iterdir()
    for text in (
        "",
        "{}",
        '{"ssa_path": [[0, 7]], "sliced": [], "cost": 1, "time_s": 1}',
        "[1",
        '{"ssa_path": 3}',
    ):
        assert write_entry(tmp_path, file.name, text.encode())
        assert cache.find(NETWORK, "float64") is None
        cache.keep(kept(CHEAP))
        assert cache.find(NETWORK, "float64") is not None


def test_the_size_is_limited(tmp_path: Path) -> None:
    """By one keep in so many; networks with other extents have other names, and so other turns."""
    cache = PathCache(tmp_path, largest_bytes=400)
    sizes = []
    for extent in range(2, 200):
        network = Network(NETWORK.inputs, NETWORK.output, {**SIZES, "c": extent})
        cache.keep(kept(ContractionPath(network, CHEAP.ssa_path, (), "float64")))
        for number, file in enumerate(sorted(tmp_path.iterdir(), key=lambda one: one.stat().st_mtime)):
            os.utime(file, (number, number))
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
        assert cache.find(network, "float64") is not None
    assert min(sizes[100:]) <= 400
    assert max(sizes) < 400 + 100 * 8 * PRUNED_ONE_IN


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PathCache(None)
    cache.keep(kept(CHEAP))
    assert cache.find(NETWORK, "float64") is None
    (tmp_path / "file").write_text("")
    PathCache(tmp_path / "file" / "folder").keep(kept(CHEAP))
    assert path_cache_folder({FOLDER_VARIABLE: "0"}) is None
    assert path_cache_folder({FOLDER_VARIABLE: str(tmp_path)}) == tmp_path
    assert path_cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "tnplan" / "paths"
    assert path_cache_folder({CACHE_VARIABLE: str(tmp_path)}) == tmp_path / "paths"
    assert path_cache_folder({CACHE_VARIABLE: "0"}) is None


def test_a_search_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def search(
        network: Network, dtype: str, options: SearchOptions, report: object = None
    ) -> ContractionPath:
        if options.effort.time_s > 0:
            made.append(options)
        return ContractionPath(network, CHEAP.ssa_path, (), dtype)

    monkeypatch.setattr(proportion, "search_path", search)
    monkeypatch.setattr(proportion, "are_compiled", lambda: True)
    monkeypatch.setattr(proportion, "cheapest_path", lambda network: None)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    huge = Network(NETWORK.inputs, NETWORK.output, {**SIZES, "c": 2**39})
    for network in (huge, huge):
        path = proportion.search_in_proportion(network, "float64", load_profile("cpu"))
        assert path.ssa_path == CHEAP.ssa_path
        assert [one.effort.time_s for one in made] == [0.4, 2.0, 10.0, 50.0]
    assert proportion.search_in_proportion(NETWORK, "float64", load_profile("cpu"), max_elements=inf)
    assert len(made) == 4
