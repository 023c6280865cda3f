"""`report`: projected time and speedup for each number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tnplan.api.planning.load import read_path
from tnplan.api.planning.plan import limits
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import check_suffix, check_writable, write_text
from tnplan.planner.hardware.profile import Profile, known_profile
from tnplan.planner.networks.canonical_form import structure_key
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.projection.projection import Projection, project
from tnplan.reporting.published import load_published


def report(
    paths: Sequence[ContractionPath | str | Path],
    devices: Sequence[int],
    *,
    hardware: Profile | str | Path,
    memory: float | str | None = None,
    threshold: int | str | None = None,
    precision: str | None = None,
    policy: str = "ours",
    published: str | Path | None = None,
    html: str | Path | None = None,
) -> Projection:
    """Project time and speedup for each number of devices.

    Of all paths and all ways to group the devices, the one of least predicted time is taken for each number.
    Give the best path known for one device among them: it is the baseline (arXiv 2606.01852, section V-A).

    Parameters
    ----------
    paths : sequence of ContractionPath or path
        Paths of one network; names of indices and the order of tensors do not matter.
    devices : sequence of int
        The numbers of devices.
    hardware, memory, threshold, precision, policy
        As in `plan`.
    published : path, optional
        A file of published values (docs/reference/formats.md), which the page sets beside ours.
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
    >>> [row.devices for row in tnplan.report([path], [1, 2], hardware="cpu").rows]
    [1, 2]
    """
    if isinstance(paths, str) or not isinstance(paths, Sequence):
        raise InputError("paths", f"is {type(paths).__name__}", "give a list of paths")
    if html is not None:
        check_writable(html, *([] if published is None else [published]))
        check_suffix(html, ".html")
    values = None if published is None else load_published(published)
    read = [read_path(path)[0] for path in paths]
    n_networks = len({structure_key(path.network) for path in read})
    if n_networks > 1:
        raise InputError("paths", f"are of {n_networks} networks", "report one network at a time")
    projection = project(
        read,
        known_profile(hardware),
        devices,
        **limits(memory, threshold),
        precision=precision,
        policy=policy,
    )
    if html is not None:
        from tnplan.reporting.page import report_page

        write_text(html, report_page([projection], published=values))
    return projection
