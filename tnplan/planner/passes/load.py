"""`load_path` and `load_schedule`: paths and schedules from files, and profiles by name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from tnplan.common.errors import InputError, located
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers import read_any
from tnplan.planner.networks.path_file import tensors_file
from tnplan.planner.passes.tree.build import MOST_MODES_OF_A_TENSOR, build
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule import file as schedule_file
from tnplan.planner.schedule.schedule import Schedule

MOST_STEPS, MOST_MODES = 40_000, 700_000
"""Of the path of a file that is planned, and of all its tensors: more take over ten seconds."""
TOPIC = "files of networks and schedules"


def load_path(path: str | Path) -> ContractionPath:
    """Read a path.json, or another file that holds a network with a path.

    docs/reference/formats.md lists the formats.

    Values that the file itself carries are left out.

    Parameters
    ----------
    path : path
        A path.json, or the JSON of Jet or OMEinsum.

    Returns
    -------
    ContractionPath
        The path. The name of its file of tensors is whole, so that it is found from anywhere.

    Raises
    ------
    InputError
        For a file that cannot be read, or holds no path.

    Examples
    --------
    >>> path = tnplan.load_path("n53_m20.path.json")  # doctest: +SKIP
    """
    return read_path(path)[0]


def read_path(path: ContractionPath | str | Path) -> tuple[ContractionPath, list[np.ndarray] | None]:
    """A path as given or from its file, and the tensors' values where that file itself has them."""
    if isinstance(path, ContractionPath):
        return path, None
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            "path", f"is of type {type(path).__name__}", "give the path of a search, or its file"
        )
    loaded, arrays = read_any(path)
    tensors = tensors_file(path, loaded.tensors)
    return loaded if tensors is None else replace(loaded, tensors=os.path.abspath(tensors)), arrays


def read_to_plan(path: ContractionPath | str | Path) -> tuple[ContractionPath, list[np.ndarray] | None]:
    """`read_path` for what plans the path: a file may be a stranger's, and is to take seconds."""
    read, arrays = read_path(path)
    if read is not path:
        n_steps = sum(len(step) - 1 for step in read.ssa_path)
        if n_steps > MOST_STEPS:
            raise InputError(
                str(path), f"has a path of {n_steps:,} steps, and one of a file may have {MOST_STEPS:,}",
                "give tnplan.plan the path itself, from tnplan.load_path",
            )  # fmt: skip
        if n_steps * MOST_MODES_OF_A_TENSOR > MOST_MODES:
            located(str(path), lambda: build(read, MOST_MODES))
    return read, arrays


def load_schedule(path: str | Path) -> Schedule:
    """Read a schedule, and verify what it says.

    Parameters
    ----------
    path : path
        A schedule.json.

    Returns
    -------
    Schedule
        The schedule. A relative name of its file of tensors is seen from the schedule's folder.

    Raises
    ------
    InputError
        For a file that cannot be read, was changed after planning, or is no valid schedule.

    Examples
    --------
    >>> schedule = tnplan.load_schedule("n53_m20.schedule.json")  # doctest: +SKIP
    """
    schedule = schedule_file.load_schedule(path)
    located(str(path), lambda: verify(schedule))
    return schedule
