"""A solve on disk: the vectors from which it goes on, written whole or not at all.

Knows arrays and the identity of a solve; not how vectors are made.

Changelog of `tnplan.sbd.checkpoint`:
1 (2026-11-21): first version.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.planner.common.array_file import ArrayHeader, open_archive
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import write_file

FORMAT = "tnplan.sbd.checkpoint"
VERSION = 1
STATED = ("format", "version", "identity")
SHORT_BYTES = 1 << 12
"""Fields other than vectors take no more."""
INTERVAL = 20
"""A checkpoint is due when this many times the last one's cost has gone by (so that it costs 5% at most)."""


class SolveCheckpoint:
    """The checkpoint file of one solve, which `identity` tells from others."""

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        self._identity = identity
        self._last = perf_counter()
        self._cost_s = 0.0

    def open(self, resume: bool, shape: tuple[int, ...], dtype: str = "float64") -> list[tuple[Array, int]]:
        """The vectors to go on from; none where no checkpoint stands. Refuses one of another solve."""
        if not self._path.exists():
            return []
        if not resume:
            raise self.refusal("is the checkpoint of an interrupted solve", "continue it with --resume, or ")
        try:
            stated, vectors, parities = self._read(shape, dtype)
        except InputError as error:
            raise self.refusal(f"is no checkpoint of a solve ({error.problem})") from None
        if (stated["format"], stated["version"]) != (FORMAT, str(VERSION)):
            raise self.refusal(f"is {stated['format']} {stated['version']}, not {FORMAT} {VERSION}")
        if stated["identity"] != self._identity:
            problem = "belongs to a solve of other integrals, strings or options"
            raise self.refusal(problem, "resume with those of that solve, or ")
        return [(vector, int(parity)) for vector, parity in zip(vectors, parities, strict=True)]

    def _read(self, shape: tuple[int, ...], dtype: str) -> tuple[dict[str, str], Array, Array]:
        """What the file says of itself, vectors of the shape, and the parity of each."""

        def of_states(header: ArrayHeader) -> None:
            if header.shape[1:] != shape or not header.shape or header.dtype != np.dtype(dtype):
                raise InputError("vectors", f"they have the shape {header.shape} of {header.dtype}", "")

        def short(header: ArrayHeader) -> None:
            if header.size_bytes > SHORT_BYTES or header.dtype.kind not in "iU":
                raise InputError("", "a field is too long", "")

        with open_archive(self._path, "") as archive:
            missing = {*STATED, "vectors", "parities"} - set(archive.names)
            if missing:
                raise InputError("", f"{min(missing)} is missing", "")
            stated = {name: str(archive.read(name, short)) for name in STATED}
            vectors, parities = archive.read("vectors", of_states), archive.read("parities", short)
        is_known = parities.dtype.kind == "i" and set(parities.reshape(-1).tolist()) <= {-1, 0, 1}
        if parities.shape != vectors.shape[:1] or not is_known:
            raise InputError("", "each vector needs a parity", "")
        if not len(vectors) or not np.isfinite(vectors).all():
            raise InputError("", "vectors are missing, or not finite", "")
        return stated, vectors, parities

    def refusal(self, problem: str, else_: str = "") -> InputError:
        """What the file is, and what to do unless `else_` to start again."""
        return InputError(str(self._path), problem, f"{else_}delete the file to start again")

    def due(self) -> bool:
        """Whether it is time to write."""
        return perf_counter() - self._last >= INTERVAL * self._cost_s

    def write(self, vectors: Sequence[tuple[Array, int]]) -> None:
        """Replace the file. Vectors of an early iteration in fp32 are kept as others are."""
        begin = perf_counter()
        states = np.array([vector for vector, _ in vectors])
        content: dict[str, Any] = {
            "format": FORMAT, "version": str(VERSION), "identity": self._identity,
            "vectors": states.astype(np.result_type(states, np.float64), copy=False),
            "parities": np.array([parity for _, parity in vectors]),
        }  # fmt: skip
        write_file(self._path, lambda stream: np.savez(stream, **content))
        self._last = perf_counter()
        self._cost_s = self._last - begin

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self._path.unlink(missing_ok=True)
