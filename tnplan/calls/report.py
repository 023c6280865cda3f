"""`report`: projected time and speedup for each number of devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from tnplan.calls.plan import limits
from tnplan.common.checks import check_plots, is_finite
from tnplan.common.errors import InputError, NothingFitsError
from tnplan.common.files import check_json_name, check_suffix, check_writable, file_path, write_text
from tnplan.planner.hardware.profile import Profile, known_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import structure_key
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.passes.load import read_to_plan
from tnplan.planner.projection.baseline import DEFAULT_S, BaselineSearch
from tnplan.planner.projection.projection import Progress, Projection, project

TOPIC = "reports"


def report(
    paths: Sequence[ContractionPath | str | Path],
    devices: Sequence[int],
    *,
    hardware: Profile | str | Path,
    memory: float | str | None = None,
    threshold: int | str | None = None,
    precision: str | None = None,
    policy: str = "ours",
    baseline_time: float = DEFAULT_S,
    baseline: str | Path | None = None,
    price: float | None = None,
    html: str | Path | None = None,
) -> Projection:
    """Project time and speedup for each number of devices.

    For each number of devices, the path and the grouping with the least predicted time are taken. A path for
    one device is searched too. Speedups compare with the fastest of all paths on one device (arXiv
    2606.01852, section V-A).

    Parameters
    ----------
    paths : sequence of ContractionPath or path
        Paths of one network and one dtype; names of indices and the order of tensors do not matter.
    devices : sequence of int
        The numbers of devices.
    hardware : Profile or path
        A shipped profile by name, a TOML file, or a profile.
    memory : float or str, optional
        The memory of a rank, such as "128MiB" or "unlimited". Default: that of the profile.
    threshold : int or str, optional
        A tensor of this many bytes or more is large, as in `plan`.
    precision : str, optional
        How values are multiplied: "fp32", "tf32", "fp16x3", "fp64". Default: by the dtype.
    policy : {"ours", "paper"}
        How modes are distributed, as in `plan`.
    baseline_time : float
        Seconds of the search, which takes no longer than the given path takes on one device. 0: none is
        searched, and the report states no speedup in its first sentences.
    baseline : path, optional
        A path.json to write the searched path to. If the file exists, its path is used and nothing is
        searched: the figures are those of the earlier report.
    price : float, optional
        What a kilowatt-hour costs, in any currency: the report has the cost of the energy too.
    html : path, optional
        A page with the plots to write (.html).

    Returns
    -------
    Projection
        The best way found for each number of devices, with times, speedups and why others do not fit.

    Raises
    ------
    InputError
        Where an option or a path cannot be used, or nothing fits on any number of devices.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 64, "b": 64, "c": 64})
    >>> path = tnplan.ContractionPath(matrices, ((0, 1),))
    >>> [row.devices for row in tnplan.report([path], [1, 2], hardware="cpu", baseline_time=0.1).rows]
    [1, 2]
    """
    if isinstance(paths, str) or not isinstance(paths, Sequence):
        raise InputError("paths", f"is of type {type(paths).__name__}", "give a list of paths")
    options = ReportOptions(memory, threshold, precision, policy, baseline_time, baseline, price, html)
    options.check(*paths, hardware)
    read = [read_to_plan(path)[0] for path in paths]
    if len(kinds := {_kind(path) for path in read}) > 1:
        problem = f"are of {len(kinds)} networks or dtypes"
        raise InputError("paths", problem, "report one network in one dtype at a time")
    return report_all(read, devices, [known_profile(hardware)], options).projections[0]


@dataclass(frozen=True)
class ReportOptions:
    """How times are projected, and what is written, as in `report`."""

    memory: float | str | None
    threshold: int | str | None
    precision: str | None
    policy: str
    baseline_time: float
    baseline: str | Path | None
    price: float | None
    html: str | Path | None

    def check(self, *inputs: object) -> None:
        """Refuse sizes that are none and files that cannot be written, before anything is read."""
        if self.html is not None:
            check_writable(self.html, *inputs, self.baseline)
            check_suffix(self.html, ".html")
            check_plots("--html")
        if self.price is not None and (not is_finite(self.price) or self.price < 0):
            raise InputError("--price", f"is {self.price!r}", "give the price of a kilowatt-hour")
        _ = self.limits, self.search

    @cached_property
    def limits(self) -> dict[str, Any]:
        """The memory of a rank, and the size from which a tensor is large, in bytes."""
        return limits(self.memory, self.threshold)

    @cached_property
    def search(self) -> BaselineSearch | None:
        """The search for a path for one device, or what a file has of an earlier one."""
        time_s, file = self.baseline_time, self.baseline
        if not is_finite(time_s) or time_s < 0:
            raise InputError("--baseline-time", f"is {time_s!r}", "give seconds, or 0 for no search")
        if file is not None:
            is_there = os.path.isfile(file_path(file))
            check_json_name(file)
            if is_there:
                return BaselineSearch(time_s, read_to_plan(file)[0])
            check_writable(file)
            if not time_s:
                problem = "does not exist, and no path is searched for"
                raise InputError(
                    f"--baseline: {file}", problem, "give --baseline-time SECONDS, to search for one"
                )
        return BaselineSearch(time_s) if time_s else None


@dataclass(frozen=True)
class Reports:
    """Projections of one or several networks and machines; what fits nowhere; the files that were written."""

    projections: list[Projection]
    left_out: list[str]
    written: list[Path]


def report_all(
    paths: Sequence[ContractionPath], devices: Sequence[int], profiles: Sequence[Profile],
    options: ReportOptions, *, labels: Sequence[str] | None = None, progress: Progress | None = None,
) -> Reports:  # fmt: skip
    """A projection for each network and machine; what fits nowhere is left out, unless nothing is left."""
    # Paths of one network in one dtype compete with each other. Times of several networks cannot be compared.
    kinds: dict[tuple[str, str], list[int]] = {}
    for number, path in enumerate(paths):
        kinds.setdefault(_kind(path), []).append(number)
    if options.baseline is not None and len(kinds) * len(profiles) > 1:
        raise InputError(
            "--baseline", "is the path of one network on one profile", "report them one at a time"
        )
    projections, left_out, refusals = [], [], []
    # Without paths there is one kind, of none, which `project` refuses.
    for numbers, profile in product(kinds.values() or [[]], profiles):
        names = None if labels is None else [labels[number] for number in numbers]
        try:
            projection = project(
                [paths[number] for number in numbers], profile, devices,
                **options.limits, precision=options.precision, policy=options.policy, labels=names,
                progress=progress, baseline=options.search,
            )  # fmt: skip
        except NothingFitsError as refusal:
            refusals.append(refusal)
            left_out.append(f"left out: {', '.join(names or ())}: {refusal.text}")
        else:
            projections.append(replace(projection, price=options.price))
    if not projections:
        raise refusals[0]
    written = []
    if options.html is not None:
        from tnplan.reporting.page import report_page

        write_text(options.html, report_page(projections, left_out))
        written.append(Path(options.html))
    # Kept for later reports: a search for one device takes long, and its path is the same for all
    # numbers of devices.
    if options.baseline is not None and _save_baseline(projections[0], options.baseline):
        written.append(Path(options.baseline))
    return Reports(projections, left_out, written)


def _kind(path: ContractionPath) -> tuple[str, str]:
    """What paths share whose times may be compared: the network and the dtype."""
    return structure_key(path.network), path.dtype


def _save_baseline(projection: Projection, file: str | Path) -> bool:
    """Write the searched path, where it is new; whether this was done."""
    number = projection.baseline.path
    if number is None or Path(file).exists():
        return False
    save_path(projection.paths[number], file)
    return True
