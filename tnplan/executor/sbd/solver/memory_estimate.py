"""The memory of a solve, in bytes, from counts that are known before anything large is allocated.

Knows what a solve allocates; allocates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.lists.listed_rows import ListedRows
from tnplan.executor.sbd.sigma.batched import ROWS_TRANSPOSED
from tnplan.executor.sbd.sigma.opposite_spin import entries_bytes, scratch_bytes, table_bytes
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.sigma.same_spin import SparseMatrix
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria

TEMPORARIES = 6
TEMPORARIES_A_ROOT = 5
"""Vectors that a step, its checkpoint and a test need besides those of the subspace (by tracemalloc)."""


MEASURED = 2
"""Whole states that measuring one takes besides: its weights, and what they are made from."""
PENALTY_VECTORS = 4
"""Vectors that a multiplication with a spin penalty needs besides: the diagonal of S^2, and its products."""


def penalty_bytes(n_elements: int) -> int:
    """The memory of a spin penalty on a rank that holds so many real numbers of each vector."""
    return PENALTY_VECTORS * 8 * n_elements


def numbers_of(integrals: Integrals) -> int:
    """Real numbers of an element of a state."""
    return 2 if integrals.is_complex else 1


def vectors_bytes(n_elements: int, n_roots: int, criteria: Criteria) -> int:
    """The memory of a solve's vectors on a rank that holds so many real numbers of each."""
    n_vectors = max(criteria.vectors, 4 * n_roots + 2)
    return 8 * n_elements * (2 * n_vectors + TEMPORARIES + TEMPORARIES_A_ROOT * n_roots)


def fit_memory(n_elements: int, n_roots: int, criteria: Criteria, memory_bytes: float) -> Criteria:
    """The criteria with as many vectors as half of the memory holds; InputError where too few fit."""
    least = 4 * n_roots + 2
    while vectors_bytes(n_elements, n_roots, criteria) > memory_bytes / 2 and criteria.vectors > least:
        criteria = replace(criteria, vectors=criteria.vectors - 1)
    needed = vectors_bytes(n_elements, n_roots, criteria)
    if needed > memory_bytes:
        raise InputError(
            "memory",
            f"is {size_text(memory_bytes)}, but the vectors of a solve need {size_text(needed)}",
            "give fewer strings, fewer roots or more memory",
            topic="memory",
        )  # fmt: skip
    return criteria


def tables_bytes(hamiltonian: ProductHamiltonian) -> int:
    """Matrices within a spin, excitations, weights, and every thread's scratch, on the CPU."""
    if len(hamiltonian.tables_of_parts) > 1:
        return sum(map(tables_bytes, hamiltonian.tables_of_parts))
    h = hamiltonian
    spins = [h.alpha] if h.symmetric else [h.alpha, h.beta]
    total = sum(spin.matrix.size_bytes + 20 * len(spin.singles.other) for spin in spins)
    pairs = len(h.beta.pairs.pairs)
    total += h.threads * scratch_bytes(h.shape[1], pairs)
    total += entries_bytes(h.shape[1], len(h.beta.singles.other))
    return total + opposite_spin_bytes(h) + h.integrals.mixed.nbytes


def opposite_spin_bytes(hamiltonian: ProductHamiltonian) -> int:
    """The tables of real numbers of the opposite-spin part for the local rows, in fp64."""
    h = hamiltonian
    n, (first, last), pairs = h.integrals.n_orbitals, h.rows, len(h.beta.pairs.pairs)
    return table_bytes(len(h.integrals.mixed), last - first, h.shape[1], n, pairs)


def batched_bytes(hamiltonian: ProductHamiltonian) -> int:
    """The arrays of a `BatchedHamiltonian` in fp64, with one block."""
    h = hamiltonian
    n_rows, n_beta = h.rows[1] - h.rows[0], h.shape[1]
    spins = [h.alpha] if h.symmetric else [h.alpha, h.beta]
    total = sum(spin.matrix.size_bytes for spin in spins)
    entries = int(h.alpha.singles.start[h.rows[1]] - h.alpha.singles.start[h.rows[0]])
    total += 9 * entries + 8 * (n_rows + 1)
    pieces = h.row_tasks(h.block(0, h.shape[0]))
    total += pieces.size_bytes + 8 * pieces.spare * n_beta
    total += opposite_spin_bytes(h) + h.tiles.size_bytes + h.beta.pairs.active.nbytes
    if isinstance(h.beta.matrix, SparseMatrix) and not h.symmetric:
        total += 2 * 8 * n_beta * ROWS_TRANSPOSED
    return total


