"""A compressed state on a CPU that keeps a checkpoint between passes, from which an interrupted run goes on.

Changelog of `tnplan.statevector.checkpoint`:
1 (2026-12-01): first version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile, identity_of_values
from tnplan.executor.device.protocols.stop_signal import StoppedRunError, asked
from tnplan.executor.statevector.cpu.packed_state import PackedState
from tnplan.executor.statevector.cpu.vector_tables import VectorPass


class StateCheckpoint(CheckpointFile):
    """The numbers of a compressed state after some passes, their errors, and where its random numbers are."""

    FORMAT, VERSION, JOB = "tnplan.statevector.checkpoint", 1, "simulation"
    OTHERS = "circuit, --fidelity, --mode and --precision"
    ARRAYS, LEAST_S = ("codes", "scales"), 60.0

    def __init__(self, path: Path, program: CircuitProgram, bits: int, dtype: str, mode: str) -> None:
        super().__init__(path, identity_of_values(program, bits, dtype, mode))


class CheckpointedState(PackedState):
    """A compressed state whose passes are done once, however often the run is interrupted."""

    def keep(self, checkpoint: StateCheckpoint, resume: bool) -> None:
        """Go on from the checkpoint that is there, and write others."""
        self._checkpoint, self._count = checkpoint, 0
        # Invariant: values are read into the state's own memory, which is the only one that is planned.
        checkpoint.out = dict(zip(checkpoint.ARRAYS, self.numbers, strict=True))

        def made(document: dict[str, Any], _: dict[str, Array]) -> int:
            self.continue_from(document)
            if document["passes"] < 1:
                raise ValueError
            return int(document["passes"])

        self._done = checkpoint.restored(resume, made) or 0

    def apply(self, prepared: tuple[VectorPass, float]) -> None:
        """Do a pass that is not done yet; write a checkpoint where one is due, or a signal asks for one."""
        self._count += 1
        if self._count <= self._done:
            return
        super().apply(prepared)
        signal = asked()
        if signal or self._checkpoint.is_due():
            self._checkpoint.replace({"passes": self._count, **self.document()}, *self.numbers)
        if signal:
            raise StoppedRunError(signal)
