"""Blocks of one representation divided over ranks: against one rank, and against dense matrices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.oracles.sbd import CountingBatch, NumpyBatch
from tests.support.engines.sbd import every_string, reference_matrix, string_set
from tests.support.engines.sector_cases import Case
from tests.support.engines.symmetric_molecules import dense_states, spin_square_matrix
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_after, slow_unless
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.sigma.batched import BatchedSector
from tnplan.executor.sbd.sigma.distributed import DistributedSector
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.memory_estimate import batched_sector_bytes
from tnplan.executor.sbd.solver.setup import SolveRequest, choose_device, set_up_solve
from tnplan.executor.sbd.solver.solve import Solution, SpinPenalty, solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

TIGHT = Criteria(residual=1e-9)
CASES = [
    ("D2h", 6, (3, 3), True, 1011), ("C2v", 6, (3, 2), False, 1012), ("C2v", 7, (2, 2), True, 1013),
    ("C1", 5, (2, 2), True, 1014), ("Cs", 5, (1, 3), False, 1015), ("D2h", 7, (1, 0), False, 1016),
]  # fmt: skip


@pytest.fixture
def few_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """No space is diagonalized as a whole."""
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 6)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)


def check_products(case: Case, irrep: int, size: int, steps: Any) -> None:
    """H, S^2, their diagonals and projections on ranks, by the reference."""
    whole, pairs = case.sector(irrep), case.pairs(irrep)
    matrix, squares = (of(case.integrals, pairs) for of in (reference_matrix, spin_square_matrix))
    states = [
        (np.random.default_rng(1020 + parity).standard_normal(whole.shape), parity)
        for parity in ((EVEN, ODD, NEITHER) if whole.symmetric else (NEITHER,))
    ]

    def work(ranks: Communicator) -> Any:
        h = case.sector(irrep, rank_of=(ranks.rank, ranks.size))
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


@needs_compiler
@pytest.mark.parametrize("case", slow_after(1, CASES[:2]))
def test_products_of_the_kernels_on_ranks(case: Any) -> None:
    pytest.importorskip("cupy", reason="needs CuPy")
    from tests.support.kernels.list_emulator import EmulatedBatch

    molecule = Case(*case)
    for irrep in molecule.irreps()[:2]:
        check_products(molecule, irrep, 2, EmulatedBatch)


class Solved(NamedTuple):
    """What a rank has after a solve."""

    solution: Solution
    predicted_bytes: int
    elements: int


def solve_on(
    size: int, case: Case, irrep: int, device: str = "cpu", penalty: SpinPenalty | None = None, **options: Any
) -> list[Solved]:
    """Two roots of a representation on ranks, set up as by the command."""

    def work(ranks: Communicator) -> Solved:
        chosen = choose_device(device, ranks, 1)
        strings = case.sets[0], None if case.equal else case.sets[1]
        request = SolveRequest(2, TIGHT, 1e9, 1, case.labelled(irrep), penalty is not None)
        try:
            with chosen.on_stream():
                setup = set_up_solve(case.integrals, strings, chosen, ranks, request)
                names = {"criteria": TIGHT, "penalty": penalty, "backend": setup.backend, **options}
                solution = solve(setup.hamiltonian, case.integrals, 2, **names)
        finally:
            chosen.close()
        first, last = setup.hamiltonian.rows
        return Solved(solution, setup.predicted_bytes, last - first)

    return run_ranks(size, work)


def check_solves(case: Case, irrep: int, size: int, device: str, mixed: bool) -> None:
    pairs = case.pairs(irrep)
    energies, _ = dense_states(case.integrals, pairs)
    made = solve_on(size, case, irrep, device, mixed_precision=mixed)
    alone = solve_on(1, case, irrep)[0].solution
    assert sum(solved.elements for solved in made) == len(pairs)
    assert max(solved.elements for solved in made) < 0.75 * len(pairs)
    for rank, (solution, *_) in enumerate(made):
        assert solution.converged
        assert (solution.early_multiplications > 0) == mixed
        np.testing.assert_allclose(solution.energies, energies[:2], atol=1e-9)
        np.testing.assert_allclose(solution.energies, alone.energies, atol=1e-11)
        assert len(solution.states) == (0 if rank else 2)
    for state, energy in zip(made[0].solution.states, energies, strict=False):
        listed = case.listed(state, irrep)
        np.testing.assert_allclose(np.linalg.norm(listed), 1, atol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(state), 1, atol=1e-9)
        matrix = reference_matrix(case.integrals, pairs)
        np.testing.assert_allclose(listed @ matrix @ listed + case.integrals.core, energy, atol=1e-9)


@pytest.mark.parametrize(
    ("size", "mixed", "equal"),
    slow_unless(
        lambda size, mixed, equal: mixed == (size == 2) and (mixed or equal),
        (2, 4), (True, False), (True, False),
    ),
)  # fmt: skip
def test_ranks_find_the_states(size: int, mixed: bool, equal: bool, few_at_start: None) -> None:
    case = Case("C2v", 6, (3, 3) if equal else (3, 2), equal, 1031 + equal)
    for irrep in case.irreps()[:2]:
        check_solves(case, irrep, size, "cpu", mixed)


@needs_gpus(2)
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("equal", [True, False])
def test_gpus_find_the_states(equal: bool, mixed: bool, few_at_start: None) -> None:
    case = Case("D2h", 7, (3, 3) if equal else (3, 2), equal, 1035)
    for irrep in case.irreps()[:2]:
        check_solves(case, irrep, 2, "gpu", mixed)


@pytest.mark.parametrize("spin", slow_after(1, [0, 1]))
def test_ranks_find_a_spin(spin: int, few_at_start: None) -> None:
    case = Case("C2v", 6, (2, 2), True, 1041)
    case.sets = [string_set(every_string(6, 2), case.integrals)] * 2
    case.alpha = case.beta = every_string(6, 2)
    for irrep in case.irreps()[:2]:
        pairs = case.pairs(irrep)
        energies, states = dense_states(case.integrals, pairs)
        squares = np.einsum("ki,kl,li->i", states, spin_square_matrix(case.integrals, pairs), states)
        wanted = energies[np.abs(squares - spin * (spin + 1)) < 1e-6][:2]
        solution = solve_on(3, case, irrep, penalty=SpinPenalty(spin))[0].solution
        np.testing.assert_allclose(solution.energies, wanted, atol=1e-9)


def test_a_solve_goes_on_with_other_ranks(few_at_start: None, tmp_path: Path) -> None:
    case, held = Case("D2h", 7, (3, 3), True, 1051), tmp_path / "x.ckpt"
    irrep = case.irreps()[0]
    energies, _ = dense_states(case.integrals, case.pairs(irrep))
    first = solve_on(2, case, irrep, checkpoint=held, criteria=Criteria(steps=2))[0].solution
    assert not first.converged
    for size in (3, 1):
        again = solve_on(size, case, irrep, checkpoint=held, resume=True)[0].solution
        np.testing.assert_allclose(again.energies, energies[:2], atol=1e-9)


def test_more_ranks_than_rows() -> None:
    case = Case("Cs", 3, (1, 1), False, 1061)
    irrep = case.irreps()[0]
    energies, _ = dense_states(case.integrals, case.pairs(irrep))
    made = solve_on(5, case, irrep)
    np.testing.assert_allclose(made[0].solution.energies, energies[:2], atol=1e-10)
    assert 0 in [solved.elements for solved in made]


def test_a_refused_start_ends_on_all_ranks(few_at_start: None) -> None:
    case = Case("D2h", 6, (2, 2), True, 1071)
    first, second = case.irreps()[:2]
    other = solve_on(1, case, first)[0].solution.states[:1]

    def work(ranks: Communicator) -> str:
        h = case.sector(second, rank_of=(ranks.rank, ranks.size))
        backend = DistributedVectors(h, ranks, h.as_type)
        start = other if ranks.rank == 0 else []
        with pytest.raises(InputError, match="start: has a state without any part of symmetry") as refusal:
            solve(h, case.integrals, 1, backend=backend, start=start)
        return str(refusal.value)

    assert len(set(run_ranks(3, work))) == 1


def test_memory_of_a_rank_is_that_of_its_rows() -> None:
    case = Case("D2h", 10, (4, 4), True, 1081)

    def predicted(ranks: Communicator, has_penalty: bool) -> int:
        chosen = choose_device("cpu", ranks, 1)
        request = SolveRequest(2, TIGHT, 1e10, 1, case.labelled(1), has_penalty)
        return set_up_solve(case.integrals, (case.sets[0], None), chosen, ranks, request).predicted_bytes

    def work(ranks: Communicator) -> tuple[int, ...]:
        h, steps = case.sector(1, rank_of=(ranks.rank, ranks.size)), CountingBatch()
        DistributedSector(BatchedSector(h, steps), h.partition, ranks)
        elements = h.rows[1] - h.rows[0]
        table_bytes = batched_sector_bytes(h) + 8 * (h.shape[0] + 2 * elements)
        spin_bytes = predicted(ranks, True) - predicted(ranks, False)
        return elements, steps.held_bytes, table_bytes, spin_bytes, h.matching_bytes

    made, n_elements = run_ranks(4, work), len(case.pairs(1))
    most = max(matching_bytes for *_, matching_bytes in made)
    for elements, held_bytes, table_bytes, spin_bytes, _ in made:
        assert abs(held_bytes - table_bytes) <= 0.01 * held_bytes
        assert elements < 1.2 * n_elements / 4
        assert 0 < spin_bytes <= most


@pytest.mark.slow
def test_memory_of_ranks_is_predicted() -> None:
    case, irrep = Case("D2h", 13, (3, 3), True, 1091), 1
    solve_on(2, case, irrep)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = solve_on(2, case, irrep)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    predicted = sum(solved.predicted_bytes for solved in made)
    assert 0.6 * predicted < peak < 1.05 * predicted
