"""Circuits and questions as wide as what people send: seeds of families that no constant is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import pi
from typing import Any

import networkx as nx
import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.compose import inverse
from tnplan.circuits.gates import KINDS, X, Z, gate, turn
from tnplan.circuits.program import CircuitProgram, Conditional, Measurement, Operation, Reset
from tnplan.planner.workloads.lattice import edge_colours

Edges = list[tuple[int, int]]
Layers = list[Edges]


def rotation(word: str, qubits: tuple[int, ...], angle: float) -> Gate:
    """exp(-i angle P / 2) about a word of X, Y and Z."""
    letters = {"X": X, "Y": KINDS["y"].matrix(), "Z": Z}
    matrix = np.eye(1)
    for letter in word:
        matrix = np.kron(matrix, letters[letter])
    return Gate(f"r{word.lower()}", qubits, turn(matrix, angle), (angle,))


def graph(kind: str, n_qubits: int, random: np.random.Generator) -> tuple[int, Edges]:
    """The number of qubits, which may be a little less or more, and the pairs that interact."""
    if kind == "line":
        made = nx.path_graph(n_qubits)
    elif kind == "ring":
        made = nx.cycle_graph(max(3, n_qubits))
    elif kind == "lattice":
        rows = int(random.integers(2, max(3, int(n_qubits**0.5) + 1)))
        made = nx.grid_2d_graph(rows, max(2, n_qubits // rows))
    elif kind == "heavy hexagons":
        side = max(1, round((n_qubits / 10) ** 0.5))
        made = nx.Graph()
        for number, (a, b) in enumerate(nx.hexagonal_lattice_graph(side, side).edges):
            made.add_edges_from([(a, ("middle", number)), (("middle", number), b)])
    else:
        even = n_qubits + n_qubits % 2
        made = nx.random_regular_graph(3, max(4, even), seed=int(random.integers(1 << 30)))
    numbers = {node: number for number, node in enumerate(made.nodes)}
    return len(numbers), [(numbers[a], numbers[b]) for a, b in made.edges]


def layers_of(edges: Edges) -> Layers:
    """The edges in layers of disjoint pairs."""
    layers: Layers = []
    for pair in edges:
        free = (layer for layer in layers if not any(set(pair) & set(other) for other in layer))
        layer = next(free, None)
        if layer is None:
            layers.append([pair])
        else:
            layer.append(pair)
    return layers


def brickwork(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """Random rotations, and a layer of two-qubit gates in turn."""
    name, layers, gates = str(random.choice(["cz", "cnot", "fs", "is"])), layers_of(edges), []
    for level in range(depth):
        gates += [gate("rxy", (q,), random.uniform(0, 2 * pi, 2).tolist()) for q in range(n)]
        angles = [0.7, 0.3][: KINDS[name].n_params]
        gates += [gate(name, pair, angles) for pair in layers[level % len(layers)]]
    return gates


def trotter(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """Steps of an XXZ or a mixed-field Ising model, from a product state."""
    words = [("XX", "YY", "ZZ"), ("ZZ",)][int(random.integers(2))]
    angles = random.uniform(0.05, 0.8, 3)
    gates = [gate("x", (q,)) for q in range(0, n, 2)]
    for _ in range(depth):
        for layer in layers_of(edges):
            gates += [rotation(word, pair, float(a)) for pair in layer for word, a in zip(words, angles)]  # noqa: B905
        gates += [gate("rx", (q,), [float(angles[2])]) for q in range(n)] if words == ("ZZ",) else []
    return gates


def qaoa(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """Rounds of phases by edges and rotations about X."""
    gates = [gate("h", (q,)) for q in range(n)]
    for _ in range(min(depth, 6)):
        gamma, beta = random.uniform(0.1, 1, 2)
        gates += [rotation("ZZ", pair, float(gamma)) for pair in edges]
        gates += [gate("rx", (q,), [float(beta)]) for q in range(n)]
    return gates


def vqe(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """Layers of rotations and a ladder of CNOTs."""
    gates = []
    for _ in range(min(depth, 12)):
        for q in range(n):
            gates += [gate("ry", (q,), [float(random.uniform(0, pi))]), gate("rz", (q,), [0.3])]
        gates += [gate("cnot", pair) for pair in edges]
    return gates


def qft(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """The quantum Fourier transform of a basis state."""
    gates = [gate("x", (q,)) for q in range(n) if random.random() < 0.5]
    for q in range(n):
        gates += [gate("h", (q,))]
        gates += [gate("cp", (q, other), [pi / 2 ** (other - q)]) for other in range(q + 1, min(n, q + 12))]
    return gates


def adder(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """Carries by Toffoli gates along a register, of a superposition of inputs."""
    toffoli = np.eye(8)
    toffoli[6:, 6:] = [[0, 1], [1, 0]]
    gates = [gate("h", (q,)) for q in range(0, n, 3)] + [gate("x", (q,)) for q in range(1, n, 4)]
    for q in range(0, n - 2, 2):
        gates += [gate("cnot", (q, q + 1)), Gate("ccx", (q, q + 1, q + 2), toffoli)]
    return gates


def clifford_and_t(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """Random Clifford gates, and 0 to 30 T gates."""
    gates: list[Gate] = []
    for level in range(depth):
        gates += [gate(str(random.choice(["h", "s", "id1"])), (q,)) for q in range(n)]
        gates += [gate("cz", pair) for pair in layers_of(edges)[level % len(layers_of(edges))]]
    for position in random.integers(0, len(gates) + 1, int(random.integers(0, 31))):
        gates.insert(int(position), gate("t", (int(random.integers(n)),)))
    return gates


def ghz(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """A GHZ state along a line."""
    return [gate("h", (0,)), *(gate("cnot", (q, q + 1)) for q in range(n - 1))]


def peaked(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """A brickwork, its inverse with one gate changed, and a bit string at the end."""
    half = brickwork(n, edges, max(1, depth // 2), random)
    back = list(inverse(GateSequence(n, tuple(half))).gates)
    back.insert(len(back) // 2, gate("rx", (int(random.integers(n)),), [0.2]))
    return [*half, *back, *(gate("x", (q,)) for q in range(0, n, 3))]


def hubbard(n: int, edges: Edges, depth: int, random: np.random.Generator) -> list[Gate]:
    """Steps of a Fermi-Hubbard chain by Jordan-Wigner, two spins beside each other on a line."""
    hopping, repulsion = random.uniform(0.1, 0.6, 2)
    gates = [gate("x", (q,)) for q in range(0, n, 4)]
    for _ in range(depth):
        for start in (0, 1):
            for q in range(start, n - 2, 2):
                word = (q, q + 1, q + 2)
                gates += [rotation("XZX", word, float(hopping)), rotation("YZY", word, float(hopping))]
        gates += [rotation("ZZ", (q, q + 1), float(repulsion)) for q in range(0, n - 1, 2)]
    return gates


FAMILIES: dict[str, Callable[..., list[Gate]]] = {
    "brickwork": brickwork, "trotter": trotter, "hubbard": hubbard, "qaoa": qaoa, "vqe": vqe, "qft": qft,
    "adder": adder, "clifford and t": clifford_and_t, "ghz": ghz, "peaked": peaked,
}  # fmt: skip
GRAPHS = ("line", "ring", "lattice", "heavy hexagons", "random regular")
QUESTIONS = ("expectation", "sample", "amplitudes")


@dataclass(frozen=True)
class Case:
    """A circuit, the name of a question, what is asked, and where it comes from."""

    name: str
    circuit: GateSequence | CircuitProgram
    question: str
    argument: Any

    @property
    def n_qubits(self) -> int:
        """How many qubits the circuit has."""
        return self.circuit.n_qubits


def random_case(seed: int, most_qubits: int = 1000, most_depth: int = 100) -> Case:
    """A circuit of 4 to `most_qubits` qubits and 1 to `most_depth` layers, and a question of 1 to 1,000
    values."""
    random = np.random.default_rng(seed)
    family, shape = str(random.choice([*FAMILIES])), str(random.choice(GRAPHS))
    wanted = int(4 * (most_qubits / 4) ** random.random())
    depth = int(most_depth ** random.random())
    n, edges = graph(shape, wanted, random)
    gates = FAMILIES[family](n, edges, depth, random)
    circuit: GateSequence | CircuitProgram = GateSequence(n, tuple(gates))
    question, values = str(random.choice(QUESTIONS)), int(1000 ** random.random())
    argument: Any
    if question == "expectation":
        argument = [_word(n, random) for _ in range(min(values, 100))]
    elif question == "sample":
        argument = values
        if random.random() < 0.15:
            circuit, family = dynamic(circuit, random), f"dynamic {family}"
    else:
        rows = random.integers(0, 2, (values, n))
        argument = ["".join(map(str, row)) for row in rows.tolist()]
    return Case(f"{family} on a {shape}, {n} qubits, depth {depth}", circuit, question, argument)


def dynamic(circuit: GateSequence, random: np.random.Generator) -> CircuitProgram:
    """The circuit with measurements, resets and a condition on its way."""
    n = circuit.n_qubits
    operations: list[Operation] = list(circuit.gates)
    for _ in range(int(random.integers(1, 5))):
        q = int(random.integers(n))
        place = int(random.integers(0, len(operations) + 1))
        operations[place:place] = [
            Measurement(q, q), Conditional((q,), 1, (gate("x", (int(random.integers(n)),)),)), Reset(q),
        ]  # fmt: skip
    return CircuitProgram(n, n, (*operations, *(Measurement(q, q) for q in range(n))))


def _word(n: int, random: np.random.Generator) -> str:
    qubits = sorted(random.choice(n, min(n, int(random.integers(1, 4))), replace=False).tolist())
    return " ".join(f"{random.choice([*'XYZZZ'])}{q}" for q in qubits)


def random_cases(first: int, count: int, **limits: int) -> Iterator[Case]:
    """The cases of so many seeds."""
    for seed in range(first, first + count):
        yield random_case(seed, **limits)


def rotations_and(name: str, rows: int, columns: int, layers: int, seed: int) -> GateSequence:
    """Layers of random rotations and of one kind of gate on a colour of a rectangular lattice's edges."""
    random, n = np.random.default_rng(seed), rows * columns
    colours, gates = edge_colours("rectangular", rows, columns), list[Gate]()
    for level in range(layers):
        gates += [gate("rxy", (q,), random.uniform(0, 2 * pi, 2).tolist()) for q in range(n)]
        angles = [0.7, 0.3][: KINDS[name].n_params]
        gates += [gate(name, pair, angles) for pair in colours[level % len(colours)]]
    gates += [gate("rxy", (q,), random.uniform(0, 2 * pi, 2).tolist()) for q in range(n)]
    return GateSequence(n, tuple(gates))
