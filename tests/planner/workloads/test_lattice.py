"""The lattice circuits: their colours, their gates, their networks against paths made elsewhere."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.contraction.executor import contract_pairwise
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.workloads import closed_value
from tnplan.circuits.circuit import GateSequence
from tnplan.cli.main import cli
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.path_file import load_network, load_path
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import load_tensors
from tnplan.planner.workloads.lattice import (
    GEOMETRIES,
    ISING_NAME,
    edge_colours,
    lattice_circuit,
    trotter_circuit,
)

LATTICES = {
    "rectangular_5x7_l20": ("rectangular", 5, 7, 20),
    "rectangular_6x6_l20": ("rectangular", 6, 6, 20),
    "rectangular_6x7_l20": ("rectangular", 6, 7, 20),
    "triangular_7x7_l24": ("triangular", 7, 7, 24),
}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (2, 7), (3, 3), (5, 7), (6, 6), (7, 4)])
def test_colours_hold_every_edge_once_and_no_qubit_twice(geometry: str, rows: int, columns: int) -> None:
    colours = edge_colours(geometry, rows, columns)
    edges = [pair for pairs in colours for pair in pairs]
    across, down = rows * (columns - 1), (rows - 1) * columns
    expected = {
        "rectangular": across + down,
        "triangular": across + down + (rows - 1) * (columns - 1),
        "hexagonal": across + (down + 1) // 2,
    }[geometry]
    assert len(edges) == len(set(edges)) == expected
    assert all(first < second for first, second in edges)
    for pairs in colours:
        used = [qubit for pair in pairs for qubit in pair]
        assert len(set(used)) == len(used)
    if min(rows, columns) >= 3:
        assert len(colours) == {"rectangular": 4, "triangular": 6, "hexagonal": 3}[geometry]


def test_gates_are_unitary_and_differ() -> None:
    circuit = lattice_circuit("triangular", 3, 4, 7, 5)
    for gate in circuit.gates:
        assert np.allclose(gate.matrix @ gate.matrix.conj().T, np.eye(4), atol=1e-14)
    assert len({gate.matrix.tobytes() for gate in circuit.gates}) == len(circuit.gates)


def test_gates_are_drawn_from_the_haar_measure() -> None:
    """E |tr U|^2 = 1 and E |tr U|^4 = 2 on U(4); a QR whose phases are left in gives other figures."""
    gates = lattice_circuit("rectangular", 20, 20, 40, 0).gates
    traces = np.abs([np.trace(gate.matrix) for gate in gates]) ** 2
    assert len(traces) > 6000
    assert abs(traces.mean() - 1) < 0.05
    assert abs((traces**2).mean() - 2) < 0.25


def test_same_seed_same_circuit() -> None:
    first, again, other = (lattice_circuit("rectangular", 3, 3, 5, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(x.matrix, y.matrix) for x, y in zip(first.gates, again.gates, strict=True))
    assert not np.array_equal(first.gates[0].matrix, other.gates[0].matrix)


def statevector(circuit: GateSequence) -> np.ndarray:
    """The state after all gates, by applying them one by one; axes are the qubits."""
    state = np.zeros((2,) * circuit.n_qubits, complex)
    state[(0,) * circuit.n_qubits] = 1
    for gate in circuit.gates:
        n = len(gate.qubits)
        turned = np.tensordot(gate.matrix.reshape((2,) * 2 * n), state, (range(n, 2 * n), gate.qubits))
        state = np.moveaxis(turned, range(n), gate.qubits)
    return state


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_amplitudes_are_those_of_the_state(geometry: str) -> None:
    circuit = lattice_circuit(geometry, 3, 3, 8, 4)
    state = statevector(circuit)
    for bits in ("0" * 9, "010110011"):
        network, arrays = simplify(*circuit_network(circuit, bits))
        count = len(network.inputs)
        steps = [(0, 1), *((count + number, number + 2) for number in range(count - 2))]
        path = ContractionPath(network, tuple(steps))
        wanted = state[tuple(map(int, bits))]
        assert abs(complex(contract_pairwise(path, arrays)) - wanted) < 1e-12


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (8, 8), (5, 6)])
def test_a_hexagonal_lattice_has_hexagons_and_three_neighbours(rows: int, columns: int) -> None:
    edges = {pair for pairs in edge_colours("hexagonal", rows, columns) for pair in pairs}
    degrees = Counter(qubit for pair in edges for qubit in pair)
    assert max(degrees.values()) <= 3
    for row in range(rows - 1):
        for column in range(row % 2, columns - 2, 2):
            corners = [row * columns + column + step for step in range(3)]
            below = [qubit + columns for qubit in corners]
            bonds = [*pairwise(corners), *pairwise(below), (corners[0], below[0]), (corners[2], below[2])]
            assert edges.issuperset(bonds)
            assert (corners[1], below[1]) not in edges


def signature(inputs: Sequence[Sequence[str]]) -> str:
    """Equal for isomorphic networks of plain bonds: colours refined by those of the neighbours."""
    ends: dict[str, list[int]] = {}
    for number, term in enumerate(inputs):
        for index in term:
            ends.setdefault(index, []).append(number)
    neighbours: list[list[int]] = [[] for _ in inputs]
    for first, second in ends.values():
        neighbours[first].append(second)
        neighbours[second].append(first)
    colours = [str(len(term)) for term in inputs]
    for _ in range(25):
        texts = [
            colours[number] + ":" + ",".join(sorted(colours[other] for other in beside))
            for number, beside in enumerate(neighbours)
        ]
        colours = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    return ",".join(sorted(colours))


@pytest.mark.parametrize(
    ("geometry", "side", "layers", "tensors", "indices"),
    [("rectangular", 7, 20, 375, 746), ("triangular", 7, 24, 439, 870), ("hexagonal", 8, 18, 444, 884)],
)
def test_networks_equal_those_made_elsewhere(
    root: Path, geometry: str, side: int, layers: int, tensors: int, indices: int
) -> None:
    name = f"{geometry}_{side}x{side}_l{layers}_b42_flops"
    network, _ = simplify(*circuit_network(lattice_circuit(geometry, side, side, layers, 0)))
    other = load_path(root / f"paths/{name}.json").network
    assert len(network.inputs) == len(other.inputs) == tensors
    assert len(network.size_dict) == len(other.size_dict) == indices
    assert Counter(map(len, network.inputs)) == Counter(map(len, other.inputs))
    assert signature(network.inputs) == signature(other.inputs)


@pytest.mark.parametrize("name", LATTICES)
def test_shipped_networks_are_the_generator_s(root: Path, name: str) -> None:
    files = [file for file in sorted((root / "paths").glob(f"{name}_*.json")) if load_path(file).tensors]
    assert files
    network, arrays = simplify(*circuit_network(lattice_circuit(*LATTICES[name], 0)))
    for file in files:
        path = load_path(file)
        assert path.network == network
        assert path.tensors == f"{name}.npz"
    stored = load_tensors(root / f"paths/{name}.npz", network, "complex64")
    assert all(np.allclose(x, y, rtol=0, atol=1e-6) for x, y in zip(stored, arrays, strict=True))


def ising(
    geometry: str, rows: int, columns: int, circuit: GateSequence, time_step: float
) -> tuple[np.ndarray, np.ndarray]:
    """The diagonal of - sum J Z Z and the matrix of - sum h X, dense, J and h read off the gates' angles."""
    size = 2**circuit.n_qubits
    bits = np.arange(size)[:, None] >> np.arange(circuit.n_qubits)[::-1] & 1
    diagonal, transverse = np.zeros(size), np.zeros((size, size))
    edges = sorted(pair for pairs in edge_colours(geometry, rows, columns) for pair in pairs)
    interaction = {gate.qubits: gate.params[0] for gate in circuit.gates if gate.name == ISING_NAME}
    assert sorted(interaction) == edges
    for (first, second), angle in interaction.items():
        diagonal += angle / (2 * time_step) * (1 - 2 * bits[:, first]) * (1 - 2 * bits[:, second])
    for site, gate in enumerate(circuit.gates[: circuit.n_qubits]):
        assert gate.qubits == (site,)
        flipped = np.arange(size) ^ (1 << circuit.n_qubits - 1 - site)
        transverse[np.arange(size), flipped] += gate.params[0] / time_step
    return diagonal, transverse


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_trotter_steps_are_products_of_the_two_parts(geometry: str) -> None:
    """Against exponentials of dense matrices, and against exact evolution, from which they differ as t^2."""
    duration, errors = 0.8, []
    for steps in (4, 8):
        length = duration / steps
        circuit = trotter_circuit(geometry, 2, 3, steps, 3, length)
        diagonal, transverse = ising(geometry, 2, 3, circuit, length)
        values, vectors = np.linalg.eigh(transverse)
        half = vectors @ np.diag(np.exp(-0.5j * length * values)) @ vectors.T
        step = half @ np.diag(np.exp(-1j * length * diagonal)) @ half
        wanted = np.linalg.matrix_power(step, steps)[:, 0]
        assert np.allclose(statevector(circuit).reshape(-1), wanted, rtol=0, atol=1e-12)
        energies, states = np.linalg.eigh(np.diag(diagonal) + transverse)
        exact = states @ (np.exp(-1j * duration * energies) * states[0])
        errors.append(np.linalg.norm(wanted - exact))
    assert 3.5 < errors[0] / errors[1] < 4.5


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_trotter_amplitudes_keep_hyper_indices(geometry: str) -> None:
    circuit = trotter_circuit(geometry, 3, 3, 4, 4, 0.3)
    assert all(gate.is_diagonal == (gate.name == ISING_NAME) for gate in circuit.gates)
    strengths = {abs(gate.params[0]) / 0.6 for gate in circuit.gates if gate.name == ISING_NAME}
    assert len(strengths) == sum(map(len, edge_colours(geometry, 3, 3)))
    assert min(strengths) >= 0.5
    assert max(strengths) <= 1.5
    state = statevector(circuit)
    for bits in ("0" * 9, "010110011"):
        network, arrays = circuit_network(circuit, bits)
        tensors = Counter(index for term in network.inputs for index in term)
        assert max(tensors.values()) > 4
        assert abs(closed_value(network, arrays) - state[tuple(map(int, bits))]) < 1e-12


