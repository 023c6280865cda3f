"""Pauli words behind and before gates, against products of dense matrices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.support.engines.statevector import random_unitary
from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.generators import pauli_words, word_matrix
from tnplan.circuits.gates import KINDS, gate
from tnplan.executor.statevector.derivative_segments import WordImages

ANGLES = (0.0, np.pi / 2, np.pi, 0.7, -2.1)


def gates_on(qubits: tuple[int, ...]) -> list[Gate]:
    """Gates with names at angles of Clifford gates and at others, and a random one."""
    kinds = [(name, kind) for name, kind in KINDS.items() if kind.n_qubits == len(qubits)]
    named = [
        gate(name, qubits, (angle,) * kind.n_params)
        for name, kind in kinds for angle in (ANGLES if kind.n_params else (0.0,))
    ]  # fmt: skip
    return [*named, Gate("u", qubits, random_unitary(len(qubits), np.random.default_rng(1)))]


@pytest.mark.parametrize("qubits", [(0,), (2,), (0, 1), (2, 0), (1, 2, 0)])
@pytest.mark.parametrize("back", [False, True])
def test_images_are_those_of_dense_matrices(qubits: tuple[int, ...], back: bool) -> None:
    """On three qubits, of which some are not the gate's."""
    gates = gates_on(qubits)
    image = WordImages(gates)
    n_single = 0
    for number, one in enumerate(gates):
        matrix = one.matrix.conj().T if back else one.matrix
        for x, z in product(range(8), repeat=2):
            own = [sum((mask >> q & 1) << k for k, q in enumerate(qubits)) for mask in (x, z)]
            moved = pauli_words(matrix @ word_matrix(*own, len(qubits)) @ matrix.conj().T)
            found = image(number, (x, z, 0.5), back)
            if len(moved) > 1:
                assert found is None
                continue
            n_single += 1
            assert found is not None
            placed = [sum((mask >> k & 1) << q for k, q in enumerate(qubits)) for mask in moved[0][:2]]
            others = 7 & ~sum(1 << q for q in qubits)
            assert found[:2] == (x & others | placed[0], z & others | placed[1])
            assert found[2] == pytest.approx(0.5 * moved[0][2], abs=1e-14)
    assert 0 < n_single < 64 * len(gates)
