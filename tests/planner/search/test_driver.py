"""The joint search: costs that a recount confirms, limits kept, legal paths of the right value, time kept."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import cotengra
import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.networks import random_path
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.search import chain_path, cost_of, odd_network, prepared, recount, search_path
from tests.support.slow import slow_after
from tnplan.cli.main import cli
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import load_path, save_network
from tnplan.planner.networks.tensors import random_tensors
from tnplan.planner.search import cotengra_search
from tnplan.planner.search.annealer import anneal_kernel as kernel
from tnplan.planner.search.annealer import slices_kernel
from tnplan.planner.search.annealer.anneal_state import (
    Heat,
    Price,
    bits_of,
    pairs_of,
    sliced_bits,
)  # fmt: skip
from tnplan.planner.search.annealer.annealed import Annealed, act
from tnplan.planner.search.annealing import Effort, ScoredTree, Task
from tnplan.planner.search.orders import starts
from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost
from tnplan.planner.workloads.mixed import peps_network, regular_network

ROUND = Effort(time_s=4, max_trials=2, max_rounds=2)
LATTICE = peps_network(5, 5, 0, extents=(2, 3))


@pytest.mark.parametrize(
    ("price", "shares"),
    [(Price(), True), (Price(moved=3.5), True), (Price(0.0, 1.0), False), (Price(1.0, 64.0), True)],
)
@pytest.mark.parametrize("seed", slow_after(3, range(6)))
def test_costs_after_random_moves_are_those_of_a_recount(seed: int, price: Price, shares: bool) -> None:
    """At a temperature at which almost every move is taken, and with no block to take the sums afresh. Open
    indices are sliced where slices share nothing."""
    network = odd_network(seed)
    bits = bits_of(network.size_dict)
    problem, state, _ = prepared(network, 24.0, price, seed, shares=shares, slices_open=not shares)
    seen_open = False
    for _ in range(30):
        for _ in range(40):
            kernel.rotate(problem, state, 5.0, 1.0, 50.0)
            kernel.change_slices(problem, state, 1.0, 50.0)
        sliced = {name for name, bit in bits.items() if state.position[bit] >= 0}
        assert state.counts[0] == len(sliced)
        assert shares <= sliced.isdisjoint(network.output)
        seen_open |= not sliced.isdisjoint(network.output)
        cost, largest = recount(network, state, sliced, price, shares)
        slices = math.prod(network.size_dict[name] for name in sliced)
        assert state.totals[0] * slices == pytest.approx(cost, rel=1e-9)
        assert (largest > 24) == (state.counts[1] > 0) == (state.totals[1] > 0)
        assert largest == max(state.size)
    assert seen_open != shares


@pytest.mark.parametrize("seed", range(6))
def test_moves_taken_back_leave_nothing(seed: int) -> None:
    network = odd_network(seed)
    problem, state, _ = prepared(network, 24.0, 3.5, seed)
    state.totals[1] = max(state.totals[1], 0.0)
    before = [array.copy() for array in (state.size, state.span, state.cost, state.unsliced, state.totals)]
    for _ in range(200):
        kernel.change_slices(problem, state, 1.0, -1e9)
    after = (state.size, state.span, state.cost, state.unsliced, state.totals)
    for old, new in zip(before, after, strict=True):
        assert np.array_equal(old, new)


@pytest.mark.parametrize("limit", [2.0, 12.0, 60.0])
@pytest.mark.parametrize("seed", range(4))
def test_slicing_to_a_limit_fits_and_stops_there(seed: int, limit: float) -> None:
    """What it leaves costs what a recount says; the last index was needed."""
    network = odd_network(seed)
    network = Network(network.inputs, (), network.size_dict)
    bits = bits_of(network.size_dict)
    problem, state, best = prepared(network, limit, 3.5, seed)
    act(kernel.SLICE, problem, state, best)
    order = [int(bit) for bit in state.sliced[: state.counts[0]]]
    sliced = {name for name, bit in bits.items() if bit in order}
    cost, largest = recount(network, state, sliced, 3.5)
    slices = math.prod(network.size_dict[name] for name in sliced)
    assert state.totals[0] * slices == pytest.approx(cost)
    assert largest <= limit
    if order:
        slices_kernel.toggle(problem, state, order[-1])
        assert state.counts[1] > 0


@pytest.mark.parametrize("seed", range(4))
def test_the_best_keeps_the_limit_and_costs_what_it_says(seed: int) -> None:
    network = odd_network(seed)
    problem, state, best = prepared(network, 30.0, 3.5, seed)
    act(kernel.ANNEAL, problem, state, best, Heat(8.0, 0.4, 0.02, 1.0), (0, 20, 20))
    assert math.isfinite(best.score[0])
    names = {bit: name for name, bit in bits_of(network.size_dict).items()}
    sliced = {names[bit] for bit in sliced_bits(best)}
    act(kernel.RESTORE, problem, state, best)
    cost, largest = recount(network, state, sliced, 3.5)
    assert largest <= 30
    assert best.score[0] == pytest.approx(math.log2(cost))
    path = ContractionPath(network, pairs_of(best), tuple(sorted(sliced)))
    assert path_cost(path).log2_largest == pytest.approx(math.log2(largest))


def test_heats_follow_the_extents() -> None:
    """From a bad tree a round comes as far with extents of 16 as with 2, in bits of the extent: in the mean,
    as rounds end in different basins."""

    def mean_bits(extent: int) -> float:
        found = []
        for seed in range(8):
            extents = extent, extent
            network = regular_network(60, seed, degree=4, extents=extents, n_open=0, n_hyper=0)
            task = Task(network.inputs, (), network.size_dict, None, "flops", (), seed, Effort())
            chain = ((0, 1), *((60 + step, 2 + step) for step in range(58)))
            annealed = Annealed(task, ScoredTree(0.0, chain, ()), seed)
            annealed.run(Heat(25.0, 0.4, 0.02, 1.0), 400_000, math.inf, None)
            found.append(float(annealed.best.score[0]) / math.log2(extent))
        return float(np.mean(found))

    # A sum of steps is nearer to the largest of them where extents are larger.
    assert mean_bits(16) < mean_bits(2) - 0.5


def value(path: ContractionPath, arrays: list[Any]) -> Any:
    """The sum over slices of plain pairwise einsums along the path."""
    network = path.network
    names = {index: number for number, index in enumerate(sorted(network.size_dict))}
    total: Any = 0.0
    for place in np.ndindex(*(network.size_dict[index] for index in path.sliced_inds)):
        at = dict(zip(path.sliced_inds, place, strict=True))
        held = {}
        for number, (term, array) in enumerate(zip(network.inputs, arrays, strict=True)):
            cut = array[tuple(at.get(index, slice(None)) for index in term)]
            held[number] = (tuple(index for index in term if index not in at), cut)
        for number, (a, b) in enumerate(path.ssa_path):
            (x_term, x), (y_term, y) = held.pop(a), held.pop(b)
            wanted = {index for term, _ in held.values() for index in term} | set(network.output)
            legs = tuple(index for index in dict.fromkeys(x_term + y_term) if index in wanted)
            held[len(network.inputs) + number] = legs, np.einsum(
                x, [names[i] for i in x_term], y, [names[i] for i in y_term], [names[i] for i in legs]
            )  # fmt: skip
        ((term, array),) = held.values()
        total = total + np.einsum(array, [names[i] for i in term], [names[i] for i in network.output])
    return total


@pytest.mark.parametrize("minimize", ["flops", "time", "fused"])
@pytest.mark.parametrize("seed", slow_after(2, range(4)))
def test_the_value_is_the_network_s(seed: int, minimize: str) -> None:
    network = odd_network(seed)
    arrays = random_tensors(network, "complex128", seed)
    path = search_path(
        network, "complex128", max_tensor_elements=40, methods=("joint",), minimize=minimize, effort=ROUND,
        seed=seed, profile=load_profile("h200-nvlink"),
    )  # fmt: skip
    assert 2 ** path_cost(path).log2_largest <= 40 + 1e-9
    expected = cotengra.array_contract(arrays, network.inputs, network.output, optimize="greedy")
    assert np.allclose(value(path, arrays), expected, rtol=1e-10)
    assert path.meta["objective"] == minimize


@pytest.mark.parametrize("seed", [*range(12), 51, 601])
def test_odd_networks_below_their_output(seed: int) -> None:
    """Open indices are sliced, of networks of one and two tensors too."""
    network = random_path(seed).network
    for limit in {max(1, network.output_size // share) for share in (2, 8, 64)}:
        path = search_path(
            network, "complex64", max_tensor_elements=limit, methods=("joint",), effort=Effort(0.1, 2, 1)
        )
        assert path_cost(path).log2_largest <= math.log2(limit) + 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_odd_networks(seed: int) -> None:
    """Traces, scalars, disconnected parts, single tensors, extents of 1."""
    given = random_path(seed)
    limit = max(given.network.output_size, 4)
    path = search_path(
        given.network, given.dtype, max_tensor_elements=limit, methods=("joint",),
        effort=Effort(0.5, 2, 1), from_paths=[given] if seed % 2 else [],
    )  # fmt: skip
    assert path_cost(path).log2_largest <= math.log2(limit) + 1e-9 or len(given.network.inputs) == 1
    assert all(given.network.size_dict[index] > 1 for index in path.sliced_inds)
    assert all(len(step) == 2 for step in path.ssa_path)


def test_same_seed_same_path() -> None:
    network = regular_network(40, 0, extents=(2, 3))
    found = [
        search_path(
            network, "complex64", max_tensor_elements=2**8, methods=("joint",), seed=s,
            effort=Effort(4, 2, 2),
        )
        for s in (1, 1, 2)
    ]  # fmt: skip
    assert (found[0].ssa_path, found[0].sliced_inds) == (found[1].ssa_path, found[1].sliced_inds)
    assert (found[0].ssa_path, found[0].sliced_inds) != (found[2].ssa_path, found[2].sliced_inds)


def test_start_from_a_path_is_never_worse() -> None:
    start = search_path(LATTICE, "complex64", max_tensor_elements=2**8, effort=Effort(60, 6, 3))
    better = search_path(
        LATTICE, "complex64", max_tensor_elements=2**8, from_paths=[start], methods=("joint",),
        minimize="flops", effort=ROUND,
    )  # fmt: skip
    assert log10_mnk_planned(better) <= log10_mnk_planned(start) + 1e-9
    unlimited = search_path(LATTICE, "complex64", from_paths=[start], methods=("joint",), effort=ROUND)
    assert unlimited.sliced_inds == start.sliced_inds or not unlimited.sliced_inds


def test_the_cheapest_of_several_paths_comes_first() -> None:
    starts = [
        search_path(LATTICE, "complex64", max_tensor_elements=2**8, effort=Effort(60, 1, 0), seed=seed)
        for seed in range(6)
    ]
    options = {"methods": ("joint",), "minimize": "flops", "max_tensor_elements": 2**8}
    alone = [
        search_path(LATTICE, "complex64", from_paths=[start], effort=Effort(0), **options)  # type: ignore[arg-type]
        for start in starts
    ]
    together = search_path(LATTICE, "complex64", from_paths=starts, effort=Effort(0), **options)  # type: ignore[arg-type]
    costs = [cost_of(path, 0.0) for path in alone]
    assert len(set(costs)) > 1
    assert cost_of(together, 0.0) == min(costs)


def test_time_is_kept_and_progress_told() -> None:
    """Once the moves are compiled, which a first search does."""
    search_path(LATTICE, "complex64", methods=("joint",), effort=Effort(0.1, 1, 1))
    told: list[ContractionPath] = []
    before = time.monotonic()
    path = search_path(
        peps_network(9, 9, 1, extents=(2, 3)), "complex64", max_tensor_elements=2**16, methods=("joint",),
        minimize="flops", effort=Effort(2.0),
        report=lambda _, better: told.append(better),
    )  # fmt: skip
    assert 1.0 < time.monotonic() - before < 4.0
    costs = [cost_of(better, 0.0) for better in told]
    assert costs == sorted(costs, reverse=True)
    assert log10_mnk_planned(path) <= log10_mnk_planned(told[-1])


# fmt: off
WRONG_OPTIONS: list[Row] = [
    ({"minimize": "luck"}, "--minimize", "'luck' is unknown with method joint", "choose from flops, time"),
    ({"minimize": "time"}, "--minimize", "is time, but no machine is named", "name a profile with"),
    ({"minimize": "fused", "methods": ("greedy",)}, "--minimize",
     "'fused' is unknown without method joint", "choose from flops"),
]
# fmt: on


@table(WRONG_OPTIONS)
def test_wrong_options_are_named(refusal: Refusal) -> None:
    options = {"methods": ("joint",), "effort": ROUND, **refusal.given}
    refusal.raised_by(lambda: search_path(LATTICE, "complex64", **options))


def test_command_line(tmp_path: Path) -> None:
    save_network(LATTICE, tmp_path / "n.json", dtype="complex64")
    done = CliRunner().invoke(
        cli,
        ["search",
            str(tmp_path / "n.json"), "--method", "joint", "--minimize", "time", "--hardware", "h200-nvlink",
            "--max-tensor", "2^8", "--time", "1", "-o", str(tmp_path / "p.json"),
        ],
        catch_exceptions=False,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    path = load_path(tmp_path / "p.json")
    assert path_cost(path).log2_largest <= 8
    assert path.meta["objective"] == "time"
    assert "joint annealing" in path.meta["search"]


@pytest.mark.parametrize("limit", [None, 2**10])
def test_a_large_network_has_paths_before_its_core(
    limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first paths are told before anything is reduced, and no path that is told is over the limit."""
    events: list[str] = []
    core_of = starts.core_of
    monkeypatch.setattr(starts, "QUICK_TENSORS", 20)
    monkeypatch.setattr(starts, "core_of", lambda *given: (events.append("core"), core_of(*given))[1])
    told: list[float] = []

    def report(_: float, path: ContractionPath) -> None:
        cost = path_cost(path)
        told.append(cost.log10_mnk_all_slices)
        assert limit is None or cost.log2_largest <= math.log2(limit) + 1e-9
        events.append("path")

    network = peps_network(6, 6, 0, extents=(2, 2), n_open=0)
    effort = Effort(time_s=60, max_trials=2, max_rounds=1)
    path = search_path(
        network, "complex64", max_tensor_elements=limit, effort=effort, methods=("joint",), report=report,
        minimize="flops",
    )  # fmt: skip
    assert events[0] == "path"
    assert "core" in events
    assert events[-1] == "path"
    assert min(told) == told[-1]
    assert path_cost(path).log10_mnk_all_slices == pytest.approx(told[-1])


