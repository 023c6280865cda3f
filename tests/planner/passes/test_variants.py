"""The variants of a plan: what is listed, what is left out once one fits, and which is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from statistics import median

import pytest

from tests.support.contraction.fused import fusing_profile, stem_path
from tests.support.networks import eager_profile, random_path
from tests.support.slow import slow_after
from tnplan.common.errors import InputError
from tnplan.planner.hardware.compression_options import Compression, Lossy
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.passes import pipeline
from tnplan.planner.passes.lowering.plan_context import (
    BY_TIER,
    PERSISTENT,
    PlanContext,
    Variant,
    emit_schedule,
)
from tnplan.planner.passes.pipeline import Planner, plan
from tnplan.planner.passes.variants import TIGHTENINGS, UNLIMITED_SHARE, fastest

RANKS_AND_GROUPS = ((1, 1), (1, 3), (2, 2))


def planners(seeds: range) -> Iterator[Planner]:
    """Of random networks, with chains and without, under limits that force the later variants."""
    for seed in seeds:
        for fused in (False, True):
            path = replace(stem_path(seed) if fused else random_path(seed), dtype="complex64")
            profile = fusing_profile(1 << 13) if fused else eager_profile()
            peak_bytes = plan(path, profile, memory_bytes=inf, threshold_bytes=64).predicted.peak_bytes
            for share in (1.2, 0.95, 0.9, 0.8):
                yield Planner(path, profile, max(int(share * peak_bytes), 256), 64)


def all_tried(planner: Planner, ranks: int, groups: int) -> tuple[list[Variant], dict[Variant, PlanContext]]:
    """What the iterator lists while the plans that fit are given back to it, and these."""
    tried: list[Variant] = []
    plans: dict[Variant, PlanContext] = {}
    for variant in planner.space.variants(ranks, "ours", groups, plans):
        tried.append(variant)
        try:
            plans[variant] = planner.plan_variant(variant)
        except InputError:
            continue
    return tried, plans


def test_where_nothing_fits_each_variant_is_listed_once() -> None:
    with_chains = 0
    for planner in planners(range(8)):
        listed = list(planner.space.variants(2, "ours", 1, {}))
        assert len(set(listed)) == len(listed)
        assert {variant.policy for variant in listed} == {"ours"}
        limited = [variant for variant in listed if variant.step_limited]
        shares = [variant.share for variant in limited]
        assert shares == sorted(shares, reverse=True)
        assert all(variant.tries == (TIGHTENINGS if variant.share <= 1 else 1) for variant in limited)
        unlimited = [variant for variant in listed if not variant.step_limited]
        assert bool(unlimited) == bool(planner.model.fused_elements)
        assert all(variant.share in (*shares, UNLIMITED_SHARE) for variant in unlimited)
        with_chains += bool(unlimited)
    assert with_chains


@pytest.mark.parametrize("seeds", slow_after(1, [range(4), range(4, 8)]))
def test_smaller_shares_are_left_out_once_one_fits_and_the_fastest_is_taken(seeds: range) -> None:
    later = 0
    ratios: list[float] = []
    for planner in planners(seeds):
        for ranks, groups in RANKS_AND_GROUPS:
            tried, plans = all_tried(planner, ranks, groups)
            assert planner.fits(ranks, groups=groups) == bool(plans) >= (planner.first_s(ranks, groups) < inf)
            if not plans:
                with pytest.raises(InputError):
                    planner.plan(ranks, groups=groups)
                continue
            for policy in {variant.policy for variant in plans}:
                fitting = {variant.share for variant in plans if variant.policy == policy}
                listed = {variant.share for variant in tried if variant.policy == policy}
                assert len(fitting - {UNLIMITED_SHARE}) <= 1
                assert min(listed) in fitting or fitting == {UNLIMITED_SHARE}
            chosen = plans[fastest(plans)]
            assert chosen.total_s == min(context.total_s for context in plans.values())
            schedule = planner.plan(ranks, groups=groups)
            assert schedule == emit_schedule(chosen, "ours")
            # A first plan is one of those: never faster than the fastest, and mostly near it.
            ratio = planner.first_s(ranks, groups) / schedule.projected_s(groups)
            assert ratio > 1 - 1e-9
            ratios.append(ratio)
            later += next(iter(plans)) != tried[0]
    assert later >= 2
    assert median(ratios) < 1.1


def test_with_enough_memory_one_rank_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[Variant] = []
    whole = pipeline.attempt

    def counted(context: PlanContext) -> PlanContext:
        attempts.append(context.variant)
        return whole(context)

    monkeypatch.setattr(pipeline, "attempt", counted)
    for seed in range(5):
        Planner(stem_path(seed), fusing_profile(1 << 13), 1e12).plan(1)
    assert len(attempts) == 5


def test_other_policies_are_tried_only_where_something_is_exchanged() -> None:
    two_tiers = replace(eager_profile(), tiers=load_profile("dgx-h100").tiers)
    policies = set()
    for seed in range(12):
        path = random_path(seed)
        alone, _ = all_tried(Planner(path, two_tiers, inf, 1), 1, 1)
        assert {variant.policy for variant in alone} == {"ours"}
        tried, plans = all_tried(Planner(path, two_tiers, inf, 1), 16, 1)
        if plans[tried[0]].is_local:
            assert {variant.policy for variant in tried} == {"ours"}
        else:
            policies |= {variant.policy for variant in tried}
    assert policies == {"ours", "paper", BY_TIER, PERSISTENT}


def test_every_variant_that_compresses_leaves_memory_for_the_codec() -> None:
    """Also the one with persistent shardings."""
    dgx = load_profile("dgx-h100")
    codecs = {name: replace(rates, workspace_bytes=1000) for name, rates in dgx.codecs.items()}
    profile = replace(eager_profile(), tiers=dgx.tiers, codecs=codecs)
    exchange, store = Compression(exchange=Lossy(1e-3)), Compression(store=Lossy(1e-3))
    compressing, storing = (
        Planner(random_path(3), profile, 1e6, 1, None, compression) for compression in (exchange, store)
    )
    nest = compressing.tree.loop_nest
    for policy in ("ours", "paper", BY_TIER, PERSISTENT):
        context = compressing.plan_variant(Variant(16, nest, policy))
        assert context.limits.arena_bytes == 1e6 - 1000
    assert storing.plan_variant(Variant(16, nest, PERSISTENT)).limits.arena_bytes == 1e6
    assert storing.plan_variant(Variant(16, nest, "ours", spilled=True)).limits.arena_bytes == 1e6 - 1000
