"""Kernels of a search: those compiled ahead are those called, all are object code, and no search waits."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.hypernetworks import hypernetwork, task_of
from tests.support.kernels.samples import check_called, forget
from tests.support.search import chain_path
from tnplan.common.kernels import ahead
from tnplan.common.kernels.kernel import argument_types
from tnplan.common.kernels.object_cache import find_object
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.search import cotengra_search
from tnplan.planner.search.annealer.anneal_state import Heat
from tnplan.planner.search.annealing import Effort, ScoredTree
from tnplan.planner.search.cotengra_search import search_path
from tnplan.planner.search.orders import uncompiled
from tnplan.planner.search.orders.starts import OrderStarts
from tnplan.planner.search.orders.uncompiled import KERNELS
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import SearchOptions
from tnplan.planner.search.subtrees import measure_kernel, regions
from tnplan.planner.search.subtrees.regions import LargeTree
from tnplan.planner.workloads.mixed import peps_network

NETWORK = hypernetwork(3, 30, 45)


def test_searches_call_what_samples_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "REGIONS", (10, 20))
    samples = [sample for one in KERNELS for sample in one.all()]
    forget(samples)
    network = peps_network(6, 6, 1, extents=(2, 2), n_open=1, n_hyper=1)
    task = task_of(network, 64)
    starts = OrderStarts(task)
    for number in range(5):
        starts.tree(number)
    tree = LargeTree(replace(task, limit=None), ScoredTree(0.0, chain_path(network, 1), ()))
    tree.improve(Heat(8.0, 0.3, 0.02, 1.0), 200_000, time.monotonic() + 60, random.Random(0))
    monkeypatch.setattr(measure_kernel, "MANY_NODES", 0)
    starts.tree(0)
    check_called(samples)
    for kernel, arguments in samples:
        made = find_object(kernel, argument_types(*arguments))
        assert made is None or made.is_native, kernel.function.__name__


class Compiling:
    """Kernels that are compiled for so long, or already there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.ends = time.monotonic() + seconds
        monkeypatch.setattr(uncompiled, "are_compiled", lambda: False)
        monkeypatch.setattr(uncompiled, "compile_soon", lambda _: None)
        monkeypatch.setattr(uncompiled, "still_compiling", lambda _: time.monotonic() < self.ends)


def test_a_search_does_not_wait_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path and its report come from trials, and no kernel is called."""
    Compiling(monkeypatch, 1000.0)
    monkeypatch.setattr(cotengra_search, "search_joint", None)
    told: list[ContractionPath] = []
    options = SearchOptions(effort=Effort(1.0, 4), methods=("joint",), minimize="flops")
    path = search_path(NETWORK, "complex64", options, lambda _, found: told.append(found))
    assert told
    assert path_cost(path).log10_mnk_all_slices == min(path_cost(one).log10_mnk_all_slices for one in told)


def test_what_was_found_meanwhile_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A joint search begins as soon as it can; where it finds a worse tree, the other one is given."""
    Compiling(monkeypatch, 0.0)
    early: list[ContractionPath] = []
    asked: list[object] = []

    def bad(task: object, **_: object) -> ScoredTree:
        asked.append(task)
        n = len(task.inputs)  # type: ignore[attr-defined]
        return ScoredTree(0.0, ((0, 1), *((n + i, i + 2) for i in range(n - 2))), ())

    monkeypatch.setattr(cotengra_search, "search_joint", bad)
    options = SearchOptions(effort=Effort(30.0, 4), methods=("joint",), minimize="flops")
    path = search_path(NETWORK, "complex64", options, lambda _, found: early.append(found))
    assert asked
    assert path.ssa_path == early[-1].ssa_path


def test_a_large_network_waits_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """cotengra would anneal it for longer than the time of the search."""
    Compiling(monkeypatch, 1000.0)
    monkeypatch.setattr(uncompiled, "MOST_TENSORS", 20)
    assert uncompiled.search_uncompiled(task_of(NETWORK), time.monotonic() + 1.0, lambda _: None) is None


def test_rounds_that_end_a_search_wait_for_kernels() -> None:
    """So that one seed gives one path, compiled kernels or not."""
    options = SearchOptions(effort=Effort(10.0, 2, 2), methods=("joint",))
    assert not options.need_not_wait
    assert replace(options, effort=Effort(10.0)).need_not_wait
    assert not replace(options, effort=Effort(10.0), minimize="schedule").need_not_wait
    assert not replace(options, effort=Effort(10.0), resume=True).need_not_wait


def test_kernels_are_looked_for_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TNPLAN_CACHE_DIR", str(tmp_path))
    assert not uncompiled.are_compiled()
    assert not ahead.still_compiling(KERNELS)
    assert np.all([not ahead.is_compiled(*sample) for one in KERNELS for sample in one.all()])
