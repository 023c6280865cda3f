"""Predicted time and speedup for each number of devices, over several paths and every size of group.

The metrics are those of the paper's section V-A (arXiv 2606.01852), with slices spread over groups:
T_P is the time to the full contraction on P devices, S_P = T_1 / T_P (Eq. 9), E_P = S_P / P (Eq. 10) and
R_P = C_t,1 / C_t,P (Eq. 11). Plans and compares; draws nothing and writes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf

from tnplan.common.errors import InputError, NothingFitsError
from tnplan.common.shown_text import html_table, text_table
from tnplan.common.units import count_text, figure_text, size_text, time_text
from tnplan.planner.hardware.process_grid import divisors_and_powers
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.pipeline import LARGEST_WORLD, Planner
from tnplan.planner.passes.sharding.policies import POLICIES
from tnplan.planner.projection.baseline import BEFORE, Baseline, BaselineSearch, search_seconds
from tnplan.planner.projection.judge import Judge, Verdict
from tnplan.planner.schedule.schedule import Schedule, TimeSplit

Progress = Callable[[int, int, str], None]
JOULES_PER_KWH = 3.6e6
COLUMNS = ("devices", "path", "groups", "ranks a group", "slices", "time", "speedup", "memory a rank")


@dataclass(frozen=True)
class Row:
    """The best way found to use `devices` devices.

    `n_groups` groups of `ranks_per_group` ranks contract whole slices side by side and `idle_devices` do
    nothing. `path` is the position of the chosen path among those given. `time_s` is T_P, `slice_time_s` the
    time t_P of one slice in one group, `complexity` C_t,P in real operations, `speedup` S_P,
    `extra_speedup` E_P, `complexity_reduction` R_P, `peak_bytes` what a rank holds at most.
    """

    devices: int
    path: int
    schedule: Schedule
    n_groups: int
    time_s: float
    complexity: float
    split: TimeSplit
    speedup: float
    extra_speedup: float
    complexity_reduction: float

    @property
    def ranks_per_group(self) -> int:
        """The ranks that share one slice."""
        return self.schedule.ranks_per_group

    @property
    def idle_devices(self) -> int:
        """Devices that no group uses."""
        return self.devices - self.n_groups * self.ranks_per_group

    @property
    def slice_time_s(self) -> float:
        """t_P: predicted seconds of one slice in one group; all of the time where nothing is sliced."""
        expected = self.schedule.predicted
        return expected.slice_s if self.schedule.sliced else expected.once_s

    @property
    def sliced(self) -> int:
        """How many indices make slices."""
        return len(self.schedule.sliced)

    @property
    def peak_bytes(self) -> int:
        """The most bytes that a rank holds at once."""
        return self.schedule.predicted.peak_bytes

    @property
    def energy_kwh(self) -> float | None:
        """Predicted kilowatt-hours of the devices, idle ones too; None where the profile has no watts."""
        joules = self.schedule.projected_j(self.n_groups, self.devices)
        return None if joules is None else joules / JOULES_PER_KWH

    @property
    def flop_per_s(self) -> float:
        """Real operations a second of one device, over the whole contraction; idle devices count."""
        return self.complexity / (self.time_s * self.devices) if self.time_s else 0.0

    @property
    def reuse_saving(self) -> float:
        """The part of the time that is saved because results that serve several slices are not made again."""
        rounds = -(-self.schedule.n_slices // self.n_groups)
        repeated_s = rounds * sum(step.predicted_s * step.repeats for step in self.schedule.steps)
        return 1 - self.time_s / repeated_s if repeated_s else 0.0

    @property
    def captured(self) -> float:
        """E_P / R_P: the part of the complexity reduction that became time."""
        return self.extra_speedup / self.complexity_reduction

    @property
    def exchange_share(self) -> float:
        """The part of T_P that goes to communication."""
        return self.split.exchange_s / self.time_s if self.time_s else 0.0


@dataclass(frozen=True)
class Refusal:
    """A number of devices on which no path fits, and why not."""

    devices: int
    reason: str


@dataclass(frozen=True)
class Demand:
    """The work of a path, and what it fits.

    `once_flops` are the real operations of the steps done once, `slice_flops` those of a slice, in the mean
    of all and where memory does not limit what slices share; `least_devices` is the least number of those
    looked at for which the planner makes a schedule of it, None where it makes none.
    """

    n_slices: int
    once_flops: float
    slice_flops: float
    least_devices: int | None

    @property
    def complexity(self) -> float:
        """C_t: the real operations of the full contraction, all slices included."""
        return self.once_flops + self.n_slices * self.slice_flops


@dataclass(frozen=True, repr=False)
class Projection:
    """Predicted times and speedups by number of devices; `tnplan.report` makes it.

    Parameters
    ----------
    paths, labels
        The paths that were compared, and their names. A searched one is the last.
    profile, policy, memory_bytes
        What the predictions are for.
    baseline_devices : int
        The devices from which speedups count: 1, or the least number on which any path fits.
    rows : tuple of Row
        The best way found for each number of devices, with the metrics of arXiv 2606.01852, section V-A.
    refusals : tuple of Refusal
        Numbers of devices on which nothing fits, and why.
    demands : tuple of Demand
        The work of each path.
    verdicts : tuple of Verdict
        The plans that were made or refused.
    baseline : Baseline
        What T_1 was compared with: the time along the best path given, and along one that was searched.
    price : float, optional
        Of a kilowatt-hour.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> projection = tnplan.report([tnplan.ContractionPath(matrices, ((0, 1),))], [1], hardware="cpu")
    >>> projection.rows[0].speedup
    1.0
    """

    paths: tuple[ContractionPath, ...]
    labels: tuple[str, ...]
    profile: Profile
    policy: str
    memory_bytes: float
    baseline_devices: int
    rows: tuple[Row, ...]
    refusals: tuple[Refusal, ...]
    demands: tuple[Demand, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    baseline: Baseline = field(default_factory=Baseline)
    price: float | None = None

    def __repr__(self) -> str:
        shown = self.rows if len(self.rows) < 2 else (self.rows[0], self.rows[-1])
        times = [
            f"{time_text(row.time_s)} on {count_text(row.devices, 'device', 'devices')}" for row in shown
        ]
        return f"Projection({self.profile.name}{self._policy_text}: {', '.join(times)})"

    def __str__(self) -> str:
        return f"{text_table(self._cells, COLUMNS)}\n{self.baseline_text}"

    def _repr_html_(self) -> str:
        title = f"Projected on {self.profile.name}{self._policy_text}. {self.baseline_text}"
        return html_table(title, self._cells, COLUMNS)

    @property
    def _policy_text(self) -> str:
        return "" if self.policy == "ours" else f", policy {self.policy}"

    @property
    def has_searched_baseline(self) -> bool:
        """Whether speedups count from one device, and a path for it was searched: else none is a headline."""
        return self.baseline_devices == 1 and self.baseline.is_searched

    @property
    def baseline_text(self) -> str:
        """Where the time comes from that speedups count from, and with what it was compared."""
        path = self.baseline.path
        origin = "before" if path is not None and self.labels[path] == BEFORE else "here"
        return self.baseline.text(self.baseline_devices, self.labels[self.rows[0].path], origin)

    def cost(self, row: Row) -> float | None:
        """The price of a row's energy; None where it or the price is not known."""
        return None if self.price is None or row.energy_kwh is None else self.price * row.energy_kwh

    @property
    def _cells(self) -> list[tuple[str, ...]]:
        """A row of cells for each number of devices."""
        return [
            (
                figure_text(row.devices), self.labels[row.path], figure_text(row.n_groups),
                figure_text(row.ranks_per_group), figure_text(row.schedule.n_slices),
                time_text(row.time_s), figure_text(row.speedup), size_text(row.peak_bytes),
            )
            for row in self.rows
        ]  # fmt: skip


