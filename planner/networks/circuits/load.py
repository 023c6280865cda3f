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
    """Read an OpenQASM file (it has an OPENQASM statement, or ends in .qasm) or else a qsim file."""
    text, is_qasm = _read(path)
    return parse_qasm(text, str(path)) if is_qasm else parse_qsim(text, str(path))


def load_program(path: str | Path) -> CircuitProgram:
    """Read the same files with their measurements, resets and conditions; a qsim file has gates alone."""
    text, is_qasm = _read(path)
    return parse_qasm_program(text, str(path)) if is_qasm else circuit_program(parse_qsim(text, str(path)))


def _read(path: str | Path) -> tuple[str, bool]:
    """The text of a file, and whether it is OpenQASM."""
    text = read_text(path, "a qsim or OpenQASM file")
    return text, Path(path).suffix == ".qasm" or "OPENQASM" in text[:SEARCHED]
