"""Random input states of every kind, each as a user gives it and as a dense density matrix."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from tests.support import dense_answers as dense
from tests.support.circuits import unitary
from tnplan.circuits.gates import I2, X, Y, Z, gate
from tnplan.circuits.pauli_sum import parse

PURE = ("bits", "letters", "bloch", "stabilizers")
MIXED = ("mixed bloch", "few stabilizers")
LETTERS = {"0": (0, 0, 1), "1": (0, 0, -1), "+": (1, 0, 0), "-": (-1, 0, 0), "r": (0, 1, 0), "l": (0, -1, 0)}


def random_state(kind: str, n_qubits: int, seed: int) -> tuple[Any, np.ndarray]:
    """A state of this kind, and its density matrix."""
    random = np.random.default_rng(seed)
    if kind in ("bits", "letters"):
        text = "".join(random.choice([*("01" if kind == "bits" else LETTERS)], n_qubits))
        return text, _product(np.array([LETTERS[letter] for letter in text], float))
    if "bloch" in kind:
        vectors = random.normal(size=(n_qubits, 3))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        if kind == "mixed bloch":
            vectors *= random.uniform(0, 1, (n_qubits, 1))
            vectors[random.integers(n_qubits)] = 0
        return vectors, _product(vectors)
    return _stabilizers(random, n_qubits, n_qubits if kind == "stabilizers" else n_qubits // 2)


def vector_of(rho: np.ndarray) -> np.ndarray:
    """The vector of a pure state, but for its phase."""
    values, vectors = np.linalg.eigh(rho)
    assert values[-1] > 1 - 1e-9
    return np.asarray(vectors[:, -1])


def _product(bloch: np.ndarray) -> np.ndarray:
    return reduce(np.kron, [(I2 + x * X + y * Y + z * Z) / 2 for x, y, z in bloch])


def _stabilizers(random: np.random.Generator, n_qubits: int, n_words: int) -> tuple[list[str], np.ndarray]:
    """Words that a random Clifford makes of Z of some qubits."""
    gates = []
    for _ in range(8 * n_qubits):
        if n_qubits > 1 and random.random() < 0.5:
            gates.append(gate("cnot", random.choice(n_qubits, 2, replace=False).tolist()))
        else:
            gates.append(gate(str(random.choice(["h", "s", "x"])), (int(random.integers(n_qubits)),)))
    matrix = unitary(gates, n_qubits)
    rho = np.eye(2**n_qubits, dtype=complex) / 2**n_qubits
    words = []
    for qubit in random.permutation(n_qubits)[:n_words].tolist():
        word = matrix @ dense.matrix_of(parse(f"Z{qubit}", n_qubits)) @ matrix.conj().T
        words.append(_text(word, n_qubits))
        rho = rho @ (np.eye(2**n_qubits) + word)
    return words, rho


def _text(word: np.ndarray, n_qubits: int) -> str:
    """A Pauli word's text with its sign: its letters come from how it turns X and Z of each qubit."""
    letters = ""
    for qubit in range(n_qubits):
        x, z = (dense.matrix_of(parse(f"{letter}{qubit}", n_qubits)) for letter in "XZ")
        has_z, has_x = (not np.allclose(word @ other, other @ word) for other in (x, z))
        letters += "IXZY"[has_x + 2 * has_z]
    sign = np.trace(word @ dense.matrix_of(parse(letters, n_qubits))).real
    return ("-" if sign < 0 else "") + letters