def test_command_writes_network_and_tensors(tmp_path: Path) -> None:
    target = tmp_path / "net.json"
    line = f"workload lattice --geometry triangular --rows 3 --columns 4 --layers 6 --seed 2 -o {target}"
    done = CliRunner().invoke(cli, line.split())
    assert done.exit_code == 0, done.output
    network, dtype, tensors = load_network(target)
    assert (dtype, tensors) == ("complex64", "net.npz")
    expected, _ = simplify(*circuit_network(lattice_circuit("triangular", 3, 4, 6, 2)))
    assert network == expected
    line = f"workload lattice --kind trotter --time-step 0.1 --rows 2 --columns 3 --layers 2 -o {target}"
    done = CliRunner().invoke(cli, line.split())
    assert done.exit_code == 0, done.output
    network, dtype, _ = load_network(target)
    expected, arrays = simplify(*circuit_network(trotter_circuit("rectangular", 2, 3, 2, 0, 0.1)))
    assert network == expected
    stored = load_tensors(tmp_path / "net.npz", network, "complex128")
    assert all(np.allclose(x, y, rtol=0, atol=1e-12) for x, y in zip(stored, arrays, strict=True))


# fmt: off
BAD_LATTICES: list[Row] = [
    (("square", 3, 3, 1, 0), "--geometry", "'square' is unknown", "choose from rectangular"),
    (("rectangular", 1, 3, 1, 0), "--rows", "is 1", "give an integer from 2"),
    (("rectangular", 3, 0, 1, 0), "--columns", "is 0", "give an integer from 2"),
    (("rectangular", 3, 3, 0, 0), "--layers", "is 0", "give an integer from 1"),
    (("rectangular", 3, 3, 1, -1), "--seed", "is -1", "give an integer from 0"),
]
# fmt: on


@table(BAD_LATTICES)
def test_bad_input_is_named(refusal: Refusal) -> None:
    refusal.raised_by(lambda: lattice_circuit(*refusal.given))


# fmt: off
BAD_TROTTER: list[Row] = [
    (("rectangular", 0, 0, 1, 0, 0.1), "--rows", "is 0", "give an integer from 2"),
    (("hexagonal", 3, 3, 0, 0, 0.1), "--layers", "is 0", "give an integer from 1"),
    (("hexagonal", 3, 3, 1, 0, 0.0), "--time-step", "is 0.0", "give a finite number"),
    (("hexagonal", 3, 3, 1, 0, float("nan")), "--time-step", "is nan", "give a finite number"),
    (("hexagonal", 3, 3, 1, 0, float("inf")), "--time-step", "is inf", "give a finite number"),
]
# fmt: on


@table(BAD_TROTTER)
def test_bad_trotter_input_is_named(refusal: Refusal) -> None:
    refusal.raised_by(lambda: trotter_circuit(*refusal.given))
