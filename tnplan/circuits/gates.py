"""Matrices of the gates that the file formats name. Plain functions of their angles (radians).

Conventions and phases are those of qsim (github quantumlib/qsim, lib/gates_qsim.h): rotations are
exp(-i angle P / 2); `x_1_2`, `y_1_2` and `hz_1_2` are the square roots of X, Y and W = (X + Y) / sqrt 2 with
eigenvalues 1 and i; fs(theta, phi) turns |01> into cos(theta) |01> - i sin(theta) |10>; fs and cp(phi) turn
|11> into exp(-i phi) |11>.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import cos, isfinite, pi, sin, sqrt

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.common.errors import InputError

I2 = np.eye(2, dtype=np.complex128)
X = np.array([[0, 1], [1, 0]], dtype=np.complex128)
Y = np.array([[0, -1j], [1j, 0]], dtype=np.complex128)
Z = np.diag([1, -1]).astype(np.complex128)
W = (X + Y) / sqrt(2)
SWAP = np.eye(4, dtype=np.complex128)[[0, 2, 1, 3]]


PAULI_MATRICES = np.array([I2, X, Y, Z])
"""The matrices of the letters I, X, Y and Z."""


def letters_of(x: int, z: int) -> dict[int, int]:
    """The letters of a word other than I by their qubits, as numbers of `PAULI_MATRICES`, from its masks of X
    and of Z.

    Examples
    --------
    >>> letters_of(0b011, 0b110)  # X0 Y1 Z2
    {0: 1, 1: 2, 2: 3}
    """
    support = x | z
    return {
        qubit: (x >> qubit & 1) + 3 * (z >> qubit & 1) - 2 * (x >> qubit & z >> qubit & 1)
        for qubit in range(support.bit_length()) if support >> qubit & 1
    }  # fmt: skip


_identity = lru_cache(np.eye)


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    """exp(-i angle axis / 2) for an `axis` whose square is one."""
    return np.asarray(cos(angle / 2) * _identity(len(axis)) - 1j * sin(angle / 2) * axis)


def kronecker(factors: Iterable[np.ndarray]) -> np.ndarray:
    """The Kronecker product of matrices, 1 for none."""
    return reduce(np.kron, factors, np.eye(1, dtype=np.complex128))


def diagonal(elements: Sequence[complex]) -> np.ndarray:
    """A diagonal matrix, complex128."""
    matrix = np.zeros((len(elements), len(elements)), np.complex128)
    matrix.flat[:: len(elements) + 1] = elements
    return matrix


def rz(angle: float) -> np.ndarray:
    """Rotation about Z, exactly diagonal."""
    return diagonal([np.exp(-0.5j * angle), np.exp(0.5j * angle)])


def root(axis: np.ndarray) -> np.ndarray:
    """The square root with eigenvalues 1 and i of a 2 x 2 `axis` whose square is one."""
    return np.exp(0.25j * pi) * turn(axis, pi / 2)


def phase(angle: float) -> np.ndarray:
    """diag(1, exp(i angle))."""
    return diagonal([1, np.exp(1j * angle)])


def rxy(theta: float, phi: float) -> np.ndarray:
    """Rotation by `phi` about the axis at angle `theta` from X in the XY plane."""
    return turn(cos(theta) * X + sin(theta) * Y, phi)


def controlled(matrix: np.ndarray, n_controls: int = 1, value: int = 1) -> np.ndarray:
    """`matrix` on the last qubits where each of `n_controls` qubits before them is `value`."""
    side = len(matrix)
    result = np.eye(side << n_controls, dtype=np.complex128)
    block = slice(len(result) - side, None) if value else slice(0, side)
    result[block, block] = matrix
    return result


def fsim(theta: float, phi: float) -> np.ndarray:
    """[[1,0,0,0], [0,cos,-i sin,0], [0,-i sin,cos,0], [0,0,0,exp(-i phi)]] with cos and sin of `theta`."""
    result = np.diag([1, cos(theta), cos(theta), np.exp(-1j * phi)]).astype(np.complex128)
    result[1, 2] = result[2, 1] = -1j * sin(theta)
    return result


def iswap() -> np.ndarray:
    """|01> to i |10> and back."""
    return np.array([[1, 0, 0, 0], [0, 0, 1j, 0], [0, 1j, 0, 0], [0, 0, 0, 1]], dtype=np.complex128)


@dataclass(frozen=True, eq=False)
class Kind:
    """A gate that files may name: how many qubits and angles it takes, and its matrix."""

    n_qubits: int
    n_params: int
    matrix: Callable[..., np.ndarray]


KINDS: dict[str, Kind] = {
    "id1": Kind(1, 0, lambda: I2),
    "x": Kind(1, 0, lambda: X),
    "y": Kind(1, 0, lambda: Y),
    "z": Kind(1, 0, lambda: Z),
    "h": Kind(1, 0, lambda: (X + Z) / sqrt(2)),
    "s": Kind(1, 0, lambda: np.diag([1, 1j])),
    "t": Kind(1, 0, lambda: phase(pi / 4)),
    "x_1_2": Kind(1, 0, lambda: root(X)),
    "y_1_2": Kind(1, 0, lambda: root(Y)),
    "hz_1_2": Kind(1, 0, lambda: root(W)),
    "rx": Kind(1, 1, lambda angle: turn(X, angle)),
    "ry": Kind(1, 1, lambda angle: turn(Y, angle)),
    "rz": Kind(1, 1, rz),
    "rxy": Kind(1, 2, rxy),
    "id2": Kind(2, 0, lambda: np.eye(4)),
    "cz": Kind(2, 0, lambda: controlled(Z)),
    "cnot": Kind(2, 0, lambda: controlled(X)),
    "sw": Kind(2, 0, lambda: SWAP),
    "is": Kind(2, 0, iswap),
    "cp": Kind(2, 1, lambda angle: controlled(phase(-angle))),
    "fs": Kind(2, 2, fsim),
}


@lru_cache(maxsize=4096)
def shared_matrix(kind: Kind, params: tuple[float, ...]) -> np.ndarray:
    """The matrix of a gate for finite angles, read-only, so that gates share it."""
    matrix = np.array(kind.matrix(*params), dtype=np.complex128)
    matrix.flags.writeable = False
    return matrix


def gate(name: str, qubits: Sequence[int], params: Sequence[float] = ()) -> Gate:
    """The gate `name` of `KINDS` on `qubits`."""
    angles = tuple(params)
    if not all(map(isfinite, angles)):
        raise InputError(f"gate {name}", f"has the angles {angles}", "give finite numbers")
    return Gate(name, tuple(qubits), shared_matrix(KINDS[name], angles), angles)
