"""Why the extra speedup of a projection does not rise: the path, a tier of interconnect, or the memory.

Reads a projection and the verdicts of the planner that it is from; plans nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from tnplan.common.units import count_text, figure_text, percent_text, time_text
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.projection.projection import Projection, Row
from tnplan.planner.schedule.schedule import Schedule, StepAnnotation

FLAT = 0.02
"""Changes of E_P by a smaller share are none."""


@dataclass(frozen=True)
class Plateau:
    """Why E_P does not rise up to `devices`: `cause` is path, tier or memory; `text` says it in full."""

    devices: int
    cause: str
    text: str


def plateaus(projection: Projection) -> list[Plateau]:
    """An entry for every row, but the first, whose E_P is not above that of the row before."""
    entries = []
    for before, row in zip(projection.rows, projection.rows[1:], strict=False):
        change = row.extra_speedup / before.extra_speedup
        if change <= 1 - FLAT:
            entries.append(_fall(projection, before, row))
        elif change < 1 + FLAT:
            entries.append(_flat(projection, row))
    return entries


def _flat(projection: Projection, row: Row) -> Plateau:
    """More devices only take more slices: why no path with fewer operations is faster."""
    demands, labels = projection.demands, projection.labels
    # Paths with fewer operations would be faster here: why each is not, by tier, memory or slower steps.
    fewer = [n for n, demand in enumerate(demands) if demand.complexity < (1 - FLAT) * row.complexity]
    fewer.sort(key=lambda number: demands[number].complexity)
    refused: Plateau | None = None
    slower: Plateau | None = None
    for number in fewer:
        known = f"{labels[number]} takes {_fewer_text(row.complexity, demands[number].complexity)}"
        verdicts = [item for item in projection.verdicts if item.path == number and item.ranks <= row.devices]
        plans = [item.schedule for item in verdicts if item.schedule is not None]
        times = [(plan.projected_s(_groups(plan, row.devices)), plan) for plan in plans]
        if times:
            time_s, plan = min(times, key=lambda pair: pair[0])
            saved_s = _slow_s(projection.profile, plan) * _rounds(plan, row.devices)
            if time_s - saved_s < row.time_s:
                name = projection.profile.tiers[-1].name
                text = f"{known}, but exchanges over {name} make it {time_text(time_s)}"
                return Plateau(row.devices, "tier", text)
        refusals = [item for item in verdicts if item.schedule is None]
        if not refusals or not _is_refused(projection, number, row.devices):
            if slower is None:
                text = f"{known}, but its steps are slower"
                slower = Plateau(row.devices, "path", text)
        elif refused is None and _may_win_later(projection, number, row.devices):
            text = f"{known}, but does not fit: {max(refusals, key=lambda item: item.ranks).reason}"
            refused = Plateau(row.devices, "memory", text)
    if refused is not None or slower is not None:
        return refused or slower  # type: ignore[return-value]
    text = "no path given needs fewer operations, so more devices only share the same work"
    return Plateau(row.devices, "path", text)


def _fewer_text(operations: float, fewer: float) -> str:
    return f"{figure_text(operations / fewer)} times fewer operations" if fewer else "no operations"


def _is_refused(projection: Projection, path: int, devices: int) -> bool:
    """Whether the planner refuses a path on every group of at most `devices` devices."""
    least_devices = projection.demands[path].least_devices
    return least_devices is None or least_devices > devices


def _may_win_later(projection: Projection, path: int, devices: int) -> bool:
    """Whether a path that does not fit on `devices` devices is chosen on more, or fits on none."""
    later = [row for row in projection.rows if row.devices > devices]
    return any(row.path == path for row in later) or all(
        _is_refused(projection, path, row.devices) for row in later
    )


def _fall(projection: Projection, before: Row, row: Row) -> Plateau:
    """Where the seconds of all devices together grew most."""
    if not row.time_s:
        return Plateau(row.devices, "path", "no step is predicted to take time")
    old, new = _device_seconds(projection.profile, before), _device_seconds(projection.profile, row)
    # Seconds of all devices together: without losses they would stay the same when devices are added.
    grown = {kind: new[kind] - old[kind] for kind in new}
    kind = max(grown, key=grown.__getitem__)
    share = percent_text(new[kind] / sum(new.values()))
    if kind == "idle":
        slices = count_text(row.schedule.n_slices, "slice is", "slices are")
        text = f"{slices} too few for all devices, which have no work for {share} of the time"
        return Plateau(row.devices, "path", text)
    if kind == "once":
        each = f"by each of {row.n_groups} groups" if row.n_groups > 1 else "once, and do not become faster"
        text = f"steps that no slice touches are done {each}: {share} of the time"
        return Plateau(row.devices, "path", text)
    if kind == "local":
        text = (
            f"steps too small to be shared by {row.ranks_per_group} ranks; {share} of the time is local work"
        )
        if row.path != before.path and row.complexity > before.complexity:
            text = f"{projection.labels[row.path]} takes more operations, but spreads over more devices"
        return Plateau(row.devices, "path", text)
    return Plateau(row.devices, "tier", f"exchanges over {kind} take {share} of the time")


def _device_seconds(profile: Profile, row: Row) -> dict[str, float]:
    """Seconds of all devices by what they do: local work of slices, work once a group, exchanges, nothing."""
    rounds = _rounds(row.schedule, row.devices)
    working = row.n_groups * row.ranks_per_group
    once_s, slice_s = row.schedule.predicted.once_s, row.schedule.predicted.slice_s
    if not row.schedule.sliced:
        once_s, slice_s = 0.0, row.time_s
    last_s = (rounds * row.n_groups - row.schedule.n_slices) * slice_s * row.ranks_per_group
    seconds = {"idle": (row.devices - working) * row.time_s + last_s}
    seconds["once"] = once_s * working
    total = row.schedule.n_slices * slice_s * row.ranks_per_group
    by_tier = [0.0] * len(profile.tiers)
    for step in row.schedule.steps:
        if step.once and row.schedule.sliced:
            continue
        times = row.schedule.n_slices * _often(row.schedule, step) * row.ranks_per_group
        for tier, tier_s in enumerate(_exchange_s(profile, step.exchange_s, step.moved_bytes_by_tier)):
            by_tier[tier] += times * tier_s
    seconds.update(zip((tier.name for tier in profile.tiers), by_tier, strict=True))
    seconds["local"] = total - sum(by_tier)
    return seconds


def _exchange_s(profile: Profile, exchange_s: float, moved: tuple[int, ...]) -> list[float]:
    """The seconds of an exchange by tier, as its bytes over the tiers' rates share them."""
    weights = [size / tier.bytes_per_s for size, tier in zip(moved, profile.tiers, strict=False)]
    weights += [0.0] * (len(profile.tiers) - len(weights))
    total = sum(weights)
    return [exchange_s * weight / total if total else 0.0 for weight in weights]


def _slow_s(profile: Profile, schedule: Schedule) -> float:
    """Seconds of a slice that would be saved if the slowest tier were as fast as the fastest."""
    slow = len(profile.tiers) - 1
    if not slow:
        return 0.0
    faster = 1 - profile.tiers[slow].bytes_per_s / profile.tiers[0].bytes_per_s
    parts = (
        _exchange_s(profile, step.exchange_s, step.moved_bytes_by_tier)[slow] * _often(schedule, step)
        for step in schedule.steps
    )
    return faster * sum(parts)


def _often(schedule: Schedule, step: StepAnnotation) -> float:
    """How often a slice carries out a step; without slices, all steps are done once, for the only one."""
    return step.often if schedule.sliced else 1.0


def _rounds(schedule: Schedule, devices: int) -> int:
    return -(-schedule.n_slices // _groups(schedule, devices))


def _groups(schedule: Schedule, devices: int) -> int:
    return min(devices // schedule.ranks_per_group, schedule.n_slices)
