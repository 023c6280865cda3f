"""The vectors from which a solve goes on. Knows arrays and the identity of a job; not how vectors are made.

Changelog of `tnplan.sbd.checkpoint`:
1 (2026-11-21): first version.
2 (2026-11-29): as `tnplan.common.checkpoint`. Version 1 is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile

INTERVAL = 20
"""A checkpoint is due when this many times the last one's cost has gone by (so that it costs 5% at most)."""


class SolveCheckpoint(CheckpointFile):
    """The vectors of a solve."""

    FORMAT, VERSION, ARRAYS = "tnplan.sbd.checkpoint", 2, ("vectors", "parities")
    JOB, OTHERS = "solve", "integrals, strings or options"

    def __init__(self, path: Path, identity: str) -> None:
        super().__init__(path, identity)
        self._last = perf_counter()
        self._cost_s = 0.0

    def open(self, resume: bool, shape: tuple[int, ...], dtype: str = "float64") -> list[tuple[Array, int]]:
        """The vectors to go on from; none where no checkpoint stands. Refuses one of another solve."""

        def made(_: dict[str, Any], arrays: dict[str, Array]) -> list[tuple[Array, int]]:
            vectors, parities = arrays["vectors"], arrays["parities"]
            if vectors.shape[1:] != shape or vectors.dtype != dtype or not len(vectors):
                raise ValueError
            if not np.isfinite(vectors).all() or not set(parities.tolist()) <= {-1, 0, 1}:
                raise ValueError
            return [(vector, int(parity)) for vector, parity in zip(vectors, parities, strict=True)]

        return self.restored(resume, made) or []

    def due(self) -> bool:
        """Whether it is time to write."""
        return perf_counter() - self._last >= INTERVAL * self._cost_s

    def write(self, vectors: Sequence[tuple[Array, int]]) -> None:
        """Replace the file. Vectors of an early iteration in fp32 are kept as others are."""
        begin = perf_counter()
        states = np.array([vector for vector, _ in vectors])
        states = states.astype(np.result_type(states, np.float64), copy=False)
        self.replace({}, states, np.array([parity for _, parity in vectors]))
        self._last = perf_counter()
        self._cost_s = self._last - begin
