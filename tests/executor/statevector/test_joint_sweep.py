"""The sweep back over both states at once: sums of compiled passes, emulated, beside the other sweep."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuits import random_circuit
from tests.support.engines.statevector import simulator_of
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.statevector_emulator import emulate, program_text
from tnplan.executor.observables.pauli_sum import parse
from tnplan.executor.statevector.adjoint.joint_sweep import joint_sweep
from tnplan.executor.statevector.adjoint.sweep import adjoint_gradient
from tnplan.executor.statevector.codegen.pass_program import make_program
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.gates.word_sum import WordSum
from tnplan.executor.statevector.scheduling.tiled_passes import Tile
from tnplan.planner.networks.circuits.circuit import GateSequence
from tnplan.planner.networks.circuits.gates import gate

OBSERVABLE = "0.5*X0 Y1 + 0.3*Z3 - 1.2*Z2 X5 Y4 + 0.25"
TILES = {
    "complex64": Tile(9, 3, 1, 4, True), "complex128": Tile(8, 2, 1, 3, True), "wide": Tile(10, 3, 1, 4, True)
}  # fmt: skip


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
@pytest.mark.parametrize("name", CIRCUITS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
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
    both = np.stack([final, other.part()], axis=1).reshape(-1).astype(dtype)
    tile = TILES[dtype]
    sweep = joint_sweep(circuit.gates, simulator.where, tile)
    assert sweep is not None
    sums, taken = np.zeros(len(sweep.terms)), 0
    for item in sweep.plan.passes:
        made = make_program(item, n + 1, tile.register_bits, both.itemsize)
        assert made is not None
        values = emulate(both, made, item.held, program_text(made, item, tile, both), 0)
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
