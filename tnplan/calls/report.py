"""`report`: projected time and speedup for each number of devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tnplan.calls.plan import limits
from tnplan.common.checks import is_finite
from tnplan.common.errors import InputError
from tnplan.common.files import check_json_name, check_suffix, check_writable, file_path, write_text
from tnplan.planner.hardware.profile import Profile, known_profile
from tnplan.planner.load import read_path
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import structure_key
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.projection.baseline import DEFAULT_S, BaselineSearch
from tnplan.planner.projection.projection import Projection, project

TOPIC = "reports"
"""What the errors of this module are about, where one says no topic of its own."""


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
    html: str | Path | None = None,
) -> Projection:
    """Project time and speedup for each number of devices.

    Of all paths and all ways to group the devices, the one of least predicted time is taken for each number.
    A path for one device is searched too, and competes with those given. Speedups count from the faster of
    this path and the paths given on one device (arXiv 2606.01852, section V-A).

    Parameters
    ----------
    paths : sequence of ContractionPath or path
        Paths of one network and one dtype; names of indices and the order of tensors do not matter.
    devices : sequence of int
        The numbers of devices.
    hardware, memory, threshold, precision, policy
        As in `plan`.
    baseline_time : float
        Seconds of the search, which takes no longer than the given path takes on one device. 0: none is
        searched, and the report states no speedup in its first sentences.
    baseline : path, optional
        A path.json to write the searched path to. Where the file is there already, its path is taken, and
        nothing is searched: the figures are those of the earlier report.
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
        raise InputError("paths", f"is {type(paths).__name__}", "give a list of paths")
    if html is not None:
        check_writable(html, *([] if baseline is None else [baseline]))
        check_suffix(html, ".html")
    search = baseline_search(baseline_time, baseline)
    read = [read_path(path)[0] for path in paths]
    # A projection compares paths of one problem: several networks would be compared by speedups
    # that mean nothing.
    workloads = {workload_key(path) for path in read}
    if len(workloads) > 1:
        problem = f"are of {len(workloads)} networks or dtypes"
        raise InputError("paths", problem, "report one network in one dtype at a time")
    projection = project(
        read,
        known_profile(hardware),
        devices,
        **limits(memory, threshold),
        precision=precision,
        policy=policy,
        baseline=search,
    )
    if html is not None:
        from tnplan.reporting.page import report_page

        write_text(html, report_page([projection]))
    # Kept for later reports: a search for one device takes long, and its path is the same for all
    # numbers of devices.
    if baseline is not None:
        save_baseline(projection, baseline)
    return projection


def workload_key(path: ContractionPath) -> tuple[str, str]:
    """A key that paths share whose times may be compared: those of one network in one dtype."""
    return structure_key(path.network), path.dtype


def baseline_search(time_s: float, file: str | Path | None) -> BaselineSearch | None:
    """The search for a path for one device that is asked for, or what a file has of an earlier one."""
    if not is_finite(time_s) or time_s < 0:
        raise InputError("--baseline-time", f"is {time_s!r}", "give seconds, or 0 for no search")
    if file is not None:
        is_there = os.path.isfile(file_path(file))
        check_json_name(file)
        if is_there:
            return BaselineSearch(time_s, read_path(file)[0])
        check_writable(file)
        if not time_s:
            raise InputError(
                f"--baseline: {file}", "is not there, and nothing is searched", "give --baseline-time seconds"
            )
    return BaselineSearch(time_s) if time_s else None


def save_baseline(projection: Projection, file: str | Path) -> bool:
    """Write the searched path, where it is new; whether this was done."""
    number = projection.baseline.path
    if number is None or Path(file).exists():
        return False
    save_path(projection.paths[number], file)
    return True
