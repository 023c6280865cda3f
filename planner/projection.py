"""Predicted time and speedup for each number of devices, over several paths and every size of group.

The metrics are those of the paper's section V-A (arXiv 2606.01852), with slices spread over groups:
T_P is the time to the full contraction on P devices, S_P = T_1 / T_P (Eq. 9), E_P = S_P / P (Eq. 10) and
R_P = C_t,1 / C_t,P (Eq. 11). Plans and compares; draws nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import inf

from planner.errors import InputError, NothingFitsError
from planner.hardware.profile import Profile
from planner.networks.contraction_path import ContractionPath
from planner.passes.pipeline import LARGEST_WORLD, Planner, divisors_and_powers
from planner.passes.policies import POLICIES
from planner.schedule import Schedule, Step
from planner.units import size_text

Progress = Callable[[int, int, str], None]

UNEVEN = 1.001
"""An early sum, which leaves fewer slices, may leave some groups this much less to do than others."""


@dataclass(frozen=True)
class TimeSplit:
    """Predicted seconds of the whole contraction by kind; `other_s` is loading, slicing and adding."""

    contract_s: float
    permute_s: float
    exchange_s: float
    other_s: float


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
    def peak_bytes(self) -> int:
        """The most bytes that a rank holds at once."""
        return self.schedule.predicted.peak_bytes

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
    """What a path asks of any plan: bounds that need no planning.

    `once_flops` are the real operations of the steps done once, `slice_flops` those of a slice, in the mean
    of all and where memory does not limit what slices share; `step_bytes` the operands and output of the
    largest step together.
    """

    n_slices: int
    once_flops: float
    slice_flops: float
    step_bytes: int

    @property
    def complexity(self) -> float:
        """C_t: the real operations of the full contraction, all slices included."""
        return self.once_flops + self.n_slices * self.slice_flops


@dataclass(frozen=True)
class Trial:
    """A path on one group of `ranks` ranks: its schedule, or None where it does not fit the memory."""

    path: int
    ranks: int
    schedule: Schedule | None


@dataclass(frozen=True)
class Projection:
    """Rows and refusals by number of devices, and what they were computed under.

    Speedups count from `baseline_devices` devices: 1, or the least number on which any path fits. `demands`
    has an entry for each path; `trials` are the plans that were made or refused.
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
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class _Choice:
    path: int
    schedule: Schedule
    n_groups: int
    time_s: float


