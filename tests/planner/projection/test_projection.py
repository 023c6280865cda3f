"""Projection: the metrics of the paper's section V-A on plans made by hand, and real plans by brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.support.contraction.executor import lattice
from tests.support.contraction.fused import fusing_profile
from tests.support.contraction.schedules import made_schedule
from tests.support.networks import random_path
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.slow import slow_after
from tnplan.common.errors import InputError
from tnplan.planner.hardware.profile import WATTS, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import Planner, plan
from tnplan.planner.projection import projection
from tnplan.planner.projection.projection import project
from tnplan.planner.schedule.schedule import Schedule

PROFILE = load_profile("dgx-h100")


def chain_path(name: str = "chain", sliced: tuple[str, ...] = (), extent: int = 4) -> ContractionPath:
    """A ring of four matrices: every step contracts one index."""
    inputs = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))
    network = Network(inputs, (), dict.fromkeys("abcd", extent))
    return ContractionPath(network, ((0, 1), (4, 2), (5, 3)), sliced, "complex64", name)


def planner_of(
    times: dict[tuple[str, int], float], calls: list[tuple[str, int]], once_s: float = 0.0
) -> type[Planner]:
    """A planner that knows the seconds of a slice for some names and group sizes, and refuses the others."""

    class Made(Planner):
        def fits(self, ranks: int, policy: str = "ours", groups: int = 1) -> bool:
            return (self.path.name, ranks) in times

        def plan(self, ranks: int, policy: str = "ours", groups: int = 1) -> Schedule:
            name = self.path.name
            calls.append((name, ranks))
            if (name, ranks) not in times:
                raise InputError("step 0", f"{name} on {ranks} does not fit", "add devices")
            return made_schedule(self.path, self.profile, ranks, times[name, ranks], once_s)

    return Made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    return []


def test_the_metrics_of_section_v_a(monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]) -> None:
    sliced, whole = chain_path("sliced", ("b",), 16), chain_path("whole", (), 16)
    times = {("sliced", 1): 10.0, ("sliced", 2): 6.0, ("whole", 2): 50.0, ("whole", 4): 20.0}
    monkeypatch.setattr(projection, "Planner", planner_of(times, calls))
    found = project([sliced, whole], PROFILE, [1, 2, 4])
    assert [(row.devices, row.path, row.n_groups, row.ranks_per_group) for row in found.rows] == [
        (1, 0, 1, 1), (2, 1, 1, 2), (4, 1, 1, 4),
    ]  # fmt: skip
    one, two, four = found.rows
    assert (one.time_s, two.time_s, four.time_s) == (160.0, 50.0, 20.0)
    assert (one.speedup, two.speedup, four.speedup) == (1.0, 3.2, 8.0)
    assert (one.extra_speedup, two.extra_speedup, four.extra_speedup) == (1.0, 1.6, 2.0)
    whole_products = 16**3 + 16**3 + 16**2
    sliced_products = 16 * (16**2 + 16**3 + 16**2)
    assert (one.complexity, four.complexity) == (8.0 * sliced_products, 8.0 * whole_products)
    assert four.complexity_reduction == sliced_products / whole_products
    assert four.captured == pytest.approx(2.0 * whole_products / sliced_products)
    assert (four.split.contract_s, four.split.permute_s, four.split.exchange_s) == (10.0, 2.5, 5.0)
    assert four.split.other_s == 2.5
    assert four.exchange_share == 0.25
    assert found.baseline_devices == 1


def test_steps_that_no_slice_touches_count_once(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr(projection, "Planner", planner_of({("chain", 1): 1.0}, calls, once_s=3.0))
    path = replace(chain_path("chain", ("d",), 4), ssa_path=((0, 1), (2, 3), (4, 5)))
    row = project([path], PROFILE, [1]).rows[0]
    assert row.complexity == 8.0 * (4**3 + 4 * (4**2 + 4**2))
    assert row.time_s == 3.0 + 4 * 1.0


def test_slices_run_in_rounds_and_spare_devices_idle(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]
) -> None:
    path = chain_path("chain", ("a",), 16)
    monkeypatch.setattr(projection, "Planner", planner_of({("chain", 1): 4.0, ("chain", 4): 1.0}, calls))
    found = project([path], PROFILE, [1, 4, 6, 7, 32])
    times = {
        row.devices: (row.time_s, row.n_groups, row.ranks_per_group, row.idle_devices) for row in found.rows
    }
    assert times[4] == (16.0, 4, 1, 0)
    assert times[6] == (12.0, 6, 1, 0)
    assert times[7] == (12.0, 7, 1, 0)
    assert times[32] == (2.0, 8, 4, 0)
    monkeypatch.setattr(projection, "Planner", planner_of({("chain", 4): 1.0}, []))
    assert [(row.devices, row.idle_devices) for row in project([path], PROFILE, [4, 7]).rows] == [
        (4, 0),
        (7, 3),
    ]


def test_every_plan_is_made_once_and_hopeless_ones_never(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]
) -> None:
    tiny, huge = chain_path("tiny", (), 4), chain_path("huge", (), 65536)
    times = {(name, ranks): 1e-3 / ranks for name in ("tiny", "huge") for ranks in (1, 2, 3, 4, 6, 8, 12)}
    monkeypatch.setattr(projection, "Planner", planner_of(times, calls))
    told: list[tuple[int, int]] = []
    found = project(
        [huge, tiny], PROFILE, [12, 4, 4], progress=lambda done, total, _: told.append((done, total))
    )
    assert sorted(calls) == [("tiny", ranks) for ranks in (1, 2, 3, 4, 6, 8, 12)]
    assert [row.path for row in found.rows] == [1, 1, 1]
    assert told == sorted(told)
    assert (told[0], told[-1]) == ((0, 24), (24, 24))


def test_a_baseline_that_needs_several_devices_is_said(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr(projection, "Planner", planner_of({("chain", 4): 8.0, ("chain", 8): 2.0}, calls))
    found = project([chain_path()], PROFILE, [2, 4, 8])
    assert found.baseline_devices == 4
    assert [refusal.devices for refusal in found.refusals] == [1, 2]
    assert "chain on 2 does not fit" in found.refusals[1].reason
    assert [(row.devices, row.speedup, row.extra_speedup) for row in found.rows] == [
        (4, 1.0, 1.0),
        (8, 4.0, 2.0),
    ]


def test_where_nothing_fits_the_planner_says_why() -> None:
    with pytest.raises(InputError) as planned:
        plan(chain_path(), PROFILE, devices=2, ranks_per_group=2, memory_bytes=100)
    with pytest.raises(InputError, match="no path fits on 1, 2 devices") as projected:
        project([chain_path()], PROFILE, [2], memory_bytes=100)
    assert f"chain: {planned.value.place}: {planned.value.problem}" in projected.value.problem


# fmt: off
REFUSED: list[Row] = [
    (([], {}), "--devices", "is empty", "give a list of numbers"),
    ((4, {}), "--devices", "is 4", "give a list of numbers of devices, such as"),
    (([0], {}), "--devices", "0 is not a number of devices", "give integers from 1 to"),
    (([2.5], {}), "--devices", "2.5 is not a number of devices", "give integers from 1 to"),
    (([1], {"precision": "fp8"}), "profile dgx-h100: flop_per_s.complex64",
     "has no precision 'fp8'", "choose another"),
    (([1], {"memory_bytes": -1}), "--memory", "is -1", "give a positive size"),
    (([1], {"policy": "theirs"}), "--policy", "'theirs' is unknown", "choose from ours"),
]
# fmt: on


@table(REFUSED)
def test_unusable_input_is_refused(refusal: Refusal) -> None:
    devices, options = refusal.given
    refusal.raised_by(lambda: project([chain_path()], PROFILE, devices, **options))


def test_no_path_is_refused() -> None:
    with pytest.raises(InputError, match="there is no path"):
        project([], PROFILE, [1])


def test_real_plans_agree_with_brute_force() -> None:
    profile = load_profile("cpu")
    paths = [chain_path("whole", (), 128), chain_path("sliced", ("a",), 128)]
    memory, threshold = 300_000, 20_000
    found = project(paths, profile, [1, 2, 4, 8], memory_bytes=memory, threshold_bytes=threshold)
    assert len(found.rows) + len(found.refusals) == 4
    for row in found.rows:
        times = []
        for path in paths:
            for ranks in (1, 2, 4, 8):
                try:
                    made = plan(
                        path, profile, devices=ranks, ranks_per_group=ranks, memory_bytes=memory,
                        threshold_bytes=threshold,
                    )  # fmt: skip
                except InputError:
                    continue
                if ranks <= row.devices:
                    times.append(made.projected_s(row.devices // ranks))
        assert row.time_s == min(times)
        split = row.split
        assert math.isclose(
            split.contract_s + split.permute_s + split.exchange_s + split.other_s, row.time_s, rel_tol=1e-9
        )
    assert all(a.time_s >= b.time_s for a, b in zip(found.rows, found.rows[1:], strict=False))


@pytest.mark.parametrize("seed", slow_after(3, range(8)))
def test_energy_is_the_watts_of_what_devices_do(seed: int) -> None:
    """Equal watts: all devices, all the time. Else each kind of work has its share; so have idle devices."""
    has_chains, counts = seed == 0, [1, 2, 3, 5]
    path = lattice(3, 10, 2, 2, "complex64", n_open=2) if has_chains else random_path(seed, 2_000)
    without = fusing_profile(1 << 13) if has_chains else load_profile("cpu")

    def energies(**watts: float) -> list[float]:
        profile = replace(without, watts={name: watts.get(name, 1e-12) for name in WATTS})
        found = project([path], profile, counts, threshold_bytes=1)
        return [row.energy_kwh or 0.0 for row in found.rows]

    plain = project([path], without, counts, threshold_bytes=1)
    assert [row.energy_kwh for row in plain.rows] == [None] * len(counts)
    device_s = [row.time_s * row.devices for row in plain.rows]
    assert energies(**dict.fromkeys(WATTS, 720.0)) == pytest.approx([time_s / 5000 for time_s in device_s])
    shares = {name: energies(**{name: 3.6e6}) for name in WATTS}
    for number, row in enumerate(plain.rows):
        working = row.devices - row.idle_devices
        split = row.split
        assert shares["contract"][number] == pytest.approx(working * (split.contract_s - split.chain_s))
        assert shares["chain"][number] == pytest.approx(working * split.chain_s)
        assert (split.chain_s > 0) is has_chains
        assert shares["exchange"][number] == pytest.approx(working * split.exchange_s)
        assert shares["permute"][number] == pytest.approx(working * (split.permute_s + split.other_s))
        assert shares["idle"][number] == pytest.approx(row.idle_devices * row.time_s)
