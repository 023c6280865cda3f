"""Tables of frontiers: their kernels against NumPy, and optima and numbers against trees."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.slow import slow_unless
from tnplan.common.errors import InputError
from tnplan.executor.device.cpu import frontier_kernel
from tnplan.questions.combinatorial import counting, least_cost, passes
from tnplan.questions.combinatorial.passes import (
    REFERENCE,
    Pass,
    Step,
    best_order,
    entries,
    infinity_of,
    tables_of,
)
from tnplan.questions.combinatorial.problems import PROBLEMS

WIDTH = 10
DTYPES = {"uint8": 6, "uint16": 5, "uint64": 3}
"""log2 of the lanes of a vector."""


def random_step(chance: np.random.Generator, bit: int) -> Step:
    """A step with two bits of context, some costs not allowed."""
    context = [int(each) for each in chance.permutation(WIDTH) if each != bit][: chance.integers(0, 4)]
    return Step(bit, 0, 1, tuple(context), chance.integers(-1, 4, [2] * (len(context) + 2)))


def relaxed(table: np.ndarray, step: Step) -> np.ndarray:
    """The table behind a step, cost by cost in Python's integers."""
    infinity, size = infinity_of(table.dtype), table.size
    found = []
    for state in range(size):
        bits = tuple(state >> each & 1 for each in step.context)
        sums = []
        for u in (0, 1):
            if step.bit == REFERENCE:
                before, v = (size - 1 - state if u else state), 0
            else:
                before, v = state & ~(1 << step.bit) | u << step.bit, state >> step.bit & 1
            cost = int(step.costs[(*bits, u, v)])
            sums.append(infinity if cost < 0 else int(table[before]) + cost)
        found.append(min(infinity, *sums))
    return np.array(found, table.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("low", [6, 7, 9])
def test_kernels_relax_every_bit(dtype: str, low: int) -> None:
    chance = np.random.default_rng(low)
    for bits in ([0, 1, 2, 3, 4, 5], [6, 9], [7, 8, 6], [9], [2, 8, 8, 9, 1]):
        table = chance.integers(1, 40, 1 << WIDTH).astype(dtype)
        table[chance.random(table.size) < 0.1] = infinity_of(dtype)
        steps = tuple(random_step(chance, bit) for bit in bits)
        tables = tables_of(Pass(WIDTH, steps), dtype, DTYPES[dtype], low, 1)
        expected = np.where(table < infinity_of(dtype), table - 1, table).astype(dtype)
        for step in steps:
            expected = relaxed(expected, step)
        costs, least = np.empty(1 << len(tables.inner), dtype), np.full(64, infinity_of(dtype), dtype)
        for first in range(tables.arrays.tiles.size):
            frontier_kernel.relax_tiles(table, costs, tables.arrays, first, first + 1, least)
        assert np.array_equal(table, expected)
        assert least.min() == expected.min()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_is_relaxed_with_the_reverse(dtype: str) -> None:
    chance = np.random.default_rng(3)
    for _ in range(5):
        table = chance.integers(0, 40, 1 << WIDTH).astype(dtype)
        step = random_step(chance, REFERENCE)
        tables = tables_of(Pass(WIDTH, (step,)), dtype, DTYPES[dtype], WIDTH).arrays
        expected = relaxed(table, step)
        context = np.ascontiguousarray(tables.context[0, : tables.steps[0, 4]])
        half = table.size >> DTYPES[dtype] + 1
        for first, last in ((0, half // 3), (half // 3, half)):
            frontier_kernel.fold_table(table, context, tables.weights, first, last, DTYPES[dtype])
        assert np.array_equal(table, expected)


def spin_glass(n: int, m: int, seed: int, field: float = 0.0) -> Any:
    """Couplings of 1 and -1 on a grid that is periodic in one direction, and fields on some spins."""
    import networkx

    chance = random.Random(seed)
    graph = networkx.grid_2d_graph(n, m, periodic=(True, False))
    for edge in graph.edges:
        graph.edges[edge]["weight"] = chance.choice((1, -1))
    for vertex in graph.nodes:
        graph.nodes[vertex]["weight"] = chance.choice((1, -1)) if chance.random() < field else 0
    return graph


@pytest.fixture
def by_trees(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A call of it that goes by trees."""

    def call(function: Any, *arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(counting, "LEAST_PLANNED_S", -1.0)
            patch.setattr(counting, "MOST_TABLE_S", -1.0)
            return function(*arguments, **options)

    return call


@pytest.mark.parametrize(("threads", "field"), slow_unless(lambda k, j: k % 2 == j, [1, 2, 3, 4], [0.0, 0.3]))
def test_ground_states_are_those_of_trees(
    threads: int, field: float, by_trees: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small tiles make many of them, and little memory lets passes be done again."""
    graph = spin_glass(11, 8, threads, field)
    monkeypatch.setattr(passes, "LOG_ROW_BYTES", 6)
    monkeypatch.setattr(passes, "LOG_TILE_BYTES", 8)
    expected = by_trees(tnplan.optimize, "ising", graph, threads=1)
    found = tnplan.optimize("ising", graph, threads=threads)
    assert (found.value, found.n_optima) == (expected.value, expected.n_optima)
    for least in (3, 4, 6):
        model = PROBLEMS["ising"].build(PROBLEMS["ising"].read(graph), True, 2).complete()
        order, _ = best_order(model, only_allowed=False)
        tables = least_cost.LeastCost(model, order, 1e9, threads, None)
        small = least_cost.LeastCost(model, order, tables.least_bytes + (least - 3) * 1024, threads, None)
        best = small.optimum(True)
        assert best is not None
        assert (model.worth(best[0]), best[1]) == (expected.value, expected.n_optima)


@pytest.mark.parametrize("seed", range(3))
def test_ground_states_are_those_of_matched_plaquettes(seed: int) -> None:
    """On an open grid the bonds that are not satisfied join frustrated plaquettes, or one with the outside:
    their least number is the weight of a perfect matching (Bieche et al., J. Phys. A 13, 2553)."""
    import networkx

    chance, n = random.Random(seed), 13
    near = [((x, y), (x + a, y + b)) for x in range(n) for y in range(n) for a, b in ((1, 0), (0, 1))]
    bonds = {ends: chance.choice((1, -1)) for ends in near if max(ends[1]) < n}
    frustrated: list[tuple[int, ...]] = []
    for x in range(n - 1):
        for y in range(n - 1):
            corners = (x, y), (x, y + 1), (x + 1, y), (x + 1, y + 1)
            if np.prod([bonds[a, b] for a in corners for b in corners if (a, b) in bonds]) < 0:
                frustrated.append((x, y))

    def distance(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        out = sum(min(i + 1 for i in (*place, *(n - 2 - i for i in place))) for place in (a, b) if place)
        return min(out, *[sum(abs(i - k) for i, k in zip(a, b, strict=True))] if a and b else [out])

    outside: list[tuple[int, ...]] = [()] * (len(frustrated) % 2)
    graph = networkx.Graph()
    graph.add_weighted_edges_from((a, b, distance(a, b)) for a, b in combinations([*frustrated, *outside], 2))
    broken = sum(distance(a, b) for a, b in networkx.min_weight_matching(graph))
    edges = [(*ends, bond) for ends, bond in bonds.items()]
    assert tnplan.optimize("ising", edges).value == 2 * broken - len(bonds)


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_dtypes_of_costs_have_the_same_optima(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, king = spin_glass(9, 9, 5, 0.2), "king 9x9"
    expected = [tnplan.optimize("ising", graph), tnplan.optimize("independent-sets", king)]
    slacks = {each: slack for each, slack in least_cost.SLACKS.items() if np.dtype(each) == dtype}
    monkeypatch.setattr(least_cost, "SLACKS", slacks)
    for found, wanted in zip(
        (tnplan.optimize("ising", graph), tnplan.optimize("independent-sets", king)), expected, strict=True
    ):
        assert (found.value, found.n_optima) == (wanted.value, wanted.n_optima)


def test_weights_beyond_a_byte_are_exact(by_trees: Any) -> None:
    chance = random.Random(8)
    for most in (100, 10**5, 10**12):
        graph = spin_glass(4, 5, most)
        for edge in graph.edges:
            graph.edges[edge]["weight"] = chance.randint(-most, most)
        found, expected = (
            each("ising", graph, threads=1)
            for each in (tnplan.optimize, lambda *a, **k: by_trees(tnplan.optimize, *a, **k))
        )
        assert (found.value, found.n_optima) == (expected.value, expected.n_optima)


@pytest.mark.parametrize("dtype", DTYPES)
def test_costs_that_rise_beyond_a_byte_are_exact(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frustrated chains with couplings to the next two spins, against sums over pairs of spins in turn."""
    slacks = {each: slack for each, slack in least_cost.SLACKS.items() if np.dtype(each) == dtype}
    monkeypatch.setattr(least_cost, "SLACKS", slacks)
    chance = random.Random(9)
    for n in (150, 700):
        couplings = [{step: chance.choice((1, -1, -1)) for step in (1, 2)} for _ in range(n)]
        # Least energy and number of states for each pair of neighbouring spins.
        best = {(s, t): (-couplings[0][1] * s * t, 1) for s in (1, -1) for t in (1, -1)}
        for k in range(2, n):
            grown: dict[tuple[int, int], list[tuple[int, int]]] = {}
            for (s, t), (energy, number) in best.items():
                for new in (1, -1):
                    more = energy - couplings[k - 1][1] * t * new - couplings[k - 2][2] * s * new
                    grown.setdefault((t, new), []).append((more, number))
            best = {
                pair: (min(listed)[0], sum(number for energy, number in listed if energy == min(listed)[0]))
                for pair, listed in grown.items()
            }
        least = min(best.values())[0]
        edges = [(k, k + step, couplings[k][step]) for k in range(n) for step in (1, 2) if k + step < n]
        found = tnplan.optimize("ising", edges, threads=1)
        number = sum(number for energy, number in best.values() if energy == least)
        assert (found.value, found.n_optima) == (least, number)


def test_numbers_are_those_of_trees(by_trees: Any) -> None:
    """Numbers below 2^53 and beyond."""
    for problem, lattice in (
        ("independent-sets", "king 9x9"), ("matchings", "grid 6x6"), ("dimers", "torus 6x6"),
        ("colourings", "king 4x5"),
    ):  # fmt: skip
        expected = by_trees(tnplan.count, problem, lattice, colours=4)
        assert tnplan.count(problem, lattice, colours=4).value == expected.value


def test_published_numbers() -> None:
    """OEIS A006506, hard squares, of 16 x 16, and A004003, domino tilings of 2n x 2n."""
    hard_squares = 18396766424410124752958806046933947217821482942
    assert tnplan.count("independent-sets", "grid 16x16").value == hard_squares
    assert tnplan.count("dimers", "grid 14x14").value == 112202208776036178000000


def test_orders_keep_tables_small() -> None:
    """The widest table of a strip does not grow with its length, in whatever order it is given."""
    names = [(x, y) for x in range(40) for y in range(4)]
    random.Random(3).shuffle(names)
    edges = [(a, b) for a in names for b in names if (b[0] - a[0], b[1] - a[1]) in ((0, 1), (1, 0))]
    graph = PROBLEMS["ising"].read(edges)
    model = PROBLEMS["ising"].build(graph, True, 2).complete()
    order, _ = best_order(model, only_allowed=False)
    alive = widest = 0
    for entry in entries(model, order):
        widest = max(widest, alive := alive + 1)
        alive -= len(entry.leaving)
    assert (alive, sorted(order)) == (0, list(range(len(names))))
    assert widest <= 6


def test_too_many_optimal_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_cost, "MOST_STATES", 50)
    with pytest.raises(InputError, match="optimal states"):
        tnplan.optimize("dimers", "grid 8x8")
    assert tnplan.optimize("dimers", "grid 8x8", count_optima=False).value == 32
