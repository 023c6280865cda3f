"""The sweep back over both states at once on a CPU, beside that over one state after the other."""

from __future__ import annotations

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit
from tests.support.engines.statevector import simulator_of
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.executor.statevector.adjoint_sweep import adjoint_gradient, mirrored_sweep, prepare_joint
from tnplan.executor.statevector.cpu import state as joint
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.gates.multiplexed_gate import WordSum
from tnplan.executor.statevector.scheduling.tiled_passes import Tile
from tnplan.executor.statevector.simulator import Simulator

OBSERVABLE = "0.5*X0 Y1 + 0.3*Z3 - 1.2*Z2 X5 Y4 + 0.25"
ROUNDING = {"complex64": 5e-6, "complex128": 1e-14}
SMALL = {
    "complex64": Tile(12, 5, 4, rotations=True), "complex128": Tile(11, 4, 4, rotations=True)
}  # fmt: skip
"""Tiles of several rounds, of which a state of 14 qubits has several."""
TOFFOLI = np.eye(8)[[0, 1, 2, 3, 4, 5, 7, 6]] + 0j


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "TILES", SMALL)


def in_turn(simulator: Simulator, circuit: GateSequence, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The derivatives by the sweep over one state after the other."""
    with monkeypatch.context() as patch:
        patch.setattr(HostState, "joint", lambda self: None)
        found = adjoint_gradient(simulator, circuit.gates, parse(OBSERVABLE, circuit.n_qubits))
    return np.array([one.derivative for one in found])


def at_once(simulator: Simulator, circuit: GateSequence) -> np.ndarray:
    """Those by the sweep over both."""
    prepared = prepare_joint(simulator, circuit.gates)
    assert prepared is not None
    found = prepared.derivatives(simulator, parse(OBSERVABLE, circuit.n_qubits))
    return np.array([found[key] for key in sorted(found)])


def two_bit_rotation(letters: str, qubits: tuple[int, int], angle: float) -> Gate:
    letter = {"X": gate("x", (0,)).matrix, "Y": gate("y", (0,)).matrix, "Z": gate("z", (0,)).matrix}
    axis = np.kron(letter[letters[0]], letter[letters[1]])
    return Gate("own", qubits, np.cos(angle / 2) * np.eye(4) - 1j * np.sin(angle / 2) * axis, (angle,))


def many_kinds(n_qubits: int, seed: int) -> GateSequence:
    """Gates of every kind, rotations about all words of two bits, and some that only whole tiles take."""
    generator = np.random.default_rng(seed)
    gates: list[Gate] = []
    for number, item in enumerate(random_circuit(n_qubits, 90, seed).gates):
        gates.append(item)
        qubits = tuple(int(qubit) for qubit in generator.permutation(n_qubits))
        if number % 5 == 0:
            letters = "".join(generator.choice([*"XYZ"], 2))
            gates.append(two_bit_rotation(letters, qubits[:2], float(generator.uniform(-3, 3))))
        if number % 30 == 7:
            gates.append(Gate("ccx", qubits[:3], TOFFOLI))
    return GateSequence(n_qubits, tuple(gates))


def layers(n_qubits: int, depth: int, names: tuple[str, ...], seed: int = 0) -> GateSequence:
    """Layers of rotations of every qubit and a chain of cnot."""
    generator, gates = np.random.default_rng(seed), []
    for _ in range(depth):
        for name in names:
            gates += [gate(name, (q,), (float(generator.uniform(-3, 3)),)) for q in range(n_qubits)]
        gates += [gate("cnot", (q, q + 1)) for q in range(n_qubits - 1)]
    return GateSequence(n_qubits, tuple(gates))


@pytest.mark.parametrize("n_qubits", [8, 14])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_both_sweeps_give_the_same(
    dtype: str, seed: int, n_qubits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuit = many_kinds(n_qubits, seed)
    wanted = in_turn(simulator_of(circuit), circuit, monkeypatch)
    found = at_once(simulator_of(circuit, dtype), circuit)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=ROUNDING[dtype])
    assert np.abs(wanted).max() > 1e-2


@pytest.mark.parametrize("names", [("ry", "rz"), ("rz", "rx"), ("rx", "ry", "rz"), ("rz",), ("ry",)])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_layers(dtype: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    own = layers(13, 3, names)
    circuit = GateSequence(13, tuple([gate("h", (q,)) for q in range(13)]) + own.gates)
    wanted = in_turn(simulator_of(circuit), circuit, monkeypatch)
    found = at_once(simulator_of(circuit, dtype), circuit)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=ROUNDING[dtype])
    assert np.abs(wanted).max() > 1e-2


@pytest.mark.parametrize("n", [8, 13])
@pytest.mark.parametrize("seed", range(3))
def test_angles_of_zero(seed: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates that are nothing leave their sums between other gates, diagonals and matrices of two bits."""
    generator, gates = np.random.default_rng(seed), [gate("h", (q,)) for q in range(2, n - 2)]
    gates += [gate("ry", (q,), (0.0,)) for q in range(n)]
    # Between a matrix of two bits and a phase of the same two.
    fixed = Gate("fixed", (3, 6), two_bit_rotation("YX", (3, 6), 0.8).matrix)
    gates += [fixed, gate("rx", (3,), (0.0,)), gate("cp", (3, 6), (0.7,))]
    for _ in range(60):
        q, r = (n // 4 * int(one) for one in generator.permutation(4)[:2])
        kind = generator.integers(0, 5)
        if kind == 0:
            gates.append(gate("cp", (q, r), (float(generator.uniform(0.1, 3)),)))
        elif kind == 1:
            gates.append(two_bit_rotation("XY", (q, r), float(generator.uniform(-3, 3))))
        elif kind == 2:
            gates.append(gate("rz", (q,), (float(generator.uniform(-3, 3)),)))
        else:
            angle = 0.0 if generator.random() < 0.7 else float(generator.uniform(-3, 3))
            gates.append(gate(str(generator.choice(["rx", "ry"])), (q,), (angle,)))
    circuit = GateSequence(n, tuple(gates))
    wanted = in_turn(simulator_of(circuit), circuit, monkeypatch)
    found = at_once(simulator_of(circuit), circuit)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)
    assert np.abs(wanted).max() > 1e-2


def test_threads_give_the_same_bits() -> None:
    circuit = many_kinds(14, 4)
    found = [
        at_once(simulator_of(circuit, "complex64", threads=threads), circuit) for threads in (1, 2, 5, 2)
    ]
    for one in found[1:]:
        assert one.tolist() == found[0].tolist()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_circuit_that_begins_in_another_state(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Psi is zero nowhere, though no gate acts on most qubits."""
    circuit = GateSequence(13, tuple(gate("ry", (q,), (0.3 + q,)) for q in range(3)))
    random = np.random.default_rng(5)
    start = random.normal(size=2**13) + 1j * random.normal(size=2**13)
    start /= np.linalg.norm(start)
    simulator = Simulator(HostState(13, dtype), 13)
    simulator.load(start.astype(dtype), tuple(range(12, -1, -1)))
    assert not simulator.from_zeros
    wanted = in_turn(simulator, circuit, monkeypatch)  # of gates that are undone: at once as in turn
    np.testing.assert_allclose(at_once(simulator, circuit), wanted, rtol=0, atol=ROUNDING[dtype])
    assert np.abs(wanted).max() > 1e-3
    simulator.restart()
    assert simulator.from_zeros


def test_tiles_where_psi_is_zero_are_left_out() -> None:
    circuit = layers(14, 2, ("ry", "rz"))
    simulator = simulator_of(circuit)
    whole = at_once(simulator, circuit)
    simulator.from_zeros = False
    np.testing.assert_allclose(at_once(simulator, circuit), whole, rtol=0, atol=1e-14)


def test_a_circuit_without_angles_has_no_passes() -> None:
    gates = random_circuit(9, 30, 0).gates
    still = [one for one in gates if not one.params]
    sweep = mirrored_sweep(still, range(9), SMALL["complex128"])
    assert sweep is not None
    assert (sweep.plan.passes, sweep.derivatives([])) == ((), {})
    assert at_once(simulator_of(GateSequence(9, tuple(still))), GateSequence(9, tuple(still))).tolist() == []


def test_a_word_that_is_too_wide_goes_the_other_way() -> None:
    x = gate("x", (0,)).matrix
    turn = np.cos(0.2) * np.eye(8) - 1j * np.sin(0.2) * np.kron(np.kron(x, x), x)
    circuit = GateSequence(9, (gate("ry", (0,), (0.3,)), Gate("own", (0, 1, 2), turn, (0.4,))))
    simulator = simulator_of(circuit)
    assert prepare_joint(simulator, circuit.gates) is None
    found = adjoint_gradient(simulator, circuit.gates, parse("Z0", 9))
    # <Z0> = cos 0.3 cos 0.4 for a rotation by 0.4 about X on three qubits.
    wanted = [-np.sin(0.3) * np.cos(0.4), -np.cos(0.3) * np.sin(0.4)]
    np.testing.assert_allclose([one.derivative for one in found], wanted, atol=1e-13)


def test_sums_are_taken_with_the_rotations_of_the_way_there() -> None:
    """Sums between a rotation and the basis change of a cnot do not part them."""
    circuit = layers(10, 4, ("ry",))
    sweep = mirrored_sweep(circuit.gates, range(10), SMALL["complex128"])
    assert sweep is not None
    steps = [step for one in sweep.plan.passes for step in one.steps]
    rotations = [step for step in steps if step.mask.bit_count() == 1 and not isinstance(step, WordSum)]  # type: ignore[union-attr]
    with_targets = [step for step in rotations if step.targets]  # type: ignore[union-attr]
    # Each rotation of a layer and the basis changes on both of its sides are one matrix of one bit.
    assert len(with_targets) <= 2 * 10 * 4 + 10
    assert sum(isinstance(step, WordSum) for step in steps) == 40


def test_swaps_move_qubits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = layers(9, 1, ("ry", "rz")).gates
    circuit = GateSequence(
        9, (*own, gate("sw", (0, 5)), gate("rx", (5,), (0.4,)), gate("sw", (2, 5)), gate("ry", (2,), (0.2,)))
    )
    simulator = simulator_of(circuit)
    sweep = mirrored_sweep(circuit.gates, simulator.where, SMALL["complex128"])
    assert sweep is not None
    assert sweep.plan.before == simulator.where
    assert sorted(sweep.plan.after) == list(range(9))
    assert sweep.plan.after != sweep.plan.before
    wanted = in_turn(simulator, circuit, monkeypatch)
    np.testing.assert_allclose(at_once(simulator, circuit), wanted, rtol=0, atol=1e-14)


def test_simulate_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    begin = joint.HostJointState.begin
    monkeypatch.setattr(joint.HostJointState, "begin", lambda *given: (taken.append(given), begin(*given))[1])
    circuit = layers(9, 2, ("ry", "rz"))
    tnplan.simulate(circuit, observable="Z0", gradient=True, device="cpu")
    assert len(taken) == 1
    tnplan.simulate(circuit, observable="Z0", gradient=True, device="cpu", ranks=2)
    tnplan.simulate(layers(7, 2, ("ry",)), observable="Z0", gradient=True, device="cpu")
    tnplan.simulate(circuit, observable="Z0", gradient=True, device="cpu", mode="gates")
    assert len(taken) == 1
