"""An observable in any form that people have: text, a `PauliSum`, or an operator of Qiskit or OpenFermion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tnplan.circuits.observables.pauli_sum import PauliSum, masks, parse, pauli_sum
from tnplan.common.errors import InputError

PHASES = {"": 1, "-": -1, "i": 1j, "-i": -1j}
"""What Qiskit writes before the letters of a `Pauli`."""


def given_sum(observable: Any, n_qubits: int) -> PauliSum:
    """The sum of Pauli words that an observable is. Qubit k of Qiskit's `SparsePauliOp` is qubit k.

    Raises InputError for what is none, and for one on other qubits.
    """
    if isinstance(observable, PauliSum):
        found = observable
    else:
        found = _of_library(observable, n_qubits) or parse(observable, n_qubits)
    if found.n_qubits != n_qubits:
        raise InputError("--observable", f"is a sum on {found.n_qubits} qubits", f"give one on {n_qubits}")
    return found


def _of_library(observable: Any, n_qubits: int) -> PauliSum | None:
    """The sum that an operator of Qiskit or OpenFermion is; None for anything else.

    Taken are `SparsePauliOp`, `Pauli` and `QubitOperator`.
    """
    if hasattr(observable, "to_sparse_list"):
        listed = [
            (list(zip(letters, map(int, qubits), strict=True)), value)
            for letters, qubits, value in observable.to_sparse_list()
        ]
        return _sum(listed, int(observable.num_qubits))
    if type(observable).__name__ == "Pauli" and hasattr(observable, "to_label"):
        label, size = observable.to_label(), int(observable.num_qubits)
        letters = enumerate(reversed(label[len(label) - size :]))
        word = [(letter, qubit) for qubit, letter in letters if letter != "I"]
        return _sum([(word, PHASES[label[: len(label) - size]])], size)
    if type(observable).__name__ == "QubitOperator" and isinstance(observable.terms, dict):
        listed = [
            ([(letter, int(qubit)) for qubit, letter in word], value)
            for word, value in observable.terms.items()
        ]
        return _sum(listed, n_qubits)
    return None


def _sum(terms: Sequence[tuple[list[tuple[str, int]], Any]], n_qubits: int) -> PauliSum:
    """The sum of letters on qubits with their coefficients, real where all of these are."""
    values = np.asarray([value for _, value in terms])
    if values.dtype == object or not np.isfinite(values).all():
        raise InputError("--observable", "has coefficients that are no finite numbers", "bind its parameters")
    is_real = not np.any(np.imag(values))
    numbers = [float(np.real(value)) if is_real else complex(value) for value in values.tolist()]
    words = [masks(word, n_qubits, "--observable") for word, _ in terms]
    return pauli_sum([(x, z, value) for (x, z), value in zip(words, numbers, strict=True)], n_qubits)
