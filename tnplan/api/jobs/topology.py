"""Whether the ranks lie on hosts as a schedule expects, and what it costs where they do not."""

from __future__ import annotations

from tnplan.planner.common.shown_text import shown_text
from tnplan.planner.common.units import percent_text
from tnplan.planner.schedule.schedule import Schedule


def topology_note(schedule: Schedule, hosts: list[str]) -> str:
    """What a user should know where groups reach over more hosts than planned; empty where all is as planned.

    `hosts` has the host of each rank, as the launcher placed them. The first tier of the schedule's profile
    joins so many devices (0: all of one machine); exchanges that were planned within it go by the next one.
    """
    size = schedule.ranks_per_group
    tiers = schedule.profile["tiers"]
    planned = min(tiers[0]["devices"] or size, size)
    groups = [hosts[first : first + size] for first in range(0, len(hosts), size)]
    # Ranks first, first + 1, ... of the group are one domain of the first tier.
    domains = [group[first : first + planned] for group in groups for first in range(0, size, planned)]
    split = [domain for domain in domains if len({*domain}) > 1]
    if not split:
        return ""
    together = max(split[0].count(host) for host in split[0])
    near = shown_text(tiers[0]["name"], 40)
    text = f"planned for {planned} ranks a host that exchange by {near}; here {together} are together"
    if len(tiers) < 2:
        return f"{text}: exchanges between hosts may take much longer than predicted"
    factor = tiers[0]["bytes_per_s"] / tiers[1]["bytes_per_s"]
    whole_s = sum(step.predicted_s for step in schedule.steps)
    exchange_s = sum(step.exchange_s for step in schedule.steps)
    more = exchange_s / whole_s * max(0.0, factor - 1) if whole_s else 0.0
    far = shown_text(tiers[1]["name"], 40)
    return f"{text}: predicted to take up to {percent_text(more)} longer, exchanges by {far}"
