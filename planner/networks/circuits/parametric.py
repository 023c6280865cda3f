"""Circuits that are read once and given values many times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import read_text
from tnplan.planner.networks.circuits.circuit import GateSequence
from tnplan.planner.networks.circuits.libraries import parameter_names, place_of, read_object
from tnplan.planner.networks.circuits.program import CircuitProgram, as_circuit, circuit_program
from tnplan.planner.networks.circuits.qasm.read import circuit_of, input_names, program_of
from tnplan.planner.networks.circuits.qasm.source import Source, parse_source
from tnplan.planner.networks.circuits.qsim import parse_qsim


class ParametricCircuit:
    """A circuit that is read once, and gets values for its parameters later.

    Parameters
    ----------
    source : path or object
        An OpenQASM or qsim file, or a circuit of Qiskit, Cirq, PennyLane (a tape) or quimb.

    Attributes
    ----------
    names : tuple of str
        The parameters: inputs of an OpenQASM 3 file, Qiskit's parameters, Cirq's symbols.

    Raises
    ------
    InputError
        For a file that cannot be read, or an object of another kind.

    Examples
    --------
    >>> ansatz = tnplan.ParametricCircuit("ansatz.qasm")  # doctest: +SKIP
    >>> tnplan.propagate(ansatz.bind(theta=0.3), "Z0").value  # doctest: +SKIP
    """

    def __init__(self, source: Any) -> None:
        self._source: Source | GateSequence | Any = source
        if not isinstance(source, str | os.PathLike):
            self._place = place_of(source)
        else:
            text, self._place = read_text(str(source), "a qsim or OpenQASM file"), str(source)
            self._source = (
                parse_source(text, self._place)
                if is_qasm(self._place, text)
                else parse_qsim(text, self._place)
            )
        if isinstance(self._source, Source):
            self.names = input_names(self._source)
        elif isinstance(self._source, GateSequence):
            self.names = ()
        else:
            self.names = parameter_names(source)

    def __repr__(self) -> str:
        names = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
        return f"ParametricCircuit({Path(self._place).name}: {names or 'no parameters'})"

    def bind(self, parameters: Mapping[str, Any] | None = None, /, **values: Any) -> GateSequence:
        """The circuit for values of all parameters: by keyword, or a mapping where names are no keywords."""
        given = {**(parameters or {}), **values}
        if isinstance(self._source, Source):
            return circuit_of(self._source, given)
        return as_circuit(self.bind_program(given), self._place)

    def bind_program(self, parameters: Mapping[str, Any] | None = None, /, **values: Any) -> CircuitProgram:
        """The program for values of all parameters: with measurements, resets and conditions."""
        given = {**(parameters or {}), **values}
        if isinstance(self._source, Source):
            return program_of(self._source, given)
        if isinstance(self._source, GateSequence):
            check_no_parameters(given, self._place)
            return circuit_program(self._source)
        return read_object(self._source, given)


def check_no_parameters(parameters: Mapping[str, Any] | None, place: str) -> None:
    """Refuse values for the parameters of what has none."""
    if parameters:
        raise InputError(
            f"parameter {next(iter(parameters))}", f"is none of {place}, which has no parameters",
            "leave it out",
        )  # fmt: skip


def is_qasm(name: str, text: str) -> bool:
    """Whether a file is OpenQASM: its name says so, or it begins as no qsim file does and has statements."""
    if name.endswith(".qasm") or "OPENQASM" in text:
        return True
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return not first.isdigit() and ";" in text
