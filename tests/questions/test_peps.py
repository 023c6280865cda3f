"""PEPS with belief propagation: exact on trees, right with loops, and estimates that cover the errors."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.chi_square import check_counts
from tests.support.circuit_families import FAMILIES, brickwork, rotation, trotter
from tests.support.circuits import random_circuit, state_vector
from tests.support.effort import repeats
from tests.support.kernels.gpus import needs_gpus
from tests.support.peps_cases import peps_case
from tests.support.slow import slow_after
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.executor.peps.levels import levels_of
from tnplan.executor.peps.messages import iterated_messages
from tnplan.executor.peps.samples import MessageSampler
from tnplan.executor.peps.state import PepsState
from tnplan.planner.workloads.dynamics import kicked_ising
from tnplan.questions.engines import peps

CPU: Any = {"device": "cpu", "threads": 1}
FIRST = 30_000
"""Seeds from here on were not looked at for the estimate."""


def exact(circuit: GateSequence, words: list[str]) -> Any:
    return tnplan.Circuit(circuit).expectation(words, method="statevector", **CPU).value


@pytest.mark.parametrize("seed", range(8))
def test_levels_have_the_state_of_the_gates(seed: int) -> None:
    given = random_circuit(5, 120, seed)
    gates = [item for item in given.gates if len(item.qubits) < 3]
    phases = [Gate("zz", (q, q + 1), np.diag(np.exp(1j * np.arange(4) * q))) for q in range(4)]
    gates += [*phases, gate("h", (2,)), *phases[::-1], gate("rz", (1,), (0.3,)), *phases]
    levels = levels_of([(item.qubits, item.matrix) for item in gates])
    ordered: list[Gate] = []
    for level in levels:
        qubits = [qubit for pair in level.pairs for qubit in pair]
        assert len(qubits) == len(set(qubits))
        ordered += [Gate("single", (qubit,), matrix) for qubit, matrix in level.singles.items()]
        ordered += [Gate("pair", pair, matrix) for pair, matrix in level.pairs.items()]
    assert len(ordered) < len(gates)
    np.testing.assert_allclose(
        state_vector(GateSequence(5, tuple(ordered))), state_vector(GateSequence(5, tuple(gates))), atol=1e-12
    )


@pytest.mark.parametrize("family", ["brickwork", "trotter", "qaoa", "vqe"])
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_trees_are_exact(family: str, precision: str) -> None:
    for seed in range(4):
        random = np.random.default_rng(seed)
        tree = nx.random_labeled_tree(9, seed=seed)
        circuit = GateSequence(9, tuple(FAMILIES[family](9, list(tree.edges), 3, random)))
        words = ["Z0", "X1 Y2", "Z3 X5 Z8", "Y0 Y1 X2 Z3 Z4 Z5 X6 X7 Z8"]
        found = tnplan.Circuit(circuit).expectation(words, method="peps", precision=precision, **CPU)
        assert (found.error_kind, found.error) == ("exact", 0)
        tolerance = {"fp64": 1e-11, "fp32": 2e-4}[precision]
        np.testing.assert_allclose(found.value, exact(circuit, words), rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("precision", "angle"),
    [
        pytest.param(name, unit * 3.0**k, marks=[] if k in (1, 4) else [pytest.mark.slow])
        for name, unit in (("fp32", 1e-7), ("fp64", 1e-15))
        for k in range(6)
    ],
)
def test_small_gates_that_follow_each_other_add_up(precision: str, angle: float) -> None:
    steps = 600
    gates = [gate("ry", (q,), (0.3 + q,)) for q in range(3)]
    gates += steps * [rotation("ZZ", (0, 1), angle), rotation("XX", (1, 2), angle)]
    circuit, words = GateSequence(3, tuple(gates)), ["X0", "Y1", "Z2", "Y0 Z1", "X1 Y2"]
    found = tnplan.Circuit(circuit).expectation(words, method="peps", precision=precision, **CPU)
    assert found.error_kind == "exact"
    a_gate = {"fp32": 2e-7, "fp64": 2e-14}[precision]  # what is dropped as rounding
    np.testing.assert_allclose(found.value, exact(circuit, words), rtol=0, atol=steps * a_gate)


def test_loops_correct_the_bethe_values() -> None:
    """Without truncation nothing but loops is left: a ring is then exact, and others are nearer."""
    bethe, corrected = [], []
    for seed in range(12):
        random = np.random.default_rng(seed)
        graphs = nx.grid_2d_graph(3, 3), nx.random_regular_graph(3, 10, seed=seed), nx.cycle_graph(9)
        graph = nx.convert_node_labels_to_integers(graphs[seed % 3])
        family, depth = ((brickwork, 5), (trotter, 2))[seed % 2]
        circuit = GateSequence(len(graph), tuple(family(len(graph), list(graph.edges), depth, random)))
        words = ["Z0", "X4", "Z1 Z2", "Y0 X1 Z8"]
        found = tnplan.Circuit(circuit).expectation(words, method="peps", max_bond=64, **CPU)
        assert found.details["largest_discarded_weight"] == 0
        difference = found.value - exact(circuit, words)
        assert seed % 3 < 2 or np.abs(difference).max() < 1e-8
        corrected.append(difference)
        bethe.append(np.array(found.details["without_loops"]) - exact(circuit, words))
    assert np.square(corrected).sum() < 0.25 * np.square(bethe).sum()
    assert np.abs(np.mean(corrected)) < 0.01


@pytest.mark.parametrize("count", slow_after(1, [12, 150]))
def test_the_estimate_covers_nine_of_ten(count: int) -> None:
    covered = []
    for seed in range(FIRST, FIRST + count):
        _, circuit, words, bond = peps_case(seed)
        found = tnplan.Circuit(circuit).expectation(words, method="peps", max_bond=bond, **CPU)
        error = np.abs(found.value - exact(circuit, words))
        if found.error_kind == "exact":
            assert error.max() < 1e-10
        covered += (error <= np.maximum(found.error, 1e-10)).tolist()
    assert np.mean(covered) >= 0.9


def test_messages_that_do_not_converge_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    graph = nx.cycle_graph(8)
    circuit = tnplan.Circuit(GateSequence(8, tuple(brickwork(8, list(graph.edges), 8, random))))
    found = circuit.expectation("Z0", method="peps", max_bond=3, **CPU)
    assert found.details["messages_converged"]
    assert found.error_kind == "estimate"
    assert found.details["at_smaller_bond"]["max_bond"] == 1
    assert circuit.expectation("Z0", method="peps", max_bond=1, **CPU).error >= 1
    monkeypatch.setattr(peps, "MOST_SWEEPS", 1)
    found = circuit.expectation("Z0", method="peps", max_bond=3, **CPU)
    assert not found.details["messages_converged"]
    assert found.error >= 1


def test_values_after_each_layer_are_those_of_shorter_circuits() -> None:
    random = np.random.default_rng(5)
    edges = [(q, q + 1) for q in range(5)]
    gates = trotter(6, edges, 2, random)
    words, after = ["Z2", "X0 X1", "1.5 * Z0 Z5 + 2"], [4, 9, len(gates)]
    found = tnplan.Circuit(GateSequence(6, tuple(gates))).expectation(
        words, method="peps", after=after, state="+01-r0", **CPU
    )
    for stop, values in zip(after, found.value, strict=True):
        short = tnplan.Circuit(GateSequence(6, tuple(gates[:stop])))
        expected = short.expectation(words, method="statevector", state="+01-r0", **CPU).value
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-11)


@pytest.mark.slow
def test_stabilizers_of_the_kicked_ising_model_of_127_qubits() -> None:
    """Two, at an angle of pi / 2."""
    pytest.importorskip("stim")
    word = "X13 X29 X31 Y9 Y30 Z8 Z12 Z17 Z28 Z32"
    circuit = tnplan.Circuit(kicked_ising("heavy-hex", 127, 5, math.pi / 2, -math.pi / 2))
    wide = "X37 X41 X52 X56 X57 X58 X62 X79 Y75 Z38 Z40 Z42 Z63 Z72 Z80 Z90 Z91"
    found = circuit.expectation([word, wide], method="peps", max_bond=32, **CPU)
    expected = circuit.expectation([word, wide], method="stabilizer", device="cpu").value
    assert abs(found.value[0] - expected[0]) <= found.error[0] < 1e-6
    assert abs(found.value[1] - expected[1]) <= found.error[1]  # beyond the loops that are contracted


def test_a_light_cone_of_the_kicked_ising_model_of_127_qubits() -> None:
    """Beside Pauli propagation."""
    circuit = tnplan.Circuit(kicked_ising("heavy-hex", 127, 5, 0.7, -math.pi / 2))
    found = circuit.expectation("Z62", method="peps", max_bond=16, **CPU)
    expected = circuit.expectation("Z62", method="pauli", **CPU).value
    assert abs(found.value - expected) <= min(found.error, 1e-3)


@needs_gpus(1)
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_a_gpu_gives_the_values_of_the_cpu(precision: str) -> None:
    for seed in range(3):
        _, circuit, words, bond = peps_case(seed)
        options: Any = {"method": "peps", "max_bond": bond, "precision": precision}
        values = [
            tnplan.Circuit(circuit).expectation(words, **options, device=device).value
            for device in ("cpu", "gpu")
        ]
        np.testing.assert_allclose(values[1], values[0], atol={"fp64": 1e-7, "fp32": 1e-3}[precision])


def test_auto_leaves_it_out_and_refusals_say_why() -> None:
    circuit = tnplan.Circuit(GateSequence(20, tuple(gate("cnot", (q, q + 1)) for q in range(19))))
    assert "peps" not in {row.method for row in circuit.estimate(expectation="Z0").rows}
    (row,) = circuit.estimate(expectation="Z0", method="peps", max_bond=4).rows
    assert row.error_kind == "estimate"
    assert row.cost is not None
    toffoli = np.eye(8)[[0, 1, 2, 3, 4, 5, 7, 6]]
    gates = [*(gate("h", (q,)) for q in range(3)), Gate("ccx", (0, 1, 2), toffoli)]
    wide = tnplan.Circuit(GateSequence(3, tuple(gates)))
    with pytest.raises(tnplan.InputError, match="acts on 3 qubits, but 'peps' takes at most 2"):
        wide.expectation("Z0", method="peps")
    with pytest.raises(tnplan.InputError, match="answers expectation only of gates"):
        circuit.expectation("Z0", method="peps", depolarizing=0.1)
    with pytest.raises(tnplan.InputError, match="does not answer amplitudes"):
        circuit.amplitudes("0" * 20, method="peps")
    with pytest.raises(tnplan.InputError, match="'peps' draws from the whole distribution"):
        circuit.sample(10, sampling="rejection", method="peps")
    lattice = nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 5))
    large = GateSequence(25, tuple(brickwork(25, list(lattice.edges), 30, np.random.default_rng(0))))
    with pytest.raises(tnplan.InputError, match="give a smaller max_bond"):
        tnplan.Circuit(large).expectation("Z0", method="peps", memory="1 MB", **CPU)


@pytest.mark.parametrize("family", ["brickwork", "trotter", "qaoa"])
def test_samples_of_trees_follow_the_probabilities(family: str) -> None:
    for seed in range(repeats(1, 2)):
        random = np.random.default_rng(seed)
        tree = nx.random_labeled_tree(6, seed=seed)
        circuit = GateSequence(8, tuple(FAMILIES[family](6, list(tree.edges), 3, random)))  # two stay alone
        found = tnplan.Circuit(circuit).sample(20_000, seed=5, method="peps", state="0+010-01", **CPU)
        assert found.error_kind == "statistical"
        assert found.details["samples"] == "independent"
        exact = tnplan.Circuit(circuit).probabilities(method="statevector", state="0+010-01", **CPU)
        check_counts(found.value, exact.value)
        again = tnplan.Circuit(circuit).sample(20_000, seed=5, method="peps", state="0+010-01", **CPU)
        assert again.value == found.value


def sampled_probabilities(circuit: GateSequence) -> np.ndarray:
    """The probability with which each string is drawn."""
    levels = levels_of([(item.qubits, item.matrix) for item in circuit.gates])
    state = PepsState(circuit.n_qubits, [pair for level in levels for pair in level.pairs], "complex128")
    for level in levels:
        state.apply(level, None, 1e-30)
    sampler, n = MessageSampler(state, iterated_messages(state, 1e-10, 500).matrices), circuit.n_qubits
    strings = (np.arange(2**n)[:, None] >> np.arange(n)[::-1] & 1).astype(np.uint8)
    return np.asarray(np.exp(sampler.strings(np.zeros(strings.shape), strings)[1]))


def test_probabilities_of_samples_sum_to_one_and_are_near_with_loops() -> None:
    """Exact on trees; the total variation on rings is far below that of independent qubits."""
    for seed in range(3):
        tree = nx.random_labeled_tree(8, seed=seed)
        circuit = GateSequence(8, tuple(brickwork(8, list(tree.edges), 3, np.random.default_rng(seed))))
        exact = np.abs(state_vector(circuit).ravel()) ** 2
        np.testing.assert_allclose(sampled_probabilities(circuit), exact, rtol=0, atol=1e-12)
    distances = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        family = (brickwork, trotter, FAMILIES["qaoa"])[seed % 3]
        circuit = GateSequence(9, tuple(family(9, list(nx.cycle_graph(9).edges), 2, random)))
        exact, found = np.abs(state_vector(circuit).ravel()) ** 2, sampled_probabilities(circuit)
        assert found.sum() == pytest.approx(1, abs=1e-9)
        alone = np.ones(1)
        for qubit in range(9):
            axes = tuple(axis for axis in range(9) if axis != qubit)
            alone = np.kron(alone, exact.reshape((2,) * 9).sum(axis=axes))
        distances.append([0.5 * np.abs(one - exact).sum() for one in (found, alone)])
    near, far = np.mean(distances, axis=0)
    assert near < 0.1
    assert near < far / 4


def test_samples_with_loops_or_cuts_say_that_they_are_approximate() -> None:
    random = np.random.default_rng(1)
    ring = GateSequence(6, tuple(brickwork(6, list(nx.cycle_graph(6).edges), 3, random)))
    path = GateSequence(6, tuple(brickwork(6, list(nx.path_graph(6).edges), 8, random)))
    for circuit, bond in ((ring, None), (path, 2)):
        found = tnplan.Circuit(circuit).sample(50, seed=1, method="peps", max_bond=bond, **CPU)
        assert (found.error_kind, found.error) == ("estimate", None)
        assert "approximate" in found.details["samples"]
        assert sum(found.value.values()) == 50


def dense(network: Any, gauges: dict[str, Any]) -> np.ndarray:
    """The amplitudes of a state of quimb with gauges."""
    network = network.copy()
    for index, weights in gauges.items():
        network.tensor_map[next(iter(network.ind_map[index]))].multiply_index_diagonal_(index, weights)
    return np.asarray(network.contract(output_inds=network.site_inds, optimize="greedy").data).ravel()


def test_states_go_to_quimb_and_come_back() -> None:
    qtn = pytest.importorskip("quimb.tensor")
    random = np.random.default_rng(2)
    lattice = list(nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, 4)).edges)
    gates = brickwork(8, lattice, 3, random)
    whole, exact = GateSequence(8, tuple(gates)), state_vector(GateSequence(8, tuple(gates))).ravel()
    halves = [tnplan.Circuit(GateSequence(8, tuple(part))) for part in (gates[:9], gates[9:])]
    network, gauges, fidelity = tnplan.Circuit(whole).peps(device="cpu")
    assert isinstance(network, qtn.TensorNetworkGenVector)
    assert fidelity == pytest.approx(1)
    np.testing.assert_allclose(dense(network, gauges), exact, rtol=0, atol=1e-12)
    z = np.diag([1.0, -1.0])
    value = network.local_expectation_cluster(z, [3], gauges=gauges, max_distance=8, optimize="greedy")
    expected = tnplan.Circuit(whole).expectation("Z3", method="statevector", **CPU).value
    assert value == pytest.approx(expected, abs=1e-10)
    first = halves[0].peps(device="cpu")
    for start in (first, first[:2]):
        found = halves[1].peps(start=start, device="cpu")
        np.testing.assert_allclose(dense(*found[:2]), exact, rtol=0, atol=1e-12)
    # Without gauges quimb finds them; the norm is that of the state.
    given = qtn.PEPS.rand(2, 4, 2, seed=1, dtype="complex128")
    idle = tnplan.Circuit(GateSequence(8, ()))
    found = dense(*idle.peps(start=given, device="cpu")[:2])
    expected = np.asarray(given.contract(output_inds=given.site_inds, optimize="greedy").data).ravel()
    overlap = np.vdot(found, expected) / np.linalg.norm(found) / np.linalg.norm(expected)
    assert abs(overlap) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: "a state", "start: is of type str"),
        (lambda state: (state, [1.0]), "start: is of type tuple"),
        (lambda state: (state, {"b0,1": np.zeros(2)}), "has no positive weights of bond b0,1"),
        (lambda state: state.isel({"k0": 0}), "has not one tensor per site|has no"),
    ],
)
def test_states_that_are_none_are_refused(change: Any, message: str) -> None:
    pytest.importorskip("quimb")
    circuit = tnplan.Circuit(GateSequence(2, (gate("h", (0,)), gate("cnot", (0, 1)))))
    state = circuit.peps(device="cpu").network
    with pytest.raises(tnplan.InputError, match=message):
        circuit.peps(start=change(state), device="cpu")
    with pytest.raises(tnplan.InputError, match="has 2 sites for 3 qubits"):
        tnplan.Circuit(GateSequence(3, ())).peps(start=state, device="cpu")
