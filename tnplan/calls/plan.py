"""`plan`: a contraction path becomes a schedule."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import tnplan
from tnplan.common.files import check_json_name, check_writable
from tnplan.common.units import size_in_bytes
from tnplan.executor.device.cpu.algebra import algebra_of
from tnplan.planner.hardware.compression_options import check_lossless, parse_request
from tnplan.planner.hardware.profile import Profile, known_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.passes import pipeline
from tnplan.planner.passes.load import read_to_plan
from tnplan.planner.schedule.file import save_schedule, with_identity
from tnplan.planner.schedule.schedule import Schedule

TOPIC = "files of networks and schedules"


def limits(memory: float | str | None, threshold: float | str | None) -> dict[str, Any]:
    """The planner's limits in bytes, from numbers or text."""
    return {
        "memory_bytes": None if memory is None else size_in_bytes(memory, "--memory"),
        "threshold_bytes": (
            None if threshold is None else size_in_bytes(threshold, "--threshold", unlimited=False)
        ),
    }


def plan(
    path: ContractionPath | str | Path,
    *,
    hardware: Profile | str | Path = "cpu",
    devices: int = 1,
    ranks_per_group: int | None = None,
    memory: float | str | None = None,
    threshold: int | str | None = None,
    precision: str | None = None,
    policy: str = "ours",
    compress: str | None = None,
    algebra: tnplan.Algebra | str | None = None,
    output: str | Path | None = None,
) -> Schedule:
    """Plan a contraction path as a schedule for a group of ranks.

    Parameters
    ----------
    path : ContractionPath or path
        A path, or a file that holds one (`load_path`).
    hardware : Profile or path
        A shipped profile by name, a TOML file, or a profile.
    devices : int
        Devices to plan for.
    ranks_per_group : int, optional
        Ranks that share a slice. Default: the fastest number.
    memory : float or str, optional
        The memory of a rank, such as "128MiB" or "unlimited". Default: that of the profile.
    threshold : int or str, optional
        A tensor of this many bytes or more is large, and its step may be distributed. Default with the policy
        "paper": 8 GiB or a quarter of a rank's memory, whichever is smaller. With "ours": a 128th of that.
    precision : str, optional
        How values are multiplied: "fp32", "tf32", "fp16x3", "fp64". Default: by the dtype.
    policy : {"ours", "paper"}
        How modes are distributed; "paper" is section IV-B of arXiv 2606.01852.
    compress : str, optional
        exchange=BOUND[:RATIO], store=BOUND[:RATIO], setting=fast|small; several with commas, such as
        exchange=1e-3:4,store=1e-3:3 (docs/explanation/compression.md). Default: nothing.
    algebra : str or Algebra, optional
        What adds and multiplies: max-plus, min-plus, boolean, residues, optima, or an algebra of your own.
        Values have its dtype. Default: sums and products of numbers.
    output : path, optional
        A schedule file to write. The tensors go beside it where the file of the path itself has their values.

    Returns
    -------
    Schedule
        The schedule, verified.

    Raises
    ------
    InputError
        Where an option or the path cannot be used, or nothing fits into the memory.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),)), hardware="cpu")
    Schedule(unnamed: 2 tensors, complex64, 1 rank of cpu, 1 slice, ... predicted, peak 768 B)
    """
    # docs/explanation/architecture.md#from-path-to-schedule
    compression = None if compress is None else parse_request(compress).planned()
    limits_bytes = limits(memory, threshold)
    if output is not None:
        check_writable(output, path, hardware)
    profile = known_profile(hardware)
    over = algebra_of(algebra)
    read, arrays = read_to_plan(path)
    if over is not None:
        check_lossless(compression, over.name)
        read, profile = replace(read, dtype=over.dtype), over.profile(profile)
    values = None if output is None else _values(Path(output))
    if values is not None and arrays is not None:
        check_writable(values)
        # Absolute while it is planned; `seen_from` makes names of tensors relative to the folder of
        # the file that has them.
        read = replace(read, tensors=os.path.abspath(values))
    elif output is not None and read.tensors is not None:
        check_writable(output, read.tensors)
    if output is not None:
        check_json_name(output)
    schedule = pipeline.plan(
        read, profile, devices=devices, ranks_per_group=ranks_per_group, **limits_bytes, precision=precision,
        policy=policy, compression=compression,
    )  # fmt: skip
    if over is not None:
        schedule = with_identity(replace(schedule, algebra=over.name))
    schedule = replace(schedule, devices=devices)
    if output is not None:
        if values is not None and arrays is not None:
            # Invariant: tensors first. A schedule that is there names tensors that are there.
            save_tensors(arrays, values)
        save_schedule(seen_from(Path(output).parent, schedule), output)
    return schedule


def _values(schedule_file: Path) -> Path:
    """The file of tensors that goes with a schedule."""
    return schedule_file.with_name(
        schedule_file.name.removesuffix(".json").removesuffix(".schedule") + ".npz"
    )


def seen_from(folder: Path, schedule: Schedule) -> Schedule:
    """The schedule with its file of tensors named from a folder, so that both can be moved together."""
    if schedule.tensors is None:
        return schedule
    return with_identity(replace(schedule, tensors=os.path.relpath(schedule.tensors, folder)))
