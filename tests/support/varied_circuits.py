"""Random circuits with shared parameters, as OpenQASM, and their derivatives in extended precision.

Knows nothing of the package: matrices are made here, and derivatives are differences of the sixth order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Word = Mapping[int, str]
"""The letter on each qubit."""
Sum = Sequence[tuple[float, Word]]
EXTENDED = np.clongdouble
LETTERS = {
    "I": np.eye(2, dtype=EXTENDED),
    "X": np.array([[0, 1], [1, 0]], EXTENDED),
    "Y": np.array([[0, -1j], [1j, 0]], EXTENDED),
    "Z": np.array([[1, 0], [0, -1]], EXTENDED),
}
NAMES = ("a", "b", "c")
KINDS = {
    "h": (1, 0), "cx": (2, 0), "s": (1, 0), "rx": (1, 1), "ry": (1, 1), "rz": (1, 1), "p": (1, 1),
    "rzz": (2, 1), "rxx": (2, 1), "cp": (2, 1), "crx": (2, 1), "cry": (2, 1), "crz": (2, 1), "u3": (1, 3),
}  # fmt: skip
"""The qubits and angles of gates."""
STENCIL = ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))
"""Weights of differences between a number of steps up and down."""
STEP = np.longdouble(1e-3)


@dataclass(frozen=True)
class Angle:
    """A constant, and a factor for each parameter."""

    constant: float
    factors: Mapping[str, float]

    def at(self, values: Mapping[str, float]) -> np.longdouble:
        """Its value."""
        total = np.longdouble(self.constant)
        for name, factor in self.factors.items():
            total += np.longdouble(factor) * values[name]
        return total

    def __str__(self) -> str:
        return " + ".join([repr(self.constant), *(f"{f!r} * {name}" for name, f in self.factors.items())])


@dataclass(frozen=True)
class VariedCircuit:
    """Gates: a name, qubits, angles."""

    n_qubits: int
    gates: tuple[tuple[str, tuple[int, ...], tuple[Angle, ...]], ...]

    @property
    def text(self) -> str:
        """The circuit as OpenQASM 3."""
        lines = ["OPENQASM 3.0;", 'include "stdgates.inc";', f"qubit[{self.n_qubits}] q;"]
        lines += [f"input float {name};" for name in NAMES]
        for name, qubits, angles in self.gates:
            given = f"({', '.join(map(str, angles))})" if angles else ""
            lines.append(f"{name}{given} {', '.join(f'q[{q}]' for q in qubits)};")
        return "\n".join(lines) + "\n"

    def values(self, sums: Sequence[Sum], at: Mapping[str, float]) -> np.ndarray:
        """The expectation value of each sum, long double."""
        state = np.zeros((2,) * self.n_qubits, EXTENDED)
        state[(0,) * self.n_qubits] = 1
        for name, qubits, angles in self.gates:
            state = _applied(_matrix(name, [angle.at(at) for angle in angles]), qubits, state)
        return np.array([sum(c * _value(state, word) for c, word in one) for one in sums])

    def gradients(self, sums: Sequence[Sum], at: Mapping[str, float]) -> np.ndarray:
        """The derivatives, float64 [sum, parameter]."""
        columns = []
        for name in NAMES:
            total = np.zeros(len(sums), np.longdouble)
            for steps, weight in STENCIL:
                up, down = (
                    self.values(sums, {**at, name: at[name] + sign * steps * STEP}) for sign in (1, -1)
                )
                total += np.longdouble(weight) * (up - down) / STEP
            columns.append(total.astype(np.float64))
        return np.array(columns).T


def random_varied_circuit(n_qubits: int, n_gates: int, seed: int) -> VariedCircuit:
    """Every kind of gate; angles of one or two shared parameters with factors, or of none."""
    generator = np.random.default_rng(seed)
    names, gates = list(KINDS), []
    for number in range(n_gates):
        name = names[number % len(names)]
        n, n_angles = KINDS[name]
        qubits = tuple(int(q) for q in generator.choice(n_qubits, n, replace=False))
        angles = []
        for _ in range(n_angles):
            chosen = generator.choice(NAMES, int(generator.integers(0, 3)), replace=False)
            factors = {str(one): round(float(generator.uniform(-2, 2)), 3) for one in chosen}
            angles.append(Angle(round(float(generator.uniform(-3, 3)), 3), factors))
        gates.append((name, qubits, tuple(angles)))
    return VariedCircuit(n_qubits, tuple(gates))


def random_sums(n_qubits: int, count: int, seed: int) -> list[list[tuple[float, dict[int, str]]]]:
    """Sums of words on one to three qubits, with a constant."""
    generator = np.random.default_rng(seed)
    sums = []
    for _ in range(count):
        words: list[tuple[float, dict[int, str]]] = [(0.5, {})]
        for _ in range(3):
            qubits = generator.choice(n_qubits, int(generator.integers(1, 4)), replace=False)
            words.append(
                (
                    round(float(generator.normal()), 3),
                    {int(q): str(generator.choice([*"XYZ"])) for q in qubits},
                )
            )
        sums.append(words)
    return sums


def text_of(one: Sum) -> str:
    """A sum as the package reads it."""
    return "".join(
        f"{c:+}*{' '.join(f'{letter}{q}' for q, letter in word.items()) or 'I'} " for c, word in one
    )


def _matrix(name: str, angles: Sequence[np.longdouble]) -> np.ndarray:
    """The matrix of a gate; the first of its qubits is the most significant."""
    if name == "h":
        return (LETTERS["X"] + LETTERS["Z"]) / np.sqrt(np.longdouble(2))
    if name == "s":
        return np.diag(np.array([1, 1j], EXTENDED))
    if name == "cx":
        return _controlled(LETTERS["X"])
    if name == "p":
        return np.diag(np.array([1, _phase(angles[0])], EXTENDED))
    if name == "cp":
        return _controlled(_matrix("p", angles))
    if name == "u3":
        theta, phi, lam = angles
        c, s = np.cos(theta / 2), np.sin(theta / 2)
        return np.array([[c, -_phase(lam) * s], [_phase(phi) * s, _phase(phi + lam) * c]], EXTENDED)
    if name in ("crx", "cry", "crz"):
        return _controlled(_matrix(name[1:], angles))
    word = np.eye(1, dtype=EXTENDED)
    for letter in name[1:].upper():
        word = np.kron(word, LETTERS[letter])
    half = angles[0] / 2
    return np.cos(half) * np.eye(len(word), dtype=EXTENDED) - EXTENDED(1j) * np.sin(half) * word


def _phase(angle: np.longdouble) -> np.clongdouble:
    return EXTENDED(np.cos(angle)) + EXTENDED(1j) * np.sin(angle)


def _controlled(matrix: np.ndarray) -> np.ndarray:
    result = np.eye(4, dtype=EXTENDED)
    result[2:, 2:] = matrix
    return result


def _applied(matrix: np.ndarray, qubits: Sequence[int], state: np.ndarray) -> np.ndarray:
    q = len(qubits)
    state = np.tensordot(matrix.reshape((2,) * (2 * q)), state, (range(q, 2 * q), qubits))
    return np.moveaxis(state, range(q), qubits)


def _value(state: np.ndarray, word: Word) -> np.longdouble:
    """<state| word |state>."""
    image = state
    for qubit, letter in word.items():
        image = _applied(LETTERS[letter], (qubit,), image)
    return np.longdouble(np.sum(state.conj() * image).real)