def batched_sector_bytes(hamiltonian: SectorHamiltonian) -> int:
    """The arrays of a `BatchedSector` in fp64."""
    h = hamiltonian
    total = h.matrices_bytes + h.coefficient_bytes + 8 * (h.spare_elements + h.turned_elements)
    for links, tiled in zip(h.links, h.tiles, strict=True):
        for link, (tiles, tasks) in zip(links, tiled, strict=True):
            total += link.batched_bytes + tiles.size_bytes + tasks.size_bytes
    matrices = h.beta_matrices.values()
    if any(isinstance(matrix, SparseMatrix) for matrix in matrices):
        total += 2 * 8 * ROWS_TRANSPOSED * max(block.shape[1] for block in h.blocks.blocks)
    return total


def whole_states_bytes(shape: tuple[int, ...], n_roots: int) -> int:
    """The memory of whole states [alpha string, beta string] of a sector's roots, and to measure them."""
    return 8 * prod(shape) * (n_roots + MEASURED)


def exchange_bytes(hamiltonian: ProductHamiltonian, n_rows: int, gathers: bool) -> int:
    """The buffers of a `DistributedHamiltonian` on a rank that holds so many rows."""
    shares = hamiltonian.partition
    n_alpha, n_beta = hamiltonian.shape
    size = len(shares.bounds) - 1
    elements = n_rows * n_beta * (1 + (size > 1)) * hamiltonian.symmetric
    if size > 1:
        elements += n_beta * (n_alpha if gathers else 2 * shares.most)
    return 8 * elements * numbers_of(hamiltonian.integrals)


@dataclass(frozen=True)
class MemoryFit:
    """What a solve does within a memory: its criteria, whether states are gathered, and what a rank needs."""

    criteria: Criteria
    gathers: bool
    predicted_bytes: int


def _check_least(memory_bytes: float, what: str, needed_bytes: int, remedy: str) -> None:
    """InputError where a memory is less than what is needed."""
    if needed_bytes > memory_bytes:
        problem = f"is {size_text(memory_bytes)}, but the {what} needs {size_text(needed_bytes)}"
        raise InputError("memory", problem, remedy, topic="memory")


def fit_product(
    hamiltonian: ProductHamiltonian, table_bytes: int, n_roots: int, criteria: Criteria, memory_bytes: float
) -> MemoryFit:
    """The fit of a product of strings in the memory of a rank; InputError where there is none.

    `table_bytes` is the most that a rank holds besides vectors and exchanges. States are gathered where that
    fits, and otherwise go round a ring.
    """
    elements = hamiltonian.partition.most * hamiltonian.shape[1] * numbers_of(hamiltonian.integrals)
    fitted = fit_memory(elements, n_roots, criteria, memory_bytes)
    for gathers in (True, False) if len(hamiltonian.partition.bounds) > 2 else (True,):
        needed = vectors_bytes(elements, n_roots, fitted) + table_bytes
        needed += exchange_bytes(hamiltonian, hamiltonian.partition.most, gathers)
        if needed <= memory_bytes:
            return MemoryFit(fitted, gathers, needed)
    raise InputError(
        "memory", f"is {size_text(memory_bytes)}, but the solve needs {size_text(needed)}",
        "give fewer strings, fewer threads, more ranks or more memory",
        topic="memory",
    )  # fmt: skip


def fit_sector(
    hamiltonian: SectorHamiltonian, table_bytes: int, whole_bytes: int, n_roots: int, criteria: Criteria,
    memory_bytes: float,
) -> MemoryFit:  # fmt: skip
    """The fit of one representation's states in a memory; InputError where there is none.

    `whole_bytes` is what whole states take when the solve has ended, and its vectors are gone.
    """
    remedy = "give fewer strings, fewer threads, fewer roots or more memory"
    _check_least(memory_bytes, "solve", table_bytes + whole_bytes, remedy)
    elements = hamiltonian.shape[0]
    fitted = fit_memory(elements, n_roots, criteria, memory_bytes - table_bytes)
    return MemoryFit(fitted, True, table_bytes + max(whole_bytes, vectors_bytes(elements, n_roots, fitted)))


def fit_list(
    hamiltonian: ListedRows, table_bytes: int, n_roots: int, criteria: Criteria, memory_bytes: float
) -> MemoryFit:
    """The fit of a list in the memory of a rank; InputError where there is none."""
    numbers = 2 if hamiltonian.is_complex else 1
    elements, size = numbers * hamiltonian.partition.most, len(hamiltonian.partition.bounds) - 1
    fixed_bytes = table_bytes + 8 * numbers * hamiltonian.shape[0] * (size > 1)
    _check_least(memory_bytes, "list", fixed_bytes, "give a shorter list, more ranks or more memory")
    fitted = fit_memory(elements, n_roots, criteria, memory_bytes - fixed_bytes)
    return MemoryFit(fitted, True, fixed_bytes + vectors_bytes(elements, n_roots, fitted))
