"""PEPS over ranks: each holds some sites, and all give what one rank gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import FAMILIES, brickwork
from tests.support.kernels import strict_cupy
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.peps_cases import peps_case
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.executor.device.comm.threads import ThreadCommunicator, run_ranks
from tnplan.executor.peps.levels import levels_of
from tnplan.executor.peps.messages import iterated_messages
from tnplan.executor.peps.partition import BOND, parts_of_graph
from tnplan.executor.peps.regions import LOOP_BOND
from tnplan.executor.peps.state import PepsState

CPU: Any = {"device": "cpu", "threads": 1, "method": "peps"}
GRAPHS: dict[str, Any] = {
    "squares": nx.grid_2d_graph(7, 8), "regular": nx.random_regular_graph(3, 60, seed=1),
    "hexagons": nx.hexagonal_lattice_graph(5, 5), "tree": nx.random_labeled_tree(60, seed=2),
    "ring": nx.cycle_graph(31), "two parts": nx.disjoint_union(nx.path_graph(9), nx.cycle_graph(12)),
}  # fmt: skip


EDGES = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 0), (1, 2), (3, 0), (5, 8), (4, 3), (7, 2), (6, 5)]
RINGS = "9\n" + "".join(
    f"{22 * time + 2 * k} rx {a} 0.{a}3\n{22 * time + 2 * k + 1} fs {a} {b} 0.{time + 2} 0.4\n"
    for time in range(4)
    for k, (a, b) in enumerate(EDGES)
)
"""Gates on pairs with several loops."""


def neighbours_of(kind: str) -> list[list[int]]:
    graph = nx.convert_node_labels_to_integers(GRAPHS[kind])
    return [sorted(graph[site]) for site in graph]


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_parts_are_even_and_few_edges_are_between_them(kind: str, count: int) -> None:
    neighbours = neighbours_of(kind)
    owners = parts_of_graph(neighbours, count)
    work = [BOND ** len(ends) for ends in neighbours]
    of_parts = [sum(w for w, owner in zip(work, owners, strict=True) if owner == k) for k in range(count)]
    assert len(owners) == len(neighbours)
    assert max(of_parts) <= sum(work) / count + max(work)
    graph = nx.Graph((a, b) for a, ends in enumerate(neighbours) for b in ends)
    shuffled = np.random.default_rng(0).permutation(owners)
    between, by_chance = (sum(parts[a] != parts[b] for a, b in graph.edges) for parts in (owners, shuffled))
    assert between <= 0.6 * by_chance
    first = graph.subgraph([site for site, owner in enumerate(owners) if owner == 0])
    assert kind == "two parts" or nx.is_connected(first)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("seed", slow_after(3, range(20)))
def test_ranks_give_the_values_of_one(seed: int, ranks: int) -> None:
    _, circuit, words, bond = peps_case(40_000 + seed)
    options: Any = {**CPU, "max_bond": bond, "precision": ("fp64", "fp32")[seed % 2]}
    asked = tnplan.Circuit(circuit)
    alone, found = (asked.expectation(words, **options, ranks=count) for count in (1, ranks))
    tolerance = {"fp64": 1e-11, "fp32": 1e-4}[options["precision"]]
    np.testing.assert_allclose(found.value, alone.value, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.error, alone.error, rtol=0, atol=tolerance)
    assert found.details["ranks"] == ranks
    for key in ("max_bond", "message_sweeps", "loops", "loops_left_out"):
        assert found.details[key] == alone.details[key]
    assert found.details["fidelity_estimate"] == pytest.approx(alone.details["fidelity_estimate"], rel=1e-12)


def test_loops_of_large_bonds_and_stops_over_ranks() -> None:
    """Bonds beyond those of regions, whose state is cut and has messages of its own."""
    gates = brickwork(12, list(nx.cycle_graph(12).edges), 10, np.random.default_rng(2))
    circuit = tnplan.Circuit(GateSequence(12, tuple(gates)))
    words, options = ["Z0 X11", "Y5", "Z1 Z6"], {**CPU, "max_bond": LOOP_BOND + 2}
    alone = circuit.expectation(words, **options)
    assert alone.details["max_bond"] == LOOP_BOND + 2
    for count in (2, 12):
        found = circuit.expectation(words, **options, ranks=count)
        np.testing.assert_allclose(found.value, alone.value, rtol=0, atol=1e-11)
    after = [20, len(gates)]
    expected = circuit.expectation(words, **CPU, max_bond=4, after=after).value
    found = circuit.expectation(words, **CPU, max_bond=4, after=after, ranks=3)
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-11)


def test_a_rank_has_its_own_tensors_alone() -> None:
    """Those of others are shapes; with the tensors of all ranks the state is that of one."""
    _, circuit, _, _ = peps_case(40_100)
    levels = levels_of([(item.qubits, item.matrix) for item in circuit.gates])
    pairs = [pair for level in levels for pair in level.pairs]
    sites = range(circuit.n_qubits)

    def evolved(ranks: ThreadCommunicator | None) -> tuple[PepsState, Any, Any]:
        state = PepsState(circuit.n_qubits, pairs, "complex128", np, ranks)
        for level in levels:
            state.apply(level, 6, 1e-20)
        messages = iterated_messages(state, 1e-10, 500).matrices
        return state, messages, state.fetched(messages, 3 * [sites])

    expected, messages, _ = evolved(None)
    for rank, (state, own, whole) in enumerate(run_ranks(3, evolved)):
        assert 0 < state.owners.count(rank) < circuit.n_qubits
        for site in sites:
            assert state.tensors[site].shape == expected.tensors[site].shape
            is_there = np.isfinite(state.tensors[site]).all()
            assert is_there == state.is_mine(site) == (0 not in state.tensors[site].strides)
            np.testing.assert_allclose(whole[0].tensors[site], expected.tensors[site], atol=1e-10)
        assert {*own} == {edge for edge in messages if rank in (state.owners[end] for end in edge)}
        for edge, matrix in messages.items():
            np.testing.assert_allclose(whole[1][edge], matrix, atol=1e-8)


def test_samples_over_ranks_are_those_of_one() -> None:
    tree = nx.random_labeled_tree(8, seed=3)
    gates = FAMILIES["brickwork"](8, list(tree.edges), 3, np.random.default_rng(1))
    circuit = tnplan.Circuit(GateSequence(9, tuple(gates)))
    alone = circuit.sample(501, seed=4, **CPU)
    found = circuit.sample(501, seed=4, **CPU, ranks=3)
    assert found.value == alone.value
    assert found.details["ranks"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 17}, "ranks: is 17, and the circuit has 16 qubits; use 16 ranks or fewer"),
        ({"ranks": 2, "memory": "8 kB"}, "needs bonds of .* for the state; give a smaller max_bond"),
        ({"ranks": 16, "memory": "4 kB"}, "observable: has regions that take .* on one rank"),
    ],
)
def test_what_cannot_be_spread_is_refused(options: Any, message: str) -> None:
    options = {"max_bond": 4, **options}
    gates = brickwork(16, list(nx.cycle_graph(16).edges), 6, np.random.default_rng(2))
    circuit = tnplan.Circuit(GateSequence(16, tuple(gates)))
    with pytest.raises(tnplan.InputError, match=message):
        circuit.expectation("Z0 Z8", **CPU, **options)


def test_samples_that_need_the_whole_state_are_refused() -> None:
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 4))
    gates = brickwork(16, list(graph.edges), 6, np.random.default_rng(2))
    circuit = tnplan.Circuit(GateSequence(16, tuple(gates)))
    options: Any = {**CPU, "ranks": 2, "max_bond": 4, "seed": 1}
    needed = 5 * 16 * 2 * (4 * 4**2 + 8 * 4**3 + 4 * 4**4)
    with pytest.raises(tnplan.InputError, match=r"ranks: need the whole state each here, which takes"):
        circuit.sample(10, **options, memory=0.75 * needed)
    assert sum(circuit.sample(10, **options, memory=1.1 * needed).value.values()) == 10


@needs_mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_give_what_one_gives(tmp_path: Path, ranks: int) -> None:
    file, words = tmp_path / "c.qsim", ["Z0 X4", "Y7", "X2 Y3 Z8"]
    file.write_text(RINGS)
    asked = [part for word in words for part in ("--observable", word)]
    options = ("--method", "peps", "--max-bond", 6, "--device", "cpu", "-o", tmp_path / "out.json")
    done = mpirun(ranks, "-m", "tnplan", "expectation", file, *asked, *options)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    expected = tnplan.Circuit(file).expectation(words, **CPU, max_bond=6)
    assert (document["method"], document["ranks"]) == ("peps", ranks)
    np.testing.assert_allclose(document["value"], expected.value, rtol=0, atol=1e-11)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_processes_draw_what_one_draws_and_refuse_together(tmp_path: Path, ranks: int) -> None:
    file = tmp_path / "c.qsim"
    file.write_text(RINGS)
    options = ("--method", "peps", "--max-bond", 6, "--device", "cpu", "-o", tmp_path / "out.json")
    done = mpirun(ranks, "-m", "tnplan", "sample", file, "--shots", 40, "--seed", 3, *options)
    assert done.returncode == 0, done.stderr
    drawn = tnplan.Circuit(file).sample(40, seed=3, **CPU, max_bond=6).value
    assert json.loads((tmp_path / "out.json").read_text())["value"] == drawn
    options = ("--observable", "Y7", *options, "--memory", "20 kB")
    done = mpirun(ranks, "-m", "tnplan", "expectation", file, *options)
    assert done.returncode == 2
    assert done.stderr.count("tnplan: error") == 1


@needs_gpus(2)
def test_gpus_give_the_values_of_the_cpu() -> None:
    for seed in range(3):
        _, circuit, words, bond = peps_case(seed)
        asked = tnplan.Circuit(circuit)
        alone = asked.expectation(words, **CPU, max_bond=bond).value
        found = asked.expectation(words, method="peps", max_bond=bond, device="gpu", ranks=2).value
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-7)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("seed", slow_after(2, range(12)))
def test_ranks_with_a_gpu_each_give_the_values_of_one_core(
    seed: int, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rules of CuPy and NCCL, where there are no GPUs."""
    _, circuit, words, bond = peps_case(71_000 + seed)
    options: Any = {**CPU, "max_bond": bond, "precision": ("fp64", "fp32")[seed % 2]}
    asked = tnplan.Circuit(circuit)
    alone = asked.expectation(words, **options, ranks=1)
    strict_cupy.put_in_place(monkeypatch)
    found = asked.expectation(words, **{**options, "device": "gpu"}, ranks=ranks)
    tolerance = {"fp64": 1e-11, "fp32": 1e-4}[options["precision"]]
    np.testing.assert_allclose(found.value, alone.value, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.error, alone.error, rtol=0, atol=tolerance)
    assert (found.details["device"], found.details["ranks"]) == ("gpu", ranks)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_with_a_gpu_each_are_exact_on_trees(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values beside those of a state vector, and samples beside those of one core."""
    strict_cupy.put_in_place(monkeypatch)
    options: Any = {"device": "gpu", "ranks": ranks, "max_bond": 64}
    for seed in (71_100, 71_101):
        tree = nx.random_labeled_tree(9, seed=seed)
        gates = tuple(brickwork(9, [*tree.edges], 3, np.random.default_rng(seed)))
        circuit, words = tnplan.Circuit(GateSequence(9, gates)), ["Z0 X4", "Y7", "X2 Y3 Z8"]
        expected = circuit.expectation(words, method="statevector", device="cpu").value
        found = circuit.expectation(words, method="peps", **options)
        np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-7)
        drawn = [circuit.sample(200, seed=seed, **each).value for each in (CPU, {**CPU, **options})]
        assert drawn[0] == drawn[1]
