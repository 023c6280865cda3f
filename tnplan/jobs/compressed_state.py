"""Simulations with `fidelity`: what they refuse, the bits of their amplitudes, their state and its
checkpoint between passes.

The states are in executor/statevector, cpu/packed_state.py and cuda/packed_state.py, and over ranks
distributed_state.py; packed_error.py sums their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.program import CircuitProgram, final_measurements, largest_operator
from tnplan.common.array_file import PIECE_BYTES, read_next_array
from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile, identity_of_values
from tnplan.common.checks import is_number
from tnplan.common.errors import InputError
from tnplan.common.kernels.ahead import compile_soon
from tnplan.common.units import size_text
from tnplan.executor.device.protocols.communicator import Communicator, agree, messages
from tnplan.executor.device.protocols.stop_signal import StoppedRunError, asked
from tnplan.executor.device.select import sees_gpu
from tnplan.executor.statevector.cpu.packed_state import PackedState, packed_bytes, packed_tile
from tnplan.executor.statevector.cuda.kernel_defines import coded_bytes, coded_tile
from tnplan.executor.statevector.distributed_state import DistributedPackedState
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS
from tnplan.executor.statevector.memory_estimate import tile_bytes
from tnplan.executor.statevector.packed_error import BITS, BLOCK_BITS, EncodingErrors, departure, fewest_bits
from tnplan.executor.statevector.prepared_program import Segment, prepare_program
from tnplan.executor.statevector.scheduling.qubit_cover import first_places
from tnplan.executor.statevector.scheduling.tiled_passes import compile_gates, rename
from tnplan.executor.statevector.simulator import StateVector
from tnplan.jobs.job import Needs, Rank

if TYPE_CHECKING:
    from tnplan.executor.statevector.cuda.packed_state import CodedState

TOPIC = "state vectors"
"""What the errors of this module are about, where one says no topic of its own."""
PLACE = "--fidelity"
LEAST_BITS = LARGEST_TARGETS + BLOCK_BITS
"""Qubits of each of several ranks: those of a block, which stay, and those of the largest gate besides."""


def check_fidelity(fidelity: Any, others: Mapping[str, Any]) -> None:
    """Refuse what is no fidelity, and options that do not stand beside one; `others` by their names."""
    if not (is_number(fidelity) and 0 < fidelity < 1):
        raise InputError(PLACE, f"is {fidelity!r}", "give a number between 0 and 1")
    for option, value in others.items():
        if value is not None and value is not False:
            raise InputError(PLACE, f"is given together with {option}", "leave one of them out")


def bits_for(
    fidelity: float, program: CircuitProgram, dtype: str, mode: str, device: str, n_ranks: int = 1
) -> int:  # fmt: skip
    """The fewest bits by which a program is predicted to have a fidelity; on a GPU if there may be one."""
    if final_measurements(program) is None:
        raise InputError(
            PLACE, "is asked for, but the program measures, resets or is noisy before its end",
            "leave it out: errors are summed only for gates",
        )  # fmt: skip
    on_gpu = device == "gpu" or (device == "auto" and sees_gpu())
    gates = [item for item in program.operations if isinstance(item, Gate)]
    return fewest_bits(fidelity, planned_passes(gates, program.n_qubits, dtype, on_gpu, mode, n_ranks))


def planned_passes(
    gates: Sequence[Gate], n_qubits: int, dtype: str, on_gpu: bool, mode: str = "compiled",
    n_ranks: int = 1,
) -> int:  # fmt: skip
    """The passes of gates over a compressed state, as `Simulator` makes them from |0...0>."""
    n_inside, n_passes = bits_of_rank(n_qubits, n_ranks), 0
    tile = coded_tile(dtype, n_inside) if on_gpu else packed_tile(dtype)
    for step in prepare_program(gates):
        assert isinstance(step, Segment)
        where = first_places(rename(step.gates, range(n_qubits))[0], n_qubits, n_inside)
        n_passes += len(compile_gates(step.gates, where, tile, mode, n_inside).passes)
    return n_passes


def most_bits(
    n_qubits: int, dtype: str, threads: int, on_gpu: bool, room_bytes: float, n_ranks: int = 1
) -> int | None:  # fmt: skip
    """The most bits with which a compressed state fits on ranks; None where they do not hold it."""
    is_even = n_ranks & (n_ranks - 1) == 0 and bits_of_rank(n_qubits, n_ranks) >= LEAST_BITS
    if n_ranks > 1 and not is_even:
        return None
    for bits in reversed(BITS):
        needs = compressed_needs(n_qubits, bits, dtype, threads, n_ranks)
        if (needs.gpu_bytes if on_gpu else needs.cpu_bytes) <= room_bytes:
            return bits
    return None


def bits_of_rank(n_qubits: int, n_ranks: int) -> int:
    """The bits of the index inside of a rank."""
    return n_qubits - (n_ranks.bit_length() - 1)


def compressed_needs(n_qubits: int, bits: int, dtype: str, threads: int, n_ranks: int = 1) -> Needs:
    """What a rank needs for its part of a compressed state."""
    n_bits = bits_of_rank(n_qubits, n_ranks)
    tiles = tile_bytes(n_bits, dtype, packed_tile(dtype), threads)
    other = "a lower --fidelity, " if bits > BITS[0] else ""
    return Needs(
        coded_bytes(n_bits, bits, dtype), packed_bytes(n_bits, bits, dtype) + tiles,
        f"use {other}more memory or fewer qubits",
        "" if n_qubits >= BLOCK_BITS else f"compressed states of fewer than {BLOCK_BITS} qubits",
    )  # fmt: skip


def open_compressed(
    rank: Rank, program: CircuitProgram, dtype: str, bits: int, seed: int,
    checkpoint: StateCheckpoint | None = None, resume: bool = False,
) -> PackedState | CodedState | DistributedPackedState:  # fmt: skip
    """A compressed state on the device of a rank, in |0...0> or as a checkpoint of its passes has it.

    Its kernels begin to be compiled.
    """
    gates = [item for item in program.operations if isinstance(item, Gate)]
    away, world = departure(gate.matrix for gate in gates), rank.world
    n_bits = bits_of_rank(program.n_qubits, world.size)
    if rank.device.name == "gpu":
        from tnplan.executor.statevector.cuda.packed_state import open_coded_state

        number: int = rank.device.device_id  # type: ignore[attr-defined]
        targets = largest_operator(program.operations)
        coded = open_coded_state(number, n_bits, dtype, bits, seed, away, targets, world.rank)
        connected = rank.connected()
        if checkpoint is not None:
            return _kept(coded, connected or world, checkpoint, resume)
        return coded if connected is None else DistributedPackedState(coded, connected)
    from tnplan.executor.statevector.cpu.kernel_samples import packed_kernels

    if rank.is_first:
        compile_soon(packed_kernels(dtype, bits))
    local = PackedState(n_bits, dtype, bits, rank.threads, seed, away, world.rank)
    if checkpoint is not None:
        return _kept(local, world, checkpoint, resume)
    return local if world.size == 1 else DistributedPackedState(local, world)


def _kept(
    local: PackedState | CodedState, ranks: Communicator, checkpoint: StateCheckpoint, resume: bool
) -> CheckpointedState:  # fmt: skip
    """The state with its checkpoints, from which it goes on."""
    state = CheckpointedState(local, ranks)
    state.keep(checkpoint, resume)
    return state


def more_bits(state: StateVector, fidelity: float, rank: Rank) -> int | None:
    """None where a run reached the fidelity by its estimate, else with how many bits it is done again.

    Raises InputError where more bits do not fit, or where there are none.
    """
    compressed: Any = state
    estimate = compressed.errors.fidelity_estimate
    if estimate >= fidelity:
        return None
    problem = f"is {fidelity!r}, and the run with {compressed.bits} bits has about {estimate:.10g}"
    if compressed.bits == BITS[-1]:
        raise InputError(
            PLACE, problem, "ask for a lower fidelity, or leave it out: the state is then not compressed"
        )
    bits = BITS[BITS.index(compressed.bits) + 1]
    needs = compressed_needs(compressed.n_bits, bits, compressed.dtype, rank.threads)  # a rank's own bits
    needed = needs.gpu_bytes if rank.device.name == "gpu" else needs.cpu_bytes
    if needed > rank.memory_bytes:
        remedy = f"ask for a lower fidelity, or allow {size_text(needed)} for {bits} bits"
        raise InputError(PLACE, problem, remedy, topic="memory")
    return bits


def fidelity_report(state: Any) -> dict[str, Any]:
    """What a result says about a compressed state; nothing about another."""
    errors = getattr(state, "errors", None)
    if not isinstance(errors, EncodingErrors):
        return {}
    return {
        "bits": state.bits, "fidelity_estimate": errors.fidelity_estimate,
        "fidelity_bound": errors.fidelity_bound,
    }  # fmt: skip


def fidelity_text(report: Mapping[str, Any]) -> str:
    """The same for people."""
    return (
        f"amplitudes of {report['bits']} bits a part: fidelity {report['fidelity_estimate']:.10g} "
        f"(estimate), at least {report['fidelity_bound']:.10g} (bound)"
    )


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
