"""Selections and corrections of a GPU's kernels equal those of the CPU's, by an emulator and on a GPU."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.engines.sbd import random_integrals
from tests.support.engines.sbd_growth import PLENTY, chain, every_determinant, on_workers
from tests.support.engines.sbd_kinds import ORBITALS, integrals_of, random_bodies
from tests.support.engines.sbd_lists import SPREAD, as_list, spread
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import Integrals, dense_two, from_arrays
from tnplan.executor.sbd.selected_ci import shards as shards_module
from tnplan.executor.sbd.selected_ci.connections import (
    OutsideSum,
    limits_of,
    member_keys,
    second_order,
    select,
)
from tnplan.executor.sbd.selected_ci.excitation_tables import excitation_tables
from tnplan.executor.sbd.selected_ci.grow import GrowingList, Grown, GrowthProblem
from tnplan.executor.sbd.selected_ci.growth import Growth
from tnplan.executor.sbd.selected_ci.shards import Workers
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.setup import choose_device

Array = NDArray[Any]
pytestmark = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")


@pytest.fixture(autouse=True)
def short_lists_go_to_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "SHORTEST", 1)


@pytest.fixture(
    params=[pytest.param("emulated", marks=needs_compiler), pytest.param("gpu", marks=needs_gpus(1))]
)
def couplings(request: pytest.FixtureRequest) -> Any:
    if request.param == "gpu":
        from tnplan.executor.sbd.cuda.coupling_steps import GpuCouplings

        return GpuCouplings
    from tests.support.kernels.coupling_emulator import EmulatedCouplings

    return EmulatedCouplings


def on_gpu(workers: Workers, couplings: Any, memory_bytes: float) -> Workers:
    made = partial(couplings, memory_bytes=memory_bytes)
    return Workers(workers.ranks, workers.threads, workers.memory_bytes, made)


def list_of(integrals: Integrals, count: int, names: Any = None) -> tuple[DeterminantList, Array]:
    """Some determinants, and a state of them with an element of 0."""
    chance = np.random.default_rng(3)
    every = every_determinant(integrals.n_orbitals, (integrals.n_alpha, integrals.n_beta))
    given = [every[at] for at in chance.permutation(len(every))[:count]]
    state = chance.standard_normal(count)
    state[1] = 0.0
    return as_list(given, integrals.n_orbitals, names), state / np.linalg.norm(state)


def compare(
    integrals: Integrals, basis: DeterminantList, state: Array, couplings: Any, memory_bytes: float = 1e7,
    ranks: int = 1,
) -> None:  # fmt: skip
    """The same keys and magnitudes bit for bit, and sums but for rounding."""
    tables = excitation_tables(integrals, 0.0, PLENTY)
    for epsilon, is_selection in product((0.0, 0.02, 0.2), (True, False)):

        def work(group: Workers) -> Any:
            if is_selection:  # noqa: B023
                return select(basis, np.abs(state), epsilon, tables, group)  # noqa: B023
            return second_order(basis, state, -90.0, epsilon, tables, group)  # noqa: B023

        (expected,) = on_workers(work)
        for found in on_workers(lambda group: work(on_gpu(group, couplings, memory_bytes)), ranks):
            if is_selection:
                np.testing.assert_array_equal(found.keys, expected.keys)
                np.testing.assert_array_equal(found.sizes, expected.sizes)
            else:
                np.testing.assert_allclose(found.energy, expected.energy, rtol=1e-12)
                assert found.determinants == expected.determinants


@pytest.mark.parametrize("counts", [(2, 2), (3, 1), (3, 0), (0, 2)])
@pytest.mark.parametrize("orbitals", ORBITALS)
@pytest.mark.parametrize("kind", ["real", "four-fold"])
def test_all_real_kinds_equal_the_cpu(
    kind: str, orbitals: str, counts: tuple[int, int], couplings: Any
) -> None:
    integrals = integrals_of(random_bodies(kind, orbitals, 5, 11), kind, counts)
    compare(integrals, *list_of(integrals, 8), couplings)


def test_general_spin_orbitals_equal_the_cpu(couplings: Any) -> None:
    real = random_integrals(6, 3, 0, 3)
    general = from_arrays(real.one, dense_two(real), 3, 0, general=True)
    compare(general, *list_of(general, 6), couplings)


@pytest.mark.parametrize("names", [(0, 5, 30, 31, 32), SPREAD[2:7]], ids=["one word a spin", "two words"])
def test_longer_keys_equal_the_cpu(names: tuple[int, ...], couplings: Any) -> None:
    integrals = random_integrals(5, 2, 2, 5)
    basis, state = list_of(integrals, 6, names)
    compare(spread(integrals, names), basis, state, couplings)


def test_ranks_take_shards_in_turn(couplings: Any) -> None:
    integrals = random_integrals(6, 3, 3, 2)
    compare(integrals, *list_of(integrals, 40), couplings, ranks=3)


def test_little_memory_makes_tables_longer_and_shards_more(
    couplings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables begin too small, and the memory holds no table of all; with next to none it is refused."""
    from tnplan.executor.sbd.cuda import coupling_steps

    integrals = random_integrals(7, 3, 3, 2)
    basis, state = list_of(integrals, 40)
    for name, value in (("FIRST_SLOTS", 16), ("SLOTS_OF_MEMBER", 1), ("MEMBERS_AT_ONCE", 16)):
        monkeypatch.setattr(coupling_steps, name, value)
    shards = set()

    class Noted(couplings):  # type: ignore[misc]
        def largest(self, weights: Array, limits: Array, shard: tuple[int, int]) -> Any:
            shards.add(shard)
            return super().largest(weights, limits, shard)

    compare(integrals, basis, state, Noted)
    assert shards == {(0, 0)}
    compare(integrals, basis, state, Noted, 60_000)
    assert (3, 2) in shards
    tables = excitation_tables(integrals, 0.0, PLENTY)
    with pytest.raises(InputError, match="memory: is too small for the determinants outside the list"):
        on_workers(lambda group: select(basis, abs(state), 0.0, tables, on_gpu(group, couplings, 100)))


