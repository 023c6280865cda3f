"""Expectation values of sums of Pauli words by contraction, each word in its light cone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.observables.pauli_sum import PauliSum
from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import steady_memory
from tnplan.planner.networks.of_circuits.pauli_leaves import by_support
from tnplan.planner.networks.of_circuits.steps import keeps_trace, steps_of
from tnplan.questions.tensor_networks.networks import Run, plan_closed
from tnplan.questions.tensor_networks.word_network import word_network

MOST_AHEAD = 4
"""Light cones that are planned at once: Python runs one of them, and the contraction, at a time."""


class LightCones:
    """The light cones of the words of some observables: one for words on the same qubits, with Z on the same.

    Parameters
    ----------
    circuit : GateSequence or CircuitProgram
        As of `expectations`.
    sums : sequence of PauliSum
        The observables.
    """

    def __init__(self, circuit: GateSequence | CircuitProgram, sums: Sequence[PauliSum]) -> None:
        for number, one in enumerate(sums):
            if one.n_qubits != circuit.n_qubits:
                raise InputError(
                    f"observable {number}", f"is on {one.n_qubits} qubits",
                    f"give one on the {circuit.n_qubits} qubits of the circuit",
                )  # fmt: skip
        self._sums, self._steps = sums, steps_of(circuit, "circuit")
        self._keeps_trace = all(keeps_trace(step) for step in self._steps)
        groups = by_support(word for one in sums for word in one.masks())
        self._groups = [(support, list(words)) for support, words in groups.items()]

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def n_words(self) -> list[int]:
        """How many words each cone has."""
        return [len(words) for _, words in self._groups]

    def plan(self, number: int, options: ContractionOptions) -> Run:
        """What contracts a cone: the values of its words, complex128."""
        support, words = self._groups[number]
        if not support.qubits and self._keeps_trace:
            return lambda: np.ones(len(words), np.complex128)
        run = plan_closed(word_network(self._steps, support, words), options)
        return lambda: run().astype(np.complex128)

    def expectations(self, found: Sequence[Array]) -> Array:
        """The values of the observables, complex128, from those of all cones."""
        values: dict[tuple[int, int], complex] = {}
        for (_, words), row in zip(self._groups, found, strict=True):
            values.update(zip(words, row.tolist(), strict=True))
        return np.array(
            [sum(value * values[x, z] for x, z, value in one.masks()) for one in self._sums], np.complex128
        )


class PlannedAhead:
    """Light cones that are contracted in turn, while threads plan the next ones on cores that are free.

    Parameters
    ----------
    cones : LightCones
        All of them.
    options : ContractionOptions
        How they are contracted.
    n_ahead : int
        How many are planned meanwhile, at most.
    step : int
        From a cone to the next one that is contracted here; ranks share them.
    """

    def __init__(
        self, cones: LightCones, options: ContractionOptions, n_ahead: int, step: int = 1
    ) -> None:  # fmt: skip
        self._cones, self._step = cones, step
        self._n_ahead = min(n_ahead, MOST_AHEAD, (len(cones) - 1) // step)
        self._waiting: dict[int, Future[Run]] = {}
        if self._n_ahead > 0:  # what is free changes while cones before are contracted
            options = replace(options, memory=steady_memory(options))
            self._pool = ThreadPoolExecutor(self._n_ahead, "tnplan plans")
        self._options = options

    def __enter__(self) -> PlannedAhead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._n_ahead > 0:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def values(self, number: int) -> Array:
        """The values of the words of a cone, complex128."""
        if self._n_ahead <= 0:
            return self._cones.plan(number, self._options)()
        for later in range(number, len(self._cones), self._step)[: 1 + self._n_ahead]:
            if later not in self._waiting:
                self._waiting[later] = self._pool.submit(self._cones.plan, later, self._options)
        return self._waiting.pop(number).result()()
