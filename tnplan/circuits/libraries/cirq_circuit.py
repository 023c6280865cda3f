"""Cirq's `Circuit` as a program: qubits in Cirq's order, the bits of measurements as they come.

Conditions on measurements are read by their values for all values of the bits, as Cirq gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tnplan.circuits.circuit import LARGEST_CIRCUIT
from tnplan.circuits.libraries import check_not_varied, check_parameters
from tnplan.circuits.libraries.builder import LARGEST_MATRIX, Builder
from tnplan.circuits.program import BitAssignment, CircuitProgram, Conditional, Operation
from tnplan.circuits.qasm.gate_calls import LARGEST_GATE
from tnplan.circuits.qasm.values import MOST_BITS
from tnplan.common.errors import InputError

PLACE = "Cirq circuit"
FLIP = (True, False)
"""The table of an assignment that flips a bit."""


def parameter_names(circuit: Any) -> list[str]:
    """The names of the symbols."""
    import cirq

    return sorted(cirq.parameter_names(circuit))


def read(circuit: Any, parameters: Mapping[str, Any], order: Sequence[Any] | None = None) -> CircuitProgram:
    """The program of a circuit, with values for its symbols.

    `order` has all qubits, idle ones too, in the order of ours. Default: Cirq's own order, which its state
    vectors have too.
    """
    import cirq

    check_parameters(tuple(parameter_names(circuit)), parameters, PLACE)
    check_not_varied(parameters, PLACE)
    if parameters:
        circuit = cirq.resolve_parameters(circuit, dict(parameters))
    lines = sorted(circuit.all_qubits()) if order is None else order
    if any(line.dimension != 2 for line in lines):
        raise InputError(PLACE, "has qudits", "use only qubits")
    reader = _Reader(flat(circuit.all_operations()), {line: number for number, line in enumerate(lines)})
    return reader.program()


def flat(operations: Iterable[Any]) -> Iterator[Any]:
    """Operations without subcircuits and measurements of Pauli words, which become what is in them."""
    import cirq

    for operation in operations:
        controls = operation.classical_controls
        bare = operation.without_classical_controls().untagged
        inner: Iterable[Any] | None = None
        if isinstance(bare, cirq.CircuitOperation):
            repeats = bare.repetitions
            if bare.repeat_until is not None or not isinstance(repeats, int | np.integer):
                problem = "has a subcircuit without a number of repetitions"
                raise InputError(PLACE, problem, "write a while loop of OpenQASM 3")
            if abs(int(repeats)) > LARGEST_CIRCUIT:
                raise InputError(
                    PLACE,
                    f"repeats a subcircuit {repeats} times",
                    f"repeat it at most {LARGEST_CIRCUIT} times",
                )
            inner = bare.mapped_circuit().all_operations()
        elif isinstance(bare.gate, cirq.PauliMeasurementGate):
            inner = cirq.decompose_once(bare)
        if inner is None:
            yield operation
        else:
            yield from flat(step.with_classical_controls(*controls) if controls else step for step in inner)


class _Reader:
    """Puts operations into a program; remembers the bits of each measurement."""

    def __init__(self, operations: Iterable[Any], qubits: Mapping[Any, int]) -> None:
        import cirq

        self.operations, self.qubits = list(operations), qubits
        self.builder, self.n_bits = Builder(PLACE), 0
        self.records: dict[Any, list[tuple[int, ...]]] = {}
        # The one bit that holds whether a condition is true is behind those of all measurements.
        self.scratch = sum(
            len(operation.qubits) for operation in self.operations if cirq.is_measurement(operation)
        )
        self.uses_scratch = False

    def program(self) -> CircuitProgram:
        """The program of all operations."""
        for operation in self.operations:
            self._add(operation)
        n_scratch = int(self.uses_scratch)
        return CircuitProgram(
            len(self.qubits), self.n_bits + n_scratch, tuple(self.builder.operations), n_scratch=n_scratch
        )

    def _add(self, operation: Any) -> None:
        import cirq

        conditions = sorted(operation.classical_controls, key=str)
        if conditions:
            self._add_controlled(operation.without_classical_controls(), conditions)
        elif cirq.is_measurement(operation):
            self._measure(operation)
        elif isinstance(operation.gate, cirq.ResetChannel):
            self.builder.reset(self.qubits[operation.qubits[0]])
        else:
            _add(self.builder, operation, self.qubits)

    def _measure(self, operation: Any) -> None:
        import cirq

        gate = operation.gate
        if not isinstance(gate, cirq.MeasurementGate):
            problem = f"({type(gate).__name__}) records which of its operators acts"
            raise self.builder.refuse(problem, "leave its key out")
        if gate.confusion_map:
            raise self.builder.refuse("has a confusion_map", "measure without it")
        bits = tuple(range(self.n_bits, self.n_bits + len(operation.qubits)))
        self.n_bits += len(bits)
        self.records.setdefault(gate.mkey, []).append(bits)
        for qubit, bit, flips in zip(operation.qubits, bits, gate.full_invert_mask(), strict=True):
            self.builder.measure(self.qubits[qubit], bit)
            if flips:
                self.builder.operations.append(BitAssignment(bit, (bit,), FLIP))

    def _add_controlled(self, operation: Any, conditions: Iterable[Any]) -> None:
        """Add an operation that is done where all conditions are true."""
        # Cirq puts no measurement under a condition.
        begin = len(self.builder.operations)
        self._add(operation)
        body: tuple[Operation, ...] = tuple(self.builder.operations[begin:])
        del self.builder.operations[begin:]
        for condition in conditions:
            body = self._where(condition, body)
        self.builder.operations += body

    def _where(self, condition: Any, body: tuple[Operation, ...]) -> tuple[Operation, ...]:
        """The operations where a condition is true."""
        import cirq

        bits = tuple(dict.fromkeys(bit for key in condition.keys for bit in self._record(condition, key)))
        if len(bits) > MOST_BITS:
            # True for any value but 0, which needs no table.
            if isinstance(condition, cirq.KeyCondition):
                return (Conditional(bits, 0, (), body),)
            raise self.builder.refuse(
                f"depends on {len(bits)} measured bits", f"let conditions depend on {MOST_BITS} at most"
            )
        table = tuple(self._holds(condition, bits, row) for row in range(1 << len(bits)))
        if not any(table):
            return ()
        if table.count(True) == 1:
            return (Conditional(bits, table.index(True), body),)
        if table.count(False) == 1:
            return (Conditional(bits, table.index(False), (), body),)
        self.uses_scratch = True
        return (BitAssignment(self.scratch, bits, table), Conditional((self.scratch,), 1, body))

    def _record(self, condition: Any, key: Any) -> tuple[int, ...]:
        """The bits of the measurement that a condition reads: the last of a key, unless it has an index."""
        records, index = self.records.get(key, []), getattr(condition, "index", -1)
        if not -len(records) <= index < len(records):
            raise self.builder.refuse(
                f"depends on {str(key)!r}, which is not measured before", "measure this key first"
            )
        return records[index]

    def _holds(self, condition: Any, bits: tuple[int, ...], row: int) -> bool:
        """Whether Cirq takes a condition as true where the bits have these values, the first lowest."""
        import cirq

        values = {bit: row >> k & 1 for k, bit in enumerate(bits)}
        data = cirq.ClassicalDataDictionaryStore()
        for key in condition.keys:
            for record in self.records[key]:
                digits = [values.get(bit, 0) for bit in record]
                data.record_measurement(key, digits, cirq.LineQubit.range(len(record)))
        try:
            return bool(condition.resolve(data))
        except (TypeError, ValueError, IndexError) as error:
            problem = " ".join(f"has the condition {str(condition)[:60]!r} ({error})".split())
            raise self.builder.refuse(problem, "compare measurements with numbers") from None


def _add(builder: Builder, operation: Any, qubits: Mapping[Any, int]) -> None:
    """Add a gate or a channel, decomposed where it is large."""
    import cirq

    on = [qubits[qubit] for qubit in operation.qubits]
    # One level at a time: a gate that is defined by smaller ones with matrices keeps these.
    parts = cirq.decompose_once(operation, default=None) if len(on) > LARGEST_MATRIX else None
    if parts is not None:
        for smaller in parts:
            _add(builder, smaller, qubits)
        return
    # A matrix before Kraus operators: `has_kraus` is true of unitary gates as well.
    matrix = cirq.unitary(operation, default=None) if len(on) <= LARGEST_GATE else None
    if matrix is None and cirq.has_kraus(operation) and len(on) <= LARGEST_MATRIX:
        builder.channel(on, cirq.kraus(operation))
    elif matrix is None:
        word = type(operation.gate or operation).__name__
        raise builder.refuse(f"({word}) has no matrix", "define it by gates with matrices")
    elif not on:
        builder.phase(float(np.angle(matrix[0, 0])))
    else:
        builder.gate(type(operation.gate).__name__.lower(), on, matrix)
