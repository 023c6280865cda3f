"""A compressed state on CPUs that keeps a checkpoint between passes, from which an interrupted run goes on.

Changelog of `tnplan.statevector.checkpoint`:
1 (2026-12-01): first version.
2 (2026-12-02): the parts of all ranks, in pieces. Version 1 is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tnplan.circuits.program import CircuitProgram
from tnplan.common.array_file import PIECE_BYTES, read_next_array
from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile, identity_of_values
from tnplan.executor.device.protocols.communicator import Communicator, agree, messages
from tnplan.executor.device.protocols.stop_signal import StoppedRunError, asked
from tnplan.executor.statevector.cpu.packed_state import PackedState
from tnplan.executor.statevector.distributed_packed_state import DistributedPackedState


class StateCheckpoint(CheckpointFile):
    """A compressed state after some passes and exchanges, its errors, and where its random numbers are.

    The numbers are in pieces, rank after rank. Rank 0 alone reads and writes, one piece after another: it
    never has more than its own part of the state.
    """

    FORMAT, VERSION, JOB = "tnplan.statevector.checkpoint", 2, "simulation"
    OTHERS = "circuit, --fidelity, --mode and --precision"
    LEAST_S = 60.0

    def __init__(
        self, path: Path, program: CircuitProgram, bits: int, dtype: str, mode: str, ranks: Communicator
    ) -> None:  # fmt: skip
        # Another number of ranks has other exchanges, so that its steps are not the same.
        super().__init__(path, identity_of_values(program, bits, dtype, mode), {"ranks": ranks.size})
        self._ranks = ranks

    def restore(self, local: PackedState, resume: bool) -> int:
        """Let this rank's part go on from the file; how many steps are done, 0 without a file. Collective."""
        ranks = self._ranks

        def read() -> Any:
            # Invariant: all of the file is checked before anything is sent.
            return self._read(local, resume, lambda *_: None) if ranks.rank == 0 else None

        document = ranks.broadcast_object(agree(ranks, read), 0)
        if document is None:
            return 0
        if ranks.size > 1 and ranks.rank == 0:
            self._read(local, True, lambda owner, piece: moved(ranks, piece, 0, owner))
        elif ranks.size > 1:
            for owner, piece in self._pieces(local):
                moved(ranks, piece, 0, owner)
        local.continue_from(document["ranks"][ranks.rank])
        return int(document["steps"])

    def _read(self, local: PackedState, resume: bool, take: Callable[[int, Array], object]) -> Any:
        """The document, on rank 0; each piece goes to `take`, with the rank whose it is."""
        self._local, self._take = local, take

        def made(document: dict[str, Any], _: dict[str, Array]) -> Any:
            if document["steps"] < 1 or len(document["ranks"]) != self._ranks.size:
                raise ValueError
            for part in document["ranks"]:
                local.continue_from(part)
            return document

        return self.restored(resume, made)

    def write(self, local: PackedState, steps: int) -> None:
        """Replace the file; collective."""
        ranks, parts = self._ranks, self._ranks.gather_objects(local.document())
        pieces = (moved(ranks, piece, owner, 0) for owner, piece in self._pieces(local))
        if ranks.rank == 0:
            self.replace({"steps": steps, "ranks": parts}, pieces)  # type: ignore[arg-type]
        else:
            for _ in pieces:
                pass
        # Invariant: no rank ends the job before the file stands.
        ranks.barrier()

    def _pieces(self, local: PackedState) -> Iterator[tuple[int, Array]]:
        """All pieces, each with its rank: there the numbers themselves, elsewhere memory for them."""
        for owner in range(self._ranks.size):
            for array in local.numbers:
                size = PIECE_BYTES // array.itemsize
                for first in range(0, len(array), size):
                    piece = array[first : first + size]
                    yield owner, piece if owner == self._ranks.rank else np.empty_like(piece)

    def _write_values(self, stream: Any, arrays: Any) -> None:
        for piece in arrays[0]:
            np.save(stream, piece, allow_pickle=False)

    def _read_values(self, stream: BinaryIO, size_bytes: int) -> dict[str, Array]:
        for owner, piece in self._pieces(self._local):
            read_next_array(stream, str(self.path), out=piece)
            if not np.isfinite(piece).all():
                raise ValueError
            self._take(owner, piece)
        return {}

    def _check_owner(self, header: dict[str, Any]) -> None:
        super()._check_owner({**header, "place": self._place})
        theirs = header["place"].get("ranks")
        if theirs != self._ranks.size:
            problem = f"is of {theirs} ranks, and this {self.JOB} has {self._ranks.size}"
            raise self.refusal(problem, f"resume with {theirs} ranks, or ")


def moved(ranks: Communicator, piece: Array, source: int, target: int) -> Array:
    """The numbers of a piece that rank `source` has, on rank `target` too; collective."""
    if source != target:
        ranks.exchange(
            messages(target, [piece] if ranks.rank == source else []),
            messages(source, [piece] if ranks.rank == target else []),
        )
    return piece


class CheckpointedState(DistributedPackedState):
    """A compressed state whose steps are done once, however often the run is interrupted."""

    def keep(self, checkpoint: StateCheckpoint, resume: bool) -> None:
        """Go on from the checkpoint that is there, and write others; collective."""
        self._checkpoint, self._count = checkpoint, 0
        self._done = checkpoint.restore(self.local, resume)

    def apply(self, prepared: Any) -> None:
        """Do a step that is not done yet; write a checkpoint where one is due, or a signal asks for one."""
        self._count += 1
        if self._count <= self._done:
            return
        super().apply(prepared)
        # Invariant: all ranks write or none, as rank 0 has the time and any of them a signal.
        told = self.ranks.gather_objects((self._checkpoint.is_due(), asked()))
        signal = max(name for _, name in told)
        if signal or told[0][0]:
            self._checkpoint.write(self.local, self._count)
        if signal:
            raise StoppedRunError(signal)
