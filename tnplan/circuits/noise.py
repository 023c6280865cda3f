"""Noise put into a program: a depolarizing channel after every gate. Knows programs, no engine."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from itertools import product

import numpy as np

from tnplan.circuits.circuit import Gate, GlobalPhase
from tnplan.circuits.gates import I2, X, Y, Z, kronecker
from tnplan.circuits.program import Channel, CircuitProgram, Operation, with_inner
from tnplan.common.errors import InputError

LARGEST_NOISY = 3
"""Qubits of a gate after which noise may stand."""


def depolarizing(qubits: tuple[int, ...], probability: float) -> Channel:
    """One of the Pauli words other than I strikes the qubits, each as likely, with `probability` in all."""
    _check_probability(probability)
    if len(qubits) > LARGEST_NOISY:
        raise InputError(
            "depolarizing", f"acts on {len(qubits)} qubits", f"use gates on {LARGEST_NOISY} or fewer"
        )
    return Channel(qubits, _operators(len(qubits), probability))


@lru_cache
def _operators(n_qubits: int, probability: float) -> tuple[np.ndarray, ...]:
    """The Pauli words times square roots of their probabilities: one tuple for all channels of them."""
    words = [kronecker(letters) for letters in product((I2, X, Y, Z), repeat=n_qubits)]
    each = probability / (len(words) - 1)
    weights = [1 - probability] + [each] * (len(words) - 1)
    return tuple(np.sqrt(weight) * word for weight, word in zip(weights, words, strict=True))


def depolarized(program: CircuitProgram, probability: float) -> CircuitProgram:
    """The program with noise after every gate, a global phase being none; itself where that is 0."""
    if probability == 0:
        return program
    _check_probability(probability)
    return replace(program, operations=_noisy(program.operations, probability, ""))


def _check_probability(probability: float) -> None:
    if not 0 <= probability <= 1:
        raise InputError("depolarizing", f"probability is {probability:g}", "give a number from 0 to 1")


def _noisy(operations: tuple[Operation, ...], probability: float, place: str) -> tuple[Operation, ...]:
    result: list[Operation] = []
    for number, operation in enumerate(operations):
        inner = f"{place}operation {number}, inner "
        # Gates in conditions and loops are noisy too.
        result.append(with_inner(operation, partial(_noisy, probability=probability, place=inner)))
        if isinstance(operation, Gate) and not isinstance(operation, GlobalPhase):
            if len(operation.qubits) > LARGEST_NOISY:
                raise InputError(
                    f"{place}gate {number} ({operation.name})",
                    f"acts on {len(operation.qubits)} qubits, but depolarizing noise acts on at most "
                    f"{LARGEST_NOISY}",
                    "split the gate, or leave --depolarizing out",
                )
            result.append(depolarizing(operation.qubits, probability))
    return tuple(result)
