"""`slurm`: the job script that carries out a schedule."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from tnplan.common.checks import check_choice, check_count, check_kind
from tnplan.common.errors import InputError
from tnplan.common.files import check_writable, write_text
from tnplan.common.units import count_text, time_text
from tnplan.planner.passes.load import load_schedule
from tnplan.planner.schedule.schedule import Schedule

TOPIC = "files of networks and schedules"
MOST_A_NODE, A_NODE_OF_MANY = 16, 4
"""A first tier of more devices, as NVL72, joins several nodes, of this many GPUs."""
TIMES_PREDICTED, START_S = 2, 600
"""The time limit: so often what is predicted, and what MPI, imports and compilation may take."""
NOTICE_S = 120
"""Slurm asks the job this long before the limit to write a checkpoint."""
PLUGINS = {"openmpi": "pmix", "mpich": "pmi2", "cray": None}
"""By the MPI, what srun starts its ranks with; None: what Slurm is set to."""


@dataclass(frozen=True)
class JobScript:
    """A job script of Slurm, as text; `print` shows it.

    Parameters
    ----------
    text : str
        The script.
    nodes, ranks_per_node : int
        What it asks for.
    time_s : float
        The predicted seconds.

    Examples
    --------
    >>> print(tnplan.slurm("n53_m20.schedule.json", devices=16))  # doctest: +SKIP
    """

    text: str
    nodes: int
    ranks_per_node: int
    time_s: float

    def __repr__(self) -> str:
        nodes = count_text(self.nodes, "node", "nodes")
        return f"JobScript({nodes}, {self.ranks_per_node} ranks each, {time_text(self.time_s)} predicted)"

    def __str__(self) -> str:
        return self.text.rstrip()


def slurm(
    schedule: Schedule | str | Path,
    *,
    devices: int | None = None,
    per_node: int | None = None,
    device: str = "auto",
    launcher: str = "openmpi",
    setup: str | None = None,
    result: str | Path = "result.npy",
    output: str | Path | None = None,
) -> JobScript:
    """Write the job script of Slurm that carries out a schedule.

    It asks for the nodes and devices that the schedule was planned for, for twice the predicted time and ten
    minutes, and for a signal before the limit, at which the job keeps a checkpoint. The same script continues
    a job that was stopped.

    Parameters
    ----------
    schedule : Schedule or path
        What `plan` returns, or its file. The script names the file.
    devices : int, optional
        A multiple of the ranks of a group. Default: those that were planned for.
    per_node : int, optional
        Devices of a node. Default: those of the profile's first tier, or 4 where that joins several nodes.
        All nodes get equally many ranks: the largest number up to this that divides all ranks.
    device : {"auto", "cpu", "gpu"}
        What a rank computes on. "auto": the CPU for the profile "cpu", else a GPU each.
    launcher : {"openmpi", "mpich", "cray"}
        The MPI that mpi4py was built for.
    setup : str, optional
        Commands before the job, such as "module load cuda; source venv/bin/activate".
    result : path
        Where the job writes its result, on a file system that all nodes share.
    output : path, optional
        The script to write.

    Returns
    -------
    JobScript
        The script.

    Raises
    ------
    InputError
        For a schedule that cannot be read, or devices that its groups do not divide.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> script = tnplan.slurm(tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),)), hardware="cpu"))
    >>> script.nodes, script.ranks_per_node
    (1, 1)
    """
    check_choice("--device", device, ("auto", "cpu", "gpu"))
    check_choice("--launcher", launcher, PLUGINS)
    check_kind("--setup", setup, str)
    if output is not None:
        check_writable(output, schedule)
    if not isinstance(schedule, Schedule | str | os.PathLike):
        raise InputError(
            "schedule", f"is of type {type(schedule).__name__}", "give what `plan` returns, or its file"
        )
    file = "schedule.json" if isinstance(schedule, Schedule) else str(schedule)
    plan = schedule if isinstance(schedule, Schedule) else load_schedule(schedule)
    ranks = _ranks(plan, devices)
    nodes, each = _nodes(plan, ranks, per_node)
    time_s = plan.projected_s(ranks // plan.ranks_per_group)
    kind = device if device != "auto" else "cpu" if plan.profile["name"] == "cpu" else "gpu"
    limit_min = ceil((TIMES_PREDICTED * time_s + START_S) / 60)
    command = ["tnplan", "execute", file, "-o", str(result), "--device", kind, "--resume"]
    plugin = PLUGINS[launcher]
    launch = "srun" if plugin is None else f"srun {_flag('mpi', plugin)}"
    asked = {
        "job-name": "tnplan", "nodes": nodes, "ntasks-per-node": each,
        **({"gpus-per-node": each} if kind == "gpu" else {}),
        "time": f"{limit_min // 60:02d}:{limit_min % 60:02d}:00", "signal": f"USR1@{NOTICE_S}",
        "requeue": None,
    }  # fmt: skip
    lines = [
        "#!/bin/bash",
        f"# Written by 'tnplan slurm': {count_text(ranks, 'device', 'devices')}, "
        f"{time_text(time_s)} predicted.",
        *(f"#SBATCH {_flag(name, value)}" for name, value in asked.items()),
        "",
        setup or "# Load modules and activate the environment of tnplan here.",
        "",
        f"{launch} {shlex.join(command)}",
    ]
    text = "\n".join(lines) + "\n"
    if output is not None:
        write_text(output, text)
    return JobScript(text, nodes, each, time_s)


def _flag(name: str, value: object) -> str:
    """An option of Slurm."""
    return f"--{name}" + ("" if value is None else f"={value}")


def _ranks(plan: Schedule, devices: int | None) -> int:
    """How many ranks have work on these devices."""
    group = plan.ranks_per_group
    wanted = plan.devices or group if devices is None else check_count("--devices", devices)
    if wanted < group:
        raise InputError(
            "--devices", f"is {wanted}, and a group has {group} ranks", f"give {group} devices or more"
        )
    return min(wanted // group, plan.n_slices) * group


def _nodes(plan: Schedule, ranks: int, per_node: int | None) -> tuple[int, int]:
    """How many nodes, and how many ranks on each: as many as fit and divide all ranks."""
    most = per_node
    if most is None:
        joined = plan.profile["tiers"][0]["devices"]
        most = A_NODE_OF_MANY if joined > MOST_A_NODE else joined or ranks
    check_count("--per-node", most)
    each = max(count for count in range(1, min(most, ranks) + 1) if ranks % count == 0)
    return ranks // each, each
