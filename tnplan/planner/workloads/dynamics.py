"""Circuits for expectation values: kicked Ising models, Loschmidt echoes, ansatz circuits.

All gates are of qsim's kinds: rzz by `angle` is cnot, rz, cnot. Rotations are exp(-i angle P / 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.common.checks import check_count, is_finite
from tnplan.common.errors import InputError

Edge = tuple[int, int]

# Heavy-hexagon chips: rows of qubits are joined by four bridges, of one qubit each, between every two rows,
# in alternate columns. On the chip of 127 the first row lacks its last qubit and the last row its first.
# Qubits are numbered row by row, the bridges below a row after it.
CHIPS = {127: (7, 15, (0, 2)), 156: (8, 16, (3, 1))}
"""Of a number of qubits: rows, columns, and the first column of bridges below even and odd rows."""
BRIDGES = 4
"""Bridges between two rows."""
COLUMNS_APART = 4
"""Columns from a bridge to the next."""


def coupling_map(lattice: str, n_qubits: int) -> list[Edge]:
    """The edges of a lattice, "heavy-hex" or "line"; each pair ascending."""
    if lattice == "line":
        check_count("--qubits", n_qubits, 2)
        return [(q, q + 1) for q in range(n_qubits - 1)]
    if n_qubits not in CHIPS:
        known = " or ".join(map(str, CHIPS))
        raise InputError("--qubits", f"is {n_qubits} on heavy-hex", f"give {known} qubits, or --lattice line")
    return heavy_hex(*CHIPS[n_qubits], is_cut=n_qubits == 127)


def heavy_hex(n_rows: int, columns: int, firsts: Sequence[int], *, is_cut: bool) -> list[Edge]:
    """The edges of `n_rows` rows of `columns` qubits; `is_cut`: two corners are missing."""
    rows: list[dict[int, int]] = []
    edges: list[Edge] = []
    bridges: list[tuple[int, int]] = []
    number = 0
    for r in range(n_rows):
        missing = {columns - 1} if is_cut and r == 0 else {0} if is_cut and r == n_rows - 1 else set()
        row = {c: number + k for k, c in enumerate(c for c in range(columns) if c not in missing)}
        number += len(row)
        edges += [(row[c], row[c + 1]) for c in row if c + 1 in row]
        edges += [(bridge, row[c]) for c, bridge in bridges]
        rows.append(row)
        bridges = []
        if r < n_rows - 1:
            for k in range(BRIDGES):
                column = firsts[r % 2] + COLUMNS_APART * k
                edges.append((row[column], number))
                bridges.append((column, number))
                number += 1
    return sorted(edges)


def edge_layers(edges: Sequence[Edge]) -> list[list[Edge]]:
    """The edges in layers in which no two share a qubit: each in the first layer that is free for it."""
    layers: list[list[Edge]] = []
    used: list[set[int]] = []
    for edge in edges:
        for layer, busy in zip(layers, used, strict=True):
            if not busy & set(edge):
                layer.append(edge)
                busy.update(edge)
                break
        else:
            layers.append([edge])
            used.append(set(edge))
    return layers


def kicked_ising(lattice: str, n_qubits: int, steps: int, field: float, coupling: float) -> GateSequence:
    """`steps` times rx by `field` on all qubits, then rzz by `coupling` on all edges.

    With the coupling -pi/2 on 127 qubits it is the circuit of Kim et al., Nature 618, 500 (2023).
    """
    check_count("--steps", steps)
    _check_angles(("--field", field), ("--coupling", coupling))
    edges = coupling_map(lattice, n_qubits)
    step = [gate("rx", (q,), (field,)) for q in range(n_qubits)]
    step += [rotation for layer in edge_layers(edges) for edge in layer for rotation in _rzz(edge, coupling)]
    return GateSequence(n_qubits, tuple(step * steps))


def loschmidt(lattice: str, n_qubits: int, steps: int, angle: float, perturbation: float) -> GateSequence:
    """A circuit U, rz by `perturbation` on every second qubit, and U^dagger.

    In U every layer of edges has rx by `angle` and rz by pi/4 on its qubits, and then cz.
    """
    check_count("--steps", steps)
    _check_angles(("--angle", angle), ("--perturbation", perturbation))
    there: list[Gate] = []
    for layer in edge_layers(coupling_map(lattice, n_qubits)) * steps:
        qubits = [q for edge in layer for q in edge]
        for q in qubits:
            there += [gate("rx", (q,), (angle,)), gate("rz", (q,), (pi / 4,))]
        there += [gate("cz", edge) for edge in layer]
    middle = [gate("rz", (q,), (perturbation,)) for q in range(0, n_qubits, 2)]
    back = [gate(item.name, item.qubits, [-angle for angle in item.params]) for item in reversed(there)]
    return GateSequence(n_qubits, (*there, *middle, *back))


def vqe_ansatz(lattice: str, n_qubits: int, layers: int, seed: int) -> GateSequence:
    """Layers of ry and rz on all qubits and cz on all edges, and a last one of rotations; random angles."""
    check_count("--layers", layers)
    edges = coupling_map(lattice, n_qubits)
    angles = np.random.default_rng(seed).uniform(-pi, pi, (layers + 1, n_qubits, 2)).tolist()
    gates: list[Gate] = []
    for number, turns in enumerate(angles):
        for q, (y, z) in enumerate(turns):
            gates += [gate("ry", (q,), (y,)), gate("rz", (q,), (z,))]
        gates += [gate("cz", edge) for edge in edges] if number < layers else []
    return GateSequence(n_qubits, tuple(gates))


def qaoa_ansatz(
    n_qubits: int, edges: Sequence[Edge], gammas: Sequence[float], betas: Sequence[float]
) -> GateSequence:
    """The MaxCut ansatz: h on all qubits, then of each layer exp(-i gamma C) and exp(-i beta X).

    C is the sum over edges of (1 - Z Z) / 2, up to its constant.
    """
    gates = [gate("h", (q,)) for q in range(n_qubits)]
    for gamma, beta in zip(gammas, betas, strict=True):
        gates += [rotation for edge in edges for rotation in _rzz(edge, -gamma)]
        gates += [gate("rx", (q,), (2 * beta,)) for q in range(n_qubits)]
    return GateSequence(n_qubits, tuple(gates))


def _rzz(edge: Edge, angle: float) -> tuple[Gate, ...]:
    return gate("cnot", edge), gate("rz", (edge[1],), (angle,)), gate("cnot", edge)


def _check_angles(*angles: tuple[str, float]) -> None:
    for name, angle in angles:
        if not is_finite(angle):
            raise InputError(name, f"is {angle!r}", "give a finite angle in radians")
