"""The state of a rank of a job: what it needs, and how it is opened on the device of the rank."""

from __future__ import annotations

from collections.abc import Iterable

from tnplan.api.jobs.job import Needs, Rank
from tnplan.executor.device.cpu.host_facts import ranks_here
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.statevector.cpu.state import TILES, HostState
from tnplan.executor.statevector.distributed_state import DistributedState
from tnplan.executor.statevector.memory_estimate import predicted_bytes
from tnplan.executor.statevector.simulator import StateVector
from tnplan.planner.common.compiled.ahead import compile_soon
from tnplan.planner.networks.circuits.program import Operation, largest_operator

DTYPES = {"fp64": "complex128", "fp32": "complex64"}
"""The dtype of amplitudes in each precision."""


def state_needs(n_qubits: int, dtype: str, n_ranks: int, threads: int, states: int = 1) -> Needs:
    """What a rank needs for its part of so many states."""
    size_bytes = predicted_bytes(n_qubits, dtype, TILES[dtype], threads, n_ranks, states)
    other = "" if dtype == DTYPES["fp32"] else "--precision fp32, "
    return Needs(size_bytes, size_bytes, f"use {other}more ranks, more memory or fewer qubits")


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
    world = rank.world
    n_bits = n_qubits - (world.size.bit_length() - 1)
    if rank.device.name == "cpu":
        if rank.is_first:  # processes of every rank would only take each other's cores
            from tnplan.executor.statevector.cpu.kernel_samples import gradient_kernels, state_kernels

            kernels = state_kernels(dtype, n_bits, largest_operator(operations))
            compile_soon(kernels + (gradient_kernels(dtype, n_bits, world.size) if gradient else []))
        local: StateVector = HostState(n_bits, dtype, rank.threads, world.rank)
        return local if world.size == 1 else DistributedState(local, world)
    from tnplan.executor.statevector.cuda.state import open_state as open_gpu_state

    local = open_gpu_state(
        rank.device.device_id, n_bits, dtype, world.rank, world.size,  # type: ignore[attr-defined]
        largest_operator(operations),
    )  # fmt: skip
    connected = rank.connected()
    if connected is None:
        return local
    from tnplan.executor.statevector.cuda.bit_swap import StateSwap

    return DistributedState(local, connected, StateSwap(local.amplitudes, connected))


def end_state(rank: Rank, state: StateVector) -> None:
    """Nothing more is asked of a state whose other ranks end with the job."""
    if isinstance(state, DistributedState) and (rank.world.name == "threads" or rank.device.name == "gpu"):
        state.end()
