"""Independent sets of King's subgraphs: the graphs, the counts against enumeration, the range of float64."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from math import log2
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.networks import eager_profile
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.root import ROOT
from tests.support.workloads import closed_value, greedy_ssa_path
from tnplan.calls.execute import execute
from tnplan.cli.main import cli
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import structure_key
from tnplan.planner.networks.path_file import load_network, load_path
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import load_tensors
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.workloads.kings import (
    Edge,
    Site,
    check_range,
    independent_set_network,
    kings_cliques,
    kings_edges,
    kings_sites,
    log2_bound,
)

BOARDS = {1: 2, 2: 5, 3: 35, 4: 314, 5: 6427, 6: 202841}
"""Placements of kings that attack none of the others, on n x n squares (OEIS A063443)."""


def by_enumeration(n_vertices: int, edges: list[Edge], weight: float = 1) -> float:
    """The sum over all independent sets, one subset of the vertices after another."""
    numbers = np.arange(2**n_vertices)
    bits = (numbers[:, None] >> np.arange(n_vertices)) & 1
    independent = np.ones(len(numbers), bool)
    for first, second in edges:
        independent &= (bits[:, first] & bits[:, second]) == 0
    return float((weight ** bits.sum(1).astype(float))[independent].sum())


def counted(n_vertices: int, cliques: Sequence[Sequence[int]], weight: float = 1) -> float:
    return closed_value(*independent_set_network(n_vertices, cliques, weight)).real


def test_sites_are_the_share_asked_for_and_differ_by_seed() -> None:
    sites = kings_sites(40, 40, 0.8, 0)
    assert len(set(sites)) == len(sites) == 1280
    assert sites == sorted(sites) == kings_sites(40, 40, 0.8, 0) != kings_sites(40, 40, 0.8, 1)
    assert all(0 <= row < 40 and 0 <= column < 40 for row, column in sites)
    assert kings_sites(3, 5, 1, 7) == [(row, column) for row in range(3) for column in range(5)]


@pytest.mark.parametrize(("rows", "columns", "density"), [(1, 1, 1), (7, 4, 0.5), (9, 9, 0.8), (2, 12, 1)])
def test_edges_are_the_moves_of_a_king(rows: int, columns: int, density: float) -> None:
    sites = kings_sites(rows, columns, density, 3)
    near = [
        (i, j)
        for (i, a), (j, b) in combinations(enumerate(sites), 2)
        if max(abs(a[0] - b[0]), abs(a[1] - b[1])) == 1
    ]
    assert sorted(kings_edges(sites)) == near


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("rows", "columns", "density"), [(4, 4, 0.8), (3, 6, 0.7), (5, 5, 0.5), (2, 7, 1)])
def test_counts_are_those_of_enumeration(rows: int, columns: int, density: float, seed: int) -> None:
    sites = kings_sites(rows, columns, density, seed)
    edges = kings_edges(sites)
    for weight in (1, 3):
        wanted = by_enumeration(len(sites), edges, weight)
        assert counted(len(sites), kings_cliques(sites), weight) == wanted
        assert counted(len(sites), edges, weight) == wanted
    wanted = by_enumeration(len(sites), edges, 0.3)
    assert counted(len(sites), kings_cliques(sites), 0.3) == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("side", BOARDS)
def test_counts_of_whole_boards_are_the_published_ones(side: int) -> None:
    sites = kings_sites(side, side, 1, 0)
    assert counted(len(sites), kings_cliques(sites)) == BOARDS[side]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rows", "columns", "density"), [(1, 1, 1), (6, 5, 0.3), (7, 7, 0.8), (5, 5, 1)])
def test_cliques_are_the_maximal_ones(rows: int, columns: int, density: float, seed: int) -> None:
    sites = kings_sites(rows, columns, density, seed)
    edges = set(kings_edges(sites))
    cliques = [set(clique) for clique in kings_cliques(sites)]
    assert {pair for clique in cliques for pair in combinations(sorted(clique), 2)} == edges
    for clique in cliques:
        beside = [v for v in range(len(sites)) if all((min(u, v), max(u, v)) in edges for u in clique)]
        assert len(clique) > 1
        assert beside == []
    assert len({frozenset(clique) for clique in cliques}) == len(cliques)


def test_any_graph_is_counted() -> None:
    assert counted(3, []) == 8
    assert counted(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]) == 11
    assert counted(4, [(0, 1), (1, 0), (2, 3)]) == 9
    assert counted(4, [(0, 1, 2), (2, 3)]) == 7


def by_rows(sites: list[Site]) -> int:
    """The count in whole numbers, row by row: any size, few columns."""
    rows: dict[int, int] = {}
    for row, column in sites:
        rows[row] = rows.get(row, 0) | 1 << column
    states = {0: 1}
    for row in range(max(rows) + 1):
        filled = rows.get(row, 0)
        fits = [s for s in range(filled + 1) if not s & ~filled and not s & s << 1]
        states = {s: sum(n for t, n in states.items() if not s & (t | t << 1 | t >> 1)) for s in fits}
    return sum(states.values())


def test_a_long_count_is_exact_below_2_to_the_53() -> None:
    sites = kings_sites(13, 8, 0.8, 2)
    exact = by_rows(sites)
    assert 2**30 < exact < 2**53
    assert int(counted(len(sites), kings_cliques(sites))) == exact


def test_a_count_beyond_2_to_the_53_is_rounded() -> None:
    sites = kings_sites(30, 8, 0.8, 2)
    exact = by_rows(sites)
    assert exact > 2**80
    assert counted(len(sites), kings_cliques(sites)) == pytest.approx(exact, rel=1e-13)


def test_replay_on_ranks_with_slices_counts_exactly() -> None:
    sites = kings_sites(8, 8, 0.8, 4)
    network, arrays = simplify(*independent_set_network(len(sites), kings_cliques(sites)))
    sliced = ContractionPath(
        network, greedy_ssa_path(network), tuple(sorted(network.size_dict))[:3], "float64"
    )
    schedule = plan(sliced, eager_profile(), devices=2, ranks_per_group=2, threshold_bytes=8)
    assert schedule.n_slices * schedule.repeats(len(schedule.summed)) == 8
    result = execute(schedule, arrays, device="cpu").array
    assert result is not None
    assert float(result) == by_rows(sites)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weight", [0.2, 1, 5])
def test_the_bound_is_above_the_sum_and_exact_for_two_rows(seed: int, weight: float) -> None:
    sites = kings_sites(4, 5, 0.7, seed)
    assert log2_bound(sites, weight) >= log2(by_enumeration(len(sites), kings_edges(sites), weight)) - 1e-12
    strip = kings_sites(2, 9, 0.7, seed)
    wanted = log2(by_enumeration(len(strip), kings_edges(strip), weight))
    assert log2_bound(strip, weight) == pytest.approx(wanted, rel=1e-12)


def test_sums_beyond_float64_are_refused() -> None:
    check_range(log2_bound(kings_sites(40, 40, 1, 0)))
    for side, weight in ((60, 1.0), (40, 100.0), (2, 1e308)):
        with pytest.raises(InputError, match="too near float64's largest"):
            check_range(log2_bound(kings_sites(side, side, 1, 0), weight), weight)


# fmt: off
BAD_SITES: list[Row] = [
    ((0, 4, 0.8, 0), "--rows", "is 0", "give an integer from 1"),
    ((4, 0, 0.8, 0), "--columns", "is 0", "give an integer from 1"),
    ((4, 4, 0.0, 0), "--density", "is 0", "give a share above 0"),
    ((4, 4, 1.1, 0), "--density", "is 1.1", "give a share above 0"),
    ((4, 4, float("nan"), 0), "--density", "is nan", "give a share above 0"),
    ((2, 2, 0.1, 0), "--density", "0.1 keeps no site of 2 x 2", "give a larger share"),
    ((4, 4, 0.8, -1), "--seed", "is -1", "give an integer from 0"),
]
# fmt: on


@table(BAD_SITES)
def test_bad_sites_are_named(refusal: Refusal) -> None:
    refusal.raised_by(lambda: kings_sites(*refusal.given))


# fmt: off
BAD_GRAPHS: list[Row] = [
    ((0, [], 1), "graph", "has 0 vertices", "give 1 or more"),
    ((2, [(1, 1)], 1), "clique (1, 1)", "has a self-loop", "name each vertex once"),
    ((2, [(0, 2)], 1), "clique (0, 2)", "names vertex 2", "use 0 to 1"),
    ((20, [tuple(range(17))], 1), "clique of vertex 0", "has 17 vertices", "give its edges in parts"),
    ((2, [(0, 1)], 0), "--weight", "is 0", "give a finite number"),
    ((2, [(0, 1)], float("inf")), "--weight", "is inf", "give a finite number"),
]
# fmt: on


@table(BAD_GRAPHS)
def test_bad_graphs_are_named(refusal: Refusal) -> None:
    n_vertices, cliques, weight = refusal.given
    refusal.raised_by(lambda: independent_set_network(n_vertices, cliques, weight))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--rows 5 --columns 5 --density 0.6", "exact in float64"),
        ("--rows 12 --columns 12", "float64 rounds it where it passes 2^53"),
        ("--rows 5 --columns 5 --weight 2", "the sum is at most"),
    ],
)
def test_command_writes_network_and_tensors(tmp_path: Path, arguments: str, said: str) -> None:
    target = tmp_path / "net.json"
    done = CliRunner().invoke(cli, ["workload", "kings", *arguments.split(), "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert said in done.output
    network, dtype, tensors = load_network(target)
    assert (dtype, tensors) == ("float64", "net.npz")
    assert len(load_tensors(tmp_path / "net.npz", network, dtype)) == len(network.inputs)
    assert "King's subgraph" in json.loads(target.read_text())["meta"]["what"]


def test_the_path_that_is_shipped_is_of_the_workload_in_its_dtype(tmp_path: Path) -> None:
    target = tmp_path / "net.json"
    assert CliRunner().invoke(cli, ["workload", "kings", "-o", str(target)]).exit_code == 0
    network, dtype, _ = load_network(target)
    shipped = load_path(ROOT / "paths" / "kings_40x40_b32_schedule.json")
    assert shipped.dtype == dtype
    assert structure_key(shipped.network) == structure_key(network)
