"""Derivatives of gates by their angles. Knows matrices and names; no state and no engine.

The elements of all gates with names are trigonometric polynomials in half of each angle, of order 3 at most.
The derivative of such a polynomial is a sum of its values at 6 angles (Wierichs et al., Quantum 6, 677, 2022,
Eq. 26), exact up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from math import cos, pi, sin

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.dual_number import VariedGate
from tnplan.circuits.gates import I2, KINDS, Kind, X, Y, Z, kronecker, turn
from tnplan.circuits.qasm.gate_calls import BUILT_IN, INCLUDED
from tnplan.common.errors import InputError

ORDER = 3
"""The largest frequency of a matrix element, in halves of an angle."""
SAME = 1e-10
"""How far elements of a gate may be from those that its name stands for, up to a phase of the whole gate."""
LETTERS = {"x": X, "y": Y, "z": Z}


def generators(gate: Gate, place: str = "gate", *, of_qsim: bool = True) -> tuple[np.ndarray, ...]:
    """For each angle of a gate the matrix G with dU/dangle = G U, complex128 on the gate's qubits.

    The gate is known by its name; one of another name that has one angle, where its matrix is
    exp(-i angle A / 2) with an A whose square is one. Phases of the whole gate make no difference. Where
    `of_qsim` is false, the name is none of qsim's, some of which turn the other way.

    Raises InputError for a gate with angles of which nothing is known, or which two file formats mean
      differently.
    """
    if isinstance(gate, VariedGate):
        return gate.generators
    # A name alone does not say the convention: candidates by name, number of qubits and of angles
    # are compared with the gate's own matrix, up to a phase.
    kinds = _kinds(gate.name.lower(), len(gate.qubits), len(gate.params), of_qsim)
    candidates = [_generators(kind, gate.params) for kind in kinds if _is_of(kind, gate)]
    # Names of qsim and of OpenQASM may turn opposite ways, and at some angles, such as pi, both matrices fit.
    if any(not _is_close(other, candidates[0]) for other in candidates[1:]):
        raise InputError(
            place, f"with angle {gate.params[0]:g} may be that of OpenQASM or of qsim, which rotate in "
            f"opposite directions",
            "use another angle, or gates that are the same in both, such as rz and cz",
        )  # fmt: skip
    if candidates:
        return candidates[0]
    axis = _axis(gate)
    if axis is None:
        raise InputError(
            place, f"has {len(gate.params)} angles, and its derivatives by them are not known",
            "use gates of the standard names, or give it no angles",
        )  # fmt: skip
    # U = exp(-i t A / 2) has dU/dt = (-i A / 2) U.
    return (-0.5j * axis,)


def kind_of(gate: Gate) -> Kind | None:
    """The kind of OpenQASM's gates that a gate is of, up to a phase; None where it is of none."""
    kinds = _kinds(gate.name.lower(), len(gate.qubits), len(gate.params), of_qsim=False)
    return next((kind for kind in kinds if _is_of(kind, gate)), None)


@cache
def _kinds(name: str, n_qubits: int, n_params: int, of_qsim: bool) -> tuple[Kind, ...]:
    """What the name of a gate may stand for."""
    tables = (KINDS, INCLUDED, {key.lower(): kind for key, kind in BUILT_IN.items()})
    kinds = [table[name] for table in tables[0 if of_qsim else 1 :] if name in table]
    letters = name[1:]
    if name[:1] == "r" and len(letters) == n_qubits and set(letters) <= LETTERS.keys():
        kinds.append(_turn_about(letters))
    fitting = [kind for kind in kinds if (kind.n_qubits, kind.n_params) == (n_qubits, n_params)]
    distinct: list[Kind] = []
    for kind in fitting:
        if not any(_are_same(kind, other) for other in distinct):
            distinct.append(kind)
    return tuple(distinct)


def _are_same(kind: Kind, other: Kind) -> bool:
    """Whether two kinds with as many angles have the same matrices, by some that are equal to no others."""
    angles = [(0.3, -1.1, 2.0, 0.7)[: kind.n_params], (-2.3, 0.9, 0.2, 1.7)[: kind.n_params]]
    return _is_close(*([side.matrix(*each) for each in angles] for side in (kind, other)))


@cache
def _turn_about(letters: str) -> Kind:
    """exp(-i angle P / 2) for the word P of some letters."""
    return Kind(len(letters), 1, partial(turn, kronecker(LETTERS[letter] for letter in letters)))


