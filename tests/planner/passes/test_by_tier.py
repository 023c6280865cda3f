"""Distribution over two tiers: bytes between nodes by null replay, and searches against every layout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations
from math import inf
from pathlib import Path

import pytest

from tests.support.networks import eager_profile, random_path
from tests.support.null_device.dry_run import dry_run
from tnplan.planner.hardware.cost import make_grid
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import Planner, plan
from tnplan.planner.passes.sharding import policies, search
from tnplan.planner.passes.sharding.persistent_sharding import distribute_by_tier
from tnplan.planner.passes.sharding.states import ShardingState, StateSpace
from tnplan.planner.schedule.schedule import Schedule


@pytest.mark.slow
def test_two_tiers_halve_the_bytes_between_nodes(root: Path) -> None:
    """At 8 nodes of 8, against the same planner on one tier at the speed between nodes."""
    path = load_path(root / "paths/zuchongzhi_n60_m24_b38_schedule.json")
    profile = load_profile("dgx-h100")
    flat = replace(profile, tiers=profile.tiers[-1:])
    two, one = (plan(path, item, devices=64, ranks_per_group=64) for item in (profile, flat))

    def received(schedule: Schedule) -> list[float]:
        run = schedule.most_shared
        return [size / run for size in dry_run(schedule, 0, range(run))[0].received_bytes]

    between_nodes = received(two)[1]
    assert 0 < between_nodes <= 0.5 * sum(received(one))
    assert between_nodes <= 0.7 * received(replace(one, grid=two.grid))[1]


def cost_s(chosen: search.Distribution) -> float:
    """Predicted seconds of all steps."""
    at_root = chosen.choices[-1]
    return 0.0 if at_root is None else at_root.cost_s


@pytest.mark.parametrize("name", ["zuchongzhi_n60_m24_b33_fused", "rectangular_6x7_l20_b32_fused"])
def test_tier_by_tier_is_faster_on_real_paths(name: str, root: Path) -> None:
    planner = Planner(load_path(root / f"paths/{name}.json"), load_profile("dgx-h100"))
    grid = make_grid(64, planner.profile)
    space = StateSpace(planner.tree, grid, planner.model, inf)
    steps = search.step_modes(planner.tree, planner.orders, 8, 2**26)
    at_once = search.distribute(planner.tree, space, steps, policies.ours)
    assert cost_s(distribute_by_tier(planner.tree, grid, space, steps)) < 0.98 * cost_s(at_once)


def every(choices: search.StepChoices) -> Iterable[ShardingState]:
    """All layouts of a step, for two digits of two tiers."""
    space, step, *_ = choices
    modes = step.left_mask | step.right_mask
    bits = [0, 0, *(1 << slot for slot in range(modes.bit_length()) if modes >> slot & 1)]
    return {
        pair
        for pair in permutations(bits, 2)
        if not any(own & ~eligible for own, eligible in zip(pair, space.eligible, strict=True))
    }


def test_the_searches_against_all_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On tiny random networks, four ranks on two nodes: never faster than the best, close together."""
    ratios = []
    for seed in range(60):
        planner = Planner(random_path(seed, 4000), eager_profile(), inf, 1)
        if not planner.tree.children:
            continue
        grid = make_grid(4, planner.profile)
        space = StateSpace(planner.tree, grid, planner.model, inf)
        steps = search.step_modes(planner.tree, planner.orders, planner.model.item_bytes, 1)
        at_once = cost_s(search.distribute(planner.tree, space, steps, policies.ours))
        by_tier, persistent = (
            cost_s(distribute_by_tier(planner.tree, grid, space, steps, keeps)) for keeps in (False, True)
        )
        with monkeypatch.context() as patch:
            patch.setattr(search, "STATES_KEPT", 10**6)
            best = cost_s(search.distribute(planner.tree, space, steps, every))
        found = min(at_once, by_tier, persistent)
        assert found >= best * (1 - 1e-12)
        ratios.append(found / best)
    assert len(ratios) >= 40
    assert sum(ratios) / len(ratios) < 1.03


def test_a_stage_leaves_settled_digits_alone() -> None:
    planner = Planner(random_path(3), eager_profile(), inf, 1)
    grid = make_grid(8, planner.profile)
    whole = StateSpace(planner.tree, grid, planner.model, inf)
    slow, fast = (StateSpace(planner.tree, grid, planner.model, inf, tier=tier) for tier in (1, 0))
    assert (slow.n_settled, fast.n_settled, whole.n_settled) == (0, 1, 0)
    assert slow.classes == whole.classes[:1]
    assert fast.classes == whole.classes
    assert slow.share(slow.local) == 1 / 2
    assert fast.share(fast.local) == 1
    assert fast.widen((0b10,)) == (0b10, 0)
    assert fast.settle((0b10, 0), (0b1, 0b110)) == (0b10, 0b100)
    bits = [1 << slot for slot in range(len(planner.tree.slot_extents))]
    assert fast.fill((0, 0), bits)[0] == 0
    assert slow.settle((0b10,), (0b1,)) == (0b1,)
