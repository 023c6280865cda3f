"""Jobs on disk, written whole or not at all: the vectors from which a solve goes on, and what others keep.

Knows arrays and the identity of a job; not how vectors are made.

Changelog of `tnplan.sbd.checkpoint`:
1 (2026-11-21): first version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from tnplan.planner.common.array_file import ArrayHeader, open_archive
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import write_file

STATED = ("format", "version", "identity")
SHORT_BYTES = 1 << 12
"""Fields other than vectors take no more."""
INTERVAL = 20
"""A checkpoint is due when this many times the last one's cost has gone by (so that it costs 5% at most)."""

Restored = TypeVar("Restored")


class CheckpointFile:
    """The checkpoint of one job, which `identity` tells from others. Each kind of job has a format."""

    FORMAT = ""
    VERSION: int | str = 1
    JOB = ""
    OTHERS = ""
    """What jobs of this kind may differ in, in the refusal of another one's file."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self._identity = path, identity

    def is_there(self, resume: bool) -> bool:
        """Whether there is a file. Refuses one that is not to be resumed."""
        there = self.path.exists()
        if there and not resume:
            problem = f"is the checkpoint of an interrupted {self.JOB}"
            raise self.refusal(problem, "continue it with --resume, or ")
        return there

    def check_owner(self, form: str, version: int | str, identity: str) -> None:
        """Refuse the file of another format or of another job."""
        if (form, version) != (self.FORMAT, self.VERSION):
            raise self.refusal(f"is {form} {version}, not {self.FORMAT} {self.VERSION}")
        if identity != self._identity:
            problem = f"belongs to a {self.JOB} of other {self.OTHERS}"
            raise self.refusal(problem, f"resume with those of that {self.JOB}, or ")

    def refusal(self, problem: str, else_: str = "") -> InputError:
        """What the file is, and what to do unless `else_` to start again."""
        return InputError(str(self.path), problem, f"{else_}delete the file to start again")


class ArchiveCheckpoint(CheckpointFile):
    """A checkpoint of a JSON document and arrays."""

    ARRAYS: tuple[str, ...] = ()
    KIND = ""
    """What a file must be, in the refusal of another one."""

    def restored(
        self, resume: bool, make: Callable[[dict[str, Any], dict[str, Array]], Restored]
    ) -> Restored | None:
        """What `make` gives for the document and the arrays; None where there is no file.

        `make` raises ValueError where parts do not fit each other.
        """
        if not self.is_there(resume):
            return None
        damaged = self.refusal(f"is no checkpoint of {self.KIND}, or damaged")
        try:
            with open_archive(self.path, "") as archive:
                document = json.loads(str(archive.read("document")))
                arrays = {name: archive.read(name) for name in self.ARRAYS}
            form, version, identity = (document[name] for name in STATED)
        except (KeyError, ValueError, TypeError):
            raise damaged from None
        self.check_owner(form, version, identity)
        try:
            return make(document, arrays)
        except (KeyError, ValueError, TypeError, IndexError):
            raise damaged from None

    def replace(self, document: dict[str, Any], *arrays: Array) -> None:
        """Write another document and other arrays."""
        stated = {"format": self.FORMAT, "version": self.VERSION, "identity": self._identity}
        content: dict[str, Any] = dict(zip(self.ARRAYS, arrays, strict=True))
        text = json.dumps({**stated, **document})
        write_file(self.path, lambda stream: np.savez(stream, document=text, **content))


class SolveCheckpoint(CheckpointFile):
    """The vectors of a solve."""

    FORMAT, VERSION = "tnplan.sbd.checkpoint", "1"
    JOB, OTHERS = "solve", "integrals, strings or options"

    def __init__(self, path: Path, identity: str) -> None:
        super().__init__(path, identity)
        self._last = perf_counter()
        self._cost_s = 0.0

    def open(self, resume: bool, shape: tuple[int, ...], dtype: str = "float64") -> list[tuple[Array, int]]:
        """The vectors to go on from; none where no checkpoint stands. Refuses one of another solve."""
        if not self.is_there(resume):
            return []
        try:
            stated, vectors, parities = self._read(shape, dtype)
        except InputError as error:
            raise self.refusal(f"is no checkpoint of a solve ({error.problem})") from None
        self.check_owner(*stated)
        return [(vector, int(parity)) for vector, parity in zip(vectors, parities, strict=True)]

    def _read(self, shape: tuple[int, ...], dtype: str) -> tuple[list[str], Array, Array]:
        """What the file says of itself, vectors of the shape, and the parity of each."""

        def of_states(header: ArrayHeader) -> None:
            if header.shape[1:] != shape or not header.shape or header.dtype != np.dtype(dtype):
                raise InputError("vectors", f"they have the shape {header.shape} of {header.dtype}", "")

        def short(header: ArrayHeader) -> None:
            if header.size_bytes > SHORT_BYTES or header.dtype.kind not in "iU":
                raise InputError("", "a field is too long", "")

        with open_archive(self.path, "") as archive:
            missing = {*STATED, "vectors", "parities"} - set(archive.names)
            if missing:
                raise InputError("", f"{min(missing)} is missing", "")
            stated = [str(archive.read(name, short)) for name in STATED]
            vectors, parities = archive.read("vectors", of_states), archive.read("parities", short)
        is_known = parities.dtype.kind == "i" and set(parities.reshape(-1).tolist()) <= {-1, 0, 1}
        if parities.shape != vectors.shape[:1] or not is_known:
            raise InputError("", "each vector needs a parity", "")
        if not len(vectors) or not np.isfinite(vectors).all():
            raise InputError("", "vectors are missing, or not finite", "")
        return stated, vectors, parities

    def due(self) -> bool:
        """Whether it is time to write."""
        return perf_counter() - self._last >= INTERVAL * self._cost_s

    def write(self, vectors: Sequence[tuple[Array, int]]) -> None:
        """Replace the file. Vectors of an early iteration in fp32 are kept as others are."""
        begin = perf_counter()
        states = np.array([vector for vector, _ in vectors])
        content: dict[str, Any] = {
            "format": self.FORMAT, "version": self.VERSION, "identity": self._identity,
            "vectors": states.astype(np.result_type(states, np.float64), copy=False),
            "parities": np.array([parity for _, parity in vectors]),
        }  # fmt: skip
        write_file(self.path, lambda stream: np.savez(stream, **content))
        self._last = perf_counter()
        self._cost_s = self._last - begin

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self.path.unlink(missing_ok=True)
