"""Checkpoints of a sliced contraction: every rank's partial sum and how many of its group's slices are in it.

In the folder `<result>.ckpt` a manifest says which run it belongs to; `rank<r>.<count>.npy`, or `.tnz` where
it is compressed without loss, is the partial sum of world rank r after the first `count` slices of its group.
A generation is deleted only after its successor stands on every rank of the group, so that a killed job
leaves one that all of them have.

Changelog of `tnplan.checkpoint`:
1 (2026-11-21): first version.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from compress.codec import allocate, decode, encode
from executor.device.communicator import Communicator, agree
from planner.errors import InputError
from planner.files import read_json, write_file, write_text

FORMAT = "tnplan.checkpoint"
VERSION = 1
FORMS = ("npy", "tnz")
INTERVAL = 20
"""A checkpoint is due when this many times the last one's cost has gone by (so that it costs 5% at most)."""


@dataclass(frozen=True)
class Run:
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


class Checkpoint:
    """The checkpoints of one rank. `group` joins the ranks of its group."""

    def __init__(
        self, folder: Path, run: Run, world: Communicator, group: Communicator, compressed: bool = False
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

    def open(self, resume: bool) -> None:
        """Check or create the folder; collective over the world. Raises where it belongs to another run."""

        def begin() -> None:
            if self._world.rank == 0:
                self._check_manifest(resume)
                made = not self._folder.exists()
                self._make_folder()
                try:
                    write_text(self._manifest, json.dumps(self._run.document(), indent=1) + "\n")
                except BaseException:
                    if made:
                        self._folder.rmdir()
                    raise

        agree(self._world, begin)
        agree(self._world, self._make_folder)

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(
                str(self._folder), f"cannot be made ({error.strerror})", "choose a folder that is writable"
            ) from None

    @property
    def _manifest(self) -> Path:
        return self._folder / "manifest.json"

    def _check_manifest(self, resume: bool) -> None:
        if not self._manifest.exists():
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

    def restore(self, expected: int, dtype: str) -> tuple[int, NDArray[Any] | None]:
        """The newest generation that all ranks of the group have: its count, and the partial sum.

        `expected` is the elements of the partial sum. (0, None) where there is none.
        """
        counts = set(self._generations())
        common = set.intersection(*map(set, self._group.gather_objects(counts)))
        newest = max(common, default=0)
        for count in counts - {newest}:
            self._path(count).unlink()
        self._kept = newest
        if not newest:
            return 0, None
        path = self._path(newest)
        try:
            array = _load(path)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(
                str(path), f"cannot be read ({error})", "delete the folder to start again"
            ) from None
        if array.shape != (expected,) or array.dtype != np.dtype(dtype):
            raise InputError(
                str(path), f"holds {array.shape} of {array.dtype}, this run has ({expected},) of {dtype}",
                "delete the folder to start again",
            )  # fmt: skip
        return newest, array

    def _generations(self) -> list[int]:
        pattern = re.compile(rf"rank{self._world.rank}\.(\d+)\.(?:npy|tnz)")
        return [int(match[1]) for entry in self._folder.iterdir() if (match := pattern.fullmatch(entry.name))]

    def _path(self, count: int) -> Path:
        """Where a generation is, in either form."""
        paths = [self._folder / f"rank{self._world.rank}.{count}.{form}" for form in FORMS]
        return next((path for path in paths if path.exists()), paths[0])

    def due(self) -> bool:
        """Whether this slice is to be kept; the group's first rank decides for all."""
        waited = perf_counter() - self._last
        return bool(self._group.broadcast_object(not self._kept or waited >= INTERVAL * self._cost_s, 0))

    def write(self, count: int, partial: NDArray[Any]) -> None:
        """Keep the partial sum after `count` slices of the group; collective over the group."""
        start = perf_counter()
        path = self._folder / f"rank{self._world.rank}.{count}.{FORMS[self._compressed]}"
        write_file(path, lambda stream: self._save(stream, partial))
        self._group.barrier()
        if self._kept:
            self._path(self._kept).unlink(missing_ok=True)
        self._kept = count
        self._last = perf_counter()
        self._cost_s = self._last - start
        self.total_s += self._cost_s

    def _save(self, stream: BinaryIO, partial: NDArray[Any]) -> None:
        if not self._compressed:
            np.save(stream, partial, allow_pickle=False)
            return
        for piece in encode(partial, 0.0)[1]:
            stream.write(piece)

    def remove(self) -> None:
        """Delete the folder once the result is written; collective over the world."""
        self._world.barrier()
        if self._world.rank == 0:
            shutil.rmtree(self._folder)
        self._world.barrier()


def _load(path: Path) -> NDArray[Any]:
    """The partial sum in a file of either form."""
    if path.suffix == ".npy":
        array: NDArray[Any] = np.load(path, allow_pickle=False)
        return array
    with path.open("rb") as stream:
        return decode(stream, allocate, path.stat().st_size)[1]
