"""A circuit file of any format that we read, told apart by its contents."""

from __future__ import annotations

from pathlib import Path

from planner.networks.circuits.circuit import Circuit
from planner.networks.circuits.program import Program, circuit_program
from planner.networks.circuits.qasm import load_qasm
from planner.networks.circuits.qasm_program import load_qasm_program
from planner.networks.circuits.qsim import load_qsim


def load_circuit(path: str | Path) -> Circuit:
    """Read an OpenQASM file (it has an OPENQASM statement, or ends in .qasm) or else a qsim file."""
    name = Path(path)
    return load_qasm(name) if _is_qasm(name) else load_qsim(name)


def load_program(path: str | Path) -> Program:
    """Read the same files with their measurements, resets and conditions; a qsim file has gates alone."""
    name = Path(path)
    return load_qasm_program(name) if _is_qasm(name) else circuit_program(load_qsim(name))


def _is_qasm(name: Path) -> bool:
    if name.suffix == ".qasm":
        return True
    try:
        with name.open(encoding="utf-8") as stream:
            start = stream.read(100_000)
    except (OSError, UnicodeDecodeError):
        start = ""
    return "OPENQASM" in start
