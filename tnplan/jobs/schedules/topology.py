"""Whether the ranks lie on hosts and switches as a schedule expects, and what it costs where they do not."""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.common.shown_text import shown_text
from tnplan.common.units import percent_text
from tnplan.planner.schedule.schedule import Schedule

Place = tuple[str, ...]
"""Where a rank runs, the widest first: switches, where they are known, and the host."""
UNITS = ("a host", "a switch", "a group of switches")
"""What the tiers of a profile join, the first tier first."""


def topology_note(schedule: Schedule, places: Sequence[Place]) -> str:
    """What a user should know where a tier reaches over more units than planned; empty where none does.

    `places` has the place of each rank. A tier of the schedule's profile joins so many devices (0: all of
    them): those of one host, then those of one switch, as far as switches are known. Exchanges that were
    planned within a tier go by the next one where its ranks are apart.
    """
    size, tiers = schedule.ranks_per_group, schedule.profile["tiers"]
    groups = [places[first : first + size] for first in range(0, len(places), size)]
    for number, tier in enumerate(tiers[: min(map(len, places))]):
        planned = min(tier["devices"] or size, size)
        units = [[place[: len(place) - number] for place in group] for group in groups]
        if not (together := _together(units, planned)):
            continue
        unit, near = UNITS[min(number, len(UNITS) - 1)], shown_text(tier["name"], 40)
        text = f"planned for {planned} ranks {unit} that exchange by {near}; here {together} are together: "
        in_order = [sorted(group) for group in units]
        remedy = (
            f"plan with devices = {together} in tier {near} of the profile" if _together(in_order, planned)
            else "start ranks host by host (srun --distribution=block)"
        )  # fmt: skip
        return f"{text}{_loss(schedule, number)}; {remedy}"
    return ""


def _together(groups: Sequence[Sequence[Place]], planned: int) -> int:
    """The ranks in one unit, of the first that should be `planned`; 0 where all units are whole.

    Ranks first, first + 1, ... of a group are one domain of the tier.
    """
    domains = [group[first : first + planned] for group in groups for first in range(0, len(group), planned)]
    split = [domain for domain in domains if len({*domain}) > 1]
    return max(split[0].count(unit) for unit in split[0]) if split else 0


def _loss(schedule: Schedule, number: int) -> str:
    """The time that is lost where exchanges of a tier go by the next one."""
    tiers = schedule.profile["tiers"]
    if number + 1 == len(tiers):
        return "exchanges between them may take much longer than predicted"
    factor = tiers[number]["bytes_per_s"] / tiers[number + 1]["bytes_per_s"]
    whole_s = sum(step.predicted_s for step in schedule.steps)
    exchange_s = sum(step.exchange_s for step in schedule.steps)
    more = exchange_s / whole_s * max(0.0, factor - 1) if whole_s else 0.0
    far = shown_text(tiers[number + 1]["name"], 40)
    return f"predicted to take up to {percent_text(more)} longer, exchanges by {far}"
