"""The sweep back over both states at once: sums of compiled passes, emulated, beside the other sweep."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuits import random_circuit
from tests.support.engines.statevector import simulator_of
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.statevector_emulator import emulate, program_text
from tests.support.slow import slow_unless
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.executor.statevector.adjoint_sweep import MOST_STEPS, adjoint_gradient, joint_sweep, takes_words
from tnplan.executor.statevector.codegen.pass_program import make_program
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.gates.multiplexed_gate import WordSum, as_swap, word_sum
from tnplan.executor.statevector.gates.phase_polynomial import is_phase_gate
from tnplan.executor.statevector.scheduling.pass_tables import pass_tables
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, Tile

OBSERVABLE = "0.5*X0 Y1 + 0.3*Z3 - 1.2*Z2 X5 Y4 + 0.25"
TILES = {"complex64": Tile(10, 3, 1, 4, True), "complex128": Tile(8, 2, 1, 3, True)}
"""With two warps in a block, and with one."""


def layered(n_qubits: int, depth: int) -> GateSequence:
    """Layers of ry, rz and a ring of cz, with some rotations of two qubits."""
    generator, gates = np.random.default_rng(1), []
    for _ in range(depth):
        for name in ("ry", "rz"):
            gates += [gate(name, (q,), (float(generator.uniform(-3, 3)),)) for q in range(n_qubits)]
        gates += [gate("cz", (q, (q + 1) % n_qubits)) for q in range(n_qubits)]
        gates += [gate("cp", (q, q + 1), (0.3 + q,)) for q in range(0, n_qubits - 1, 3)]
        gates.append(gate("fs", (1, 4), (0.7, 0.2)))
    return GateSequence(n_qubits, tuple(gates))


CIRCUITS = {
    "layered": layered(11, 3),
    "random": random_circuit(11, 70, 3),
    "other": random_circuit(12, 90, 8),
}


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "name"),
    slow_unless(lambda dtype, name: dtype == name, ("complex64", "complex128"), list(CIRCUITS)),
)
def test_sums_are_the_derivatives(dtype: str, name: str) -> None:
    circuit = CIRCUITS[name]
    n, rounding = circuit.n_qubits, {"complex64": 2e-5, "complex128": 1e-12}[dtype]
    observable = parse(OBSERVABLE, n)
    simulator = simulator_of(circuit)
    wanted = adjoint_gradient(simulator, circuit.gates, observable)
    final = simulator.state.to_host()
    other = HostState(n, "complex128")
    other.amplitudes.fill(0)
    for x, z, coefficient in observable.masks():
        places = [sum(1 << simulator.where[q] for q in range(n) if mask >> q & 1) for mask in (x, z)]
        other.add_word(simulator.state, *places, coefficient * 1j ** ((x & z).bit_count() & 3))
    both = np.stack([final, other.shard()], axis=1).reshape(-1).astype(dtype)
    tile = TILES[dtype]
    sweep = joint_sweep(circuit.gates, simulator.where, tile)
    assert sweep is not None
    sums, taken = np.zeros(len(sweep.terms)), 0
    for item in sweep.plan.passes:
        made = make_program(item, n + 1, tile.register_bits, both.itemsize)
        assert made is not None
        values = emulate(both, made, item.held_bits, program_text(made, item, tile, both), 0)
        for (number, weight), value in zip(made.sums, values, strict=True):
            sums[number] += weight * value
        taken += sum(isinstance(step, WordSum) for step in item.steps)
    assert taken == len(sweep.terms)
    found = sweep.derivatives(sums)
    assert np.abs([one.derivative for one in wanted]).max() > 1e-2
    for one in wanted:
        assert abs(found[one.gate, one.parameter] - one.derivative) < rounding, one
    back = both.reshape(-1, 2)[:, 0]
    assert abs(abs(back[0]) - 1) < rounding
    assert np.abs(back[1:]).max() < rounding


def test_passes_have_no_more_steps_than_the_cache_of_instructions_holds() -> None:
    gates = layered(12, 24).gates
    sweep = joint_sweep(gates, range(12), Tile(10, 3, 1, 4, True))
    assert sweep is not None
    assert takes_words(gates)
    lengths = [len(item.steps) for item in sweep.plan.passes]
    assert max(lengths) <= MOST_STEPS
    assert sum(lengths) > 2 * MOST_STEPS
    taken = sorted(
        step.number for item in sweep.plan.passes for step in item.steps if isinstance(step, WordSum)
    )
    assert taken == list(range(len(sweep.terms)))


def test_a_word_that_no_pass_takes() -> None:
    x = gate("x", (0,)).matrix
    axis = np.kron(np.kron(x, x), x)
    turn = np.cos(0.2) * np.eye(8) - 1j * np.sin(0.2) * axis
    gates = [Gate("own", (0, 1, 2), turn, (0.4,))]
    assert joint_sweep(gates, range(3), TILES["complex64"]) is None
    assert not takes_words(gates)


def test_an_angle_that_changes_nothing() -> None:
    phase = Gate("own", (1,), np.exp(-0.2j) * np.eye(2), (0.4,))
    sweep = joint_sweep([gate("ry", (0,), (0.3,)), phase], range(3), TILES["complex64"])
    assert sweep is not None
    assert sweep.derivatives([1.0]) == {(1, 0): 0.0, (0, 0): pytest.approx(1.0)}


def test_a_sum_is_no_gate() -> None:
    one = word_sum(0b0010, 0b1010, 5, True)
    moved = one.on([4, 5, 6, 7])
    assert (moved.targets, moved.selectors, moved.z) == ((5,), (7,), 0b10100000)
    assert (moved.number, moved.imaginary) == (5, True)
    assert not one.is_identity
    for made in (one, word_sum(0, 0b11, 0, False), word_sum(0b11, 0, 0, False)):
        assert not is_phase_gate(made)
        assert as_swap(made) is None
    with pytest.raises(ValueError, match="sum"):
        pass_tables(Pass((0, 1, 2, 3), (one,)), 4, 0)
