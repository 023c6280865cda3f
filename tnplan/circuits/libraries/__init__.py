"""Circuits of other libraries as programs: one adapter a library, which imports it when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from math import isfinite
from typing import Any

from tnplan.circuits.derivatives.dual_number import Varied
from tnplan.circuits.program import CircuitProgram
from tnplan.common.errors import InputError

ADAPTERS = {
    "qiskit": ("qiskit_circuit", "QuantumCircuit"), "cirq": ("cirq_circuit", "AbstractCircuit"),
    "pennylane": ("pennylane_tape", "QuantumScript"), "quimb": ("quimb_circuit", "Circuit"),
}  # fmt: skip
"""The adapter of each library and the class of its circuits, by the first part of its modules' names."""


def library_of(source: object) -> str | None:
    """The library that an object is a circuit of; None for any other object."""
    for kind in type(source).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in ADAPTERS and kind.__name__ == ADAPTERS[name][1]:
            return name
    return None


def read_object(source: object, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of a circuit of another library, with values for its parameters."""
    program: CircuitProgram = _adapter(source, "read")(source, parameters)
    return program


def parameter_names(source: object) -> tuple[str, ...]:
    """The parameters of a circuit of another library that have no value yet."""
    return tuple(_adapter(source, "parameter_names")(source))


def parameter_values(source: object) -> dict[str, Any]:
    """The values that a circuit of another library has for its parameters itself."""
    if library_of(source) != "pennylane":
        return {}
    values: dict[str, Any] = _adapter(source, "parameter_values")(source)
    return values


def place_of(source: object) -> str:
    """What errors call a circuit of another library."""
    return str(_adapter(source, "PLACE"))


def check_parameters(names: tuple[str, ...], parameters: Mapping[str, Any], place: str) -> None:
    """Refuse parameters without a value, values of no parameter, and values that are no real numbers."""
    missing = [name for name in names if name not in parameters]
    if missing:
        raise InputError(
            f"{place}: parameter {missing[0]}", "has no value", "give its value by bind() or in `parameters`"
        )
    unknown = [name for name in parameters if name not in names]
    if unknown:
        raise InputError(
            f"parameter {unknown[0]}", f"is not a parameter of this {place}",
            f"choose from {', '.join(names)}" if names else "leave it out",
        )  # fmt: skip
    for name, value in parameters.items():
        if not isinstance(value, Varied) and not _is_real(value):
            raise InputError(f"parameter {name}", f"is {value!r}"[:80], "give a finite real number")


def _is_real(value: Any) -> bool:
    """Whether a value is a finite real number, of Python, NumPy, SymPy or another library."""
    is_complex = isinstance(value, complex) or getattr(getattr(value, "dtype", None), "kind", "") == "c"
    if isinstance(value, str) or is_complex or getattr(value, "ndim", 0):
        return False
    try:
        return isfinite(float(value))
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False


def check_not_varied(parameters: Mapping[str, Any], place: str) -> None:
    """Refuse derivatives by parameters, for a library whose circuits have none here."""
    varied = [name for name, value in parameters.items() if isinstance(value, Varied)]
    if varied:
        raise InputError(
            f"{place}: parameter {varied[0]}", "has no derivatives here",
            "write the circuit as OpenQASM 3 with inputs, or with Qiskit",
        )  # fmt: skip


def _adapter(source: object, name: str) -> Any:
    """Something that the adapter of an object's library has."""
    library = library_of(source)
    if library is None:
        raise InputError(
            "circuit", f"is of type {type(source).__name__}",
            "give a file, a GateSequence, or a circuit of Qiskit, Cirq, PennyLane or quimb",
        )  # fmt: skip
    return getattr(import_module(f"{__name__}.{ADAPTERS[library][0]}"), name)