@dataclass(frozen=True)
class _BestPlan:
    path: int
    schedule: Schedule
    n_groups: int
    time_s: float

    @property
    def order(self) -> tuple[float, float]:
        """The fastest comes first; of equal ones that of fewest operations."""
        return self.time_s, self.schedule.operations


def project(
    paths: Sequence[ContractionPath], profile: Profile, devices: Sequence[int], *,
    memory_bytes: float | None = None, threshold_bytes: int | None = None, precision: str | None = None,
    policy: str = "ours", labels: Sequence[str] | None = None, progress: Progress | None = None,
    baseline: BaselineSearch | None = None,
) -> Projection:  # fmt: skip
    """Find, for each number of devices, the path and the size of group with the least predicted time.

    Of all paths, and all sizes of group that divide one of `devices` or are a power of two, T_P is the least
    time of the schedules that `plan` makes for P devices; groups of g ranks serve P devices as P // g groups,
    and devices beyond them idle. Where a schedule for fewer devices is faster, it is kept, so that T_P never
    rises with P. What cannot win, by a bound that needs no planning, is not planned. One device, the
    baseline, is always looked at.

    `memory_bytes` limits a rank (None: the profile's, inf: unlimited); `labels` name the paths (default:
    their own names, with #1, #2, ... where several are equal); `progress` is told how many of how many plans
    are settled, and the next. With a `baseline` a path for one device is searched; it then competes with
    those given, on every number of devices.

    Raises InputError where `devices` or `paths` is unusable, NothingFitsError where nothing fits on any of
    `devices`.
    """
    # T_P is the least predicted time over paths and sizes of groups; S_P = T_1 / T_P, E_P = S_P / P, and R_P
    # is the ratio of operations on one device to those on P (the paper, section V-A).
    counts = _checked_counts(devices)
    if not paths:
        raise InputError("report", "there is no path", "give one path.json or more")
    if policy not in POLICIES:
        raise InputError("--policy", f"{policy!r} is unknown", f"choose from {', '.join(POLICIES)}")
    names = tuple(labels) if labels else _distinct_names(paths)
    planners = [Planner(path, profile, memory_bytes, threshold_bytes, precision) for path in paths]
    judge, sizes = Judge(planners, policy), divisors_and_powers(counts)
    report_progress = progress or (lambda *_: None)
    best = _best_choices(judge, names, counts, sizes, report_progress)
    if not best:
        reason = _reason(judge, names, counts[-1])
        raise NothingFitsError(
            "--memory", f"no path fits on {', '.join(map(str, counts))} devices of {profile.name} ({reason})",
            "allow more memory, add devices, or search a path that needs less", topic="memory",
        )  # fmt: skip
    # The baseline is searched after the paths given are planned: the search takes no longer than their best
    # time on one device. What it gives competes on all numbers of devices.
    given_s = best[1].time_s if 1 in best else None
    known = Baseline(given_s=given_s)
    if baseline is not None:
        began = time.monotonic()
        report_progress(0, 1, f"a path for 1 device, searched for up to {time_text(baseline.time_s)}")
        searched = baseline.find(paths, profile, memory_bytes, precision, inf if given_s is None else given_s)
        if searched is None:
            known = replace(known, search_s=time.monotonic() - began)
        else:
            paths, names = (*paths, searched), (*names, baseline.label)
            judge.add(Planner(searched, profile, memory_bytes, threshold_bytes, precision))
            best = _best_choices(judge, names, counts, sizes, report_progress)
            number = len(paths) - 1
            alone = judge.verdict(number, 1, 1).schedule
            searched_s = None if alone is None else alone.projected_s(1)
            known = Baseline(search_seconds(searched), number, given_s, searched_s)
    base = min(best)
    return Projection(
        tuple(paths), names, profile, policy, planners[0].limit_bytes, base,
        tuple(_row(p, best[p], base, best[base]) for p in counts if p in best),
        tuple(Refusal(p, _reason(judge, names, p)) for p in counts if p not in best),
        tuple(_demand(judge, number, counts, sizes) for number in range(len(paths))), judge.verdicts, known,
    )  # fmt: skip


