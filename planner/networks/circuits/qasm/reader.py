"""qiskit's circuit of an OpenQASM 2 or 3 text (extra `qasm`), and the line of each of its instructions.

Raises InputError with a line for all that qiskit does not read. Knows no circuit of ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.qasm.line_tracer import read_3
from tnplan.planner.networks.circuits.qasm.text import check_2, lines_2, refusal, version, without_comments

if TYPE_CHECKING:
    from qiskit import QuantumCircuit

WORDS = {"while_loop": "while", "for_loop": "for", "if_else": "if", "break_loop": "break"}
"""The words of OpenQASM for operations that qiskit names otherwise."""


def read_qiskit(text: str, place: str) -> tuple[QuantumCircuit, Iterator[int | None]]:
    """The circuit, and a line for each instruction, those inside a condition after the condition's own.

    A text says which version it is in its first statement (none: 2). Lines are None where they are not
    known, such as where an included file has instructions. `place` names the text in errors.
    """
    bare = without_comments(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if version(bare) == "3":
            circuit, lines = _imported(
                lambda: read_3(text, place), place, "OpenQASM 3", "qiskit-qasm3-import"
            )
        else:
            circuit = _imported(lambda: _read_2(text, bare, place), place, "OpenQASM", "qiskit")
            lines = lines_2(bare)
    n_instructions = _count(circuit)
    return circuit, iter(lines if len(lines) == n_instructions else [None] * n_instructions)


def instruction_place(name: str, number: int, line: int | None) -> str:
    """What errors call an instruction: its line, or its number where that is not known."""
    where = f"instruction {number}" if line is None else f"line {line}"
    return f"{where} ({WORDS.get(name, name)})"


def _count(circuit: QuantumCircuit) -> int:
    """Instructions of a circuit with those inside its conditions."""
    return sum(
        1 + sum(_count(block) for block in getattr(instruction.operation, "blocks", ()))
        for instruction in circuit.data
    )


def _imported(read: Callable[[], Any], place: str, what: str, package: str) -> Any:
    try:
        return read()
    except ImportError:
        raise InputError(
            place, f"{what} needs {package}", "install it with: pip install 'tnplan[qasm]'"
        ) from None


def _read_2(text: str, bare: str, place: str) -> QuantumCircuit:
    from qiskit.qasm2 import LEGACY_CUSTOM_INSTRUCTIONS, loads

    check_2(bare, place, {"U": True} | {one.name: one.num_params > 0 for one in LEGACY_CUSTOM_INSTRUCTIONS})
    try:
        return loads(text, custom_instructions=LEGACY_CUSTOM_INSTRUCTIONS)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise refusal(place, getattr(error, "message", str(error)), None) from None
