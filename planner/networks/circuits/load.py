"""A circuit file of any format that we read, told apart by its contents. Read once: it may be a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import read_text
from tnplan.planner.networks.circuits.circuit import Circuit
from tnplan.planner.networks.circuits.program import CircuitProgram, circuit_program
from tnplan.planner.networks.circuits.qasm.read import parse_qasm, parse_qasm_program
from tnplan.planner.networks.circuits.qsim import parse_qsim


def load_circuit(path: str | Path, parameters: Mapping[str, Any] | None = None) -> Circuit:
    """Read a circuit from an OpenQASM 2 or 3 file, or a qsim file.

    Parameters
    ----------
    path : path
        A file whose name ends in .qasm, or whose first line is no number of qubits, is OpenQASM.
    parameters : mapping, optional
        Values of what an OpenQASM 3 file declares as `input`, by their names.

    Returns
    -------
    Circuit
        The gates. Measurements at the end are left out; others are refused: `load_program` reads them.

    Raises
    ------
    InputError
        For a file that cannot be read; the message names the line.

    Examples
    --------
    >>> circuit = tnplan.load_circuit("bell.qasm")  # doctest: +SKIP
    """
    text, is_qasm = _read(path, parameters)
    return parse_qasm(text, str(path), parameters or {}) if is_qasm else parse_qsim(text, str(path))


def load_program(path: str | Path, parameters: Mapping[str, Any] | None = None) -> CircuitProgram:
    """Read a program: the files of `load_circuit` with their measurements, resets and conditions.

    Parameters
    ----------
    path : path
        An OpenQASM file, or a qsim file, which has gates alone.
    parameters : mapping, optional
        Values of what an OpenQASM 3 file declares as `input`, by their names.

    Returns
    -------
    CircuitProgram
        The operations in their order.

    Raises
    ------
    InputError
        For a file that cannot be read; the message names the line.

    Examples
    --------
    >>> program = tnplan.load_program("teleport.qasm")  # doctest: +SKIP
    """
    text, is_qasm = _read(path, parameters)
    if is_qasm:
        return parse_qasm_program(text, str(path), parameters or {})
    return circuit_program(parse_qsim(text, str(path)))


def given_circuit(circuit: Circuit | str | Path, parameters: Mapping[str, Any] | None) -> Circuit:
    """A circuit as it is, or that of a file with values for its inputs."""
    if not isinstance(circuit, Circuit):
        return load_circuit(circuit, parameters)
    check_no_parameters(parameters)
    return circuit


def check_no_parameters(parameters: Mapping[str, Any] | None) -> None:
    """Refuse values for the inputs of what is no file."""
    if parameters:
        raise InputError(
            f"parameter {next(iter(parameters))}", "is given beside a circuit that is no file",
            "give the file, or leave it out",
        )  # fmt: skip


def _read(path: str | Path, parameters: Mapping[str, Any] | None) -> tuple[str, bool]:
    """The text of a file, and whether it is OpenQASM: its name or its contents say so."""
    text = read_text(path, "a qsim or OpenQASM file")
    is_qasm = Path(path).suffix == ".qasm" or "OPENQASM" in text or _has_statements(text)
    if parameters and not is_qasm:
        raise InputError(str(path), "is a qsim file, which has no parameters", "leave --set out")
    return text, is_qasm


def _has_statements(text: str) -> bool:
    """Whether a text begins as no qsim file does, and has the ends of statements."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return not first.isdigit() and ";" in text
