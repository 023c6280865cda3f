"""Dynamics on three geometries of lattices: generic gates at random, or Trotter steps of an Ising model.

Open boundary; qubits are numbered row by row; the hexagonal lattice is drawn as a brick wall. Edges are
coloured greedily, so that layers are as full as the boundary allows and no qubit has two gates in a layer.
Knows no tensor network.
"""

from __future__ import annotations

from itertools import count
from math import isfinite

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError

RIGHT, DOWN, DIAGONAL = (0, 1), (1, 0), (1, 1)
DIRECTIONS = {"rectangular": (RIGHT, DOWN), "triangular": (RIGHT, DOWN, DIAGONAL), "hexagonal": (RIGHT, DOWN)}
GEOMETRIES = tuple(DIRECTIONS)
GENERIC_NAME, ISING_NAME = "haar2", "rzz"
STRENGTHS = (0.5, 1.5)
"""Couplings and fields of the Ising model are drawn evenly from these bounds."""


def edge_colours(geometry: str, rows: int, columns: int) -> list[list[tuple[int, int]]]:
    """The pairs of qubits of each colour, in the order in which layers take them; each pair ascending.

    Edges are taken by direction (right, down, and in a triangular lattice diagonally down to the right), then
    row by row; each gets the first colour that neither of its ends has. A hexagonal lattice has edges down
    only from sites whose row plus column is even. From 3 x 3 sites up that makes 4 colours (rectangular), 6
    (triangular) or 3 (hexagonal).
    """
    _check(geometry, rows, columns)
    used: list[set[int]] = [set() for _ in range(rows * columns)]
    colours: list[list[tuple[int, int]]] = []
    for down, right in DIRECTIONS[geometry]:
        for row in range(rows - down):
            for column in range(columns - right):
                if geometry == "hexagonal" and down and (row + column) % 2:
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


def lattice_circuit(geometry: str, rows: int, columns: int, layers: int, seed: int) -> GateSequence:
    """A circuit of `layers` layers on `rows` x `columns` qubits; layer i takes colour i modulo their number.

    Every edge of the layer's colour carries a gate of its own, drawn from the Haar measure on U(4).
    """
    colours = edge_colours(geometry, rows, columns)
    generator = _generator(layers, seed)
    gates = [
        Gate(GENERIC_NAME, pair, _haar_unitary(generator))
        for layer in range(layers)
        for pair in colours[layer % len(colours)]
    ]
    return GateSequence(rows * columns, tuple(gates))


def trotter_circuit(
    geometry: str, rows: int, columns: int, steps: int, seed: int, time_step: float
) -> GateSequence:
    """`steps` Trotter steps of length t under H = - sum J_uv Z_u Z_v - sum h_v X_v, J and h random.

    A step is exp(i t/2 sum h X) exp(i t sum J Z Z) exp(i t/2 sum h X), of second order; the half turns
    between two steps are one gate. rzz, exp(-i angle Z Z / 2), is on every edge of the lattice in every step,
    colour after colour, and diagonal. `time_step` is t, in the units in which J and h lie in `STRENGTHS`.
    """
    edges = [pair for pairs in edge_colours(geometry, rows, columns) for pair in pairs]
    generator = _generator(steps, seed)
    if not (isfinite(time_step) and time_step > 0):
        raise InputError("--time-step", f"is {time_step}", "give a finite number above 0")
    couplings = generator.uniform(*STRENGTHS, size=len(edges))
    fields = generator.uniform(*STRENGTHS, size=rows * columns)
    interaction = [
        _rzz(pair, -2 * time_step * strength)
        for pair, strength in zip(edges, couplings.tolist(), strict=True)
    ]
    whole, half = (
        [gate("rx", (site,), (-2 * t * field,)) for site, field in enumerate(fields.tolist())]
        for t in (time_step, time_step / 2)
    )
    gates = [*half, *interaction]
    for _ in range(steps - 1):
        gates += whole + interaction
    return GateSequence(rows * columns, (*gates, *half))


def _check(geometry: str, rows: int, columns: int) -> None:
    if geometry not in DIRECTIONS:
        raise InputError("--geometry", f"{geometry!r} is unknown", f"choose from {', '.join(GEOMETRIES)}")
    check_count("--rows", rows, 2)
    check_count("--columns", columns, 2)


def _generator(layers: int, seed: int) -> np.random.Generator:
    check_count("--layers", layers)
    check_count("--seed", seed, 0)
    return np.random.default_rng(seed)


def _rzz(pair: tuple[int, int], angle: float) -> Gate:
    same, other = np.exp(-0.5j * angle), np.exp(0.5j * angle)
    return Gate(ISING_NAME, pair, np.diag(np.array([same, other, other, same])), (angle,))


def _haar_unitary(generator: np.random.Generator) -> np.ndarray:
    """A 4 x 4 matrix from the Haar measure: QR of a complex Gaussian one, the phases of R taken out."""
    real, imaginary = generator.normal(size=(2, 4, 4))
    q, r = np.linalg.qr(real + 1j * imaginary)
    diagonal = np.diag(r)
    return np.asarray(q * (diagonal / np.abs(diagonal)), dtype=np.complex128)
