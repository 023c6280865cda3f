"""Checkpoints of a sliced contraction: every rank's partial sum and how many of its group's slices are in it.

In the folder `<result>.ckpt` a manifest says which run it belongs to; `rank<r>.<count>.npy`, or `.tnz` where
it is compressed without loss, is the partial sum of world rank r after the first `count` slices of its group.
A generation is deleted only after its successor stands on every rank of the group, so that a killed job
leaves one that all of them have. A folder without partial sums is no checkpoint.

Changelog of `tnplan.checkpoint`:
1 (2026-11-21): first version.
2 (2026-11-23): a group computes a run of consecutive slices. Version 1 is refused.
3 (2026-11-25): what is left of an even division of the slices goes to other groups. Version 2 is refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.codec import allocate, decode, encode
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import Header
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.executor.device.protocols.stop_signal import asked
from tnplan.planner.common.array_file import read_array
from tnplan.planner.common.errors import InputError, WriteError
from tnplan.planner.common.files import check_writable, open_input, read_json, write_file, write_text

FORMAT = "tnplan.checkpoint"
VERSION = 3
FORMS = ("npy", "tnz")
INTERVAL = 20
"""A checkpoint is due when this many times the last one's cost has gone by (so that it costs 5% at most)."""


@dataclass(frozen=True)
class RunIdentity:
    """What a checkpoint belongs to: another run of the same parts gives the same bits."""

    schedule: str
    n_groups: int
    slices: tuple[int, int]
    dtype: str
    values: str

    def document(self) -> dict[str, Any]:
        """The manifest."""
        return {
            "format": FORMAT, "version": VERSION, "schedule": self.schedule, "n_groups": self.n_groups,
            "slices": list(self.slices), "dtype": self.dtype, "values": self.values,
        }  # fmt: skip


