"""Circuits of any kind that we read: files, told apart by their contents, and objects of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.parametric import ParametricCircuit, values_by_name
from tnplan.circuits.program import CircuitProgram


def load_circuit(source: Any, parameters: Mapping[str, Any] | None = None) -> GateSequence:
    """Read a circuit from an OpenQASM 2 or 3 file, a qsim file, or a circuit of another library.

    Parameters
    ----------
    source : path or object
        A file: OpenQASM if its name ends in .qasm, or its first line is no number of qubits. Or a circuit of
        Qiskit, Cirq or quimb, a tape of PennyLane, or a `Circuit`.
    parameters : mapping, optional
        Values of the parameters by their names: what an OpenQASM 3 file declares as `input`, Qiskit's
        parameters, Cirq's symbols.

    Returns
    -------
    GateSequence
        The gates. Measurements at the end are left out; others are refused: `load_program` reads them.

    Raises
    ------
    InputError
        For what cannot be read; the message names the line of a file.

    Examples
    --------
    >>> circuit = tnplan.load_circuit("bell.qasm")  # doctest: +SKIP
    """
    return _parametric(source).gate_sequence(values_by_name(parameters))


def load_program(source: Any, parameters: Mapping[str, Any] | None = None) -> CircuitProgram:
    """Read a program: what `load_circuit` reads, with measurements, resets, conditions and loops.

    Parameters
    ----------
    source : path or object
        A file or a circuit of another library, as for `load_circuit`.
    parameters : mapping, optional
        Values of the parameters by their names.

    Returns
    -------
    CircuitProgram
        The operations in their order.

    Raises
    ------
    InputError
        For what cannot be read; the message names the line of a file.

    Examples
    --------
    >>> program = tnplan.load_program("teleport.qasm")  # doctest: +SKIP
    """
    return _parametric(source).program(values_by_name(parameters))


def _parametric(source: Any) -> ParametricCircuit:
    return source if isinstance(source, ParametricCircuit) else ParametricCircuit(source)
