"""Products among lists of determinants: kept or made again, on threads, ranks, GPUs; a slow reference."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.oracles.spin_orbitals import matrix_of_spins
from tests.support.engines.sbd import every_string, reference_matrix
from tests.support.engines.sbd_kinds import KINDS, ORBITALS, integrals_of, random_bodies
from tests.support.engines.sbd_lists import SPREAD, as_list, random_list, spread
from tests.support.kernels.emulator import has_compiler, needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.lists import batched_list as batched_module
from tnplan.executor.sbd.lists import list_hamiltonian as tasks_module
from tnplan.executor.sbd.lists.batched_list import BatchedList, PutOnce
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.lists.list_tables import list_cells
from tnplan.executor.sbd.sigma.distributed import DistributedHamiltonian

NO_STEPS: Any = None
CASES = {
    "more alpha than beta strings": (6, (3, 2), (20, 6), 70),
    "more beta than alpha strings": (6, (2, 3), (6, 20), 70),
    "few of many": (7, (3, 3), (30, 30), 60),
    "one alpha string": (9, (4, 4), (1, 126), 126),
    "no beta electron": (5, (2, 0), (10, 1), 9),
    "one determinant": (4, (2, 2), (1, 1), 1),
    "nothing couples": (8, (4, 4), (2, 2), 2),
}


def emulated(n_orbitals: int, **changed: int) -> Any:
    pytest.importorskip("cupy", reason="needs CuPy")
    from tests.support.kernels.list_emulator import EmulatedList

    return EmulatedList(n_orbitals, **changed)


def on_gpu(n_orbitals: int, **changed: int) -> Any:
    from tnplan.executor.sbd.cuda.list_steps import CupyList

    return CupyList(n_orbitals)


STEPS = [
    pytest.param(emulated, id="emulated", marks=needs_compiler),
    pytest.param(on_gpu, id="gpu", marks=needs_gpus(1)),
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Any, Any, np.ndarray]:
    """Integrals, a list, and H among it by a slow reference."""
    n, electrons, strings, count = CASES[request.param]
    integrals, determinants = random_list(n, electrons, strings, count)
    basis = as_list(determinants, n)
    return integrals, basis, reference_matrix(integrals, [determinants[at] for at in basis.given])


def test_elements_kept_or_made_again_equal_the_reference(case: Any) -> None:
    integrals, basis, matrix = case
    kept = ListHamiltonian(integrals, basis, threads=2)
    again = ListHamiltonian(integrals, basis, threads=2, memory_bytes=0)
    assert (kept.elements_bytes > 0, again.elements_bytes) == (True, 0)
    scale = np.abs(matrix).max()
    np.testing.assert_allclose(kept.dense(), matrix, atol=1e-13 * scale)
    np.testing.assert_allclose(again.diagonal(), matrix.diagonal(), atol=1e-13 * scale)
    x = np.random.default_rng(0).standard_normal(len(basis))
    for h in (kept, again):
        np.testing.assert_allclose(h.apply(x), matrix @ x, atol=1e-12 * scale)
        assert h.pairs_contributing >= np.count_nonzero(np.abs(matrix) > 1e-12)


@pytest.mark.parametrize("rows", [(0, 70), (13, 40), (5, 5)])
def test_cells_have_every_coupling_of_both_spins(rows: tuple[int, int]) -> None:
    integrals, determinants = random_list(6, (3, 3), (20, 6), 70)
    h = ListHamiltonian(integrals, as_list(determinants, 6), memory_bytes=0)
    tables = h.tables
    cells = list_cells(tables, rows, 2)
    alpha, beta = (
        [int(group.own[number, 0]) for number in group.number] for group in (tables.alpha, tables.beta)
    )
    for i, d in enumerate(range(*rows)):
        span = slice(cells.start[i], cells.start[i + 1])
        found = [
            int(place)
            for begin, end in cells.cells[span]
            for place, _ in cells.entries[cells.base[i] + begin : cells.base[i] + end]
        ]
        expected = [
            e
            for e in range(70)
            if (alpha[d] ^ alpha[e]).bit_count() == 2 and (beta[d] ^ beta[e]).bit_count() == 2
        ]
        assert sorted(found) == expected
    assert cells.couplings == sum(
        (alpha[d] ^ alpha[e]).bit_count() == 2 and (beta[d] ^ beta[e]).bit_count() == 2
        for d in range(*rows)
        for e in range(70)
    )


def test_each_array_is_put_once_and_none_in_place_of_another() -> None:
    """Arrays that are gone leave their ids to new ones."""
    calls: list[int] = []

    def put(array: np.ndarray) -> np.ndarray:
        calls.append(int(array[0]))
        return array.copy()

    once, kept = PutOnce(put), np.full(3, -1)
    for number in range(100):
        assert once(np.full(3, number)).tolist() == [number] * 3
        assert once(kept) is once(kept)
    assert sorted(calls) == [-1, *range(100)]
    assert len(once.copies()) == 101


@pytest.mark.parametrize("make", STEPS)
@pytest.mark.parametrize(("chunk", "rows", "entries"), [(1024, 64, 1 << 16), (32, 3, 20)])
def test_kernels_equal_the_reference(
    make: Any, chunk: int, rows: int, entries: int, case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    integrals, basis, matrix = case
    steps = make(integrals.n_orbitals, CHUNK=chunk, ROWS=rows)
    monkeypatch.setattr(tasks_module, "ROWS", rows)
    monkeypatch.setattr(batched_module, "FEWEST_ENTRIES", entries)
    h = ListHamiltonian(integrals, basis, threads=1, memory_bytes=0)
    made = BatchedList(h, steps)
    x = np.random.default_rng(0).standard_normal(len(basis))
    products = []
    for memory_bytes in (np.inf, 0.9 * made.size_bytes, 0):
        again, y = BatchedList(h, steps, memory_bytes), steps.put(np.zeros(len(basis)))
        again.add_rows(None, steps.put(x), steps.put(x), y, False)
        products.append(steps.get(y))
        assert again.pairs_contributing == h.pairs_contributing
        assert memory_bytes > 0 or again.size_bytes <= made.size_bytes + 64 * len(basis) ** 2
    np.testing.assert_allclose(products[0], matrix @ x, atol=1e-12 * np.abs(matrix).max())
    # Cells that are made again are the same cells.
    np.testing.assert_array_equal(products[1], products[0])
    np.testing.assert_array_equal(products[2], products[0])
    spins = steps.put(np.zeros(len(basis)))
    made.add_exchange(None, -0.5, steps.put(x), spins)
    expected = np.zeros(len(basis))
    h.add_exchange(None, -0.5, x, expected)
    np.testing.assert_allclose(steps.get(spins), expected, atol=1e-13)


@pytest.mark.parametrize(("kind", "orbitals"), [*product(KINDS, ORBITALS)])
def test_integrals_of_every_kind(kind: str, orbitals: str) -> None:
    bodies = random_bodies(kind, orbitals, 4, 11)
    integrals = integrals_of(bodies, kind, (2, 2))
    every = [*product(every_string(4, 2), every_string(4, 2))]
    basis = as_list(random.Random(3).sample(every, 25), 4)
    listed = random.Random(3).sample(every, 25)
    matrix = matrix_of_spins(bodies, [listed[at] for at in basis.given])
    x = np.random.default_rng(0).standard_normal(25)
    if integrals.is_complex:
        x = x + 1j * np.random.default_rng(1).standard_normal(25)
    np.testing.assert_allclose(ListHamiltonian(integrals, basis).dense(), matrix, atol=1e-12)
    again = ListHamiltonian(integrals, basis, threads=1, memory_bytes=0)
    np.testing.assert_allclose(again.apply(x), matrix @ x, atol=1e-12)

    def work(ranks: Communicator) -> np.ndarray:
        h = ListHamiltonian(integrals, basis, threads=1, memory_bytes=0, rank_of=(ranks.rank, ranks.size))
        operator = DistributedHamiltonian(h, h.partition, ranks)
        return np.asarray(operator.apply(x[slice(*h.rows)].copy(), 0))

    np.testing.assert_allclose(np.concatenate(run_ranks(2, work)), matrix @ x, atol=1e-12)
    if integrals.is_complex:
        with pytest.raises(ValueError, match="only on CPUs"):
            BatchedList(again, NO_STEPS)
    elif has_compiler():
        y = np.zeros(25)
        BatchedList(again, emulated(4)).add_rows(None, x, x, y, False)
        np.testing.assert_allclose(y, matrix @ x, atol=1e-12)


@pytest.mark.parametrize("make", STEPS)
def test_orbitals_at_both_ends_of_words(make: Any) -> None:
    integrals, determinants = random_list(9, (4, 3), (40, 40), 300)
    small = ListHamiltonian(integrals, as_list(determinants, 9))
    many = spread(integrals, SPREAD)
    large = ListHamiltonian(many, as_list(determinants, 9, SPREAD), threads=1)
    order = np.argsort(small.basis.given)[large.basis.given]
    x = np.random.default_rng(0).standard_normal(300)
    expected = small.apply(x)[order]
    np.testing.assert_allclose(large.apply(x[order]), expected, atol=1e-10)
    np.testing.assert_allclose(
        large.apply_spin_square(x[order]), small.apply_spin_square(x)[order], atol=1e-12
    )
    steps = make(many.n_orbitals)
    made, y, spins = BatchedList(large, steps), steps.put(np.zeros(300)), steps.put(np.zeros(300))
    state = steps.put(x[order])
    made.add_rows(None, state, state, y, False)
    np.testing.assert_allclose(steps.get(y), expected, atol=1e-10)
    made.add_exchange(None, 1.0, state, spins)
    whole = np.zeros(300)
    large.add_exchange(None, 1.0, x[order], whole)
    np.testing.assert_allclose(steps.get(spins), whole, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("way", ["kept", "again", pytest.param("emulated", marks=needs_compiler)])
def test_ranks_give_the_product(size: int, way: str) -> None:
    integrals, determinants = random_list(7, (3, 3), (30, 20), 120)
    basis = as_list(determinants, 7)
    whole = ListHamiltonian(integrals, basis, threads=1)
    x = np.random.default_rng(0).standard_normal(120)
    memory_bytes = np.inf if way == "kept" else 0

    def work(ranks: Communicator) -> Any:
        h = ListHamiltonian(
            integrals, basis, threads=1, memory_bytes=memory_bytes, rank_of=(ranks.rank, ranks.size)
        )
        rows: Any = BatchedList(h, emulated(7)) if way == "emulated" else h
        operator = DistributedHamiltonian(rows, h.partition, ranks)
        part = x[slice(*h.rows)].copy()
        return operator.apply(part, 0), operator.apply_spin_square(part), h.pairs_contributing

    found = run_ranks(size, work)
    np.testing.assert_allclose(np.concatenate([one[0] for one in found]), whole.apply(x), atol=1e-11)
    np.testing.assert_allclose(
        np.concatenate([one[1] for one in found]), whole.apply_spin_square(x), atol=1e-12
    )
    assert sum(one[2] for one in found) == whole.pairs_contributing
