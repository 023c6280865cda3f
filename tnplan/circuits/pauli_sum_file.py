"""The JSON file of a sum of Pauli words.

Changelog of `tnplan.pauli_sum`:
1 (2026-11-29): first version.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tnplan.circuits.circuit import LARGEST_CIRCUIT
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.common.files import check_suffix, check_writable, identity_of, read_json, write_json

FORMAT = "tnplan.pauli_sum"
VERSION = 1
REMEDY = "write the file again, or use a .json object of words without a format"


def save_sum(terms: PauliSum, path: str | Path) -> None:
    """Write a sum with its identity; words in rising order, complex coefficients as pairs."""
    check_suffix(path, ".json")
    check_writable(path)
    words = {
        word: [value.real, value.imag] if isinstance(value, complex) else value
        for word, value in terms.to_dict().items()
    }
    document = {"format": FORMAT, "version": VERSION, "n_qubits": terms.n_qubits, "terms": words}
    write_json(path, {**document, "identity": identity_of(document)})


def load_words(path: str | Path) -> tuple[int, Mapping[str, Any]]:
    """Read how many qubits a sum has, and its words with their coefficients; check its identity."""
    document = read_json(path, FORMAT, VERSION)
    stated = document.pop("identity", None)
    try:
        computed = identity_of(document)
    except ValueError:
        raise InputError(str(path), "holds a number that is not finite", REMEDY) from None
    if stated != computed:
        problem = f"{str(stated)[:12]}... is not that of the contents ({computed[:12]}...)"
        raise InputError(f"{path}: identity", problem, REMEDY)
    n_qubits = check_count(f"{path}: n_qubits", document.get("n_qubits"), 1, LARGEST_CIRCUIT)
    words = document.get("terms")
    if not isinstance(words, Mapping):
        raise InputError(f"{path}: terms", "is no object", REMEDY)
    return n_qubits, words