class RunCheckpoint:
    """The checkpoints of one rank. `group` joins the ranks of its group."""

    def __init__(
        self,
        folder: Path,
        run: RunIdentity,
        world: Communicator,
        group: Communicator,
        compressed: bool = False,
    ) -> None:
        self._folder = folder
        self._compressed = compressed
        self._run = run
        self._world = world
        self._group = group
        self._last = perf_counter()
        self._cost_s = 0.0
        self._kept = 0
        self.total_s = 0.0

    def check(self, resume: bool) -> None:
        """Raise AgreedError where the folder cannot be used, or has a checkpoint of another run or to resume.

        Collective over the world. Nothing is written before there is a partial sum to keep.
        """
        agree(self._world, lambda: self._check(resume) if self._world.rank == 0 else None)

    def _check(self, resume: bool) -> None:
        folder = self._folder
        if folder.is_dir():
            check_writable(self._manifest)
        elif folder.exists():
            raise InputError(str(folder), "is to be a folder", "move that file, or choose another --output")
        if not any(folder.glob("rank*.*")):
            return
        if not resume:
            raise InputError(
                str(self._folder), "holds the checkpoint of an interrupted run",
                "continue it with --resume, or delete the folder to start again",
            )  # fmt: skip
        found = read_json(self._manifest, FORMAT, VERSION)
        for name, value in self._run.document().items():
            if found.get(name) != value:
                raise InputError(
                    f"{self._manifest}: {name}", f"is {found.get(name)!r}, this run has {value!r}",
                    "resume with the schedule, tensors, ranks, --slices and --compress of that run, "
                    "or delete the folder",
                )  # fmt: skip

    @property
    def _manifest(self) -> Path:
        return self._folder / "manifest.json"

    def restore(self, expected: int, n_slices: int) -> tuple[int, NDArray[Any] | None]:
        """The newest generation that all ranks of the group have whole: its count, and the partial sum.

        `expected` is the elements of the partial sum, `n_slices` the slices of the group. (0, None) where the
        ranks have no generation in common. Collective over the world; raises AgreedError where a group has
        some and none can be used. Other generations are deleted when all groups have theirs.
        """
        counts = self._generations()
        found, partial = agree(self._world, lambda: self._newest(counts, expected, n_slices))
        for count in counts - {found}:
            self._path(count).unlink()
        self._kept = found
        return found, partial

    def _newest(self, counts: set[int], expected: int, n_slices: int) -> tuple[int, NDArray[Any] | None]:
        refusal: InputError | None = None
        for count in sorted(set.intersection(*self._group.gather_objects(counts)), reverse=True):
            try:
                return count, self._read(count, expected, n_slices)
            except InputError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        return 0, None

    def _read(self, count: int, expected: int, n_slices: int) -> NDArray[Any]:
        """A generation; every rank of the group refuses one that any of them cannot use."""
        return agree(self._group, lambda: self._read_own(count, expected, n_slices))

    def _read_own(self, count: int, expected: int, n_slices: int) -> NDArray[Any]:
        path, remedy = self._path(count), "delete the folder to start again"
        if count > n_slices:
            raise InputError(str(path), f"is of {count} slices, the group has {n_slices}", remedy)
        def check(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
            if shape != (expected,) or dtype != np.dtype(self._run.dtype):
                problem = f"holds {shape} of {dtype}, this run has ({expected},) of {self._run.dtype}"
                raise InputError(str(path), problem, remedy)

        return _load(path, check)

    def _generations(self) -> set[int]:
        if not self._folder.exists():
            return set()
        pattern = re.compile(rf"rank{self._world.rank}\.([1-9]\d*)\.(?:npy|tnz)")
        return {int(match[1]) for entry in self._folder.iterdir() if (match := pattern.fullmatch(entry.name))}

    def _path(self, count: int) -> Path:
        """Where a generation is, in either form."""
        paths = [self._folder / f"rank{self._world.rank}.{count}.{form}" for form in FORMS]
        return next((path for path in paths if path.exists()), paths[0])

    def due(self) -> tuple[bool, str]:
        """Whether this slice is to be kept, and the signal for which the run is to stop then, if any.

        The group's first rank decides for all.
        """
        waited, stop = perf_counter() - self._last, asked()
        is_due = not self._kept or waited >= INTERVAL * self._cost_s or bool(stop)
        is_due, stop = self._group.broadcast_object((is_due, stop), 0)
        return is_due, stop

    def write(self, count: int, partial: NDArray[Any]) -> None:
        """Keep the partial sum after `count` slices of the group; collective over the group.

        Raises WriteError where it cannot be written.
        """
        start = perf_counter()
        path = self._folder / f"rank{self._world.rank}.{count}.{FORMS[self._compressed]}"
        try:
            if not self._kept:
                self._begin()
            write_file(path, lambda stream: self._save(stream, partial))
        except InputError as error:
            raise WriteError(str(error)) from None
        self._group.barrier()
        if self._kept:
            self._path(self._kept).unlink(missing_ok=True)
        self._kept = count
        self._last = perf_counter()
        self._cost_s = self._last - start
        self.total_s += self._cost_s

    def _begin(self) -> None:
        """Make the folder with its manifest before any rank of the group writes there."""
        if self._group.rank == 0:
            try:
                self._folder.mkdir(exist_ok=True)
            except OSError as error:
                raise InputError(
                    str(self._folder), f"cannot be made ({error.strerror})", "make room for it"
                ) from None
            try:
                write_text(self._manifest, json.dumps(self._run.document(), indent=1) + "\n")
            except BaseException:
                with suppress(OSError):
                    self._folder.rmdir()
                raise
        self._group.barrier()

    def _save(self, stream: BinaryIO, partial: NDArray[Any]) -> None:
        """Write a partial sum through to the disk: its predecessor is deleted next."""
        if not self._compressed:
            np.save(stream, partial, allow_pickle=False)
        else:
            for piece in encode(partial, 0.0)[1]:
                stream.write(piece)
        stream.flush()
        os.fsync(stream.fileno())

    def remove(self) -> None:
        """Delete the folder, if any, once the result is written; collective over the world."""
        self._world.barrier()
        if self._world.rank == 0 and self._folder.exists():
            shutil.rmtree(self._folder)
        self._world.barrier()


def _load(path: Path, check: Callable[[tuple[int, ...], np.dtype[Any]], None]) -> NDArray[Any]:
    """The partial sum in a file of either form, whose shape and dtype pass the check before it is read."""
    if path.suffix == ".npy":
        return read_array(path, lambda header: check(header.shape, header.dtype))

    def checked(header: Header) -> NDArray[Any]:
        check(header.shape, np.dtype(header.dtype))
        return allocate(header)

    with open_input(path) as stream:
        try:
            return decode(stream, checked, path.stat().st_size)[1]
        except CodecError as error:
            remedy = "delete the folder to start again"
            raise InputError(str(path), f"cannot be read ({error})", remedy) from None
