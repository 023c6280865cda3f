"""Files from which a job goes on: whose they are, their place in the job, and a checksum over all of it.

    values     what the kind keeps: arrays as numpy.save writes them, one after another, or nothing
    header     a line of JSON: format, version, identity, place, document
    last line  "tnplan-checkpoint", the bytes of the header, and the SHA-256 of everything before it

Nothing is used of a file whose checksum, format, version, job or place is not the one expected. It is written
whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO, TypeVar

import numpy as np

from tnplan.common.array_file import PIECE_BYTES, ArrayHeader, read_next_array
from tnplan.common.arrays import Array
from tnplan.common.errors import DOCS, PAGES, InputError
from tnplan.common.files import open_input, write_file

LAST_LINE = re.compile(rb"tnplan-checkpoint (\d{16}) ([0-9a-f]{64})\n")
HASH_BYTES = 65
"""What the hash itself and the end of its line take."""
LAST_LINE_BYTES = len("tnplan-checkpoint ") + 17 + HASH_BYTES
MISFITS = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What `make` may raise where the parts of a file do not fit each other."""

Restored = TypeVar("Restored")


class CheckpointFile:
    """The checkpoint of one job, or of one place in it. Each kind of job has a format.

    - `path`: The file.
    - `identity`: What distinguishes the job from others: a hash, or values by their names.
    - `place`: What of the job the file has, where a job has several files.
    """

    FORMAT = ""
    VERSION = 1
    JOB = "job"
    OTHERS = "options"
    """What jobs of this kind may differ in."""
    ARRAYS: tuple[str, ...] = ()
    RESTART = "delete the file to start again"
    INTERVAL, LEAST_S = 20, 0.0
    """A file is due when so many times the last one's cost has gone by, 5 % at most, and so many seconds."""
    DURABLE = False
    """Whether a file is on the disk before `replace` returns: what it replaces is then deleted elsewhere."""

    def __init__(self, path: Path, identity: Any, place: Mapping[str, int] | None = None) -> None:
        self.path = path
        self._identity, self._place = identity, dict(place or {})
        self.out: Mapping[str, Array] = {}
        """Arrays that are there, into which those of a file are read."""
        self._last_s, self._cost_s = perf_counter(), 0.0

    def is_there(self, resume: bool) -> bool:
        """Whether there is a file. Refuses one that is not to be resumed."""
        there = self.path.exists()
        if there and not resume:
            problem = f"is the checkpoint of an interrupted {self.JOB}"
            raise self.refusal(problem, "continue it with --resume, or ")
        return there

    def restored(
        self, resume: bool, make: Callable[[dict[str, Any], dict[str, Array]], Restored]
    ) -> Restored | None:
        """What `make` gives for the document and the arrays; None where there is no file.

        `make` raises ValueError where parts do not fit each other.
        """
        return self.content(make) if self.is_there(resume) else None

    def content(self, make: Callable[[dict[str, Any], dict[str, Array]], Restored]) -> Restored:
        """The same of a file that is there; InputError for a damaged one, or another job's."""
        # Invariant: the order of checks. Checksum first, then format, version, identity and place,
        # then the values: nothing is parsed that another process may have cut off.
        with open_input(self.path) as stream:
            header, values_bytes = self._checked(stream)
            self._check_owner(header)
            stream.seek(0)
            try:
                values = self._read_values(stream, values_bytes)
                # The values fill exactly what is before the header.
                if stream.tell() != values_bytes:
                    raise ValueError
                return make(header["document"], values)
            except InputError as error:
                raise self.refusal(error.problem) from None
            except MISFITS:
                raise self.refusal("is damaged (its parts do not fit each other)") from None

    def _checked(self, stream: BinaryIO) -> tuple[dict[str, Any], int]:
        """The header, and the bytes before it; InputError where the checksum is another."""
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - LAST_LINE_BYTES))
        match = LAST_LINE.fullmatch(stream.read())
        if match is None:
            raise self.refusal("is damaged, or of another version of tnplan")
        # The hash is over the file as it is on disk, in pieces, and never over what was parsed from it.
        digest, remaining = hashlib.sha256(), size - HASH_BYTES
        stream.seek(0)
        while remaining and (piece := stream.read(min(remaining, PIECE_BYTES))):
            digest.update(piece)
            remaining -= len(piece)
        header_bytes = int(match[1])
        if digest.hexdigest().encode() != match[2] or header_bytes > size - LAST_LINE_BYTES:
            raise self.refusal("is damaged (its checksum is not that of its contents)")
        start = stream.seek(size - LAST_LINE_BYTES - header_bytes)
        header: dict[str, Any] = json.loads(stream.read(header_bytes))
        return header, start

    def _check_owner(self, header: dict[str, Any]) -> None:
        """Refuse the file of another format, of another job, or of another place in it."""
        stated, expected = (header["format"], header["version"]), (self.FORMAT, self.VERSION)
        if stated != expected:
            raise self.refusal("is {} {}, not {} {}".format(*stated, *expected))
        theirs, remedy = header["identity"], f"resume with the {self.OTHERS} of that {self.JOB}, or "
        if theirs != self._identity:
            named = isinstance(theirs, dict) and isinstance(self._identity, dict)
            # An identity of named parts says in the refusal which of them differs; a hash can only
            # say that it does.
            for name, value in self._identity.items() if named else ():
                if theirs.get(name) != value:
                    problem = f"is {theirs.get(name)!r}, this {self.JOB} has {value!r}"
                    raise self.refusal(problem, remedy, name)
            raise self.refusal(f"belongs to another {self.JOB}", remedy)
        if header["place"] != self._place:
            is_, current = (
                ", ".join(f"{k} {v}" for k, v in key.items()) for key in (header["place"], self._place)
            )
            raise self.refusal(f"was written as {is_}, and stands for {current}")

    def refusal(self, problem: str, else_: str = "", name: str = "") -> InputError:
        """What the file is, or what of this name in it, and what to do unless `else_` to start again."""
        place = f"{self.path}: {name}" if name else str(self.path)
        return InputError(place, problem, f"{else_}{self.RESTART}", DOCS + PAGES["checkpoints"])

    def is_due(self) -> bool:
        """Whether it is time to write."""
        return perf_counter() - self._last_s >= max(self.LEAST_S, self.INTERVAL * self._cost_s)

    def replace(self, document: dict[str, Any], *arrays: Array) -> None:
        """Write another document and other arrays."""
        begin_s = perf_counter()
        header = {
            "format": self.FORMAT, "version": self.VERSION, "identity": self._identity,
            "place": self._place, "document": document,
        }  # fmt: skip
        text = json.dumps(header).encode() + b"\n"

        def write(stream: BinaryIO) -> None:
            hashing = _Hashing(stream)
            self._write_values(hashing, arrays)
            hashing.write(text)
            # Invariant: the hash is written last, over all before it. A file that ends earlier is
            # whole for no reader.
            hashing.write(b"tnplan-checkpoint %016d " % len(text))
            stream.write(hashing.digest.hexdigest().encode() + b"\n")
            if self.DURABLE:
                stream.flush()
                # Before the rename of `write_file`: after a power failure either the old file or
                # the whole new one is there.
                os.fsync(stream.fileno())

        write_file(self.path, write)
        self._last_s = perf_counter()
        self._cost_s = self._last_s - begin_s

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self.path.unlink(missing_ok=True)

    def _write_values(self, stream: _Hashing, arrays: tuple[Array, ...]) -> None:
        for _, array in zip(self.ARRAYS, arrays, strict=True):
            np.save(stream, array, allow_pickle=False)

    def _read_values(self, stream: BinaryIO, size_bytes: int) -> dict[str, Array]:
        def check(header: ArrayHeader) -> None:
            if header.size_bytes > size_bytes:
                raise ValueError
            self._check_array(header)

        return {
            name: read_next_array(stream, str(self.path), check, self.out.get(name)) for name in self.ARRAYS
        }

    def _check_array(self, header: ArrayHeader) -> object:
        """Raises InputError for an array that is not wanted, before its values are read."""


class _Hashing:
    """A file that is written to, and the SHA-256 of what was written."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, piece: Any) -> int:
        """Write more."""
        self.digest.update(piece)
        return self._stream.write(piece)


def identity_of_values(*values: Any) -> str:
    """The SHA-256 of plain values, arrays and dataclasses of them."""
    digest = hashlib.sha256()
    for value in values:
        _add(digest, value)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        digest.update(type(value).__name__.encode())
        for item in fields(value):
            _add(digest, getattr(value, item.name))
    elif isinstance(value, list | tuple):
        # Lengths and shapes are hashed too, so that ([a], [b]) and ([a, b],) differ.
        digest.update(f"({len(value)}".encode())
        for entry in value:
            _add(digest, entry)
    else:
        digest.update(f"{value!r};".encode())
