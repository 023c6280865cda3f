"""What is said of ranks that do not lie on hosts as a schedule expects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.contraction.schedules import planned, sliced_lattice
from tnplan.api.jobs.topology import topology_note

SCHEDULE = planned(sliced_lattice(2), ranks=4)
TIERS = [{"name": name, "devices": devices, "bytes_per_s": rate} for name, devices, rate in
         (("nvlink", 2, 400e9), ("infiniband", 0, 50e9))]  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "devices", "says"),
    [
        ("aabb", 2, ""), ("aaaa", 2, ""), ("aaaabbbb", 0, ""), ("aabbccdd", 2, ""),
        ("abab", 2, "planned for 2 ranks a host that exchange by nvlink; here 1 are together"),
        ("aabb", 0, "planned for 4 ranks a host that exchange by nvlink; here 2 are together"),
        ("aaab", 8, "planned for 4 ranks a host that exchange by nvlink; here 3 are together"),
    ],
)  # fmt: skip
def test_groups_over_more_hosts_than_planned(hosts: str, devices: int, says: str) -> None:
    tiers = [{**TIERS[0], "devices": devices}, TIERS[1]]
    note = topology_note(replace(SCHEDULE, profile={**SCHEDULE.profile, "tiers": tiers}), list(hosts))
    assert note.startswith(says)
    assert bool(note) == bool(says)
    if says:
        share = sum(step.exchange_s for step in SCHEDULE.steps) / sum(s.predicted_s for s in SCHEDULE.steps)
        assert f"up to {700 * share:.1f} % longer" in note


def test_a_profile_of_one_tier_predicts_nothing_between_hosts() -> None:
    schedule = replace(SCHEDULE, profile={**SCHEDULE.profile, "tiers": TIERS[:1]})
    assert "much longer than predicted" in topology_note(schedule, list("abcd"))
