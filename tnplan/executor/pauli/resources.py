"""What a propagation may use: device, threads, ranks, precision, memory. Knows no term."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, check_range, n_words
from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.protocols.communicator import Communicator

DEVICES = ("cpu", "gpu")
PRECISIONS = {"fp64": (np.float64, np.complex128), "fp32": (np.float32, np.complex64)}
WHEN_FULL = ("stop", "truncate")


@dataclass(frozen=True)
class Resources:
    """What a Pauli propagation may use.

    - `device`: "cpu" or "gpu".
    - `threads`: Threads of a rank on the CPU.
    - `precision`: "fp64" or "fp32", of coefficients.
    - `memory_bytes`: Bounds the arrays of terms of a rank, those that grow counted twice; None or infinity:
      no bound.
    - `when_full`: Where a step would need more memory: "stop" with an InputError, or "truncate" to the
      largest magnitudes that let it go on.
    - `ranks`: Share the terms; without them there is one rank.
    - `few_on_cpu`: With a GPU and no ranks: one core has the terms while they are few, for then it is the
      faster.
    - raises InputError: for values that cannot be.
    """

    device: str = "cpu"
    threads: int = 1
    precision: str = "fp64"
    memory_bytes: float | None = None
    when_full: str = "stop"
    ranks: Communicator | None = None
    few_on_cpu: bool = False

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("device", self.device, DEVICES), ("precision", self.precision, tuple(PRECISIONS)),
            ("when_full", self.when_full, WHEN_FULL),
        ):  # fmt: skip
            if value not in choices:
                raise InputError(name, f"is {value!r}", f"use {' or '.join(choices)}")
        object.__setattr__(self, "threads", check_count("threads", self.threads))
        memory = self.memory_bytes
        if memory is not None and not (is_number(memory) and memory > 0):
            raise InputError("memory", f"is {memory!r}", "give a positive number of bytes", topic="memory")
        if memory == math.inf:
            object.__setattr__(self, "memory_bytes", None)

    def with_memory(self, share: float) -> Resources:
        """The same with a share of the memory."""
        memory = None if self.memory_bytes is None else share * self.memory_bytes
        return replace(self, memory_bytes=memory)

    def converted(self, terms: PauliSum) -> PauliSum:
        """A sum with coefficients of this precision; raises InputError where they are beyond its range.

        Coefficients below the normal range are beyond it too: kernels of the CPU take them as 0.
        """
        real_type, complex_type = PRECISIONS[self.precision]
        kind: Any = complex_type if np.iscomplexobj(terms.coefficients) else real_type
        check_range(terms.coefficients, float(np.finfo(kind).max))
        converted = terms.coefficients.astype(kind)
        largest = np.maximum(np.abs(converted.real), np.abs(converted.imag))
        lost = terms.coefficients[(largest < np.finfo(kind).tiny) & (terms.coefficients != 0)]
        if len(lost):
            raise InputError(
                "--observable", f"has the coefficient {lost[0]:.6g}, below the range of {self.precision}",
                "leave such words out" + (", or use fp64" if self.precision == "fp32" else ""),
            )  # fmt: skip
        return PauliSum(terms.n_qubits, terms.keys, converted)

    def max_terms(self, terms: PauliSum) -> int | None:
        """How many terms like these a rank's memory holds; raises InputError where it cannot hold these."""
        if self.memory_bytes is None:
            return None
        max_terms = int(self.memory_bytes // term_bytes(terms.n_qubits, terms.coefficients.itemsize))
        if max_terms < 2 * terms.n_terms:
            raise InputError(
                "memory", f"is {size_text(self.memory_bytes)}, which holds {max_terms} terms",
                f"give more memory: the observable has {terms.n_terms}, and a rotation may double them",
                topic="memory",
            )  # fmt: skip
        return max_terms


def term_bytes(n_qubits: int, coefficient_bytes: int) -> int:
    """What a term takes at most: its key (twice while arrays grow), the table, nine numbers of 4 bytes.

    One of these stands for memory that was freed and that CuPy's pool still keeps.
    """
    return 2 * 16 * n_words(n_qubits) + 2 * coefficient_bytes + 9 * 4 + 4 * 8
