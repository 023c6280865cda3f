"""A contraction whose result is its input of the next row, row after row: progress, and a checkpoint.

Changelog of `tnplan.power`: 1 (2026-11-30): first version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.array_file import ArrayHeader
from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.errors import InputError, WriteError
from tnplan.executor.contraction.run.checkpoint import INTERVAL
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.jobs.progress import Listener, Progress

Array = NDArray[Any]


class RowsDone(CheckpointFile):
    """The vector after some rows. More rows may follow than the run that wrote it was to do."""

    FORMAT, JOB, ARRAYS = "tnplan.power", "run", ("vector",)
    OTHERS = "contraction and arrays"

    def read(self, resume: bool, n: int) -> tuple[int, Array] | None:
        """How many rows are done, and their vector; None where there is no file."""

        def made(document: dict[str, Any], arrays: dict[str, Array]) -> tuple[int, Array]:
            done = int(document["rows"])
            if done > n:
                raise self.refusal(f"is of {done} rows, and {n} are asked for")
            return done, arrays["vector"]

        return self.restored(resume, made)

    def write(self, done: int, vector: Array) -> None:
        """Replace the file."""
        try:
            self.replace({"rows": done}, vector)
        except InputError as error:
            raise WriteError(error.line) from None

    def _check_array(self, header: ArrayHeader) -> None:
        shape, dtype = self._identity["shape"], self._identity["dtype"]
        if list(header.shape) != shape or header.dtype != np.dtype(dtype):
            raise ValueError


@dataclass(frozen=True)
class Rows:
    """Rows `done` + 1 to `n`: input `vector` of each is the result of the one before; that of the first, and
    all other inputs, are `values`. Where a checkpoint is kept, the first rank has it."""

    vector: int
    n: int
    done: int
    shape: tuple[int, ...]
    values: Mapping[int, Array]
    listener: Listener | None = None
    keeps: bool = False
    checkpoint: RowsDone | None = None

    def on_rank(self, rank: CompiledProgram) -> list[Array] | None:
        """All rows on one rank; collective. The flat result on the first, as `CompiledProgram.gathered`."""
        last_s, cost_s = perf_counter(), 0.0

        def after_row(done: int) -> None:
            nonlocal last_s, cost_s
            if rank.is_first and self.listener is not None:
                self.listener(Progress(done, self.n, f"row {done} of {self.n}", share=done / self.n))
            if not self.keeps or done == self.n:
                return
            # As in `RunCheckpoint`: it costs 1 / INTERVAL of the time at most, and one rank decides.
            is_due = not cost_s or perf_counter() - last_s >= INTERVAL * cost_s
            if rank.agreed(is_due):
                start = perf_counter()
                results = rank.gathered()
                if self.checkpoint is not None and rank.is_first and results is not None:
                    self.checkpoint.write(done, results[0].reshape(self.shape))
                last_s = perf_counter()
                cost_s = last_s - start

        rank.repeat(self.vector, self.values, range(self.done + 1, self.n + 1), after_row)
        return rank.gathered()