def _distinct_names(paths: Sequence[ContractionPath]) -> tuple[str, ...]:
    """The names of paths; each of several equal ones also has its number among all paths, from 1."""
    often = Counter(path.name for path in paths)
    return tuple(
        f"{path.name} #{number}" if often[path.name] > 1 else path.name
        for number, path in enumerate(paths, 1)
    )


def _best_choices(
    judge: Judge, names: Sequence[str], counts: Sequence[int], sizes: Sequence[int], progress: Progress
) -> dict[int, _BestPlan]:
    """By number of devices the fastest choice, if any fits. What may be fastest is planned first."""
    best: dict[int, _BestPlan] = {}
    done, total = 0, sum(len(names) for p in counts for ranks in sizes if ranks <= p)
    for p in counts:
        # A schedule for fewer devices serves more of them with idle ones, so that T_P never rises with P.
        for before in (other for other in counts if other < p and other in best):
            best[p] = _choice(best[before].path, best[before].schedule, p)
        # By a bound that needs no planning, the least first: once the bound reaches the best time, no later
        # job can win.
        jobs = sorted(
            (planner.least_s(p, ranks), number, ranks)
            for number, planner in enumerate(judge.planners)
            for ranks in sizes
            if ranks <= p
        )
        for settled, (least_s, number, ranks) in enumerate(jobs):
            if p in best and least_s >= best[p].time_s:
                break
            progress(done + settled, total, f"{names[number]} on {count_text(ranks, 'rank', 'ranks')}")
            schedule = judge.verdict(number, ranks, p // ranks).schedule
            if schedule is not None:
                choice = _choice(number, schedule, p)
                if p not in best or choice.order < best[p].order:
                    best[p] = choice
        done += len(jobs)
    progress(total, total, "")
    return best


def _choice(path: int, schedule: Schedule, devices: int) -> _BestPlan:
    n_groups = min(devices // schedule.ranks_per_group, schedule.n_slices)
    return _BestPlan(path, schedule, n_groups, schedule.projected_s(n_groups))


def _row(devices: int, choice: _BestPlan, base: int, base_choice: _BestPlan) -> Row:
    complexity = choice.schedule.operations
    base_complexity = base_choice.schedule.operations
    speedup = base_choice.time_s / choice.time_s if choice.time_s else 1.0
    return Row(
        devices=devices, path=choice.path, schedule=choice.schedule, n_groups=choice.n_groups,
        time_s=choice.time_s, complexity=complexity, split=choice.schedule.time_split(choice.n_groups),
        speedup=speedup, extra_speedup=speedup * base / devices,
        complexity_reduction=base_complexity / complexity if complexity else 1.0,
    )  # fmt: skip


def _demand(judge: Judge, number: int, counts: Sequence[int], sizes: Sequence[int]) -> Demand:
    planner = judge.planners[number]
    tree, cost = planner.tree, planner.model
    loop_nest = planner.loops.loop_nest(inf)
    once = 0
    repeated = Fraction(0)
    for step, (left, right) in enumerate(tree.children):
        node = tree.n_leaves + step
        flops = tree.extent(tuple({*tree.legs[left], *tree.legs[right]})) * cost.flops_per_product
        if not loop_nest.level_of[node]:
            once += flops
        else:
            level = loop_nest.level_of[node]
            # A fraction, since levels serve different numbers of slices: exact whatever the size.
            repeated += Fraction(flops * loop_nest.repeats[level], loop_nest.serves[level])
    ways = ((p, ranks) for p in counts for ranks in sizes if ranks <= p)
    least = next((p for p, ranks in ways if judge.fits(number, ranks, p // ranks)), None)
    return Demand(loop_nest.n_slices, float(once), float(repeated), least)


def _checked_counts(devices: Sequence[int]) -> list[int]:
    if not isinstance(devices, Sequence) or not devices:
        problem = "is empty" if isinstance(devices, Sequence) else f"is {devices!r}"
        raise InputError("--devices", problem, "give a list of numbers of devices, such as 1,2,4,8")
    for count in devices:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LARGEST_WORLD:
            raise InputError(
                "--devices",
                f"{count!r} is not a number of devices",
                f"give integers from 1 to {LARGEST_WORLD}",
            )
    return sorted({1, *devices})


def _reason(judge: Judge, names: Sequence[str], devices: int) -> str:
    """Why `devices` devices have too little memory: of the refusals on the largest group, the last made."""
    refused = [verdict for verdict in judge.verdicts if verdict.ranks <= devices and verdict.reason]
    largest = max(verdict.ranks for verdict in refused)
    nearest = [verdict for verdict in refused if verdict.ranks == largest][-1]
    return f"{names[nearest.path]}: {nearest.reason}"