def test_a_search_gives_no_worse_path_than_it_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where its trees turn out worse: here they are random pairs."""
    monkeypatch.setattr(starts, "QUICK_TENSORS", 20)
    network = peps_network(3, 30, 0, extents=(2, 2), n_open=0)

    def worse(task: Task, **_: object) -> ScoredTree:
        core = Network(task.inputs, (), dict.fromkeys(task.sizes, 2))
        return ScoredTree(0.0, chain_path(core, 0), ())

    monkeypatch.setattr(cotengra_search, "search_joint", worse)
    told: list[float] = []
    path = search_path(
        network, "complex64", effort=ROUND, methods=("joint",), minimize="flops",
        report=lambda _, one: told.append(path_cost(one).log10_mnk_all_slices),
    )  # fmt: skip
    assert path_cost(path).log10_mnk_all_slices == pytest.approx(min(told))
    assert path_cost(path).log2_largest <= 8  # along the strip, not across it


def test_the_search_chooses_what_is_sliced_of_inputs_over_the_limit() -> None:
    """Each of three inputs has an index of extent 10, and all have one of extent 5."""
    terms = (("x", "a"), ("y", "a"), ("z", "a"), ("x",), ("y",), ("z",))
    network = Network(terms, (), {"x": 10, "y": 10, "z": 10, "a": 5})
    path = search_path(network, "float64", max_tensor_elements=10, methods=("joint",), effort=ROUND)
    assert path.sliced_inds == ("a",)
