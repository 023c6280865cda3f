"""What a projection recommends, in sentences: how many devices to request, and why not more.

No sentence says how many times less anything is than on one device, unless a path for one was searched.
"""

from __future__ import annotations

from math import log2

from tnplan.common.units import count_text, figure_text, time_text
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import Projection, Row

LEAST_GAIN = 0.1
"""More devices are worth while as long as each doubling takes at least this share off the time."""
EQUAL_COST = 0.05
"""Device time that differs by a smaller share is the same."""


def recommended(projection: Projection) -> Row:
    """The row with the most devices that are worth while: beyond it the time hardly falls."""
    chosen = projection.rows[0]
    for row in projection.rows[1:]:
        if _left_by_a_doubling(chosen, row) <= 1 - LEAST_GAIN:
            chosen = row
    return chosen


def recommendation(projection: Projection) -> list[str]:
    """Sentences: the time on the recommended number of devices, why not more, and what costs least.

    The last one says where the time on one device comes from.
    """
    row = recommended(projection)
    text = f"{count_text(row.devices, 'device', 'devices')}: {time_text(row.time_s)}"
    more = [other for other in projection.rows if other.devices > row.devices]
    first = projection.rows[0]
    if more:
        text += (
            f"; with more than {figure_text(row.devices)}, each doubling shortens the time by less than "
            f"{LEAST_GAIN:.0%}{_cause(projection, more[0])}"
        )
    elif row is not first and projection.has_searched_baseline:
        text += f", {figure_text(first.time_s / row.time_s)} times faster than {_devices_text(first)}"
    sentences = [f"{text}."]
    # Without a path that was searched for one device, "so many times faster" would compare with a bad path.
    if not projection.has_searched_baseline:
        return [*sentences, projection.baseline_text]
    # Device time P T_P is what clusters bill.
    cheapest = min(projection.rows, key=lambda other: other.devices * other.time_s)
    cost_s, least_s = row.devices * row.time_s, cheapest.devices * cheapest.time_s
    if cost_s > (1 + EQUAL_COST) * least_s:
        saved = figure_text(cost_s / least_s)
        takes, costs = ("takes", "costs") if cheapest.devices == 1 else ("take", "cost")
        sentences.append(
            f"{_devices_text(cheapest).capitalize()} {takes} "
            f"{time_text(cheapest.time_s)} and {costs} {saved} times fewer device-hours."
        )
    elif row is not first and first.devices * first.time_s > (1 + EQUAL_COST) * cost_s:
        saved = figure_text(first.devices * first.time_s / cost_s)
        sentences.append(f"This costs {saved} times fewer device-hours than {_devices_text(first)}.")
    return [*sentences, projection.baseline_text]


def _left_by_a_doubling(before: Row, row: Row) -> float:
    """The share of the time that is left when the devices are doubled once, on the way from row to row."""
    if not before.time_s:
        return 1.0
    return float((row.time_s / before.time_s) ** (1 / log2(row.devices / before.devices)))


def _devices_text(row: Row) -> str:
    return count_text(row.devices, "device", "devices")


def _cause(projection: Projection, row: Row) -> str:
    """Why the time does not fall at this row, where that is known."""
    for plateau in plateaus(projection):
        if plateau.devices == row.devices:
            return f", because of the {plateau.cause}: {plateau.text}"
    return ""
