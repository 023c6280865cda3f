"""Cirq's interfaces of simulators on tnplan: a program changes one import.

    from tnplan.cirq import Simulator
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import cirq
import numpy as np

from tnplan.circuits.libraries.cirq_circuit import flat, read
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.questions.circuit import Circuit
from tnplan.questions.options import QuestionKeywords, options_of

__all__ = ["Simulator"]

TOPIC = "questions about circuits"


class Simulator(cirq.SimulatesSamples, cirq.SimulatesAmplitudes, cirq.SimulatesExpectationValues):
    """Samples, amplitudes and expectation values, with the interfaces of Cirq's simulators.

    Amplitudes and expectation values are those before measurements at the end. It gives no state vectors.

    Parameters
    ----------
    **options
        Those of every question of `Circuit`; `seed` makes outcomes the same in every run.

    Examples
    --------
    >>> from tnplan.cirq import Simulator
    >>> Simulator(seed=1).run(circuit, repetitions=100).histogram(key="m")  # doctest: +SKIP
    """

    def __init__(self, **options: Unpack[QuestionKeywords]) -> None:
        options_of("Simulator", options)
        self.options = options

    def _run(self, circuit: Any, param_resolver: Any, repetitions: int) -> dict[str, Array]:
        """Measured bits by their keys, [repetition, instance of the key, qubit]."""
        resolved = cirq.resolve_parameters(circuit, param_resolver)
        counts = Circuit(resolved).sample(repetitions, **self.options).value
        rows = np.array([[int(bit) for bit in text] for text in counts], np.uint8)
        rows = np.repeat(rows, [*counts.values()], axis=0)
        rows = np.random.default_rng(self.options.get("seed")).permutation(rows)
        records: dict[str, list[Array]] = {}
        first = 0
        for operation in flat(resolved.all_operations()):  # the reader numbers bits in this order
            if cirq.is_measurement(operation):
                last = first + len(operation.qubits)
                records.setdefault(cirq.measurement_key_name(operation), []).append(rows[:, first:last])
                first = last
        return {key: np.stack(instances, axis=1) for key, instances in records.items()}

    def compute_amplitudes_sweep_iter(
        self, program: Any, bitstrings: Sequence[int], params: Any, qubit_order: Any = cirq.QubitOrder.DEFAULT
    ) -> Iterator[Sequence[complex]]:
        """For each point of a sweep the amplitudes of bit strings.

        These are numbers whose first qubit is the largest bit.
        """
        order = _order(program, qubit_order)
        most = 2 ** len(order) - 1
        texts = [f"{check_count('bitstrings', number, 0, most):0{len(order)}b}" for number in bitstrings]
        for circuit in _points(program, params, order):
            yield circuit.amplitudes(texts, **self.options).value.tolist() if texts else []

    def simulate_expectation_values_sweep_iter(
        self, program: Any, observables: Any, params: Any, qubit_order: Any = cirq.QubitOrder.DEFAULT,
        initial_state: Any = None, permit_terminal_measurements: bool = False,
    ) -> Iterator[list[float]]:  # fmt: skip
        """For each point of a sweep the expectation values of Cirq's `PauliSum`s or `PauliString`s.

        `initial_state` is a number whose first qubit is the largest bit.
        """
        if not permit_terminal_measurements and program.are_any_measurements_terminal():
            raise InputError(
                "Cirq circuit", "ends in measurements",
                "remove the measurements, or set permit_terminal_measurements",
            )  # fmt: skip
        order, options = _order(program, qubit_order), self.options.copy()
        if initial_state is not None:
            state = check_count("initial_state", initial_state, 0, 2 ** len(order) - 1)
            options["state"] = f"{state:0{len(order)}b}"
        listed = observables if isinstance(observables, list) else [observables]
        sums = [PauliSum.of(observable, qubits=order) for observable in listed]
        for circuit in _points(program, params, order):
            yield circuit.expectation(sums, **options).value.tolist() if sums else []


def _order(program: Any, qubit_order: Any) -> tuple[Any, ...]:
    """All qubits of a circuit, and those that the order adds."""
    return tuple(cirq.QubitOrder.as_qubit_order(qubit_order).order_for(program.all_qubits()))


def _points(program: Any, params: Any, order: Sequence[Any]) -> Iterator[Circuit]:
    """The circuit at each point of a sweep."""
    for resolver in cirq.to_resolvers(params):
        yield Circuit(read(cirq.resolve_parameters(program, resolver), {}, order))