def test_sums_of_few_sources_and_of_squares_equal_the_cpu(couplings: Any) -> None:
    """As samples take them: sources are some of the list's members, of large weights of both signs."""
    integrals = random_integrals(6, 3, 3, 4)
    basis, state = list_of(integrals, 60)
    tables, keys = excitation_tables(integrals, 0.0, PLENTY), member_keys(basis)
    chosen = np.arange(3, 60, 7)

    def work(group: Workers) -> list[Any]:
        outside = OutsideSum(keys, -90.0, tables, group)
        limits, weights = limits_of(state[chosen], 1e-3), 1e4 * state[chosen]
        return [outside.of(keys[chosen], weights, limits, squares) for squares in (False, True)]

    (expected,) = on_workers(work)
    (found,) = on_workers(lambda group: work(on_gpu(group, couplings, 1e7)))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.energy, theirs.energy, rtol=1e-12)
        assert ours.determinants == theirs.determinants


def test_a_sum_that_is_not_finite_is_refused(couplings: Any) -> None:
    integrals = from_arrays(np.ones((2, 2)), np.zeros((2, 2, 2, 2)), 1, 0)
    basis, tables = as_list([(1, 0)], 2), excitation_tables(integrals, 0.0, PLENTY)
    with pytest.raises(InputError, match="is not finite"):
        on_workers(
            lambda group: second_order(basis, np.ones(1), 1.0, 0, tables, on_gpu(group, couplings, 1e7))
        )


def test_a_growth_selects_the_same_lists(couplings: Any) -> None:
    integrals = chain(6)
    start = as_list([(0b111, 0b111)], 6)
    problem = GrowthProblem(integrals, Growth((1e-1, 2e-2)), Criteria(), start=start)

    def work(group: Workers) -> Grown:
        chosen = choose_device("cpu", group.ranks, 1)
        return GrowingList(problem, chosen, PLENTY, group).grow()

    (expected,) = on_workers(work)
    (found,) = on_workers(lambda group: work(on_gpu(group, couplings, 1e7)))
    assert len(expected.space.basis) > 20  # type: ignore[arg-type]
    np.testing.assert_array_equal(*(member_keys(one.space.basis) for one in (found, expected)))  # type: ignore[arg-type]
    for ours, theirs in zip(found.report["points"], expected.report["points"], strict=True):
        assert ours["outside_determinants"] == theirs["outside_determinants"]
        np.testing.assert_allclose(ours["corrections_hartree"], theirs["corrections_hartree"], rtol=1e-9)


def test_short_lists_and_many_electrons_stay_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    integrals = random_integrals(4, 2, 2, 4)
    tables = excitation_tables(integrals, 0.0, PLENTY)

    def taken(members: Array) -> bool:
        return bool(
            on_workers(
                lambda group: Workers(group.ranks, 1, PLENTY, lambda *given: given).couplings(members, tables)
            )[0]  # type: ignore[arg-type,return-value]
        )

    keys = np.full((2, 4), 2**32 - 1, np.uint64)
    assert taken(keys[:, :2])
    keys[0, 1] = 2**64 - 1
    assert not taken(keys)
    monkeypatch.setattr(shards_module, "SHORTEST", 3)
    assert not taken(keys[:, :2])
