"""A solve on disk: the vectors from which it goes on, written whole or not at all.

Knows arrays and the identity of a solve; not how vectors are made.

Changelog of `tnplan.sbd.checkpoint`:
1 (2026-11-21): first version.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import write_file

FORMAT = "tnplan.sbd.checkpoint"
VERSION = 1
DAMAGED = (
    OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What reading arrays from a file raises that is no .npz, or a damaged one."""
INTERVAL = 20
"""A checkpoint is due when this many times the last one's cost has gone by (so that it costs 5% at most)."""


class SolveCheckpoint:
    """The checkpoint file of one solve, which `identity` tells from others."""

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        self._identity = identity
        self._last = perf_counter()
        self._cost_s = 0.0

    def open(self, resume: bool, shape: tuple[int, ...]) -> list[tuple[Array, int]]:
        """The vectors to go on from; none where no checkpoint stands. Refuses one of another solve."""
        if not self._path.exists():
            return []
        if not resume:
            raise self._refusal("is the checkpoint of an interrupted solve", "continue it with --resume, or ")
        try:
            with self._path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                stated = {name: str(file[name]) for name in ("format", "version", "identity")}
                vectors, parities = file["vectors"], file["parities"]
        except DAMAGED:
            raise self._refusal("is no checkpoint of a solve") from None
        if (stated["format"], stated["version"]) != (FORMAT, str(VERSION)):
            raise self._refusal(f"is {stated['format']} {stated['version']}, not {FORMAT} {VERSION}")
        if stated["identity"] != self._identity or vectors.shape[1:] != shape:
            problem = "belongs to a solve of other integrals, strings or options"
            raise self._refusal(problem, "resume with those of that solve, or ")
        return [(vector, int(parity)) for vector, parity in zip(vectors, parities, strict=True)]

    def _refusal(self, problem: str, else_: str = "") -> InputError:
        """What the file is, and what to do unless `else_` to start again."""
        return InputError(str(self._path), problem, f"{else_}delete the file to start again")

    def due(self) -> bool:
        """Whether it is time to write."""
        return perf_counter() - self._last >= INTERVAL * self._cost_s

    def write(self, vectors: Sequence[tuple[Array, int]]) -> None:
        """Replace the file."""
        begin = perf_counter()
        content: dict[str, Any] = {
            "format": FORMAT, "version": str(VERSION), "identity": self._identity,
            "vectors": np.array([vector for vector, _ in vectors]),
            "parities": np.array([parity for _, parity in vectors]),
        }  # fmt: skip
        write_file(self._path, lambda stream: np.savez(stream, **content))
        self._last = perf_counter()
        self._cost_s = self._last - begin

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self._path.unlink(missing_ok=True)
