"""Checkpoints of a sliced contraction: every rank's partial sum and how many of its group's slices are in it.

In the folder `<result>.ckpt` a manifest says which run it belongs to, and how its slices are divided over
groups; `rank<r>.<d>.<count>.npy`, or `.tnz` where it is compressed without loss, is the partial sum of world
rank r after the first `count` slices of its group in division d. A generation is deleted only after its
successor stands on every rank of the group, so that a killed job leaves one that all of them have. A folder
without partial sums is no checkpoint.

A run that goes on with another number of groups adds the partial sums of all groups, and divides the slices
that are left anew: the sum is generation 0 of group 0 in the next division. It is written first, then the
manifest is replaced, and then the files of other divisions are deleted, so that a kill at any moment leaves
a checkpoint.

Changelog of `tnplan.checkpoint`, the manifest:
1 (2026-11-21): first version.
2 (2026-11-23): a group computes a run of consecutive slices. Version 1 is refused.
3 (2026-11-25): what is left of an even division of the slices goes to other groups. Version 2 is refused.
4 (2026-11-26): `groups` and `left` for `n_groups`; `identity`; names with the division. Version 3 is refused.
5 (2026-11-29): as `tnplan.common.checkpoint`. Version 4 is refused.

Changelog of `tnplan.checkpoint.sum`, the file of a partial sum:
1 (2026-11-29): first version. Partial sums without a checksum are refused.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tnplan.common.array_file import ArrayHeader
from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.errors import InputError, WriteError
from tnplan.common.files import check_writable, identity_of
from tnplan.compress.cpu.codec import allocate, decode, encode
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import Header
from tnplan.executor.contraction.run.slice_partition import SliceRanges, slices_of_group
from tnplan.executor.device.cpu.algebra import Algebra
from tnplan.executor.device.protocols.communicator import AgreedError, Communicator, agree
from tnplan.executor.device.protocols.stop_signal import asked

RESTART = "delete the folder to start again"
FORMS = ("npy", "tnz")
COMPRESSED = ".tnz"
INTERVAL = 20
"""A checkpoint is due when this many times the last one's cost has gone by (so that it costs 5% at most)."""
NAME = re.compile(r"rank(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)\.(?:npy|tnz)")


@dataclass(frozen=True)
class RunIdentity:
    """What a checkpoint belongs to: a run of the same parts with as many groups gives the same bits."""

    schedule: str
    slices: tuple[int, int]
    dtype: str
    values: str

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "schedule": self.schedule, "slices": list(self.slices), "dtype": self.dtype,
            "values": self.values,
        }  # fmt: skip


@dataclass(frozen=True)
class Division:
    """A division of slices over groups.

    `groups` has the number of groups of every division of the run so far, this one's last. The slices that
    earlier ones have done are not among those `left`: their sum is where group 0 starts.
    """

    groups: tuple[int, ...]
    left: SliceRanges

    @property
    def number(self) -> int:
        """How many divisions came before."""
        return len(self.groups) - 1

    def slices_of(self, group: int) -> SliceRanges:
        """What one of the groups computes."""
        return self.left.of_group(group, self.groups[-1])

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"groups": list(self.groups), "left": [[span.start, span.stop] for span in self.left.ranges]}

    def identity(self, run: RunIdentity) -> str:
        """What identifies a group's slices, in this division of a run."""
        return identity_of({**run.document(), **self.document()})

    def next(self, done: Mapping[int, int], n_groups: int) -> Division:
        """The division, over other groups, of what is left where some have `done` so many of their slices."""
        ranges: list[range] = []
        first, count = 0, self.left.count
        for group, n_done in sorted(done.items()):
            # A group has done the first `n_done` of its slices: what is left begins behind these, and groups
            # without a partial sum have all of theirs left.
            start = slices_of_group(group, self.groups[-1], 0, count).start
            ranges += self.left.part(first, start).ranges
            first = start + n_done
        ranges += self.left.part(first, count).ranges
        return Division((*self.groups, n_groups), SliceRanges.of(*ranges))


def first_division(run: RunIdentity, n_groups: int) -> Division:
    """All slices of a run over groups."""
    return Division((n_groups,), SliceRanges.of(range(*run.slices)))