def _is_of(kind: Kind, gate: Gate) -> bool:
    """Whether a gate is of a kind, up to a phase."""
    named = np.asarray(kind.matrix(*gate.params))
    overlap = np.vdot(named, gate.matrix)
    phase = overlap / abs(overlap) if abs(overlap) > SAME else 1.0
    return bool(named.shape == gate.matrix.shape and np.abs(phase * named - gate.matrix).max() <= SAME)


def _is_close(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    return all(np.abs(matrix - other).max() <= SAME for matrix, other in zip(some, others, strict=True))


def _generators(kind: Kind, params: tuple[float, ...]) -> tuple[np.ndarray, ...]:
    """Those of a gate of a kind, without multiples of the identity."""
    if len(params) == 1 and (constant := _constant(kind)) is not None:
        return constant
    return _at(kind, tuple(map(float, params)))


@cache
def _constant(kind: Kind) -> tuple[np.ndarray, ...] | None:
    """Those of a kind with one angle, where they are the same at all angles: found at three of them."""
    samples = [_at(kind, (angle,)) for angle in (0.0, 0.7, -2.3)]
    return samples[0] if all(_is_close(sample, samples[0]) for sample in samples[1:]) else None


def _at(kind: Kind, params: tuple[float, ...]) -> tuple[np.ndarray, ...]:
    """Those at some angles, from the derivatives of the matrix."""
    inverse = np.asarray(kind.matrix(*params)).conj().T
    matrices = [_derivative(kind, params, number) @ inverse for number in range(kind.n_params)]
    return tuple(matrix - np.trace(matrix) / len(matrix) * np.eye(len(matrix)) for matrix in matrices)


def _derivative(kind: Kind, params: tuple[float, ...], number: int) -> np.ndarray:
    """The derivative of a gate's matrix by one of its angles."""
    total = np.zeros_like(np.asarray(kind.matrix(*params), np.complex128))
    for node in range(1, 2 * ORDER + 1):
        shift = (2 * node - 1) * pi / (2 * ORDER)
        weight = (-1) ** (node - 1) / (4 * ORDER * sin(shift / 2) ** 2)
        moved = [angle + 2 * shift * (position == number) for position, angle in enumerate(params)]
        total += weight / 2 * kind.matrix(*moved)
    return total


def _axis(gate: Gate) -> np.ndarray | None:
    """A of a gate exp(-i angle A / 2), up to a phase, where its square is one; None for others."""
    if len(gate.params) != 1:
        return None
    c, s = cos(gate.params[0] / 2), sin(gate.params[0] / 2)
    if abs(s) < SAME:
        return None
    eye = np.eye(len(gate.matrix))
    # exp(i f) U = cos(t/2) - i sin(t/2) A, solved for A; the phase f is the one that makes A
    # Hermitian with A^2 = 1.
    for phase in _phases(gate.matrix, c):
        axis = (phase * gate.matrix - c * eye) / (-1j * s)
        rounding = SAME / abs(s)
        squared = np.allclose(axis @ axis, eye, rtol=0, atol=rounding)
        if squared and np.allclose(axis, axis.conj().T, rtol=0, atol=rounding):
            return np.asarray(axis)
    return None


def _phases(matrix: np.ndarray, cosine: float) -> list[complex]:
    """Phases that may make a gate one with determinant 1 and the trace of a rotation."""
    side = len(matrix)
    root = np.linalg.det(matrix) ** (-1 / side)
    return [1.0, *(root * np.exp(2j * pi * k / side) for k in range(side))]


def pauli_words(matrix: np.ndarray) -> list[tuple[int, int, complex]]:
    """A matrix on q qubits as a sum of Pauli words: the masks x and z over its qubits, bit j for qubit j, and
    the coefficient; words that are missing but for rounding left out."""
    return list(_pauli_words(np.asarray(matrix, np.complex128).tobytes(), len(matrix)))


@lru_cache(maxsize=1024)
def _pauli_words(content: bytes, side: int) -> tuple[tuple[int, int, complex], ...]:
    """Those of the matrix of a side whose elements are in `content`."""
    matrix, q = np.frombuffer(content, np.complex128).reshape(side, side), side.bit_length() - 1
    words = []
    for x in range(side):
        for z in range(side):
            coefficient = complex(np.vdot(word_matrix(x, z, q), matrix)) / side
            if abs(coefficient) > SAME:
                words.append((x, z, coefficient))
    return tuple(words)


@cache
def word_matrix(x: int, z: int, n_qubits: int) -> np.ndarray:
    """The Pauli word of masks x and z on qubits, bit j for qubit j, the first most significant in a row."""
    letters = [I2, X, Z, Y]
    return kronecker(letters[(x >> j & 1) + 2 * (z >> j & 1)] for j in range(n_qubits))
