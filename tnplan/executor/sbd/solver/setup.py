"""Sets a solve up: the device of every rank, the Hamiltonian's tables, and what fits in the memory.

Knows devices, ranks and memory; not how a solve goes on, and no files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from tnplan.common.arrays import Array
from tnplan.common.kernels.ahead import compile_soon
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.executor.device.select import open_device
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.sector import Sector
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.lists.batched_list import BatchedList
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.lists.qubit_hamiltonian import PauliTerms, QubitHamiltonian
from tnplan.executor.sbd.properties.measure import FermionHamiltonian
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian, BatchedSector
from tnplan.executor.sbd.sigma.complex_hamiltonian import product_hamiltonian
from tnplan.executor.sbd.sigma.distributed import HamiltonianRows
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian, ProductTables
from tnplan.executor.sbd.sigma.sector_hamiltonian import BlockedOperator, SectorHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.initial_guess import Hamiltonian
from tnplan.executor.sbd.solver.kernel_samples import TILE_KERNELS
from tnplan.executor.sbd.solver.memory_estimate import (
    MemoryFit,
    batched_bytes,
    batched_sector_bytes,
    fit_list,
    fit_product,
    fit_sector,
    tables_bytes,
    vectors_bytes,
    whole_states_bytes,
)
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors, VectorBackend

USABLE = 0.95
"""The share of a GPU's free memory that a solve takes, since cuBLAS and fragments take some."""
POOL_VECTORS = 1
"""Vectors that CuPy's pool holds besides those that a solve counts: a mask of booleans takes as much."""

Kind = TypeVar("Kind", bound=Hamiltonian, covariant=True)
Listed = TypeVar("Listed", bound=ListHamiltonian | QubitHamiltonian)
Solved = TypeVar("Solved", bound=Hamiltonian)


@dataclass(frozen=True)
class ChosenDevice:
    """A rank's device: `free_bytes` (None on a CPU), the ranks that exchange its arrays, and its stream."""

    line: str
    ranks: Communicator
    free_bytes: int | None
    on_stream: Callable[[], AbstractContextManager[Any]]
    close: Callable[[], None]


@dataclass(frozen=True)
class SolveSetup(Generic[Kind]):
    """A solve that is set up. `backend` is None where all of a state is on this CPU."""

    hamiltonian: Kind
    backend: VectorBackend | None
    criteria: Criteria
    predicted_bytes: int
    device: str
    ranks: int
    gathers: bool
    peak_bytes: Callable[[], int | None]
    pairs_contributing: int


@dataclass(frozen=True)
class SolveRequest:
    """What a solve is to find, and the memory and the threads of a rank for it."""

    n_roots: int
    criteria: Criteria
    memory_bytes: float
    threads: int
    sector: Sector | None = None
    """The products of strings that states may have; None: all."""
    has_penalty: bool = False
    """Whether products are made with S^2 too."""


def choose_device(name: str, world: Communicator, threads: int) -> ChosenDevice:
    """The device of this rank; collective. "auto" takes the CPU where a GPU is missing."""
    opened = open_device(name, world, 0, threads)
    if opened.device.name != "gpu":
        return ChosenDevice(opened.line, world, None, nullcontext, opened.close)
    # Ranks that share a colour are connected for exchanges between GPUs.
    ranks = opened.ranks.split(0, world.rank) if world.size > 1 else world
    stream: Any = opened.device.stream  # type: ignore[attr-defined]
    return ChosenDevice(opened.line, ranks, opened.device.memory()[1], lambda: stream, opened.close)


