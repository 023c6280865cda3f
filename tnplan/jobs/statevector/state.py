"""The state of a rank of a job: what it needs, and how it is opened on the device of the rank.

What only one kind of state needs is imported where that is opened.
"""

from __future__ import annotations

from collections.abc import Iterable

from tnplan.circuits.program import Operation, largest_operator
from tnplan.common.errors import InputError
from tnplan.common.kernels.ahead import compile_soon
from tnplan.executor.device.cpu.host_memory import host_memory, ranks_here
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS
from tnplan.executor.statevector.memory_estimate import predicted_bytes
from tnplan.executor.statevector.scheduling.tiled_passes import TILES
from tnplan.executor.statevector.simulator import StateVector
from tnplan.jobs.job import Needs, Rank

DTYPES = {"fp64": "complex128", "fp32": "complex64"}
"""The dtype of amplitudes in each precision."""


def state_needs(n_qubits: int, dtype: str, n_ranks: int, threads: int, states: int = 1) -> Needs:
    """What a rank needs for its part of so many states."""
    size_bytes = predicted_bytes(n_qubits, dtype, TILES[dtype], threads, n_ranks, states)
    other = "" if dtype == DTYPES["fp32"] else "--precision fp32, "
    return Needs(size_bytes, size_bytes, f"use {other}more ranks, more memory or fewer qubits")


def check_state_ranks(n_ranks: int, n_qubits: int) -> None:
    """Refuse ranks that cannot share a state: each holds the qubits of the largest gate or more."""
    if n_ranks & (n_ranks - 1):
        raise InputError("--ranks", f"is {n_ranks}", "give a power of two")
    n_bits = n_qubits - (n_ranks.bit_length() - 1)
    if n_ranks > 1 and n_bits < LARGEST_TARGETS:
        raise InputError(
            "--ranks",
            f"is {n_ranks} for a state of {n_qubits} qubits, {max(0, n_bits)} a rank",
            f"take fewer ranks: each needs {LARGEST_TARGETS} qubits or more",
        )  # fmt: skip


def free_beside(rank: Rank, state_bytes: int) -> float:
    """The bytes that the host has for a rank's answers: on a CPU beside its state. Collective."""
    free = host_memory()[1] / ranks_here(rank.world)
    return rank.memory_bytes - state_bytes if rank.device.name == "cpu" else free


def open_state(
    rank: Rank, n_qubits: int, dtype: str, operations: Iterable[Operation], *, gradient: bool = False
) -> StateVector:  # fmt: skip
    """The amplitudes of this rank on its device, connected with those of other ranks.

    Kernels are compiled for what is to be done with it: `operations`, and derivatives with `gradient`.
    """
    n_bits = n_qubits - (rank.world.size.bit_length() - 1)
    if rank.device.name == "cpu":
        return _on_cpu(rank, n_bits, dtype, largest_operator(operations), gradient=gradient)
    return _on_gpu(rank, n_bits, dtype, largest_operator(operations))


def _on_cpu(rank: Rank, n_bits: int, dtype: str, targets: int, *, gradient: bool) -> StateVector:
    from tnplan.executor.statevector.cpu.state import HostState

    world = rank.world
    if rank.is_first:  # processes of every rank would only take each other's cores
        from tnplan.executor.statevector.cpu.kernel_samples import gradient_kernels, state_kernels

        kernels = state_kernels(dtype, n_bits, targets)
        compile_soon(kernels + (gradient_kernels(dtype, n_bits, world.size) if gradient else []))
    local = HostState(n_bits, dtype, rank.threads, world.rank)
    if world.size == 1:
        return local
    from tnplan.executor.statevector.distributed_state import DistributedState

    return DistributedState(local, world)


def _on_gpu(rank: Rank, n_bits: int, dtype: str, targets: int) -> StateVector:
    from tnplan.executor.statevector.cuda.state import open_state as open_gpu_state

    number: int = rank.device.device_id  # type: ignore[attr-defined]
    local = open_gpu_state(number, n_bits, dtype, rank.world.rank, rank.world.size, targets)
    # None where this rank is alone; then all qubits are local, and no gate needs an exchange.
    connected = rank.connected()
    if connected is None:
        return local
    from tnplan.executor.statevector.cuda.bit_swap import StateSwap
    from tnplan.executor.statevector.distributed_state import DistributedState

    return DistributedState(local, connected, StateSwap(local.amplitudes, connected))


def end_state(rank: Rank, state: StateVector) -> None:
    """Nothing more is asked of a state whose other ranks end with the job."""
    if rank.world.size > 1 and (rank.world.name == "threads" or rank.device.name == "gpu"):
        from tnplan.executor.statevector.distributed_state import DistributedState

        assert isinstance(state, DistributedState)
        state.end()
