"""Every real path and network at hand plans at 1 to 1024 ranks, is accepted, and replays without values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import opt_einsum
import pytest

from tests.support.effort import in_turn
from tests.support.null_device.dry_run import ENDLESS, dry_run
from tests.support.root import ROOT
from tests.support.slow import slow_but
from tnplan.common.errors import InputError
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers import read_any, read_network
from tnplan.planner.passes.pipeline import Planner
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import Schedule

SHARED = ROOT.parent / "shared" / "data"
FEW, MANY = (2, 8), (64, 1024)
LIMIT_BYTES = 80e9
QUICK = ("peps_11x11_b21", "regular_84_3_b22", "sycamore_n53_m10_b24")
"""Paths of the project that are planned and replayed within seconds."""


def sources() -> Iterator[Path]:
    """The paths that come with the project and those that lie beside a checkout."""
    own = sorted((ROOT / "paths").glob("*.json"))
    yield from own
    names = {source.name for source in own}
    yield from sorted(source for source in (SHARED / "paths").glob("*.json") if source.name not in names)
    yield from sorted((SHARED / "networks").glob("*.json"))


def load(source: Path) -> ContractionPath:
    """A path file of any kind; a network without a path is given a greedy one."""
    if source.parent.name != "networks":
        return read_any(source)[0]
    network, dtype, _, _ = read_network(source)
    terms = [set(term) for term in network.inputs]
    linear = opt_einsum.paths.greedy(terms, set(network.output), network.size_dict)
    return ContractionPath(network, ssa_from_linear(linear, len(network.inputs)), (), dtype, source.stem)


def check_counters(schedule: Schedule) -> None:
    """The operations and bytes of a null replay are the predicted ones.

    They are counted from the slowest tier on: the model may charge a byte to a slower tier than it takes.
    Splits of odd extents are predicted by their largest part and their worst overlap, at another rank for
    each step: no one rank does or receives all of it.
    """
    predicted = moved_by_tier(schedule)
    flops = sum(step.flops * step.repeats for step in schedule.steps)
    most = 0
    size = schedule.ranks_per_group
    # Ranks whose digits are equal, or replicate, keep more of their own data in an exchange than the others.
    for rank in sorted({0, size // 9, size // 8, size // 7, size // 3, size - 1}):
        counts, peak_bytes = dry_run(schedule, rank)
        assert peak_bytes <= schedule.predicted.peak_bytes
        assert counts.flops <= flops * (1 + 1e-9)
        for tier in range(len(predicted)):
            assert sum(counts.received_bytes[tier:]) <= sum(predicted[tier:])
        most = max(most, sum(counts.received_bytes))
    if all(mode.extent == 2 for mode in schedule.modes):
        assert most >= 0.95 * sum(predicted)
        assert counts.flops == pytest.approx(flops)


def moved_by_tier(schedule: Schedule) -> list[int]:
    """Predicted bytes by tier of `once` and one slice, with what its early sum repeats."""
    totals = [0] * len(schedule.steps[0].moved_bytes_by_tier)
    for step in schedule.steps:
        for tier, moved in enumerate(step.moved_bytes_by_tier):
            totals[tier] += moved * step.repeats
    return totals


def test_there_are_real_paths() -> None:
    assert len(list((ROOT / "paths").glob("*.json"))) >= 5


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data, which is not here")
def test_the_shared_paths_are_found() -> None:
    assert len(SOURCES) > 25


SOURCES = list(sources())


@pytest.mark.parametrize("source", slow_but(QUICK, SOURCES))
def test_plans_at_every_number_of_ranks(source: Path) -> None:
    """A path at one rank, at a few and at many: paths next to each other have others of the counts."""
    path, number = load(source), SOURCES.index(source)
    profile = load_profile("dgx-h100")
    one_round = replace(
        profile, exchange_bytes=1 << 62
    )  # petabytes in rounds of 1 GiB would take hours to count
    unlimited, limited = Planner(path, one_round, inf), Planner(path, profile, LIMIT_BYTES)
    fits = False
    for ranks in (1, *in_turn(FEW, number), *in_turn(MANY, number // len(FEW))):
        schedule = unlimited.plan(ranks)
        verify(schedule)
        if source.stem not in ENDLESS:
            check_counters(schedule)
        if schedule.predicted.peak_bytes > LIMIT_BYTES:
            fits_or_names_the_step(limited, ranks)
        elif not fits:  # and so it does on more ranks
            fits = True
            assert limited.plan(ranks).predicted.peak_bytes <= LIMIT_BYTES


def fits_or_names_the_step(planner: Planner, ranks: int) -> None:
    """Meet the limit with another plan, or refuse with the step, the size and the remedy."""
    try:
        schedule = planner.plan(ranks)
    except InputError as error:
        refusal = error
    else:
        assert schedule.predicted.peak_bytes <= LIMIT_BYTES
        return
    assert refusal.place.startswith("step ")
    assert "iB" in refusal.problem
    assert "more memory" in refusal.remedy