class Manifest(CheckpointFile):
    """The file that says which run a checkpoint is of, and what the division of its slices is."""

    FORMAT, VERSION, JOB = "tnplan.checkpoint", 5, "run"
    OTHERS = "schedule, tensors, --slices and --compress"
    RESTART, DURABLE = RESTART, True

    def __init__(self, path: Path, run: RunIdentity) -> None:
        super().__init__(path, run.document())

    def division(self) -> Division:
        """The division; InputError where the file is of another run, or damaged."""

        def made(document: dict[str, Any], _: dict[str, Array]) -> Division:
            return Division(
                tuple(document["groups"]), SliceRanges.of(*(range(*ends) for ends in document["left"]))
            )

        return self.content(made)

    def write(self, division: Division) -> None:
        """Replace the file."""
        self.replace(division.document())


class Generation(NamedTuple):
    """What the name of a partial sum says: world rank, division, and slices of the group."""

    rank: int
    division: int
    n_slices: int


@dataclass(frozen=True)
class CheckpointSettings:
    """The folder of a run's partial sums, of so many `elements` on this rank; whether they are compressed,
    and the algebra that they are sums of."""

    folder: Path
    run: RunIdentity
    elements: int
    compressed: bool = False
    algebra: Algebra | None = None


class RunCheckpoint:
    """The checkpoints of one rank. `group` joins the ranks of its group, which lie in a row in `world`."""

    def __init__(self, settings: CheckpointSettings, world: Communicator, group: Communicator) -> None:
        self._folder = settings.folder
        self._compressed = settings.compressed
        self._run = settings.run
        self._algebra = settings.algebra
        self._elements = settings.elements
        self._manifest = Manifest(settings.folder / "manifest.json", settings.run)
        self._world = world
        self._group = group
        self._group_number, self._n_groups = world.rank // group.size, world.size // group.size
        self._division = first_division(settings.run, self._n_groups)
        self._last = perf_counter()
        self._cost_s = 0.0
        self._count: int | None = None
        self.total_s = 0.0
        self.notes: list[str] = []
        """What is said of partial sums of this group that are not used."""

    def open(self, resume: bool) -> Division:
        """The division of the slices that the run computes: that of the checkpoint, or a new one.

        Raises AgreedError where the folder cannot be used, or has a checkpoint of another run or to resume.
        Collective over the world. Without a checkpoint nothing is written before there is a partial sum to
        keep.
        """
        division = agree(self._world, lambda: self._found(resume) if self._world.rank == 0 else None)
        self._division = self._world.broadcast_object(division or self._division, 0)
        if self._division.groups[-1] != self._n_groups:
            self._divide()
        return self._division

    def _found(self, resume: bool) -> Division | None:
        """The division of the checkpoint; None where there is no checkpoint."""
        folder = self._folder
        if folder.is_symlink():
            raise InputError(str(folder), "is a link", "delete the link, or choose another --output")
        if folder.is_dir():
            check_writable(self._manifest.path)
        elif folder.exists():
            remedy = "move the file, or choose another --output"
            raise InputError(str(folder), "is a file, not a folder", remedy)
        if not any(folder.glob("rank*.*")):
            return None
        if not resume:
            raise InputError(
                str(folder), "holds the checkpoint of an interrupted run",
                f"continue it with --resume, or {RESTART}",
                topic="checkpoints",
            )  # fmt: skip
        if not self._manifest.path.exists():
            raise InputError(str(folder), "has lost its manifest", RESTART)
        division = self._manifest.division()
        if not any(generation.division == division.number for generation in self._files()):
            raise InputError(str(folder), "has lost the files of its partial sums", RESTART)
        return division

    def _divide(self) -> None:
        """Keep the sum of all groups for group 0, and divide the slices that are left among this run's."""
        # Invariant: the order of writing makes any kill harmless. First the sum under the new division's
        # name, then the manifest that names the division; until the second, the first is not used.
        done, total = agree(self._world, self._added)
        self._division = self._division.next(self._world.broadcast_object(done, 0), self._n_groups)
        # A kill may have left the sum of an earlier attempt, in the other form.
        self._delete(lambda generation: generation[:2] == (self._world.rank, self._division.number))
        try:
            agree(self._world, lambda: None if total is None else self._save(0, total))
            agree(self._world, self._write_manifest)
        except AgreedError:
            if total is not None:
                self._sum(0, self._world.rank).remove()
            self._world.barrier()  # no rank ends the job before all have deleted what they wrote
            raise

    def _added(self) -> tuple[dict[int, int], NDArray[Any] | None]:
        """How many slices the old groups have done, and this rank's part of their sum; on group 0.

        The partial sums are added in the order of the groups.
        """
        if self._group_number != 0:
            return {}, None
        zero, add = (0, np.add) if self._algebra is None else (self._algebra.zero, self._algebra.add)
        total, done = np.full(self._elements, zero, self._run.dtype), {}
        ranks = {name.rank for name in self._files() if name.division == self._division.number}
        for number in self._group.broadcast_object(sorted({rank // self._group.size for rank in ranks}), 0):
            count, partial = self._newest(number)
            if partial is not None:
                add(total, partial, out=total)
                done[number] = count
        return done, total

    def _write_manifest(self) -> None:
        if self._world.rank == 0:
            self._manifest.write(self._division)

    def restore(self) -> tuple[int, NDArray[Any] | None]:
        """The newest generation that all ranks of the group have whole: its count, and the partial sum.

        (0, None) where the ranks have no generation in common. Collective over the world; raises AgreedError
        where a group has some and none can be used. Other generations are deleted when all have theirs.
        """
        count, partial = agree(self._world, lambda: self._newest(self._group_number))
        self._count = None if partial is None else count
        division, rank = self._division.number, self._world.rank
        self._delete(lambda name: name[:2] == (rank, division) and name.n_slices != self._count)
        if rank == 0:
            self._delete(lambda generation: generation.division != division)
        return count, partial

    def _newest(self, number: int) -> tuple[int, NDArray[Any] | None]:
        """The newest generation of a group of the division, read by the ranks of this rank's group."""
        rank = number * self._group.size + self._group.rank
        key = rank, self._division.number
        counts = {generation.n_slices for generation in self._files() if generation[:2] == key}
        gathered = self._group.gather_objects(counts)
        refusal: InputError | None = None
        # A generation counts only if all ranks of the group have it whole. A kill between two writes leaves
        # the one before on every rank, since that is deleted behind the barrier after the new one.
        for count in sorted(set.intersection(*gathered), reverse=True):
            try:
                partial = self._read(number, count)
            except InputError as error:
                refusal = refusal or error
                continue
            if refusal is not None:
                self.notes.append(
                    f"{refusal.place} {refusal.problem}: group {number} goes on from slice {count}"
                )
            return count, partial
        if refusal is not None:
            raise refusal
        if number == 0 and self._division.number > 0:
            raise InputError(str(self._folder), "has lost the sum of the finished slices", RESTART)
        if any(gathered):
            self.notes.append(
                f"no partial sum of group {number} is there for all its ranks: it starts again from its "
                f"first slice"
            )
        return 0, None

    def _read(self, number: int, count: int) -> NDArray[Any]:
        """A generation; every rank of the group refuses one that any of them cannot use."""
        return agree(self._group, lambda: self._read_own(number, count))

    def _read_own(self, number: int, count: int) -> NDArray[Any]:
        stored = self._sum(count, number * self._group.size + self._group.rank)
        n_slices = self._division.slices_of(number).count
        if count > n_slices:
            raise stored.refusal(f"is of {count} slices, the group has {n_slices}")
        return stored.load(self._elements, self._run.dtype)

    def _files(self) -> dict[Generation, list[Path]]:
        """The partial sums in the folder by their names; one may be there in both forms."""
        files: dict[Generation, list[Path]] = {}
        for path in self._folder.iterdir() if self._folder.exists() else ():
            if match := NAME.fullmatch(path.name):
                files.setdefault(Generation(*map(int, match.groups())), []).append(path)
        return files

    def _delete(self, is_old: Callable[[Generation], bool]) -> None:
        for generation, paths in self._files().items():
            for path in paths if is_old(generation) else ():
                path.unlink(missing_ok=True)

    def _sum(self, count: int, rank: int) -> PartialSum:
        """A generation of the division, in the form that is there, else in that of this run."""
        forms = {form: self._in_form(count, rank, form) for form in FORMS}
        existing = (stored for stored in forms.values() if stored.path.exists())
        return next(existing, forms[FORMS[self._compressed]])

    def _in_form(self, count: int, rank: int, form: str) -> PartialSum:
        path = self._folder / f"rank{rank}.{self._division.number}.{count}.{form}"
        return PartialSum(path, self._division.identity(self._run), rank, count)

    def due(self) -> tuple[bool, str]:
        """Whether a checkpoint is due after this slice, and the signal for which the run then stops, if any.

        The group's first rank decides for all.
        """
        waited, stop = perf_counter() - self._last, asked()
        # One checkpoint costs 1 / INTERVAL of the time between two, at most.
        is_due = self._count is None or waited >= INTERVAL * self._cost_s or bool(stop)
        # Clocks and signals differ from rank to rank: one decides, or some would enter a collective call
        # alone.
        is_due, stop = self._group.broadcast_object((is_due, stop), 0)
        return is_due, stop

    def write(self, count: int, partial: NDArray[Any]) -> None:
        """Keep the partial sum after `count` slices of the group; collective over the group.

        Raises WriteError where it cannot be written.
        """
        start = perf_counter()
        try:
            if self._count is None:
                self._begin()
            self._save(count, partial)
        except InputError as error:
            raise WriteError(error.line) from None
        # All ranks have the new generation on disk before any deletes the old one.
        self._group.barrier()
        if self._count is not None:
            self._sum(self._count, self._world.rank).remove()
        self._count = count
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
                self._manifest.write(self._division)
            except BaseException:
                with suppress(OSError):
                    self._folder.rmdir()
                raise
        self._group.barrier()

    def _save(self, count: int, partial: NDArray[Any]) -> None:
        """Write a partial sum through to the disk: its predecessor is deleted next."""
        self._in_form(count, self._world.rank, FORMS[self._compressed]).save(partial)

    def remove(self) -> None:
        """Delete the folder, if any, once the result is written; collective over the world."""
        self._world.barrier()
        if self._world.rank == 0 and self._folder.exists():
            shutil.rmtree(self._folder)
        self._world.barrier()


class PartialSum(CheckpointFile):
    """The sum of the first `n_slices` slices of a rank's group, in a division of the slices of a run."""

    FORMAT, VERSION, ARRAYS = "tnplan.checkpoint.sum", 1, ("sum",)
    JOB, OTHERS = "run", "tensors, slices or numbers of ranks"
    RESTART, DURABLE = RESTART, True

    def __init__(self, path: Path, division: str, rank: int, n_slices: int) -> None:
        super().__init__(path, division, {"rank": rank, "slices": n_slices})
        self._expected: tuple[int, Any] = (0, None)

    def load(self, elements: int, dtype: str) -> NDArray[Any]:
        """The sum; InputError where it has not so many elements of the dtype, or cannot be used."""
        self._expected = elements, np.dtype(dtype)
        return self.content(lambda _, arrays: arrays["sum"])

    def save(self, partial: NDArray[Any]) -> None:
        """Write the sum through to the disk."""
        self.replace({}, partial)

    def _check_sum(self, shape: tuple[int, ...], dtype: Any) -> None:
        elements, expected = self._expected
        if shape != (elements,) or dtype != expected:
            raise self.refusal(f"holds {shape} of {dtype}, this run has ({elements},) of {expected}")

    def _check_array(self, header: ArrayHeader) -> None:
        self._check_sum(header.shape, header.dtype)

    def _write_values(self, stream: Any, arrays: tuple[NDArray[Any], ...]) -> None:
        if self.path.suffix != COMPRESSED:
            super()._write_values(stream, arrays)
            return
        for piece in encode(arrays[0], 0.0)[1]:
            stream.write(piece)

    def _read_values(self, stream: BinaryIO, size_bytes: int) -> dict[str, NDArray[Any]]:
        if self.path.suffix != COMPRESSED:
            return super()._read_values(stream, size_bytes)

        def checked(header: Header) -> NDArray[Any]:
            self._check_sum(header.shape, np.dtype(header.dtype))
            return allocate(header)

        try:
            return {"sum": decode(cast(BinaryIO, _Values(stream, size_bytes)), checked, size_bytes)[1]}
        except CodecError as error:
            raise self.refusal(f"cannot be read ({error})") from None


class _Values:
    """The first bytes of a file, as one that ends behind them."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        self._stream, self._left = stream, size_bytes

    def read(self, most: int) -> bytes:
        """The next bytes, `most` at most."""
        piece = self._stream.read(min(most, self._left))
        self._left -= len(piece)
        return piece