def project(
    paths: Sequence[ContractionPath],
    profile: Profile,
    devices: Sequence[int],
    *,
    memory_bytes: float | None = None,
    threshold_bytes: int | None = None,
    precision: str | None = None,
    policy: str = "ours",
    labels: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Projection:
    """Find, for each number of devices, the path and the size of group with the least predicted time.

    Every path is planned once for every size of group that divides one of `devices` or is a power of two;
    groups of g ranks serve P devices as P // g groups, and devices beyond them idle, so that T_P never rises
    with P. Plans that cannot fit or cannot win anywhere, by bounds that need no planning, are not made. One
    device, the baseline, is always looked at.

    `memory_bytes` limits a rank (None: the profile's, inf: unlimited); `labels` name the paths (default:
    their own names); `progress` is told how many of how many plans are settled, and the next.

    Raises InputError where `devices` or `paths` is unusable, NothingFitsError where nothing fits on any of
    `devices`.
    """
    counts = _checked_counts(devices)
    if not paths:
        raise InputError("report", "there is no path", "give one path.json or more")
    if policy not in POLICIES:
        raise InputError("--policy", f"{policy!r} is unknown", f"choose one of {', '.join(POLICIES)}")
    names = tuple(labels or (path.name for path in paths))
    planners = [Planner(path, profile, memory_bytes, threshold_bytes, precision) for path in paths]
    limit = planners[0].limit_bytes
    demands = [_demand(planner) for planner in planners]
    order = sorted(range(len(paths)), key=lambda number: demands[number].complexity)
    jobs = [(number, ranks) for number in order for ranks in divisors_and_powers(counts)]
    best: dict[int, _Choice] = {}
    nearest: dict[int, str] = {}
    trials: list[Trial] = []
    for done, (number, ranks) in enumerate(jobs):
        demand = demands[number]
        if progress:
            progress(done, len(jobs), f"{names[number]} on {ranks} rank{'s' if ranks > 1 else ''}")
        served = [p for p in counts if p >= ranks]
        if demand.step_bytes > limit * ranks:
            nearest.setdefault(
                ranks,
                f"{names[number]}: its largest step holds {size_text(demand.step_bytes / ranks)} a rank, "
                f"the limit is {size_text(limit)}",
            )
            trials.append(Trial(number, ranks, None))
            continue
        if all(p in best and planners[number].least_s(p, ranks) >= best[p].time_s for p in served):
            continue
        try:
            schedules = _plans(planners[number], ranks, policy, [p // ranks for p in served])
        except InputError as error:
            nearest[ranks] = f"{names[number]}: {error.place}: {error.problem}"
            trials.append(Trial(number, ranks, None))
            continue
        trials += [Trial(number, ranks, schedule) for schedule in schedules]
        for p, schedule in product(served, schedules):
            n_groups = min(p // ranks, schedule.n_slices)
            time_s = schedule.projected_s(n_groups)
            if p not in best or time_s < best[p].time_s:
                best[p] = _Choice(number, schedule, n_groups, time_s)
    if progress:
        progress(len(jobs), len(jobs), "")
    refusals = tuple(Refusal(p, _nearest_reason(nearest, p)) for p in counts if p not in best)
    if not best:
        raise NothingFitsError(
            "--memory",
            f"no path fits on {_listed(counts)} devices of {profile.name} ({refusals[-1].reason})",
            "raise it, add devices, or search a path that needs less",
        )
    base = min(best)
    rows = tuple(_row(p, best[p], base, best[base]) for p in counts if p in best)
    return Projection(
        tuple(paths), names, profile, policy, limit, base, rows, refusals, tuple(demands), tuple(trials)
    )


def _plans(planner: Planner, ranks: int, policy: str, groups: Sequence[int]) -> list[Schedule]:
    """The schedule for one group, and another for the most where its slices are not shared evenly."""
    first = planner.plan(ranks, policy)
    n_slices = first.n_slices
    if not first.summed or all(-(-n_slices // some) * some <= UNEVEN * n_slices for some in groups):
        return [first]
    other = planner.plan(ranks, policy, max(groups))
    return [first] if other == first else [first, other]


def time_split(schedule: Schedule, n_groups: int) -> TimeSplit:
    """Where the predicted time of all slices goes, on `n_groups` groups."""
    rounds = -(-schedule.n_slices // n_groups)

    def total(seconds: Callable[[Step], float]) -> float:
        return sum(seconds(step) * (1 if step.once else rounds * step.often) for step in schedule.steps)

    contract_s = total(lambda step: step.contract_s)
    permute_s = total(lambda step: step.permute_s)
    exchange_s = total(lambda step: step.exchange_s)
    other_s = max(schedule.projected_s(n_groups) - contract_s - permute_s - exchange_s, 0.0)
    return TimeSplit(contract_s, permute_s, exchange_s, other_s)


def _row(devices: int, choice: _Choice, base: int, base_choice: _Choice) -> Row:
    complexity = choice.schedule.operations
    base_complexity = base_choice.schedule.operations
    speedup = base_choice.time_s / choice.time_s if choice.time_s else 1.0
    return Row(
        devices=devices,
        path=choice.path,
        schedule=choice.schedule,
        n_groups=choice.n_groups,
        time_s=choice.time_s,
        complexity=complexity,
        split=time_split(choice.schedule, choice.n_groups),
        speedup=speedup,
        extra_speedup=speedup * base / devices,
        complexity_reduction=base_complexity / complexity if complexity else 1.0,
    )


def _demand(planner: Planner) -> Demand:
    tree, cost = planner.tree, planner.model
    nesting = planner.loops.nesting(inf)
    once = step_bytes = 0
    repeated = Fraction(0)
    for number, (left, right) in enumerate(tree.children):
        node = tree.n_leaves + number
        union = tuple(set(tree.legs[left]) | set(tree.legs[right]))
        flops = tree.extent(union) * cost.flops_per_product
        if not nesting.part[node]:
            once += flops
        else:
            part = nesting.part[node]
            repeated += Fraction(flops * nesting.repeats[part], nesting.serves[part])
        step_bytes = max(
            step_bytes, sum(tree.extent(tree.legs[n]) for n in (left, right, node)) * cost.item_bytes
        )
    return Demand(nesting.n_slices, float(once), float(repeated), step_bytes)


def _checked_counts(devices: Sequence[int]) -> list[int]:
    if not isinstance(devices, Sequence) or not devices:
        raise InputError("--devices", "is empty", "give one number of devices or more, such as 1,2,4,8")
    for count in devices:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LARGEST_WORLD:
            raise InputError(
                "--devices", f"{count!r} is no number of devices", f"give integers from 1 to {LARGEST_WORLD}"
            )
    return sorted({1, *devices})


def _nearest_reason(nearest: dict[int, str], devices: int) -> str:
    """The refusal at the largest group that `devices` devices can form."""
    return nearest[max(ranks for ranks in nearest if ranks <= devices)]


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
