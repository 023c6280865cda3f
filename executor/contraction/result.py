"""The result of a run as an array: gathered on rank 0, or one file a rank with an index.

Changelog of `tnplan.shards`:
1 (2026-11-21): first version. Each shard is flat, row-major over its box; boxes are over the modes.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.contraction.run import Outcome
from executor.device.communicator import Communicator, agree
from executor.device.device import Device
from executor.device.numpy_device import NumpyDevice
from executor.device.permutation import make_copy, row_major
from planner.errors import InputError
from planner.files import read_json, write_file, write_text
from planner.hardware.layout import Box, box, box_shape, grid_size, rank_digits
from planner.schedule import Schedule

FORMAT = "tnplan.shards"
VERSION = 1
CHECKED_ELEMENTS = 1 << 20


def owners(schedule: Schedule) -> list[int]:
    """The ranks of a group that hold the result between them: those with 0 in every replicated digit."""
    layout = schedule.buffers[schedule.result].layout
    ranks = range(grid_size(schedule.grid))
    return [
        rank for rank in ranks
        if all(mode is not None or value == 0
               for value, mode in zip(rank_digits(rank, schedule.grid), layout, strict=True))
    ]  # fmt: skip


def mode_extents(schedule: Schedule) -> list[int]:
    """The extents of the result's modes, in order."""
    return [schedule.extents[mode] for mode in schedule.buffers[schedule.result].modes]


def result_box(schedule: Schedule, rank: int) -> Box:
    """The box of the result, over its modes, that a rank of the group holds."""
    buffer = schedule.buffers[schedule.result]
    return box(buffer.modes, buffer.layout, schedule.extents, rank_digits(rank, schedule.grid), schedule.grid)


def gather_result(outcome: Outcome, device: Device) -> NDArray[Any] | None:
    """The whole result with the axes of the schedule's output, on world rank 0; None on the others."""
    schedule, group = outcome.program.schedule, outcome.group
    if outcome.share.group != 0:
        return None
    holders = owners(schedule)
    if group.rank != 0:
        if group.rank in holders and len(outcome.program.result):
            group.exchange([(0, device.to_host(outcome.program.result))], [])
        return None
    own = device.to_host(outcome.program.result)
    if holders == [0]:
        return own.copy().reshape(schedule.output_shape)
    whole = np.empty(prod(schedule.output_shape), schedule.dtype)
    for rank in holders:
        bounds = result_box(schedule, rank)
        shard = own
        if rank != 0:
            shard = np.empty(prod(box_shape(bounds)), schedule.dtype)
            if len(shard):
                group.exchange([], [(rank, shard)])
        place_shard(whole, shard, bounds, mode_extents(schedule))
    return whole.reshape(schedule.output_shape)


def place_shard(whole: NDArray[Any], shard: NDArray[Any], bounds: Box, extents: list[int]) -> None:
    """Copy a flat shard to its box of the flat whole array of row-major `extents`."""
    shape, strides = box_shape(bounds), row_major(extents)
    copy = make_copy(list(zip(shape, row_major(shape), strides, strict=True)))
    start = sum(first * stride for (first, _), stride in zip(bounds, strides, strict=True))
    NumpyDevice().bind_copy(whole, shard, copy, start, 0)()


def own_shard(outcome: Outcome, device: Device) -> NDArray[Any] | None:
    """This rank's part of a sharded result, flat; None where another rank holds the same."""
    if outcome.share.group != 0 or outcome.group.rank not in owners(outcome.program.schedule):
        return None
    return device.to_host(outcome.program.result)


def shard_index(output: Path) -> Path:
    """The index file of a sharded result."""
    return output.with_suffix(".shards.json")


def write_shards(outcome: Outcome, device: Device, world: Communicator, output: Path) -> None:
    """Write every rank's shard beside `output`, then the index; collective over the world."""
    schedule = outcome.program.schedule
    holders = owners(schedule)

    def name(rank: int) -> str:
        return f"{output.stem}.rank{rank}.npy"

    def write_own() -> None:
        shard = own_shard(outcome, device)
        if shard is not None:
            write_file(output.with_name(name(outcome.group.rank)), lambda stream: np.save(stream, shard))

    def write_index() -> None:
        if world.rank != 0:
            return
        document = {
            "format": FORMAT, "version": VERSION, "schedule": schedule.identity, "dtype": schedule.dtype,
            "output": list(schedule.output), "shape": list(schedule.output_shape),
            "mode_extents": mode_extents(schedule),
            "shards": [{"file": name(rank), "box": [list(part) for part in result_box(schedule, rank)]}
                       for rank in holders],
        }  # fmt: skip
        write_text(shard_index(output), json.dumps(document, indent=1) + "\n")

    agree(world, write_own)
    agree(world, write_index)


def load_shards(index: str | Path) -> NDArray[Any]:
    """Put a sharded result together from its index file."""
    path = Path(index)
    document = read_json(path, FORMAT, VERSION)
    whole = np.empty(prod(document["shape"]), document["dtype"])
    for entry in document["shards"]:
        bounds = tuple((int(start), int(stop)) for start, stop in entry["box"])
        try:
            shard = np.load(path.with_name(entry["file"]), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(
                str(path.with_name(entry["file"])),
                f"cannot be read ({error})",
                "keep shards beside their index",
            ) from None
        place_shard(whole, shard, bounds, document["mode_extents"])
    return whole.reshape(document["shape"])


def count_not_finite(values: NDArray[Any]) -> int:
    """How many values are NaN or infinite, looked at piece by piece."""
    flat = values.reshape(-1)
    pieces = (flat[first : first + CHECKED_ELEMENTS] for first in range(0, len(flat), CHECKED_ELEMENTS))
    return sum(int(len(piece) - np.count_nonzero(np.isfinite(piece))) for piece in pieces)