def set_up_solve(
    integrals: Integrals, space: DeterminantList | tuple[StringSet, StringSet | None], device: ChosenDevice,
    world: Communicator, request: SolveRequest,
) -> SolveSetup[FermionHamiltonian]:  # fmt: skip
    """The tables of a Hamiltonian, and where its states lie; collective. InputError where memory is short."""
    gpu, request = device.free_bytes is not None, _within_memory(request, device, world)
    if gpu:
        from tnplan.executor.sbd.cuda.steps import begin_kernels

        begin_kernels()
    if isinstance(space, DeterminantList):
        return _set_up_list(integrals, space, device, world, request)
    if gpu:
        compile_soon(TILE_KERNELS)
    sector = request.sector
    if sector is not None and takes_blocks(integrals):
        return _set_up_sector(integrals, space, sector, device, world, request)
    product = product_hamiltonian(
        integrals, *space, threads=request.threads, memory_bytes=request.memory_bytes / 2,
        rank_of=(world.rank, world.size), rates=cost.GPU if gpu else cost.CPU,
    )  # fmt: skip
    if sector is not None:
        product.restrict(sector)
    if gpu:
        from tnplan.executor.sbd.cuda.steps import check_gpu

        agree(world, lambda: check_gpu(product.shape[1]))
        table_bytes = batched_bytes(product)
        table_bytes += POOL_VECTORS * 8 * (product.rows[1] - product.rows[0]) * product.shape[1]
    else:
        table_bytes = tables_bytes(product)
    max_bytes = max(world.gather_objects(table_bytes))
    fit = agree(
        world,
        lambda: fit_product(product, max_bytes, request.n_roots, request.criteria, request.memory_bytes),
    )
    peak_bytes, make = _meter(gpu), _on_gpu(product) if gpu else product.as_type
    return _set_up(product, make, fit, device, world, peak_bytes, product.pairs_contributing)


def takes_blocks(integrals: Integrals) -> bool:
    """Whether vectors over products of strings of one representation hold nothing else."""
    return not (integrals.is_complex or integrals.has_ordered_pairs)


def _set_up_sector(
    integrals: Integrals, strings: tuple[StringSet, StringSet | None], sector: Sector, device: ChosenDevice,
    world: Communicator, request: SolveRequest,
) -> SolveSetup[FermionHamiltonian]:  # fmt: skip
    """The same for products of strings of one representation, of which vectors hold nothing else."""
    gpu = device.free_bytes is not None
    h = SectorHamiltonian(
        ProductTables(integrals, *strings, threads=request.threads), sector,
        memory_bytes=request.memory_bytes / 2, rates=cost.GPU if gpu else cost.CPU,
        rank_of=(world.rank, world.size),
    )  # fmt: skip
    peak_bytes, backend = _meter(gpu), None
    make: Callable[[str], BlockedOperator] = h.as_type
    if gpu:
        from tnplan.executor.sbd.cuda.steps import CupyBatch, check_gpu

        agree(world, lambda: check_gpu(max(block.shape[1] for block in h.blocks.blocks)))
        table_bytes = batched_sector_bytes(h) + POOL_VECTORS * 8 * (h.rows[1] - h.rows[0])
        table_bytes += h.partners_bytes * request.has_penalty
        make = lambda dtype: BatchedSector(h, CupyBatch(dtype))  # noqa: E731
    else:
        table_bytes = h.size_bytes + h.matching_bytes * request.has_penalty
    if gpu or world.size > 1:
        backend = DistributedVectors(h, device.ranks, make)
    max_bytes = max(world.gather_objects(table_bytes))
    whole_bytes = 0 if gpu else whole_states_bytes(h.whole_shape, request.n_roots)
    wanted = request.n_roots, request.criteria, request.memory_bytes
    fit = agree(world, lambda: fit_sector(h, max_bytes, whole_bytes, *wanted))
    return SolveSetup(
        h, backend, fit.criteria, fit.predicted_bytes, "gpu" if gpu else "cpu", world.size,
        fit.gathers, peak_bytes, sum(world.gather_objects(h.pairs_contributing)),
    )  # fmt: skip


def set_up_qubits(
    terms: PauliTerms, strings: Array, device: ChosenDevice, world: Communicator, request: SolveRequest
) -> SolveSetup[QubitHamiltonian]:
    """The same for a qubit Hamiltonian in a list of strings, on CPUs and GPUs; collective.

    Elements are stored where they fit in half of the memory.
    """
    gpu, request = device.free_bytes is not None, _within_memory(request, device, world)
    elements_bytes = request.memory_bytes / 2
    listed = QubitHamiltonian(
        terms, strings, threads=request.threads, memory_bytes=0 if gpu else elements_bytes,
        rank_of=(world.rank, world.size),
    )  # fmt: skip

    def on_gpu() -> HamiltonianRows:
        """The rows there."""
        from tnplan.executor.sbd.cuda.qubit_steps import GpuQubits

        return GpuQubits(listed, elements_bytes)

    return _fitted(listed, on_gpu, request, device, world)


