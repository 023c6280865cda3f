"""A search as long as it is worth: of networks on which greedy trees are hopeless too."""

from __future__ import annotations

import os
import random
from pathlib import Path

import cotengra
import pytest
from cotengra.pathfinders import path_basic

from tnplan.calls.search import search
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_cache import FOLDER_VARIABLE
from tnplan.planner.search import search_in_proportion as proportion
from tnplan.planner.search.annealing import greedy_s
from tnplan.planner.search.orders import starts
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import SearchOptions
from tnplan.planner.workloads.kings import independent_set_network, kings_edges, kings_sites


@pytest.fixture(autouse=True)
def unhurried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of earlier searches, and the first orders are tried however slow the machine is."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(starts, "FIRST_ORDERS_S", 300.0)
    monkeypatch.setattr(proportion, "are_compiled", lambda: True)


def independent_sets(side: int) -> Network:
    """With a tensor for each edge: a greedy tree costs 10^4 times what an order does."""
    sites = kings_sites(side, side, 0.8, 0)
    return independent_set_network(len(sites), kings_edges(sites))[0]


def test_no_annealing_where_an_order_is_good() -> None:
    network, profile = independent_sets(28), load_profile("cpu")
    path = proportion.search_in_proportion(network, "float64", profile)
    assert path_cost(path).log10_mnk_all_slices < 9
    assert proportion.worthwhile_s(network, "float64", profile) == proportion.SHORTEST_SEARCH_S


def test_no_order_is_waited_for_while_its_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    network = independent_sets(6)
    greedy = ContractionPath(network, proportion.greedy_path(network), (), "float64")
    monkeypatch.setattr(proportion, "are_compiled", lambda: False)
    monkeypatch.setattr(proportion, "compile_soon", begun.extend)

    def found(network: Network, dtype: str, options: SearchOptions) -> ContractionPath:
        assert options.effort.time_s > 0, "a first path of orders needs kernels"
        return greedy

    monkeypatch.setattr(proportion, "search_path", found)
    monkeypatch.setattr(proportion, "predicted_s", lambda path, _: 5.0)
    path = proportion.search_in_proportion(network, "float64", load_profile("cpu"))
    assert begun == list(proportion.KERNELS)
    assert path_cost(path).log10_mnk_all_slices <= path_cost(greedy).log10_mnk_all_slices


def test_paths_are_told_before_the_time_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """With time "auto": of an unlimited search, whose paths these are; under a limit they are not."""
    monkeypatch.setattr(proportion, "SHORTEST_SEARCH_S", 0.2)
    monkeypatch.setattr(proportion, "LONGEST_SEARCH_S", 0.6)
    network = independent_sets(20)
    for limit, is_told in ({"unlimited": True}, True), ({"max_tensor": 2**30}, False):
        told: list[Progress] = []
        path = search(network, time="auto", minimize="flops", progress=told.append, **limit)
        assert told[0].detail is None
        early = [at for at in told[1:] if at.total == 0]
        assert bool(early) == is_told
        assert all(path_cost(at.detail).log2_largest <= 30 for at in told[1:])
        assert path_cost(path).log10_mnk_all_slices < 9


@pytest.mark.parametrize(
    ("is_ready", "left_s", "efforts"),
    [
        (True, [1.9], [0.4]), (True, [3.0, 3.0], [0.4, 0.9]), (True, [50.0, 20.0, 20.0], [0.4, 2.0, 6.0]),
        (True, [1e9] * 4, [0.4, 2.0, 10.0, 50.0]), (False, [3.0], [2.0]), (False, [50.0, 20.0], [2.0, 10.0]),
    ],
)  # fmt: skip
def test_long_searches_follow_where_short_ones_leave_much(
    monkeypatch: pytest.MonkeyPatch, is_ready: bool, left_s: list[float], efforts: list[float]
) -> None:
    """The first tree is predicted to take hours, and the path of each search `left_s`."""
    asked, left_of = list[float](), dict[int, float]()
    made = list[ContractionPath]()

    def found(
        network: Network, dtype: str, options: SearchOptions, _report: object = None
    ) -> ContractionPath:  # fmt: skip
        made.append(ContractionPath(network, tuple(proportion.greedy_path(network)), (), dtype))
        if options.effort.time_s:
            left_of[id(made[-1])] = left_s[len(asked)]
            asked.append(options.effort.time_s)
        return made[-1]

    monkeypatch.setattr(proportion, "are_compiled", lambda: is_ready)
    monkeypatch.setattr(proportion, "compile_soon", lambda _: None)
    monkeypatch.setattr(proportion, "search_path", found)
    monkeypatch.setattr(proportion, "predicted_s", lambda path, _: left_of.get(id(path), 1e5))
    proportion.search_in_proportion(independent_sets(6), "float64", load_profile("cpu"))
    assert asked == pytest.approx(efforts)


