"""What is said of ranks that do not lie on hosts and switches as a schedule expects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.contraction.schedules import planned, sliced_lattice
from tnplan.jobs.schedules import topology_note

SCHEDULE = planned(sliced_lattice(2), ranks=4)
TIERS = [{"name": name, "devices": devices, "bytes_per_s": rate} for name, devices, rate in
         (("nvlink", 2, 400e9), ("infiniband", 0, 50e9), ("spine", 0, 10e9))]  # fmt: skip
SHARE = sum(step.exchange_s for step in SCHEDULE.steps) / sum(step.predicted_s for step in SCHEDULE.steps)


def note(hosts: str, *devices: int, switches: str = "") -> str:
    """The note for ranks on these hosts and switches; so many devices are joined by each tier."""
    tiers = [{**tier, "devices": count} for tier, count in zip(TIERS, devices, strict=False)]
    places = [*zip(switches, hosts, strict=True)] if switches else [(host,) for host in hosts]
    return topology_note(replace(SCHEDULE, profile={**SCHEDULE.profile, "tiers": tiers}), places)


@pytest.mark.parametrize(
    ("hosts", "devices", "planned_for", "here", "remedy"),
    [
        ("abab", 2, 2, 1, "start ranks host by host"),
        ("aabb", 0, 4, 2, "plan with devices = 2 in tier nvlink"),
        ("aaab", 8, 4, 3, "plan with devices = 3 in tier nvlink"),
    ],
)
def test_groups_over_more_hosts_than_planned(
    hosts: str, devices: int, planned_for: int, here: int, remedy: str
) -> None:
    said = note(hosts, devices, 0)
    ranks = f"planned for {planned_for} ranks a host that exchange by nvlink; here {here} are together"
    assert said.startswith(ranks)
    assert f"up to {700 * SHARE:.1f} % longer, exchanges by infiniband; {remedy}" in said


@pytest.mark.parametrize(
    ("hosts", "devices"), [("aabb", 2), ("aaaa", 2), ("aaaabbbb", 0), ("aabbccdd", 2), ("abcd", 1)]
)
def test_nothing_is_said_of_groups_that_lie_as_planned(hosts: str, devices: int) -> None:
    assert note(hosts, devices, 0) == ""


def test_a_group_over_more_switches_than_planned() -> None:
    said = note("aabb", 2, 4, 0, switches="xxyy")
    assert said.startswith("planned for 4 ranks a switch that exchange by infiniband; here 2 are together")
    assert f"up to {400 * SHARE:.1f} % longer, exchanges by spine" in said
    assert note("aabb", 2, 4, 0, switches="xxxx") == ""
    assert note("aabb", 2, 2, 0, switches="xxyy") == ""
    assert note("abab", 2, 4, 0, switches="xyxy").startswith("planned for 2 ranks a host")


def test_a_profile_of_one_tier_predicts_nothing_between_hosts() -> None:
    assert "much longer than predicted" in note("abcd", 2)
