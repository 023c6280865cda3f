"""A circuit file of any format that we read, told apart by its contents. Read once: it may be a pipe."""

from __future__ import annotations

from pathlib import Path

from tnplan.planner.common.files import read_text
from tnplan.planner.networks.circuits.circuit import Circuit
from tnplan.planner.networks.circuits.program import CircuitProgram, circuit_program
from tnplan.planner.networks.circuits.qasm.circuit import parse_qasm
from tnplan.planner.networks.circuits.qasm.program import parse_qasm_program
from tnplan.planner.networks.circuits.qsim import parse_qsim

SEARCHED = 100_000
"""Characters at the start of a file in which an OPENQASM statement is looked for."""


def load_circuit(path: str | Path) -> Circuit:
    """Read a circuit from an OpenQASM 2 or 3 file, or a qsim file.

    Parameters
    ----------
    path : path
        OpenQASM has an OPENQASM statement, or a name that ends in .qasm; everything else is read as qsim.

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
    text, is_qasm = _read(path)
    return parse_qasm(text, str(path)) if is_qasm else parse_qsim(text, str(path))


def load_program(path: str | Path) -> CircuitProgram:
    """Read a program: the files of `load_circuit` with their measurements, resets and conditions.

    Parameters
    ----------
    path : path
        An OpenQASM file, or a qsim file, which has gates alone.

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
    text, is_qasm = _read(path)
    return parse_qasm_program(text, str(path)) if is_qasm else circuit_program(parse_qsim(text, str(path)))


def _read(path: str | Path) -> tuple[str, bool]:
    """The text of a file, and whether it is OpenQASM."""
    text = read_text(path, "a qsim or OpenQASM file")
    return text, Path(path).suffix == ".qasm" or "OPENQASM" in text[:SEARCHED]
