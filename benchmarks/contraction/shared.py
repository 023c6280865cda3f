"""What the benchmarks of the contraction share: files, devices, tensors of a path, times of slices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.device import Device
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path, tensors_file
from tnplan.planner.networks.tensors import load_tensors
from tnplan.planner.schedule.schedule import Schedule

PATHS = Path(__file__).resolve().parents[2] / "paths"
RESULTS = Path(__file__).resolve().parents[1] / "results" / "contraction"
ROOM_BYTES = 1 << 20
ROOF_BYTES = {"gpu": 8 << 30, "cpu": 1 << 23}


def open_device(name: str) -> Device:
    """The first GPU, or the CPU with one thread."""
    if name == "cpu":
        return NumpyDevice(1)
    from tnplan.executor.device.cuda.device import CupyDevice

    return CupyDevice(0)


def size_bytes(text: str) -> int:
    """'1GiB', '64KiB' or a number of bytes."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return int(text)


def launched() -> bool:
    """Whether mpirun started this process."""
    return world_communicator() is not None


def say(text: str) -> None:
    """Print on rank 0."""
    world = world_communicator()
    if world is None or world.rank == 0:
        print(text, flush=True)


def values(file: Path) -> list[np.ndarray]:
    """The path's tensors, or random ones whose contraction stays of the order of one."""
    path: ContractionPath = load_path(file)
    stored = tensors_file(file, path.tensors)
    if stored is not None:
        return load_tensors(stored, path.network, path.dtype)
    generator = np.random.default_rng(0)
    arrays = []
    for number in range(len(path.network.inputs)):
        shape = path.network.shape(number)
        real, imaginary = generator.normal(scale=math.prod(shape) ** -0.25, size=(2, *shape))
        array = real + 1j * imaginary if path.dtype.startswith("complex") else real
        arrays.append(np.asarray(array * 0.5**0.5, path.dtype))
    return arrays


def mean_slice_s(schedule: Schedule, measured: Mapping[str, Any]) -> float:
    """Measured seconds of a slice in the mean of all slices: the body alone, in the median of those after the
    first, and its share of each part that serves several."""
    *outer, body = measured["parts"]
    unit = outer[-1]["serves"] if outer else schedule.n_slices
    _, *others = sorted(map(int, measured["slices_s"]))
    alone = [measured["slices_s"][str(number)] for number in others if number % unit]
    body_s = median(alone) if alone else body["time_s"] / body["runs"]
    return body_s + sum(part["time_s"] * part["repeats"] / (part["runs"] * part["serves"]) for part in outer)
