"""Long stays of the digits of a tier: what is proposed to the search, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from tests.support.contraction.executor import check_result, lattice
from tests.support.networks import agrees, eager_profile, random_arrays, random_path
from tests.support.slow import slow_after
from tnplan.calls.execute import execute
from tnplan.planner.hardware.cost import make_grid
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.lowering.plan_context import PERSISTENT, Variant, emit_schedule
from tnplan.planner.passes.pipeline import Planner, attempt, plan
from tnplan.planner.passes.sharding import persistent_sharding as tiers
from tnplan.planner.passes.sharding.persistent_sharding import persistent_shardings
from tnplan.planner.passes.sharding.search import step_modes
from tnplan.planner.passes.sharding.states import StateSpace
from tnplan.planner.passes.verify import verify


def halves() -> ContractionPath:
    """A lattice made from both ends, which meet in the middle."""
    whole = lattice(4, 8, 2, 0, "complex64")
    n, half = 32, 16
    steps, ends = [], []
    for order in (range(half), range(n - 1, half - 1, -1)):
        last, *rest = order
        for number in rest:
            steps.append((last, number))
            last = n + len(steps) - 1
        ends.append(last)
    return replace(whole, ssa_path=(*steps, (ends[0], ends[1])))


def proposed(planner: Planner, ranks: int) -> tuple[StateSpace, tuple[tuple[int, ...] | None, ...]]:
    grid = make_grid(ranks, planner.profile)
    stage = StateSpace(planner.tree, grid, planner.model, inf, tier=max(digit.tier for digit in grid))
    steps = step_modes(planner.tree, planner.orders, planner.model.item_bytes, 1)
    return stage, persistent_shardings(planner.tree, stage, steps)


def test_both_sides_meet_in_one_layout() -> None:
    planner = Planner(halves(), eager_profile(), inf, 1)
    tree = planner.tree
    stage, layouts = proposed(planner, 8)
    at_waist = layouts[tree.root]
    assert at_waist is not None
    assert [modes.bit_count() for modes in at_waist] == [len(item.positions) for item in stage.classes]
    for child in tree.children[-1]:
        assert layouts[child] == at_waist


@pytest.mark.parametrize("seed", range(30))
def test_layouts_are_of_what_the_tensors_have(seed: int) -> None:
    planner = Planner(random_path(seed, 4000), eager_profile(), inf, 1)
    tree = planner.tree
    if not tree.children:
        pytest.skip("nothing to contract")
    stage, layouts = proposed(planner, 8)
    assert all(layout is None for layout in layouts[: tree.n_leaves])
    for node in range(tree.n_leaves, tree.n_nodes):
        layout = layouts[node]
        if layout is None:
            continue
        legs = {mode for child in tree.children[node - tree.n_leaves] for mode in tree.legs[child]}
        slots = sum(1 << tree.slots[mode] for mode in legs | set(tree.legs[node]))
        for modes, item, eligible in zip(layout, stage.classes, stage.eligible, strict=True):
            assert not modes & ~slots
            assert not modes & ~eligible
            assert modes.bit_count() <= len(item.positions)


def test_stays_save_time_between_nodes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path found for 1024 devices, on 64 nodes of 8."""
    path = load_path(root / "paths/zuchongzhi_n60_m24_b40_schedule_d1024.json")

    def slice_s() -> float:
        return plan(path, load_profile("dgx-h100"), devices=512, ranks_per_group=512).predicted.slice_s

    with_stays = slice_s()
    monkeypatch.setattr(tiers, "persistent_shardings", lambda *_: ())
    assert with_stays < 0.92 * slice_s()


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("seed", slow_after(2, [None, 3, 5, 8]))
def test_a_replay_gives_the_value(seed: int | None, ranks: int) -> None:
    path = halves() if seed is None else random_path(seed)
    planner = Planner(path, eager_profile(), inf, 1)
    context = planner.context(Variant(ranks, planner.tree.loop_nest, PERSISTENT), inf)
    schedule = emit_schedule(attempt(context), "ours")
    verify(schedule)
    arrays = random_arrays(path, 1)
    found = execute(schedule, arrays, ranks=ranks).array
    assert found is not None
    if seed is None:
        check_result(path, arrays, found)
    else:
        agrees(found, path, arrays)
