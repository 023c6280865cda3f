"""OpenQASM 2 and 3 as circuits and programs (extra `qasm`)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.program import BitAssignment, CircuitProgram, Measurement
from tnplan.circuits.qasm.gate_calls import LARGEST_GATE, LARGEST_OF_CIRCUIT
from tnplan.circuits.qasm.interpreter import Interpreter
from tnplan.circuits.qasm.operators import BINARY
from tnplan.circuits.qasm.source import Source, parse_source
from tnplan.circuits.qasm.values import described
from tnplan.common.errors import InputError, located

NO_PARAMETERS: Mapping[str, Any] = {}


def parse_qasm_program(
    text: str, place: str, parameters: Mapping[str, Any] = NO_PARAMETERS
) -> CircuitProgram:
    """Parse an OpenQASM program that is no file; `place` names it in errors."""
    return program_of(parse_source(text, place), parameters)


def program_of(source: Source, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of statements, with values for their inputs."""
    run = _run(source, parameters, LARGEST_GATE)
    operations, n_bits, start, n_scratch = run.recorder.finished()
    n_qubits, barriers = run.evaluator.n_qubits, tuple(run.recorder.barriers)
    return located(
        source.place, lambda: CircuitProgram(n_qubits, n_bits, operations, start, n_scratch, barriers)
    )


def circuit_of(source: Source, parameters: Mapping[str, Any]) -> GateSequence:
    """The circuit of statements, with values for their inputs."""
    run = _run(source, parameters, LARGEST_OF_CIRCUIT)
    gates: list[Gate] = []
    done: set[int] = set()
    # A circuit for all engines: gates alone, each qubit measured at its end at most.
    for operation, place in zip(run.recorder.operations, run.recorder.places, strict=True):
        if isinstance(operation, Measurement):
            done.add(operation.qubit)
        elif isinstance(operation, Gate):
            again = [qubit for qubit in operation.qubits if qubit in done] if done else ()
            if again:
                raise InputError(
                    f"{place} ({operation.name})", f"acts on qubit {again[0]} after its measurement",
                    "measure only at the end of a circuit",
                )  # fmt: skip
            gates.append(operation)
        elif not isinstance(operation, BitAssignment):
            word = {"Conditional": "if", "WhileLoop": "while", "Reset": "reset"}[type(operation).__name__]
            raise InputError(
                f"{place} ({word})", "is not a gate",
                "use only gates and measure at the end, or simulate the file: tnplan statevector",
            )  # fmt: skip
    return located(source.place, lambda: GateSequence(run.evaluator.n_qubits, tuple(gates)))


def input_names(source: Source) -> tuple[str, ...]:
    """The inputs that a file declares."""
    return tuple(
        node.identifier.name for node in source.statements
        if type(node).__name__ == "IODeclaration" and node.io_identifier.name == "input"
    )  # fmt: skip


def _run(source: Source, parameters: Mapping[str, Any], largest_gate: int) -> Interpreter:
    run = Interpreter(parameters, largest_gate)
    try:
        run.run(source)
    except RecursionError:
        raise InputError(
            source.place, "nests subroutines, definitions or blocks too deeply", "use fewer levels"
        ) from None
    unused = sorted(set(parameters) - run.declarations.used)
    if unused:
        raise InputError(
            f"parameter {unused[0]}", f"is not an input of {source.place}",
            "leave it out, or declare it as an input, such as: input float NAME",
        )  # fmt: skip
    _warn_of_quotients(run.evaluator.cut_quotients)
    return run


def _warn_of_quotients(cut: Mapping[str, tuple[int, int]]) -> None:
    """Say once where quotients of integers lost a rest, by places and the integers there."""
    if not cut:
        return
    place, (x, y) = next(iter(cut.items()))
    others = f" (and so on {len(cut) - 1} more lines)" if len(cut) > 1 else ""
    quotient = BINARY["/"](x, y)
    warnings.warn(
        f"{place}: divides {described(x)} by {described(y)} as integers, which gives {described(quotient)}"
        f"{others}; for a real quotient write a decimal point, as in 1.0/2, or float(a)/b",
        stacklevel=3,
    )  # fmt: skip
