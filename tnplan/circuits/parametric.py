"""Circuits that are read once and given values many times.

Files in formats that are not read are told apart by name or first lines, and refused by name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.libraries import parameter_names, parameter_values, place_of, read_object
from tnplan.circuits.program import CircuitProgram, as_circuit, circuit_program
from tnplan.circuits.qsim import parse_qsim
from tnplan.common.errors import InputError
from tnplan.common.files import open_input, read_text

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


QPY_START = b"QISKIT"
STIM, QUIL = "a circuit of Stim", "a program in Quil"
REMEDIES = {
    STIM: "write it as OpenQASM: stim.Circuit.from_file(FILE).to_qasm(open_qasm_version=3)",
    QUIL: "write its gates as OpenQASM 2 or 3",
    "a circuit of Stim or Quil": "write it as OpenQASM 2 or 3",
    "cQASM": "write it as OpenQASM 2 or 3",
    "Qiskit's QPY": "give the circuit itself in Python (qiskit.qpy.load), or write it with qiskit.qasm3.dump",
    "Cirq's JSON": "give the circuit itself in Python: cirq.read_json(FILE)",
    "Qiskit's Qobj": "write its circuits as OpenQASM 2 or 3",
    "JSON": "give OpenQASM 2 or 3, or a qsim file",
}  # fmt: skip
BY_SUFFIX = {".stim": STIM, ".quil": QUIL, ".cq": "cQASM", ".qpy": "Qiskit's QPY"}
JSON_KEYS = {"cirq_type": "Cirq's JSON", "qobj_id": "Qiskit's Qobj"}
CQASM_VERSION = re.compile(r"version\s+\d+(?:\.\d+)*\s*;?")
STIM_OR_QUIL = re.compile(r"([A-Z][A-Z0-9_-]*)(?:\[[^\]]*\])?(?:\([^)]*\))?(?:\s[^;]*)?")
STIM_WORDS = frozenset((
    "CX", "CY", "DEPOLARIZE1", "DEPOLARIZE2", "DETECTOR", "M", "MPP", "MR", "MRX", "MRY", "MX", "MXX", "MY",
    "MZ", "MZZ", "OBSERVABLE_INCLUDE", "PAULI_CHANNEL_1", "PAULI_CHANNEL_2", "QUBIT_COORDS", "R", "REPEAT",
    "SHIFT_COORDS", "SQRT_X", "SQRT_Y", "S_DAG", "TICK", "X_ERROR", "Y_ERROR", "Z_ERROR",
))  # fmt: skip
"""Words of Stim that Quil has not."""
QUIL_WORDS = frozenset((
    "CCNOT", "CPHASE", "DECLARE", "DEFCAL", "DEFCIRCUIT", "DEFFRAME", "DEFGATE", "HALT", "JUMP", "LABEL",
    "MEASURE", "PHASE", "PRAGMA", "RESET",
))  # fmt: skip
"""Words of Quil that Stim has not."""
SHARED_WORDS = frozenset(("CNOT", "CZ", "H", "I", "ISWAP", "RX", "RY", "RZ", "S", "SWAP", "T", "X", "Y", "Z"))


def circuit_text(path: str | Path) -> str:
    """The text of a file with a circuit.

    - `path`: A qsim or OpenQASM file, which may be packed by gzip.
    - returns: Its text.
    - raises InputError: for a file of another format, with its name, and for what cannot be read.

    Examples
    --------
    >>> circuit_text("surface_code.stim")  # doctest: +SKIP
    InputError: surface_code.stim: is a circuit of Stim, which is not read; ...
    """
    with open_input(path) as stream:
        is_qpy = stream.read(len(QPY_START)) == QPY_START
    text = "" if is_qpy else read_text(path, "a qsim or OpenQASM file")
    kind = "Qiskit's QPY" if is_qpy else other_format(str(path), text)
    if kind is not None:
        raise InputError(str(path), f"is {kind}, which is not supported", REMEDIES[kind])
    return text


def other_format(name: str, text: str) -> str | None:
    """The format of a file that is neither OpenQASM nor qsim, by name and text; None for any other."""
    if "OPENQASM" in text:
        return None
    first = next(_lines(text), "")
    if CQASM_VERSION.fullmatch(first):
        return "cQASM"
    if text.lstrip().startswith(("{", "[")):
        return _json_format(text)
    by_name = BY_SUFFIX.get(Path(name.removesuffix(".gz")).suffix)
    start = STIM_OR_QUIL.fullmatch(first)
    is_other = start is not None and start[1] in STIM_WORDS | QUIL_WORDS | SHARED_WORDS
    return by_name or (_stim_or_quil(text) if is_other else None)


def _lines(text: str) -> Iterator[str]:
    """The lines without comments."""
    for line in text.splitlines():
        bare = re.split("#|//", line, maxsplit=1)[0].strip()
        if bare:
            yield bare


def _json_format(text: str) -> str | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    keys = document if isinstance(document, dict) else ()
    return next((kind for key, kind in JSON_KEYS.items() if key in keys), "JSON")


def _stim_or_quil(text: str) -> str | None:
    """Stim or Quil: lines that begin with words in capitals, and no semicolon."""
    words: set[str] = set()
    for line in _lines(text):
        match = STIM_OR_QUIL.fullmatch(line)
        if match is not None:
            words.add(match[1])
        elif ";" in line:
            return None
    if words & QUIL_WORDS:
        return QUIL
    return STIM if words & STIM_WORDS else "a circuit of Stim or Quil"