@pytest.mark.parametrize(
    ("limit_s", "left_s", "efforts", "is_cut"),
    [
        (10.0, [1e9] * 3, [0.4, 2.0, 7.6], True), (100.0, [50.0, 20.0, 20.0], [0.4, 2.0, 6.0], False),
        (8.4, [50.0, 20.0, 20.0], [0.4, 2.0, 6.0], False), (0.3, [1e9], [0.3], True), (0.0, [], [], True),
    ],
)  # fmt: skip
def test_a_limit_is_that_of_all_searches(
    monkeypatch: pytest.MonkeyPatch, limit_s: float, left_s: list[float], efforts: list[float], is_cut: bool
) -> None:
    """Each search takes its time by the clock of the search, and finds a path that is predicted `left_s`."""
    now, asked, left_of = 0.0, list[float](), dict[int, float]()
    made = list[ContractionPath]()

    def found(network: Network, dtype: str, options: SearchOptions, _: object = None) -> ContractionPath:
        nonlocal now
        made.append(ContractionPath(network, tuple(proportion.greedy_path(network)), (), dtype))
        if options.effort.time_s:
            left_of[id(made[-1])] = left_s[len(asked)]
            asked.append(options.effort.time_s)
            now += options.effort.time_s
        return made[-1]

    monkeypatch.setattr(proportion, "search_path", found)
    monkeypatch.setattr(proportion, "monotonic", lambda: now)
    monkeypatch.setattr(proportion, "predicted_s", lambda path, _: left_of.get(id(path), 1e5))
    limit = proportion.SearchLimit(limit_s)
    proportion.search_in_proportion(independent_sets(6), "float64", load_profile("cpu"), limit=limit)
    assert asked == pytest.approx(efforts)
    assert limit.is_cut == is_cut
    assert limit.left_s == pytest.approx(limit_s - sum(efforts))


@pytest.mark.parametrize("predicted_s", [0.1, 1.2])
def test_what_was_found_before_is_not_searched_again(
    monkeypatch: pytest.MonkeyPatch, predicted_s: float
) -> None:
    """A path of orders, or of a short search; where the contraction takes longer, it is searched on."""
    network, profile = regular(110), load_profile("cpu")
    monkeypatch.setattr(proportion, "predicted_s", lambda *_: predicted_s)
    first = proportion.search_in_proportion(network, "float64", profile)
    made = proportion.search_path
    asked = list[float]()

    def watched(network: Network, dtype: str, options: SearchOptions) -> ContractionPath:
        asked.append(options.effort.time_s)
        return made(network, dtype, options)

    monkeypatch.setattr(proportion, "search_path", watched)
    assert proportion.search_in_proportion(network, "float64", profile).ssa_path == first.ssa_path
    assert not asked
    monkeypatch.setattr(proportion, "predicted_s", lambda *_: 5.0)
    again = proportion.search_in_proportion(network, "float64", profile)
    assert asked == ([0.4, 1.5] if predicted_s < 1 else [1.5])
    assert path_cost(again).log10_mnk_all_slices <= path_cost(first).log10_mnk_all_slices


def test_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proportion, "SHORTEST_SEARCH_S", 0.5)
    monkeypatch.setattr(proportion, "LONGEST_SEARCH_S", 0.5)
    limited = proportion.search_in_proportion(
        independent_sets(20), "float64", load_profile("cpu"), max_elements=2**12
    )
    assert path_cost(limited).log2_largest <= 12


def regular(vertices: int) -> Network:
    """A random 3-regular graph of tensors."""
    draw = random.Random(3)
    ends = [vertex for vertex in range(vertices) for _ in range(3)]
    draw.shuffle(ends)
    terms: list[list[str]] = [[] for _ in range(vertices)]
    for number, pair in enumerate(zip(ends[::2], ends[1::2], strict=True)):
        for end in set(pair):
            terms[end].append(f"i{number}")
    return Network(tuple(map(tuple, terms)), (), {index: 2 for term in terms for index in term})


def test_equal_seeds_give_equal_paths() -> None:
    """Where random greedy trials are made too."""
    network = regular(110)
    profile = load_profile("cpu")
    paths = []
    for other in range(3):
        random.seed(other)
        paths.append(proportion.search_in_proportion(network, "float64", profile, seed=1))
    assert proportion.TRIALS_FROM_S < proportion.predicted_s(paths[0], profile) < proportion.ANNEALING_FROM_S
    assert paths[0].ssa_path == paths[1].ssa_path == paths[2].ssa_path


def test_trials_fork_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller's process may have CUDA, JAX or threads, which a fork does not survive."""
    network, profile = regular(110), load_profile("cpu")
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process is forked"))
    path = proportion.search_in_proportion(network, "float64", profile)
    assert proportion.TRIALS_FROM_S < proportion.predicted_s(path, profile) < proportion.ANNEALING_FROM_S


def test_no_greedy_tree_is_made_where_that_takes_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """cotengra's greedy tree of a random 3-regular graph of 2,000 vertices takes 41 s and costs 10^138."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a greedy tree of thousands of modes")

    monkeypatch.setattr(cotengra, "HyperOptimizer", refuse)
    monkeypatch.setattr(cotengra, "array_contract_path", refuse)
    monkeypatch.setattr(path_basic, "optimize_greedy", refuse)
    monkeypatch.setattr(proportion, "LONGEST_SEARCH_S", 0.3)
    path = proportion.search_in_proportion(regular(2_000), "float64", load_profile("cpu"))
    assert path_cost(path).log10_mnk_all_slices < 130


def test_the_time_of_a_greedy_tree_grows_with_its_width() -> None:
    """5.6 s were measured for 1,000 tensors of width 171, 41 s for 2,000 of width 348."""
    assert greedy_s(1_000, 171.0) == pytest.approx(5.6, rel=1.5)
    assert greedy_s(2_000, 348.0) == pytest.approx(41.0, rel=1.5)
