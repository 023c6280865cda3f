"""H times a state over products of half-strings and over lists, against references and against PySCF."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SharedData
from tests.support.engines.sbd import (
    every_string,
    random_integrals,
    reference_matrix,
    some_strings,
    string_set,
)
from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.basis.excitations import find_singles
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integrals import dense_two
from tnplan.executor.sbd.basis.string_files import read_spin_strings
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.spin_square import PenalizedHamiltonian, SpinTarget
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD, ProductHamiltonian


def reference(integrals, alpha: list[int], beta: list[int]) -> np.ndarray:
    return reference_matrix(integrals, list(product(alpha, beta)))


@pytest.mark.parametrize(
    ("n", "electrons", "counts"),
    [
        (5, (2, 3), (10, 10)),
        (5, (3, 2), (7, 4)),
        (6, (3, 3), (13, 9)),
        (4, (2, 0), (5, 1)),
        (4, (0, 1), (1, 3)),
        (4, (1, 4), (3, 1)),
        (1, (1, 1), (1, 1)),
    ],
)
@pytest.mark.parametrize("dense", [False, True])
def test_a_product_equals_the_reference(
    n: int, electrons: tuple[int, int], counts: tuple[int, int], dense: bool
) -> None:
    integrals = random_integrals(n, *electrons, seed=n)
    alpha, beta = (some_strings(n, spin, count, n) for spin, count in zip(electrons, counts, strict=True))
    h = ProductHamiltonian(integrals, string_set(alpha, integrals), string_set(beta, integrals), dense=dense)
    matrix = reference(integrals, alpha, beta)
    x = np.random.default_rng(0).standard_normal(h.shape)
    expected = (matrix @ x.ravel()).reshape(h.shape)
    assert np.abs(h.apply(x) - expected).max() <= 1e-12 * np.abs(matrix).max() * np.abs(x).max()
    np.testing.assert_allclose(h.diagonal().ravel(), matrix.diagonal(), atol=1e-12)
    assert h.pairs_contributing >= np.count_nonzero(matrix)


def test_strings_without_singles() -> None:
    integrals = random_integrals(6, 2, 2, 3)
    alpha = [0b000011, 0b001100, 0b110000]
    h = ProductHamiltonian(integrals, string_set(alpha, integrals))
    assert not len(h.alpha.singles.other)
    x = np.arange(9.0).reshape(3, 3)
    matrix = reference(integrals, alpha, alpha)
    np.testing.assert_allclose(h.apply(x).ravel(), matrix @ x.ravel(), atol=1e-12)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("parity", [EVEN, ODD])
@pytest.mark.parametrize("count", [2, 3, 22, 35])
def test_half_of_the_sums_do_where_states_have_a_parity(dense: bool, parity: int, count: int) -> None:
    integrals = random_integrals(7, 3, 3, 11)
    h = ProductHamiltonian(integrals, string_set(some_strings(7, 3, count, 5), integrals), dense=dense)
    x = np.random.default_rng(1).standard_normal(h.shape)
    whole = h.apply(x)
    part = h.project(x, parity)
    assert h.parity_of(part) == parity
    assert h.parity_of(x) == NEITHER
    y = h.apply(part)
    assert h.parity_of(y) == parity
    np.testing.assert_allclose(y, h.apply(part, NEITHER), atol=1e-11)
    np.testing.assert_allclose(y, h.project(whole, parity), atol=1e-11)


def test_threads_give_the_same_bits() -> None:
    integrals = random_integrals(8, 4, 3, 2)
    sets = [string_set(some_strings(8, spin, 40, spin), integrals) for spin in (4, 3)]
    x = np.random.default_rng(1).standard_normal((40, 40))
    one, three = (ProductHamiltonian(integrals, *sets, threads=threads).apply(x) for threads in (1, 3))
    np.testing.assert_allclose(one, three, rtol=0, atol=1e-12)
    again = ProductHamiltonian(integrals, *sets, threads=3).apply(x)
    assert np.array_equal(three, again)


def test_more_than_64_orbitals() -> None:
    n = 67
    integrals = random_integrals(n, 2, 2, 1)
    chance = np.random.default_rng(3)
    some = sorted({int(1 << p | 1 << q) for p, q in chance.integers(0, n, (9, 2)) if p != q} | {3, 5})
    some += [1 | 1 << 66, 1 << 63 | 1 << 64, 1 << 64 | 1 << 65]
    other = [3 << 62, 1 << 66 | 1, 7 >> 1, 1 << 63 | 1, 1 << 2 | 1]
    small = [[value for value in values if value.bit_count() == 2] for values in (some, other)]
    used = sorted({p for values in small for value in values for p in range(n) if value >> p & 1})
    pairs = np.array(used)
    p, q = np.meshgrid(pairs, pairs, indexing="ij")
    from tnplan.executor.sbd.basis.integrals import from_arrays, pair_number

    number = pair_number(p, q, n).ravel()
    two = integrals.two[np.ix_(number, number)].reshape((len(used),) * 4)
    fewer = from_arrays(integrals.one[np.ix_(used, used)], two, 2, 2)

    def renamed(values: list[int]) -> list[int]:
        return [sum(1 << at for at, p in enumerate(used) if value >> p & 1) for value in values]

    large = ProductHamiltonian(integrals, *(string_set(values, integrals) for values in small))
    little = ProductHamiltonian(fewer, *(string_set(renamed(values), fewer) for values in small))
    assert large.alpha.strings.words.shape[1] == 2
    x = chance.standard_normal(large.shape)
    np.testing.assert_allclose(large.apply(x), little.apply(x), atol=1e-11)


def test_a_list_of_a_product_equals_the_product() -> None:
    integrals = random_integrals(6, 3, 2, 8)
    alpha, beta = (string_set(some_strings(6, spin, 9, 1), integrals) for spin in (3, 2))
    h = ProductHamiltonian(integrals, alpha, beta)
    listed = from_product(alpha, beta, np.arange(81))
    sparse = ListHamiltonian(integrals, listed)
    x = np.random.default_rng(2).standard_normal((9, 9))
    np.testing.assert_allclose(
        sparse.apply(x.ravel()[listed.given]), h.apply(x).ravel()[listed.given], atol=1e-11
    )
    assert sparse.pairs_contributing == h.pairs_contributing
    np.testing.assert_allclose(sparse.diagonal(), h.diagonal().ravel()[listed.given], atol=1e-12)


def test_a_list_equals_the_reference() -> None:
    integrals = random_integrals(5, 2, 2, 9)
    alpha = string_set(every_string(5, 2), integrals)
    chosen = np.random.default_rng(4).choice(100, 31, replace=False)
    h = ListHamiltonian(integrals, from_product(alpha, alpha, chosen))
    assert len(h.basis) == 31
    strings = [every_string(5, 2)[at] for at in range(10)]
    dets = [(strings[at // 10], strings[at % 10]) for at in chosen[h.basis.given]]
    np.testing.assert_allclose(h.dense(), reference_matrix(integrals, dets), atol=1e-12)


def test_spin_square_is_that_of_the_reference() -> None:
    integrals = random_integrals(5, 3, 2, 4)
    values = [every_string(5, spin) for spin in (3, 2)]
    h = ProductHamiltonian(integrals, *(string_set(part, integrals) for part in values))
    matrix = np.array(
        [h.apply_spin_square(unit.reshape(h.shape)).ravel() for unit in np.eye(h.shape[0] * h.shape[1])]
    )
    squares = np.linalg.eigvalsh(matrix)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)
    assert {round(float(value), 8) for value in squares} == {0.75, 3.75, 8.75}
    h_matrix = np.array([h.apply(unit.reshape(h.shape)).ravel() for unit in np.eye(len(matrix))])
    np.testing.assert_allclose(matrix @ h_matrix, h_matrix @ matrix, atol=1e-9)
    penalized = PenalizedHamiltonian(h, SpinTarget(3.75, 2.0))
    away = matrix - 3.75 * np.eye(len(matrix))
    x = np.random.default_rng(0).standard_normal(h.shape)
    expected = (h_matrix + 2 * away @ away) @ x.ravel()
    np.testing.assert_allclose(penalized.apply(x, NEITHER).ravel(), expected, atol=1e-9)


def test_costs_choose_by_counts() -> None:
    assert cost.dense_is_faster(1000, 400_000, cost.CPU)
    assert not cost.dense_is_faster(1000, 250_000, cost.CPU)
    assert not cost.dense_is_faster(100_000, 100_000 * 1000, cost.CPU)


def test_a_matrix_that_has_no_room_is_sparse() -> None:
    integrals = random_integrals(6, 3, 3, 1)
    strings = string_set(every_string(6, 3), integrals)
    assert hasattr(ProductHamiltonian(integrals, strings).alpha_matrix, "values")
    assert hasattr(ProductHamiltonian(integrals, strings, memory_bytes=100).alpha_matrix, "column")


def pyscf_product(integrals, h: ProductHamiltonian, x: np.ndarray) -> np.ndarray:
    """H x by PySCF, whose strings are in rising order."""
    selected_ci = pytest.importorskip("pyscf.fci.selected_ci", reason="needs PySCF")
    from pyscf.fci import direct_spin1

    numbers = [
        np.array([int(line, 2) for line in spin.strings.lines().split()]) for spin in (h.alpha, h.beta)
    ]
    orders = [np.argsort(values) for values in numbers]
    sorted_ = tuple(values[order] for values, order in zip(numbers, orders, strict=True))
    electrons = integrals.n_alpha, integrals.n_beta
    two = direct_spin1.absorb_h1e(integrals.one, dense_two(integrals), integrals.n_orbitals, electrons, 0.5)
    state = selected_ci._as_SCIvector(np.ascontiguousarray(x[np.ix_(*orders)]), sorted_)
    y = np.empty(h.shape)
    y[np.ix_(*orders)] = selected_ci.contract_2e(two, state, integrals.n_orbitals, electrons)
    return y


def shared_product(shared: SharedData, stem: str, beta: slice) -> ProductHamiltonian:
    path: Path = shared("sbd/n2_631g_14e18o.fcidump")
    integrals = read_fcidump(path)
    counts = (integrals.n_alpha, integrals.n_alpha)
    strings = read_spin_strings(shared(f"sbd/{stem}.txt"), integrals.n_orbitals, counts, 0).strings
    other: StringSet = strings.take(np.arange(len(strings))[beta])
    return ProductHamiltonian(integrals, strings, other)


@pytest.mark.parametrize("beta", [slice(None), slice(3, 70, 2), slice(0, 1)])
def test_n2_equals_pyscf(shared: SharedData, beta: slice) -> None:
    h = shared_product(shared, "n2_alpha_1em3", beta)
    x = np.random.default_rng(5).standard_normal(h.shape)
    expected = pyscf_product(h.integrals, h, x)
    assert np.abs(h.apply(x) - expected).max() <= 1e-12 * np.abs(expected).max()


def test_singles_are_found_by_a_slow_search() -> None:
    integrals = random_integrals(7, 3, 3, 0)
    values = some_strings(7, 3, 20, 2)
    singles = find_singles(string_set(values, integrals), 2)
    for i, bra in enumerate(values):
        span = slice(singles.start[i], singles.start[i + 1])
        found = set(singles.other[span].tolist())
        assert found == {j for j, ket in enumerate(values) if (bra ^ ket).bit_count() == 2}
        assert (np.diff(singles.rank[singles.pairs[span]]) > 0).all()
    linked = [sum((bra ^ ket).bit_count() <= 4 for ket in values) for bra in values]
    assert singles.linked.tolist() == linked
