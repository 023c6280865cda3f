"""A circuit file of any format that we read, told apart by its contents."""

from __future__ import annotations

from pathlib import Path

from planner.networks.circuits.circuit import Circuit
from planner.networks.circuits.qasm import load_qasm
from planner.networks.circuits.qsim import load_qsim


def load_circuit(path: str | Path) -> Circuit:
    """Read an OpenQASM file (it has an OPENQASM statement, or ends in .qasm) or else a qsim file."""
    name = Path(path)
    if name.suffix == ".qasm":
        return load_qasm(name)
    try:
        with name.open(encoding="utf-8") as stream:
            start = stream.read(100_000)
    except (OSError, UnicodeDecodeError):
        start = ""
    return load_qasm(name) if "OPENQASM" in start else load_qsim(name)
