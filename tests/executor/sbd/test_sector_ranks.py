"""Blocks of one representation divided over ranks: against one rank, and against dense matrices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.executor.sbd.test_sectors import Case
from tests.oracles.sbd import NumpyBatch
from tests.support.engines.sbd import every_string, reference_matrix, string_set
from tests.support.engines.symmetric_molecules import (
    dense_states,
    spin_square_matrix,
    symmetric_molecule,
)
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_unless
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.irreps import string_irreps
from tnplan.executor.sbd.basis.sector import Sector
from tnplan.executor.sbd.sigma.batched_sector import BatchedSector
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorProduct
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.setup import ChosenDevice, SolveRequest, choose_device, set_up_solve
from tnplan.executor.sbd.solver.solve import SpinPenalty, solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

TIGHT = Criteria(residual=1e-9)
CASES = [
    ("D2h", 6, (3, 3), True, 1011), ("C2v", 6, (3, 2), False, 1012), ("C2v", 7, (2, 2), True, 1013),
    ("C1", 5, (2, 2), True, 1014), ("Cs", 5, (1, 3), False, 1015), ("D2h", 7, (1, 0), False, 1016),
]  # fmt: skip


def sector_of(case: Case, irrep: int) -> Sector:
    alpha, beta = (string_irreps(strings, case.integrals.labels.irreps) for strings in case.sets)
    return Sector(alpha, beta, irrep - 1)


def product_of(case: Case, irrep: int, ranks: Communicator) -> SectorProduct:
    beta = None if case.equal else case.sets[1]
    sector, rank_of = sector_of(case, irrep), (ranks.rank, ranks.size)
    return SectorProduct(case.integrals, case.sets[0], beta, sector, threads=1, rank_of=rank_of)


def gpu_steps(dtype: str = "float64") -> Any:
    from tnplan.executor.sbd.cuda.steps import CupyBatch

    return CupyBatch(dtype)


def check_products(case: Case, irrep: int, size: int, steps: Any) -> None:
    """H, S^2, their diagonals and projections on ranks, by the reference."""
    whole, pairs = case.sector(irrep), case.pairs(irrep)
    matrix, squares = (of(case.integrals, pairs) for of in (reference_matrix, spin_square_matrix))
    states = [
        (np.random.default_rng(1020 + parity).standard_normal(whole.shape), parity)
        for parity in ((EVEN, ODD, NEITHER) if whole.symmetric else (NEITHER,))
    ]

    def work(ranks: Communicator) -> Any:
        h = product_of(case, irrep, ranks).in_sector
        make: Callable[[str], Any] = h.as_type
        if steps is not None:
            make = lambda dtype: BatchedSector(h, steps(dtype))  # noqa: E731
        backend = DistributedVectors(h, ranks, make)
        operator: Any = backend.operator("float64")
        made = []
        for state, parity in states:
            given = backend.put(backend.local(state if ranks.rank == 0 else None), "float64")
            x = operator.project(given, parity)
            vectors = (x, operator.apply(x, parity), operator.apply_spin_square(x), operator.diagonal())
            made.append([backend.collect(vector) for vector in vectors])
        return made, h.rows, h.pairs_contributing

    results = run_ranks(size, work)
    for (state, parity), (x, product, square, diagonal) in zip(states, results[0][0], strict=True):
        np.testing.assert_allclose(x, whole.project(state, parity), atol=1e-13)
        listed = case.listed(whole.blocks.whole(x), irrep)
        for made, wanted in ((product, matrix @ listed), (square, squares @ listed)):
            found = case.listed(whole.blocks.whole(made), irrep)
            np.testing.assert_allclose(found, wanted, atol=1e-12 * max(1, np.abs(wanted).max()))
        np.testing.assert_array_equal(whole.project(product, parity), product)
        found = case.listed(whole.blocks.whole(diagonal), irrep)
        np.testing.assert_allclose(found, np.diag(matrix), atol=1e-11)
    assert sum(pairs for *_, pairs in results) == whole.pairs_contributing
    rows = [rows for _, rows, _ in results]
    assert [first for first, _ in rows] == [0, *(last for _, last in rows[:-1])]
    assert rows[-1][1] == len(pairs)


@pytest.mark.parametrize(
    ("size", "steps", "case"),
    slow_unless(
        lambda size, steps, case: size == (4 if steps is None else 2) and case in CASES[:3],
        (2, 3, 4), (None, NumpyBatch), CASES,
    ),
)  # fmt: skip
def test_products_on_ranks(size: int, steps: Any, case: Any) -> None:
    molecule = Case(*case)
    for irrep in molecule.irreps():
        check_products(molecule, irrep, size, steps)


@needs_gpus(1)
@pytest.mark.parametrize("case", CASES)
def test_products_on_ranks_that_share_a_gpu(case: Any) -> None:
    molecule = Case(*case)
    for irrep in molecule.irreps()[:2]:
        check_products(molecule, irrep, 1, gpu_steps)
