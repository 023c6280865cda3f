"""Derivatives of all gates with names, against finite differences; what is known of others."""

from __future__ import annotations

import numpy as np
import pytest

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.generators import generators, pauli_words, word_matrix
from tnplan.circuits.gates import KINDS, X, Y, Z, turn
from tnplan.circuits.qasm.gate_calls import INCLUDED
from tnplan.common.errors import InputError

ANGLED = [
    (table, name) for table in (KINDS, INCLUDED) for name, kind in sorted(table.items()) if kind.n_params
]
STEP = 1e-6


@pytest.mark.parametrize(("table", "name"), ANGLED, ids=lambda value: value if isinstance(value, str) else "")
def test_every_gate_with_angles(table: dict, name: str) -> None:
    kind = table[name]
    for seed in range(3):
        params = tuple(np.random.default_rng(seed).uniform(-4, 4, kind.n_params).tolist())
        if not seed and name != "cp":
            params = (0.0,) * kind.n_params
        matrix = np.asarray(kind.matrix(*params), np.complex128)
        found = generators(Gate(name, tuple(range(kind.n_qubits)), matrix, params))
        assert len(found) == kind.n_params
        for number, generator in enumerate(found):
            ends = [
                kind.matrix(*(angle + sign * STEP * (place == number) for place, angle in enumerate(params)))
                for sign in (1, -1)
            ]
            wanted = (ends[0] - ends[1]) / (2 * STEP)
            # Up to a multiple of the identity: that of another name's phase.
            rest = generator @ matrix - wanted
            share = np.trace(rest @ matrix.conj().T) / len(matrix)
            assert abs(share.real) < 1e-8
            assert np.abs(rest - share * matrix).max() < 1e-8


def test_rotations_without_a_known_name() -> None:
    axis = (np.kron(X, Y) + np.kron(Z, Y)) / np.sqrt(2)  # its terms anticommute
    for angle in (0.3, -2.0, 3.1):
        matrix = np.cos(angle / 2) * np.eye(4) - 1j * np.sin(angle / 2) * axis
        (found,) = generators(Gate("own", (0, 1), np.exp(0.7j) * matrix, (angle,)))
        assert np.allclose(found, -0.5j * axis, atol=1e-9)
    word = np.kron(Z, np.kron(X, Y))
    (found,) = generators(Gate("rzxy", (2, 0, 1), np.eye(8, dtype=np.complex128), (0.0,)))
    assert np.allclose(found, -0.5j * word)


def test_what_is_not_known_is_refused() -> None:
    matrix = turn(X, 0.3) @ turn(Z, 0.4)
    for gate in (
        Gate("own", (0,), matrix, (0.3, 0.4)),
        Gate("rx", (0,), matrix, (0.3,)),
        Gate("own", (0,), np.eye(2, dtype=np.complex128), (0.0,)),
        Gate("cp", (0, 1), np.eye(4, dtype=np.complex128), (0.0,)),  # of OpenQASM or of qsim
    ):
        with pytest.raises(InputError, match="gate 7"):
            generators(gate, "gate 7")


def test_words_add_up_to_the_matrix() -> None:
    generator = np.random.default_rng(0)
    for n_qubits in (1, 2, 3):
        matrix = generator.normal(size=(2**n_qubits,) * 2) + 1j * generator.normal(size=(2**n_qubits,) * 2)
        total = sum(c * word_matrix(x, z, n_qubits) for x, z, c in pauli_words(matrix))
        assert np.allclose(total, matrix, atol=1e-12)
    assert pauli_words(np.kron(Y, Z)) == [(1, 3, 1)]
