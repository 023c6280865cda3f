"""The report against the planner: what one refuses the other refuses, and times are those of plans."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.contraction.fused import fusing_profile, stem_path
from tests.support.contraction.shipped_paths import shipped_workloads
from tests.support.effort import repeats
from tests.support.networks import eager_profile, random_path
from tests.support.root import ROOT
from tests.support.slow import slow_but
from tnplan.common.errors import InputError, OverLimitError
from tnplan.planner.hardware.process_grid import divisors_and_powers
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes import pipeline
from tnplan.planner.passes.pipeline import Planner, plan
from tnplan.planner.passes.tree.lower_bounds import step_without_room
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import Projection, project
from tnplan.planner.schedule.schedule import Schedule
from tnplan.reporting.evaluation import memory_points

COUNTS = (1, 2, 3, 6)
ON_ONE_DEVICE = ("surface", "sycamore_n53_m20", "zuchongzhi")
"""Workloads whose plans take longest."""
QUICK = ("peps", "kings")

Plans = dict[tuple[int, int, int], Schedule]
"""By number of devices, path and ranks of a group: what `plan` makes of it, where it fits."""


def machine(fused: bool) -> Profile:
    """With tiles that hold the largest tensors of some networks between the steps of a chain, or none."""
    return fusing_profile(1 << 13) if fused else eager_profile()


def network(fused: bool, seed: int) -> ContractionPath:
    return replace(stem_path(seed) if fused else random_path(seed), dtype="complex64")


def memory(paths: Sequence[ContractionPath], profile: Profile, share: float) -> float:
    """A share of what the first of the paths takes on one device that has no limit."""
    if share == inf:
        return inf
    alone = plan(paths[0], profile, memory_bytes=inf, threshold_bytes=64)
    return max(int(share * alone.predicted.peak_bytes), 256)


def all_plans(
    paths: Sequence[ContractionPath], counts: Sequence[int], made: Callable[..., Schedule]
) -> Plans:
    """Every path planned for every number of devices in groups of every size."""
    found: Plans = {}
    for p in counts:
        for ranks in (size for size in divisors_and_powers(counts) if size <= p):
            for number, path in enumerate(paths):
                with suppress(InputError):
                    found[p, number, ranks] = made(path, devices=p, ranks_per_group=ranks)
    return found


def check(found: Projection, plans: Plans, counts: Sequence[int]) -> None:
    """Assert that a projection has exactly the best of the plans, and refuses exactly what all refuse."""
    fits = {p: [number for q, number, _ in plans if q == p] for p in counts}
    assert [row.devices for row in found.rows] == [p for p in counts if fits[p]]
    assert [refusal.devices for refusal in found.refusals] == [p for p in counts if not fits[p]]
    kept = None
    for row in found.rows:
        p = row.devices
        times = {key[1:]: made.projected_s(p // key[2]) for key, made in plans.items() if key[0] == p}
        if kept is not None:  # P devices can run what was planned for fewer
            times.setdefault((kept.path, kept.ranks_per_group), inf)
            times[kept.path, kept.ranks_per_group] = min(
                times[kept.path, kept.ranks_per_group], kept.schedule.projected_s(p // kept.ranks_per_group)
            )
        assert row.time_s == min(times.values())
        assert times[row.path, row.ranks_per_group] == row.time_s
        kept = row
    for number, demand in enumerate(found.demands):
        assert demand.least_devices == min((p for p, path, _ in plans if path == number), default=None)
    for point in memory_points(found):
        assert point.path in fits[point.devices]
    for plateau in plateaus(found):
        if plateau.cause == "memory":
            said = plateau.text.split(" takes ")[0]
            assert found.labels.index(said) not in fits[plateau.devices]


@settings(max_examples=repeats(8, 25))
@given(seed=st.integers(0, 10**6), fused=st.booleans(), share=st.sampled_from((inf, 1.0, 0.8, 0.6, 0.3)))
@example(seed=0, fused=True, share=0.4)
@example(seed=3, fused=False, share=0.4)
@example(seed=1647, fused=False, share=1.0)  # one of the paths contracts nothing
@example(seed=106828, fused=False, share=1.0)  # parts for six groups do not fit, those for one do
def test_a_report_has_the_best_of_all_plans(seed: int, fused: bool, share: float) -> None:
    profile = machine(fused)
    paths = [replace(network(fused, seed + n), name=f"path {n}") for n in range(2)]
    limit = memory(paths, profile, share)
    options = {"memory_bytes": limit, "threshold_bytes": random.Random(seed).choice((1, 64, None))}
    plans = all_plans(
        paths, COUNTS, lambda path, **how: plan(path, profile, **how, **options)  # type: ignore[arg-type]
    )  # fmt: skip
    if not plans:
        with pytest.raises(InputError, match="no path fits"):
            project(paths, profile, COUNTS, **options)  # type: ignore[arg-type]
        return
    check(project(paths, profile, COUNTS, **options), plans, COUNTS)  # type: ignore[arg-type]


@given(seed=st.integers(0, 10**6), fused=st.booleans(), share=st.sampled_from((inf, 1.0, 0.8, 0.6, 0.3)))
def test_bounds_rule_out_nothing_that_is_planned(seed: int, fused: bool, share: float) -> None:
    """Against plans without the bound on memory: it refuses none, and none is faster than that on time."""
    profile, path = machine(fused), network(fused, seed)
    planner = Planner(path, profile, memory([path], profile, share), random.Random(seed).choice((1, 64)))
    for ranks, groups in ((1, 1), (1, 3), (2, 1), (3, 2), (8, 1)):
        sure = step_without_room(planner.tree, planner.model, planner.limit_bytes, ranks)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "step_without_room", lambda *_: None)
            try:
                schedule = planner.plan(ranks, groups=groups)
            except InputError:
                assert not planner.fits(ranks, groups=groups)
                continue
            assert planner.fits(ranks, groups=groups)
        assert sure is None
        assert planner.fits(ranks, groups=groups)
        assert planner.least_s(ranks * groups, ranks) <= schedule.projected_s(groups)


def test_what_surely_does_not_fit_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain whose tensors are far beyond the memory for more steps than a chain has."""
    path = load_path(ROOT / "paths" / "zuchongzhi_n60_m24_b38_schedule_d64.json")
    planner = Planner(path, load_profile("dgx-h100"))
    monkeypatch.setattr(pipeline, "attempt", lambda *_: pytest.fail("it was attempted"))
    with pytest.raises(OverLimitError, match=r"^step 2\d\d: its tensors .* over 8 ranks fits"):
        planner.plan(8)
    assert not planner.fits(8)


@pytest.mark.parametrize("workload", slow_but(QUICK, shipped_workloads()))
def test_a_report_has_the_best_of_all_plans_of_shipped_paths(workload: str) -> None:
    """On one device, and mostly on two, where some have larger steps than memory."""
    paths, profile = shipped_workloads()[workload], load_profile("dgx-h100")
    counts = (1,) if workload.startswith(ON_ONE_DEVICE) else (1, 2)
    plans = all_plans(paths, counts, lambda path, **how: plan(path, profile, **how))
    if not plans:
        with pytest.raises(InputError, match="no path fits"):
            project(paths, profile, counts)
        return
    check(project(paths, profile, counts), plans, counts)
