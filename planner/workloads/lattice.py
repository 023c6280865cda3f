"""Random circuits on three kinds of lattices: one edge colour a layer, generic two-qubit gates.

The hexagonal one is drawn as a brick wall. Open boundary; qubits are numbered row by row. Edges are coloured
greedily, so that layers are as full as the boundary allows and no qubit has two gates in a layer. Knows no
tensor network.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from planner.errors import InputError
from planner.networks.circuits.circuit import Circuit, Gate

RIGHT, DOWN, DIAGONAL = (0, 1), (1, 0), (1, 1)
DIRECTIONS = {
    "rectangular": (RIGHT, DOWN),
    "triangular": (RIGHT, DOWN, DIAGONAL),
    "hexagonal": (RIGHT, DOWN),
}
KINDS = tuple(DIRECTIONS)
GATE_NAME = "haar2"


def edge_colours(kind: str, rows: int, columns: int) -> list[list[tuple[int, int]]]:
    """The pairs of qubits of each colour, in the order in which layers take them; each pair ascending.

    Edges are taken by direction (right, down, and in a triangular lattice diagonally down to the right), then
    row by row; each gets the first colour that neither of its ends has. A hexagonal lattice has edges down
    only from sites whose row plus column is even. From 3 x 3 sites up that makes 4 colours (rectangular), 6
    (triangular) or 3 (hexagonal).
    """
    _check(kind, rows, columns)
    used: list[set[int]] = [set() for _ in range(rows * columns)]
    colours: list[list[tuple[int, int]]] = []
    for down, right in DIRECTIONS[kind]:
        for row in range(rows - down):
            for column in range(columns - right):
                if kind == "hexagonal" and down and (row + column) % 2:
                    continue
                pair = (row * columns + column, (row + down) * columns + column + right)
                taken = used[pair[0]] | used[pair[1]]
                colour = next(number for number in count() if number not in taken)
                for qubit in pair:
                    used[qubit].add(colour)
                if colour == len(colours):
                    colours.append([])
                colours[colour].append(pair)
    return colours


def lattice_circuit(kind: str, rows: int, columns: int, layers: int, seed: int) -> Circuit:
    """A circuit of `layers` layers on `rows` x `columns` qubits; layer i takes colour i modulo their number.

    Every edge of the layer's colour carries a gate of its own, drawn from the Haar measure on U(4).
    """
    colours = edge_colours(kind, rows, columns)
    if layers < 1:
        raise InputError("--layers", f"is {layers}", "give one layer or more")
    if seed < 0:
        raise InputError("--seed", f"is {seed}", "give a number from 0 up")
    generator = np.random.default_rng(seed)
    gates = [
        Gate(GATE_NAME, pair, _haar_unitary(4, generator))
        for layer in range(layers)
        for pair in colours[layer % len(colours)]
    ]
    return Circuit(rows * columns, tuple(gates))


def _check(kind: str, rows: int, columns: int) -> None:
    if kind not in DIRECTIONS:
        raise InputError("--kind", f"{kind!r} is unknown", f"use one of {', '.join(KINDS)}")
    for place, value in (("--rows", rows), ("--columns", columns)):
        if value < 2:
            raise InputError(place, f"is {value}", "give 2 or more")


def _haar_unitary(side: int, generator: np.random.Generator) -> np.ndarray:
    """A unitary matrix from the Haar measure: QR of a complex Gaussian one, the phases of R taken out."""
    real, imaginary = generator.normal(size=(2, side, side))
    q, r = np.linalg.qr(real + 1j * imaginary)
    diagonal = np.diag(r)
    return np.asarray(q * (diagonal / np.abs(diagonal)), dtype=np.complex128)
