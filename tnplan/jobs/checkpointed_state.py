"""A compressed state that keeps a checkpoint between passes, from which an interrupted run goes on.

Changelog of `tnplan.statevector.checkpoint`:
1 (2026-12-01): first version.
2 (2026-12-02): the parts of all ranks, in pieces. Version 1 is refused.
3 (2026-12-02): states on GPUs too; the device and its tiles. Version 2 is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tnplan.circuits.program import CircuitProgram
from tnplan.common.array_file import PIECE_BYTES, read_next_array
from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile, identity_of_values
from tnplan.executor.device.protocols.communicator import Communicator, agree, messages
from tnplan.executor.device.protocols.stop_signal import StoppedRunError, asked
from tnplan.executor.statevector.cpu.packed_state import PackedState
from tnplan.executor.statevector.distributed_state import DistributedPackedState

if TYPE_CHECKING:
    from tnplan.executor.statevector.cuda.packed_state import CodedState


class StateCheckpoint(CheckpointFile):
    """A compressed state after some passes and exchanges, its errors, and where its random numbers are.

    The numbers are in pieces, rank after rank. Rank 0 alone reads and writes, one piece after another: it
    never has more than its own part of the state.
    """

    FORMAT, VERSION, JOB = "tnplan.statevector.checkpoint", 3, "simulation"
    OTHERS = "circuit, --fidelity, --mode and --precision"
    LEAST_S = 60.0

    def __init__(
        self, path: Path, program: CircuitProgram, bits: int, dtype: str, mode: str, ranks: Communicator
    ) -> None:  # fmt: skip
        # Another number of ranks has other exchanges, so that its steps are not the same.
        super().__init__(path, identity_of_values(program, bits, dtype, mode), {"ranks": ranks.size})
        self._ranks = ranks

    def restore(self, local: PackedState | CodedState, resume: bool) -> int:
        """Let this rank's part go on from the file; how many steps are done, 0 without a file. Collective."""
        ranks = self._ranks
        # The passes of another device, or of other tiles, are others.
        self._place |= {"gpu": int(local.name == "gpu"), "tile_bits": local.tile.bits}

        def read() -> Any:
            # Invariant: all of the file is checked before anything is sent.
            return self._read(local, resume, lambda *_: None) if ranks.rank == 0 else None

        document = ranks.broadcast_object(agree(ranks, read), 0)
        if document is None:
            return 0
        if ranks.size > 1 and ranks.rank == 0:
            self._read(local, True, lambda owner, piece: moved(ranks, piece, 0, owner))
        elif ranks.size > 1:
            for owner, piece, on_gpu in self._pieces(local):
                moved(ranks, piece, 0, owner)
                if on_gpu is not None:
                    on_gpu.set(piece)
        local.continue_from(document["ranks"][ranks.rank])
        return int(document["steps"])

    def _read(
        self, local: PackedState | CodedState, resume: bool, take: Callable[[int, Array], object]
    ) -> Any:  # fmt: skip
        """The document, on rank 0; each piece goes to `take`, with the rank whose it is."""
        self._local, self._take = local, take

        def made(document: dict[str, Any], _: dict[str, Array]) -> Any:
            if document["steps"] < 1 or len(document["ranks"]) != self._ranks.size:
                raise ValueError
            for of_rank in document["ranks"]:
                local.continue_from(of_rank)
            return document

        return self.restored(resume, made)

    def write(self, local: PackedState | CodedState, steps: int) -> None:
        """Replace the file; collective."""
        ranks, parts = self._ranks, self._ranks.gather_objects(local.document())
        pieces = (
            moved(ranks, piece if on_gpu is None else on_gpu.get(), owner, 0)
            for owner, piece, on_gpu in self._pieces(local)
        )
        if ranks.rank == 0:
            self.replace({"steps": steps, "ranks": parts}, pieces)  # type: ignore[arg-type]
        else:
            for _ in pieces:
                pass
        # Invariant: no rank ends the job before the file stands.
        ranks.barrier()

    def _pieces(self, local: PackedState | CodedState) -> Iterator[tuple[int, Array, Any]]:
        """All pieces, each with its rank: the numbers themselves where these are on the host, else memory for
        them; and where this rank has them on a GPU, if it does."""
        for owner in range(self._ranks.size):
            for array in local.numbers:
                size = PIECE_BYTES // array.itemsize
                for first in range(0, len(array), size):
                    piece = array[first : first + size]
                    is_own, is_there = owner == self._ranks.rank, local.name == "gpu"
                    yield (
                        owner,
                        piece if is_own and not is_there else np.empty(len(piece), piece.dtype),
                        piece if is_own and is_there else None,
                    )

    def _write_values(self, stream: Any, arrays: Any) -> None:
        for piece in arrays[0]:
            np.save(stream, piece, allow_pickle=False)

    def _read_values(self, stream: BinaryIO, size_bytes: int) -> dict[str, Array]:
        for owner, piece, on_gpu in self._pieces(self._local):
            read_next_array(stream, str(self.path), out=piece)
            if not np.isfinite(piece).all():
                raise ValueError
            if on_gpu is not None:
                on_gpu.set(piece)
            self._take(owner, piece)
        return {}

    def _check_owner(self, header: dict[str, Any]) -> None:
        super()._check_owner({**header, "place": self._place})
        theirs, own = header["place"], self._place
        if theirs.get("ranks") != own["ranks"]:
            problem = f"is of {theirs.get('ranks')} ranks, and this {self.JOB} has {own['ranks']}"
            raise self.refusal(problem, f"resume with {theirs.get('ranks')} ranks, or ")
        if theirs != own:
            there, here = (
                f"{'GPU' if place.get('gpu') else 'CPU'} with tiles of 2^{place.get('tile_bits')} amplitudes"
                for place in (theirs, own)
            )
            raise self.refusal(f"is of a {there}, and this is a {here}", "resume on that kind of device, or ")


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
        requests = self.ranks.gather_objects((self._checkpoint.is_due(), asked()))
        signal = max(name for _, name in requests)
        if signal or requests[0][0]:
            self._checkpoint.write(self.local, self._count)
        if signal:
            raise StoppedRunError(signal)
