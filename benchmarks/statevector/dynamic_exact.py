"""Exact probabilities of what small circuits with measurements give, by NumPy alone.

Each branch of outcomes has a density matrix where there is noise, else a state. What is measured last, with
nothing after it, does not branch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from qiskit import QuantumCircuit
from qiskit.quantum_info import Operator

Branch = tuple[tuple[int, ...], np.ndarray]
"""Classical bits, and the state that has them, as (2,) * qubits, or twice as many axes for a density matrix;
its norm is their probability."""
NEGLIGIBLE = 1e-14


def applied(state: np.ndarray, matrix: np.ndarray, qubits: list[int]) -> np.ndarray:
    """A matrix on some axes of a state; Qiskit's first qubit is the least significant."""
    k = len(qubits)
    square = matrix.reshape((2,) * (2 * k))
    moved = np.tensordot(square, state, axes=(range(k, 2 * k), qubits[::-1]))
    return np.moveaxis(moved, range(k), qubits[::-1])


def depolarized(density: np.ndarray, qubits: list[int], probability: float) -> np.ndarray:
    """One of the Pauli words but the identity, each equally likely, with this probability in all."""
    n = density.ndim // 2
    words: list[np.ndarray] = [np.eye(1)]
    paulis = [np.eye(2), np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])]
    for _ in qubits:
        words = [np.kron(word, pauli) for word in words for pauli in paulis]
    mixed = (1 - probability) * density
    for word in words[1:]:
        both = applied(applied(density, word, qubits), word.conj(), [n + q for q in qubits])
        mixed = mixed + probability / (len(words) - 1) * both
    return mixed


def probabilities(circuit: QuantumCircuit, noise: float = 0.0) -> dict[str, float]:
    """The probability of each string of classical bits, the last one first; after each gate comes
    depolarizing noise with the probability `noise`."""
    n, dense = circuit.num_qubits, noise > 0
    start = np.zeros((2,) * (n * (1 + dense)), complex)
    start.flat[0] = 1
    branches: list[Branch] = [((0,) * circuit.num_clbits, start)]
    body = [(one.operation, *places(circuit, one)) for one in circuit.data]
    last = {bits[0]: qubits[0] for number, (operation, qubits, bits) in enumerate(body)
            if operation.name == "measure" and not touched(circuit, number, qubits[0], bits[0])}  # fmt: skip
    for operation, qubits, bits in body:
        if operation.name == "measure" and bits[0] in last:
            continue
        if operation.name == "if_else":
            bit, value = circuit.find_bit(operation.condition[0]).index, int(operation.condition[1])
            block = operation.blocks[0]
            for inner in block.data:
                own = [qubits[block.find_bit(q).index] for q in inner.qubits]
                branches = [
                    (
                        found,
                        acted(state, inner.operation, own, noise, dense) if found[bit] == value else state,
                    )
                    for found, state in branches
                ]
        elif operation.name in ("measure", "reset"):
            to = bits[0] if operation.name == "measure" else None
            branches = list(split(branches, qubits[0], to, dense))
        else:
            branches = [(found, acted(state, operation, qubits, noise, dense)) for found, state in branches]
    return summed(branches, last, dense)


def places(circuit: QuantumCircuit, one: Any) -> tuple[list[int], list[int]]:
    """The indices of an instruction's qubits and classical bits."""
    return [circuit.find_bit(q).index for q in one.qubits], [circuit.find_bit(c).index for c in one.clbits]


def touched(circuit: QuantumCircuit, number: int, qubit: int, bit: int) -> bool:
    """Whether instructions after this one use the qubit or the classical bit."""
    later = [places(circuit, one) for one in circuit.data[number + 1 :]]
    return any(qubit in qubits or bit in bits for qubits, bits in later)


def acted(state: np.ndarray, operation: Any, qubits: list[int], noise: float, dense: bool) -> np.ndarray:
    """A gate, and the noise after it."""
    matrix = Operator(operation).data
    state = applied(state, matrix, qubits)
    if not dense:
        return state
    n = state.ndim // 2
    return depolarized(applied(state, matrix.conj(), [n + q for q in qubits]), qubits, noise)


def split(branches: list[Branch], qubit: int, to: int | None, dense: bool) -> Iterator[Branch]:
    """Both outcomes of a qubit: noted in the classical bit `to`, or reset to 0 where there is none."""
    for bits, state in branches:
        for outcome in (0, 1):
            kept = np.zeros_like(state)
            n = state.ndim // (1 + dense)
            place = [slice(None)] * state.ndim
            target = [slice(None)] * state.ndim
            for axis in (qubit, n + qubit) if dense else (qubit,):
                place[axis], target[axis] = outcome, outcome if to is not None else 0  # type: ignore[call-overload]
            kept[tuple(target)] = state[tuple(place)]
            if np.abs(kept).max() > NEGLIGIBLE:
                new = bits if to is None else (*bits[:to], outcome, *bits[to + 1 :])
                yield new, kept


def summed(branches: list[Branch], last: dict[int, int], dense: bool) -> dict[str, float]:
    """Probabilities of all strings of classical bits, those that are measured last included."""
    found: defaultdict[str, float] = defaultdict(float)
    for bits, state in branches:
        n = state.ndim // (1 + dense)
        size = 2**n
        weights = np.diag(state.reshape(size, size)).real if dense else np.abs(state.reshape(-1)) ** 2
        for index in np.flatnonzero(weights > NEGLIGIBLE).tolist():
            text = list(bits)
            for bit, qubit in last.items():
                text[bit] = index >> (n - 1 - qubit) & 1
            found["".join(map(str, text[::-1]))] += float(weights[index])
    return dict(found)


def deviation(counts: dict[str, int], exact: dict[str, float], least: float = 10.0) -> float:
    """How far counts are from their probabilities, in standard deviations: the most of all outcomes that are
    expected `least` times, and of all others together; infinite where an impossible one was found."""
    shots = sum(counts.values())
    if set(counts) - set(exact):
        return np.inf
    often = {text: p for text, p in exact.items() if shots * p >= least}
    groups = [(counts.get(text, 0), p) for text, p in often.items()]
    groups.append((shots - sum(count for count, _ in groups), max(0.0, 1 - sum(often.values()))))
    return max(abs(count - shots * p) / max(shots * p * (1 - p), 1.0) ** 0.5 for count, p in groups)
