"""Files of circuits in formats that are not read: told apart by name or first lines, and refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tnplan.common.errors import InputError
from tnplan.common.files import open_input, read_text

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
