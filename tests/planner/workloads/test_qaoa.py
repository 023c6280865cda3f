"""MaxCut-QAOA energies against a dense state, their graphs and their light cones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.workloads import closed_value, dense_terms
from tnplan.cli.main import cli
from tnplan.planner.networks.path_file import load_network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import load_tensors
from tnplan.planner.workloads.qaoa import (
    EDGE_INDEX,
    cut_network,
    edge_network,
    light_cone,
    maxcut_graph,
    random_angles,
)

GRAPHS = [(4, 3, 1, 0), (8, 3, 1, 1), (8, 3, 2, 2), (10, 3, 3, 3), (9, 4, 2, 4), (10, 5, 1, 5), (6, 1, 2, 6)]
"""Vertices, degree, layers, seed."""


@pytest.mark.parametrize(("n_vertices", "degree", "layers", "seed"), GRAPHS)
def test_energies_are_those_of_the_state(n_vertices: int, degree: int, layers: int, seed: int) -> None:
    edges = maxcut_graph(n_vertices, degree, seed)
    angles = random_angles(layers, seed)
    wanted = dense_terms(n_vertices, edges, *angles)
    for edge in range(0, len(edges), 3):
        assert abs(closed_value(*edge_network(edges, edge, *angles)) - wanted[edge]) < 1e-12
    cut = ((1 - wanted) / 2).sum()
    assert abs(closed_value(*cut_network(edges, *angles)) - cut) < 1e-11


@pytest.mark.parametrize(("gammas", "betas"), [([0.0], [0.4]), ([0.7], [0.0]), ([0.3, 0.5], [0.0, 0.2])])
def test_angles_of_zero_are_angles(gammas: list[float], betas: list[float]) -> None:
    edges = maxcut_graph(6, 3, 0)
    wanted = dense_terms(6, edges, gammas, betas)
    assert abs(closed_value(*edge_network(edges, 2, gammas, betas)) - wanted[2]) < 1e-12
    assert abs(closed_value(*cut_network(edges, gammas, betas)) - ((1 - wanted) / 2).sum()) < 1e-12


def test_one_layer_is_the_published_formula() -> None:
    """Wang et al., arXiv 1706.02998: an edge without triangles, both ends of degree d + 1."""
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)]
    gamma, beta = 0.61, 0.39
    expected = -np.sin(4 * beta) * np.sin(gamma) * np.cos(gamma) ** 2
    assert abs(closed_value(*edge_network(edges, 0, [gamma], [beta])) - expected) < 1e-12


def test_vertices_need_not_be_numbered_from_zero() -> None:
    edges = [(3, 7), (7, 9), (3, 9)]
    renumbered = [(0, 1), (1, 2), (0, 2)]
    wanted = dense_terms(3, renumbered, [0.4], [0.9])
    assert abs(closed_value(*cut_network(edges, [0.4], [0.9])) - ((1 - wanted) / 2).sum()) < 1e-12
    assert abs(closed_value(*edge_network(edges, 1, [0.4], [0.9])) - wanted[1]) < 1e-12


@pytest.mark.parametrize(("n_vertices", "degree"), [(4, 3), (50, 3), (30, 4), (20, 5), (14, 6), (8, 1)])
def test_graphs_are_simple_and_regular(n_vertices: int, degree: int) -> None:
    edges = maxcut_graph(n_vertices, degree, 3)
    assert len(set(edges)) == len(edges) == n_vertices * degree // 2
    assert edges == sorted(edges) == maxcut_graph(n_vertices, degree, 3)
    assert all(first < second for first, second in edges)
    assert set(Counter(vertex for pair in edges for vertex in pair).values()) == {degree}


def test_the_light_cone_grows_by_one_edge_a_layer() -> None:
    chain = [(vertex, vertex + 1) for vertex in range(20)]
    assert light_cone(chain, 10, 0) == {10: 0, 11: 0}
    assert light_cone(chain, 10, 2) == {10: 0, 11: 0, 9: 1, 12: 1, 8: 2, 13: 2}
    assert light_cone(chain, 0, 1) == {0: 0, 1: 0, 2: 1}
    network, _ = edge_network(chain, 10, [0.1, 0.2], [0.3, 0.4])
    assert {index.partition("_")[0] for index in network.size_dict} == {f"q{qubit}" for qubit in range(6)}


def test_networks_have_hyper_indices() -> None:
    edges = maxcut_graph(12, 3, 0)
    network, _ = simplify(*edge_network(edges, 0, *random_angles(2, 0)))
    assert max(Counter(index for term in network.inputs for index in term).values()) > 2
    network, _ = simplify(*cut_network(edges, *random_angles(2, 0)))
    assert network.size_dict[EDGE_INDEX] == len(edges) + 1
    assert sum(EDGE_INDEX in term for term in network.inputs) == 12


def test_angles_come_from_the_seed() -> None:
    assert random_angles(3, 1) == random_angles(3, 1) != random_angles(3, 2)
    gammas, betas = random_angles(400, 0)
    assert 6 < max(gammas) < 2 * np.pi
    assert 3 < max(betas) < np.pi
    assert min(gammas + betas) >= 0


# fmt: off
BAD_GRAPHS: list[Row] = [
    ((5, 3, 0), "--degree", "3 on 5 vertices makes no graph", "make degree times"),
    ((3, 3, 0), "--degree", "3 on 3 vertices makes no graph", "make degree times"),
    ((8, 0, 0), "--degree", "is 0", "give an integer from 1"),
    ((20, 7, 0), "--degree", "is 7", "give an integer from 1"),
    ((8, 3, -1), "--seed", "is -1", "give an integer from 0"),
]
# fmt: on


@table(BAD_GRAPHS)
def test_bad_graphs_are_named(refusal: Refusal) -> None:
    refusal.raised_by(lambda: maxcut_graph(*refusal.given))


EDGES = maxcut_graph(4, 3, 0)
# fmt: off
BAD_CALLS: list[Row] = [
    (lambda: edge_network(EDGES, 6, [0.1], [0.1]), "--edge", "is 6", "give 0 to 5"),
    (lambda: edge_network(EDGES, 0, [float("nan")], [0.1]), "--gamma", "is nan", "give a finite angle in"),
    (lambda: cut_network(EDGES, [0.1], [0.1, 0.2]), "--gamma and --beta",
     "are 1 and 2", "give one angle of each"),
    (lambda: random_angles(0, 0), "--layers", "is 0", "give an integer from 1"),
]
# fmt: on


@table(BAD_CALLS)
def test_bad_calls_are_named(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)


def run_command(arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["workload", "qaoa", *arguments.split()])
    return done.exit_code, done.output


def test_command_writes_network_tensors_and_angles(tmp_path: Path) -> None:
    target = tmp_path / "net.json"
    status, said = run_command(f"--vertices 8 --layers 2 --edge 3 --seed 5 --dtype complex128 -o {target}")
    assert status == 0, said
    network, dtype, tensors = load_network(target)
    assert (dtype, tensors) == ("complex128", "net.npz")
    meta = json.loads(target.read_text())["meta"]
    assert (meta["gammas"], meta["betas"]) == random_angles(2, 5)
    wanted = dense_terms(8, maxcut_graph(8, 3, 5), meta["gammas"], meta["betas"])[3]
    assert abs(closed_value(network, load_tensors(tmp_path / "net.npz", network, dtype)) - wanted) < 1e-12


def test_command_takes_angles_and_refuses_half_of_them(tmp_path: Path) -> None:
    target = tmp_path / "net.json"
    line = f"--vertices 6 --layers 2 --gamma 0.3 --gamma 0.5 -o {target}"
    status, said = run_command(line)
    assert status != 0
    assert not target.exists()
    status, said = run_command(f"{line} --beta 0.2 --beta 0.1 --dtype complex128")
    assert status == 0, said
    network, dtype, _ = load_network(target)
    wanted = ((1 - dense_terms(6, maxcut_graph(6, 3, 0), [0.3, 0.5], [0.2, 0.1])) / 2).sum()
    assert abs(closed_value(network, load_tensors(tmp_path / "net.npz", network, dtype)) - wanted) < 1e-11
