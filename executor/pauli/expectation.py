"""Values of sums of words: in |0...0>, in computational and product states, and against another sum.

Words are not divided by anything: the identity has the expectation value 1 in every state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.pauli.words import PauliSum, pack
from planner.errors import InputError

Array = NDArray[Any]

ONE = np.uint64(1)
BLOCH_ROUNDING = 1e-12


def in_bits(terms: PauliSum, bits: str | None = None) -> complex:
    """<bits| terms |bits>; character k of `bits` is qubit k, None is all 0. A float for real coefficients."""
    chosen = ~np.any(terms.x, axis=1)
    values = terms.coefficients[chosen]
    if bits is not None:
        if len(bits) != terms.n_qubits or set(bits) - {"0", "1"}:
            raise InputError(
                "--state", f"{bits[:40]!r} is no state", f"give 0 or 1 for {terms.n_qubits} qubits"
            )
        row = pack(0, int(bits[::-1], 2), terms.n_qubits)
        odd = np.bitwise_count(terms.keys[chosen] & row).sum(axis=1, dtype=np.int64) & 1
        values = values * (1 - 2 * odd)
    return _number(values.sum())


def in_product(terms: PauliSum, bloch: Array) -> complex:
    """The value in a product state; `bloch` is float64 [qubit, 3]: <X>, <Y> and <Z> of each qubit."""
    bloch = np.asarray(bloch, dtype=np.float64)
    if bloch.shape != (terms.n_qubits, 3) or not np.all(np.linalg.norm(bloch, axis=1) <= 1 + BLOCH_ROUNDING):
        raise InputError(
            "product state", "has no Bloch vector for each qubit", "give [qubit, 3] with lengths 1 at most"
        )
    values = terms.coefficients.copy()
    for qubit in range(terms.n_qubits):
        w, bit = qubit // 64, np.uint64(qubit % 64)
        word = (terms.x[:, w] >> bit & ONE) + 2 * (terms.z[:, w] >> bit & ONE)
        x, y, z = bloch[qubit]
        values *= np.array([1.0, x, z, y])[word.astype(np.int64)]
    return _number(values.sum())


def overlap(first: PauliSum, second: PauliSum) -> complex:
    """tr(first^dagger second) / 2^n: the sum over equal words of conj(a) b."""
    if first.n_qubits != second.n_qubits:
        raise InputError(
            "overlap", f"is of {first.n_qubits} and {second.n_qubits} qubits", "give sums on as many qubits"
        )
    rows, numbers = np.unique(np.concatenate([first.keys, second.keys]), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    dense = np.zeros(len(rows), first.coefficients.dtype)
    dense[numbers[: first.n_terms]] = first.coefficients
    return _number(np.vdot(dense[numbers[first.n_terms :]], second.coefficients))


def _number(value: Any) -> complex:
    return complex(value) if np.iscomplexobj(value) else float(value)
