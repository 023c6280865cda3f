"""Circuits that are read once and given values many times."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.libraries import parameter_names, parameter_values, place_of, read_object
from tnplan.circuits.other_formats import circuit_text
from tnplan.circuits.program import CircuitProgram, as_circuit, circuit_program
from tnplan.circuits.qsim import parse_qsim
from tnplan.common.errors import InputError

if TYPE_CHECKING:
    from tnplan.circuits.qasm.source import Source

NO_VALUES: Mapping[str, Any] = {}
BRANCHES = re.compile(
    r"""\b(?:if|while|switch)\b|<|(?<!-)>|[=!]=|\binclude\s+(?!["'](?:stdgates|qelib1)\.inc)"""
)
"""What OpenQASM has where a parameter may decide on what is done: words, comparisons, other files."""


class ParametricCircuit:
    """A circuit that is read once, and gets values for its parameters later.

    `names` are the parameters: inputs of an OpenQASM 3 file, Qiskit's parameters, Cirq's symbols, trainable
    numbers of a PennyLane tape. `given` are the values that the circuit has for them itself. `place` names
    the circuit in errors; `file` is what it was read from, and `qasm` its statements if it is OpenQASM, whose
    reader takes as long as a short simulation to import and is imported for such files alone. Raises
    InputError for a file that cannot be read, or an object of another kind.
    """

    def __init__(self, source: Any) -> None:
        self._source: GateSequence | CircuitProgram | Any = source
        self.qasm: Source | None = None
        self.names: tuple[str, ...] = ()
        self.given: dict[str, Any] = {}
        self.file: Path | None = None
        self.may_branch = False
        """Whether values of parameters may decide on which gates there are."""
        if isinstance(source, GateSequence | CircuitProgram):
            self.place = "circuit" if isinstance(source, GateSequence) else "program"
            return
        if not isinstance(source, str | os.PathLike):
            self.place = place_of(source)
            self.names, self.given = parameter_names(source), parameter_values(source)
            return
        if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("OPENQASM")):
            raise InputError("circuit", "is the text of a program", "write it to a file, and name that")
        self.file = Path(source)
        text, self.place = circuit_text(str(source)), str(source)
        if is_qasm(self.place, text):
            from tnplan.circuits.qasm.read import input_names
            from tnplan.circuits.qasm.source import parse_source

            self.may_branch = BRANCHES.search(text) is not None
            self.qasm = parse_source(text, self.place, folder=self.file.parent)
            self.names = input_names(self.qasm)
        else:
            self._source = parse_qsim(text, self.place)

    def take(self, other: ParametricCircuit) -> None:
        """Be what another one has read."""
        self._source, self.qasm = other._source, other.qasm
        self.names, self.given = other.names, other.given
        self.place, self.file, self.may_branch = other.place, other.file, other.may_branch

    def gate_sequence(self, values: Mapping[str, Any] = NO_VALUES) -> GateSequence:
        """The gates for values of all parameters; refused where there is more than gates."""
        if self.qasm is not None:
            from tnplan.circuits.qasm.read import circuit_of

            return circuit_of(self.qasm, values)
        if isinstance(self._source, GateSequence):
            check_no_parameters(values, self.place)
            return self._source
        return as_circuit(self.program(values), self.place)

    def program(self, values: Mapping[str, Any] = NO_VALUES) -> CircuitProgram:
        """The program for values of all parameters: with measurements, resets and conditions."""
        if self.qasm is not None:
            from tnplan.circuits.qasm.read import program_of

            return program_of(self.qasm, values)
        if isinstance(self._source, GateSequence):
            return circuit_program(self.gate_sequence(values))
        if isinstance(self._source, CircuitProgram):
            check_no_parameters(values, self.place)
            return self._source
        return read_object(self._source, values)


def values_by_name(parameters: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Values by the names of parameters: a key is a name, or another library's parameter, which has one."""
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InputError(
            "parameters", f"are {type(parameters).__name__}", "give a value for each name, as a dict"
        )
    return {
        parameter if isinstance(parameter, str) else str(getattr(parameter, "name", parameter)): value
        for parameter, value in (parameters or {}).items()
    }


def check_no_parameters(parameters: Mapping[str, Any] | None, place: str) -> None:
    """Refuse values for the parameters of what has none."""
    if parameters:
        raise InputError(
            f"parameter {next(iter(parameters))}", f"is unknown: {place} has no parameters",
            "leave it out",
        )  # fmt: skip


def is_qasm(name: str, text: str) -> bool:
    """Whether a file is OpenQASM: its name says so, or it begins as no qsim file does and has statements."""
    if name.endswith(".qasm") or "OPENQASM" in text:
        return True
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return not first.isdigit() and ";" in text
