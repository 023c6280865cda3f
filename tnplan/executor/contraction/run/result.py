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

from tnplan.common.files import Staged
from tnplan.executor.contraction.bind.program import BoundProgram
from tnplan.executor.contraction.run.rank_run import RunOutcome
from tnplan.executor.contraction.run.slice_partition import Share
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.communicator import AgreedError, Communicator, agree
from tnplan.executor.device.protocols.copy import make_copy, row_major
from tnplan.executor.device.protocols.device import Device, View
from tnplan.planner.hardware.process_grid import Box, box, box_shape, grid_size, rank_digits
from tnplan.planner.schedule.schedule import GradientSchedule, Schedule

FORMAT = "tnplan.shards"
VERSION = 1
CHECKED_ELEMENTS = 1 << 20


def owners(schedule: Schedule, buffer: int | None = None) -> list[int]:
    """The ranks of a group that hold the result, or another buffer, between them: those with 0 in every
    replicated digit."""
    layout = schedule.buffers[schedule.result if buffer is None else buffer].layout
    ranks = range(grid_size(schedule.grid))
    return [
        rank for rank in ranks
        if all(mode is not None or value == 0
               for value, mode in zip(rank_digits(rank, schedule.grid), layout, strict=True))
    ]  # fmt: skip


def gather_result(outcome: RunOutcome, device: Device) -> NDArray[Any] | None:
    """The whole result with the axes of the schedule's output, on world rank 0; None on the others."""
    arrays = gather_results(outcome.program, outcome.share, outcome.group, device)
    return None if arrays is None else arrays[0].copy().reshape(outcome.program.schedule.output_shape)


def gather_results(
    program: BoundProgram, share: Share, group: Communicator, device: Device
) -> list[NDArray[Any]] | None:
    """The whole result and the whole gradients, flat in the order of their buffers' modes, on world rank 0,
    where they may be the device's memory; None on the others."""
    schedule = program.schedule
    if share.group != 0:
        return None
    buffers = [(schedule.result, program.result)]
    if isinstance(schedule, GradientSchedule):
        gradients = zip(schedule.gradients, program.gradients, strict=True)
        buffers += [(gradient.buffer, view) for gradient, view in gradients]
    if group.size == 1:
        return device.to_hosts([view for _, view in buffers])
    arrays = [_gather(schedule, buffer, view, group, device) for buffer, view in buffers]
    return [whole for whole in arrays if whole is not None] if group.rank == 0 else None


def _spread(schedule: Schedule, buffer: int) -> tuple[list[int], dict[int, Box]]:
    """The extents of the modes of a buffer, and the box over them that each of its owners holds."""
    stored, grid = schedule.buffers[buffer], schedule.grid
    boxes = {
        rank: box(stored.modes, stored.layout, schedule.extents, rank_digits(rank, grid), grid)
        for rank in owners(schedule, buffer)
    }
    return [schedule.extents[mode] for mode in stored.modes], boxes


def _gather(
    schedule: Schedule, buffer: int, view: View, group: Communicator, device: Device
) -> NDArray[Any] | None:
    """A whole tensor, flat, on rank 0 of a group; None on the others."""
    extents, boxes = _spread(schedule, buffer)
    if group.rank != 0:
        if group.rank in boxes and len(view):
            group.exchange([(0, device.to_host(view))], [])
        return None
    local = device.to_host(view)
    if list(boxes) == [0]:
        return local
    whole = np.empty(prod(extents), schedule.dtype)
    for rank, bounds in boxes.items():
        shard = local
        if rank != 0:
            shard = np.empty(prod(box_shape(bounds)), schedule.dtype)
            if len(shard):
                group.exchange([], [(rank, shard)])
        place_shard(whole, shard, bounds, extents)
    return whole


def place_shard(whole: NDArray[Any], shard: NDArray[Any], bounds: Box, extents: list[int]) -> None:
    """Copy a flat shard to its box of the flat whole array of row-major `extents`."""
    shape, strides = box_shape(bounds), row_major(extents)
    copy = make_copy(list(zip(shape, row_major(shape), strides, strict=True)))
    start = sum(first * stride for (first, _), stride in zip(bounds, strides, strict=True))
    NumpyDevice().bind_copy(whole, shard, copy, start, 0)()


def rank_shard(outcome: RunOutcome, device: Device) -> NDArray[Any] | None:
    """This rank's part of a sharded result, flat; None where another rank holds the same."""
    if outcome.share.group != 0 or outcome.group.rank not in owners(outcome.program.schedule):
        return None
    return device.to_host(outcome.program.result)


def shard_index(output: Path) -> Path:
    """The index file of a sharded result."""
    return output.with_suffix(".shards.json")


def shard_file(output: Path, rank: int) -> Path:
    """The file of the part that a rank of the group holds of a sharded result."""
    return output.with_name(f"{output.stem}.rank{rank}.npy")


def write_result(
    output: Path, own: NDArray[Any] | None, sharded: bool, document: dict[str, Any], outcome: RunOutcome,
    world: Communicator,
) -> None:  # fmt: skip
    """Write what every rank has of the result (`own`), then the index of shards and `document`, a .json.

    All files are whole before any is moved to its name. Collective over the world; raises AgreedError.
    """

    def fill(arrays: Staged, documents: Staged) -> None:
        if own is not None:
            file = shard_file(output, outcome.group.rank) if sharded else output
            arrays.add(file, lambda stream: np.save(stream, own, allow_pickle=False))
        if world.rank != 0:
            return
        file = shard_index(output) if sharded else output
        if sharded:
            _add_json(documents, file, _index(outcome.program.schedule, output))
        _add_json(documents, output.with_suffix(".json"), {**document, "file": file.name})

    try:
        with Staged() as arrays, Staged() as documents:
            for step in (lambda: fill(arrays, documents), arrays.move, documents.move):
                agree(world, step)
    except AgreedError:
        world.barrier()  # no rank ends the job before all have deleted what they did not move
        raise


def _add_json(files: Staged, path: Path, document: dict[str, Any]) -> None:
    files.add(path, lambda stream: stream.write(f"{json.dumps(document, indent=1)}\n".encode()))


def _index(schedule: Schedule, output: Path) -> dict[str, Any]:
    extents, boxes = _spread(schedule, schedule.result)
    return {
        "format": FORMAT, "version": VERSION, "schedule": schedule.identity, "dtype": schedule.dtype,
        "output": list(schedule.output), "shape": list(schedule.output_shape), "mode_extents": extents,
        "shards": [{"file": shard_file(output, rank).name, "box": [list(span) for span in bounds]}
                   for rank, bounds in boxes.items()],
    }  # fmt: skip


def count_not_finite(values: NDArray[Any], algebra: str | None = None) -> int:
    """How many values are NaN or infinite, looked at piece by piece; over an algebra NaN: infinity may be its
    zero."""
    is_number = np.isfinite if algebra is None else lambda piece: ~np.isnan(piece)
    flat = values.reshape(-1)
    pieces = (flat[first : first + CHECKED_ELEMENTS] for first in range(0, len(flat), CHECKED_ELEMENTS))
    return sum(int(len(piece) - np.count_nonzero(is_number(piece))) for piece in pieces)
