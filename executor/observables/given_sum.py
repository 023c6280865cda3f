"""An observable in any form that people have: text, a `PauliSum`, or Qiskit's `SparsePauliOp`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.observables.pauli_sum import PauliSum, masks, parse, pauli_sum
from tnplan.planner.common.errors import InputError


def given_sum(observable: Any, n_qubits: int) -> PauliSum:
    """The sum of Pauli words that an observable is. Qubit k of Qiskit is qubit k.

    Raises InputError for what is none, and for one on other qubits.
    """
    if isinstance(observable, PauliSum):
        found = observable
    else:
        is_sparse = hasattr(observable, "to_sparse_list")
        found = _sparse(observable) if is_sparse else parse(observable, n_qubits)
    if found.n_qubits != n_qubits:
        raise InputError("--observable", f"is a sum on {found.n_qubits} qubits", f"give one on {n_qubits}")
    return found


def _sparse(operator: Any) -> PauliSum:
    """The sum of a `SparsePauliOp`, real where all its coefficients are."""
    n, terms = int(operator.num_qubits), []
    values = np.asarray([value for _, _, value in operator.to_sparse_list()])
    if values.dtype == object or not np.isfinite(values).all():
        raise InputError("--observable", "has coefficients that are no finite numbers", "bind its parameters")
    is_real = not np.any(np.imag(values))
    for letters, qubits, value in operator.to_sparse_list():
        word = masks(list(zip(letters, map(int, qubits), strict=True)), n, "--observable")
        terms.append((*word, float(np.real(value)) if is_real else complex(value)))
    return pauli_sum(terms, n)