def _within_memory(request: SolveRequest, device: ChosenDevice, world: Communicator) -> SolveRequest:
    """The request with the memory that every rank may take: the least of all."""
    memory_bytes = request.memory_bytes
    if device.free_bytes is not None:
        memory_bytes = min(memory_bytes, USABLE * device.free_bytes)
    return replace(request, memory_bytes=min(world.gather_objects(memory_bytes)))


def _set_up_list(
    integrals: Integrals, basis: DeterminantList, device: ChosenDevice, world: Communicator,
    request: SolveRequest,
) -> SolveSetup[FermionHamiltonian]:  # fmt: skip
    """The same for a list of determinants: CPUs store elements where these fit in half of the memory."""
    gpu = device.free_bytes is not None
    listed = ListHamiltonian(
        integrals, basis, threads=request.threads, memory_bytes=0 if gpu else request.memory_bytes / 2,
        rank_of=(world.rank, world.size),
    )  # fmt: skip

    def on_gpu() -> HamiltonianRows:
        """The rows there."""
        from tnplan.executor.sbd.cuda.list_steps import CupyList

        states_bytes = vectors_bytes(listed.partition.most, request.n_roots, request.criteria)
        states_bytes += 8 * len(basis) * (world.size > 1)
        return BatchedList(listed, CupyList(integrals.n_orbitals), request.memory_bytes - states_bytes)

    return _fitted(listed, on_gpu, request, device, world)


def _fitted(
    listed: Listed, on_gpu: Callable[[], HamiltonianRows], request: SolveRequest, device: ChosenDevice,
    world: Communicator,
) -> SolveSetup[Listed]:  # fmt: skip
    """A list fitted in this rank's memory: the host's, or that of the GPU, which has its rows then."""
    gpu = device.free_bytes is not None
    peak_bytes = _meter(gpu)
    rows: Any = agree(world, on_gpu) if gpu else listed
    table_bytes, pairs = rows.size_bytes, rows.pairs_contributing
    max_bytes = max(world.gather_objects(table_bytes))
    fit = agree(
        world, lambda: fit_list(listed, max_bytes, request.n_roots, request.criteria, request.memory_bytes)
    )
    pairs = sum(world.gather_objects(pairs))
    return _set_up(listed, lambda dtype: rows, fit, device, world, peak_bytes, pairs)


def _set_up(
    hamiltonian: Solved, make: Callable[[str], HamiltonianRows], fit: MemoryFit, device: ChosenDevice,
    world: Communicator, peak_bytes: Callable[[], int | None], pairs: int,
) -> SolveSetup[Solved]:  # fmt: skip
    """A solve that fits. Its vectors are this CPU's, or those of ranks or GPUs with the rows of `make`."""
    gpu, backend = device.free_bytes is not None, None
    if gpu or world.size > 1:
        backend = DistributedVectors(hamiltonian, device.ranks, make, fit.gathers)
    return SolveSetup(
        hamiltonian, backend, fit.criteria, fit.predicted_bytes, "gpu" if gpu else "cpu", world.size,
        fit.gathers, peak_bytes, pairs,
    )  # fmt: skip


def _on_gpu(product: ProductHamiltonian) -> Callable[[str], HamiltonianRows]:
    """What puts the rows of H on the GPU in a precision."""
    from tnplan.executor.sbd.cuda.steps import CupyBatch

    return lambda dtype: BatchedHamiltonian(product, CupyBatch(dtype))


def _meter(gpu: bool) -> Callable[[], int | None]:
    """What tells the memory that arrays have taken since; on a CPU it is not counted."""
    if not gpu:
        return lambda: None
    from tnplan.executor.sbd.cuda.steps import memory_meter

    return memory_meter()
