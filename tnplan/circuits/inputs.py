"""Bit strings, qubits and observables in any form that people have them, checked against the circuit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from numbers import Complex, Real
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.circuits.circuit import check_qubits
from tnplan.circuits.libraries.pauli_operators import of_library
from tnplan.circuits.pauli_sum import (
    PauliSum,
    given_sum,
    load_words,
    n_qubits_of,
    parse,
    pauli_sum,
    word_masks,
)
from tnplan.common.array_file import read_array
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count, is_finite
from tnplan.common.errors import InputError
from tnplan.common.files import load_json, read_text

TOPIC = "questions about circuits"

LONGEST_SHOWN = 40
"""Characters of a value in an error."""


def given_qubits(place: str, qubits: Any, n_qubits: int, most: int) -> tuple[int, ...]:
    """Some qubits of a circuit, each once, at least one."""
    listed = [qubits] if isinstance(qubits, int) else _listed(place, qubits, "give a list of qubits")
    chosen = tuple(check_count(place, qubit, 0) for qubit in listed)
    check_qubits(chosen, n_qubits, place)
    if not 1 <= len(chosen) <= most:
        raise InputError(place, f"has {len(chosen)} qubits", f"name 1 to {most}")
    return chosen


def given_bits(bitstrings: Any, n_qubits: int) -> tuple[Array, bool]:
    """Bit strings as uint8 [string, qubit], and whether one string alone was given.

    A string, a list of strings, an array [string, qubit], or a file: a string a line, or .npy.
    """
    place = "--bitstrings"
    if isinstance(bitstrings, Path):
        return _bits_of_file(bitstrings, n_qubits), False
    if isinstance(bitstrings, str):
        return _bits_of_texts([(place, bitstrings)], n_qubits), True
    if isinstance(bitstrings, np.ndarray) and bitstrings.dtype.kind in "bui":
        return _bits_of_array(bitstrings, n_qubits, place), False
    texts = [(place, text) for text in _listed(place, bitstrings, "give bit strings, an array or a file")]
    return _bits_of_texts(texts, n_qubits), False


def given_pattern(
    bits: str | None, open_qubits: Any, n_qubits: int, most: int
) -> tuple[dict[int, int], tuple[int, ...]]:
    """The values of fixed qubits, and the open qubits.

    `bits` has 0, 1 or . (open) for each qubit; None is 0 for all that are not open.
    """
    chosen = given_qubits("--open", open_qubits, n_qubits, most)
    text = "".join("." if q in chosen else "0" for q in range(n_qubits)) if bits is None else bits
    if not isinstance(text, str) or len(text) != n_qubits or set(text) - {"0", "1", "."}:
        raise InputError(
            "--bitstrings", f"{_shown(text)} does not fit open qubits",
            f"give one string of {n_qubits} characters 0, 1 or . (open)",
        )  # fmt: skip
    fixed = {q: int(value) for q, value in enumerate(text) if q not in chosen and value != "."}
    missing = [q for q, value in enumerate(text) if value == "." and q not in chosen]
    if missing:
        raise InputError("--bitstrings", f"leaves qubit {missing[0]} open", "add it to the open qubits")
    return fixed, chosen


def given_observables(observables: Any, n_qubits: int) -> tuple[tuple[PauliSum, ...], bool]:
    """Observables as sums of Pauli words, and whether one alone was given.

    One is a text, a `PauliSum` or an operator of another library. A list has several. A file (`Path`) has one
    a line, or is a JSON list of texts and of objects {word: coefficient}, or is of `PauliSum.to_file`.
    """
    if isinstance(observables, Path):
        entries = _entries_of_file(observables, is_sum=False)
        return tuple(_of_entry(place, entry, n_qubits) for place, entry in entries), False
    if isinstance(observables, list | tuple):
        if not observables:
            raise InputError("--observable", "is an empty list", "give one observable or more")
        return tuple(given_sum(observable, n_qubits) for observable in observables), False
    return (given_sum(observables, n_qubits),), True


def given_operator(
    operator: Any, n_qubits: int | None, name: str, labels: Sequence[Any] | None = None
) -> PauliSum:
    """An operator as one sum of Pauli words; `name` is what errors call it.

    A text, a `PauliSum`, an operator of another library, or an object {word: coefficient}. A file (`Path`)
    has a term or a sum a line, is a JSON object of words, or is of `PauliSum.to_file`; its sums are added up.
    `n_qubits` None: as many as the operator says or needs. `labels` are another library's qubits in order.
    """
    if isinstance(operator, Path):
        entries = _entries_of_file(operator, is_sum=True)
        if n_qubits is None:
            n_qubits = max(_n_qubits(entry) for _, entry in entries)
        sums = [_of_entry(place, entry, n_qubits) for place, entry in entries]
        return pauli_sum([term for entry in sums for term in entry.masks()], n_qubits)
    try:
        read = of_library(operator, n_qubits, labels)
        operator = operator if read is None else read
        n_qubits = n_qubits or _n_qubits(operator)
        is_object = isinstance(operator, Mapping)
        return _of_object(operator, n_qubits) if is_object else given_sum(operator, n_qubits)
    # The place is the caller's: the same text may be an observable, or operator a of a trace.
    except InputError as error:
        raise InputError(name, error.problem, error.remedy, error.page) from None


def _n_qubits(operator: Any) -> int:
    """The qubits that a sum, or else a text or an object {word: coefficient}, has or needs."""
    if isinstance(operator, PauliSum):
        return operator.n_qubits
    return n_qubits_of(operator if isinstance(operator, Mapping) else [operator])


def _bits_of_file(path: Path, n_qubits: int) -> Array:
    if path.suffix == ".npy":
        return _bits_of_array(read_array(path), n_qubits, str(path))
    lines = read_text(path, "a file with one bit string per line").splitlines()
    texts = [(f"{path}: line {k}", line.strip()) for k, line in enumerate(lines, 1) if line.strip()]
    if not texts:
        raise InputError(str(path), "has no bit strings", "write one per line")
    return _bits_of_texts(texts, n_qubits)


def _bits_of_texts(texts: Sequence[tuple[str, Any]], n_qubits: int) -> Array:
    """The bits of strings, each with its place."""
    if not texts:
        raise InputError("--bitstrings", "is an empty list", "give one bit string or more")
    for place, text in texts:
        if not isinstance(text, str) or len(text) != n_qubits or set(text) - {"0", "1"}:
            raise InputError(
                place, f"{_shown(text)} is not a bit string", f"give 0 or 1 for each of {n_qubits} qubits"
            )
    joined = "".join(text for _, text in texts).encode()
    return (np.frombuffer(joined, np.uint8) - ord("0")).reshape(len(texts), n_qubits)


def _bits_of_array(array: Array, n_qubits: int, place: str) -> Array:
    if array.ndim != 2 or array.shape[1] != n_qubits or not len(array):
        raise InputError(place, f"has shape {array.shape}", f"give [string, qubit] for {n_qubits} qubits")
    if array.dtype.kind not in "bui" or not np.isin(array, (0, 1)).all():
        raise InputError(place, f"has other values than 0 and 1, in {array.dtype}", "give bits")
    return array.astype(np.uint8)


def _entries_of_file(path: Path, is_sum: bool) -> list[tuple[str, Any]]:
    """The observables of a file, or with `is_sum` what is added up, each with its place."""
    if path.suffix == ".json":
        document = load_json(path)
        if isinstance(document, Mapping) and "format" in document:
            n_qubits, words = load_words(path)
            try:
                return [(str(path), _of_words(words, n_qubits))]
            except InputError as error:
                raise InputError(f"{path}: terms", error.problem, error.remedy, error.page) from None
        if isinstance(document, Mapping) and is_sum:
            return [(str(path), document)]
        if not isinstance(document, list) or not document:
            raise InputError(str(path), "is not a list", "give a list of observables")
        return [(f"{path}: entry {k}", entry) for k, entry in enumerate(document)]
    lines = read_text(path, "a file with one observable per line").splitlines()
    stripped = [(k, line.partition("#")[0].strip()) for k, line in enumerate(lines, 1)]
    entries = [(f"{path}: line {k}", line) for k, line in stripped if line]
    if not entries:
        raise InputError(str(path), "has no observables", "write one per line")
    return entries


def _of_entry(place: str, entry: Any, n_qubits: int) -> PauliSum:
    """An observable of a file."""
    try:
        if isinstance(entry, PauliSum):
            return given_sum(entry, n_qubits)
        return _of_object(entry, n_qubits) if isinstance(entry, Mapping) else parse(entry, n_qubits)
    except InputError as error:
        raise InputError(place, error.problem, error.remedy, error.page) from None


def _of_object(words: Mapping[str, Any], n_qubits: int) -> PauliSum:
    if not words:
        raise InputError("", "is empty", "give words with their coefficients")
    return _of_words(words, n_qubits)


def _of_words(words: Mapping[str, Any], n_qubits: int) -> PauliSum:
    """The sum of an object {word: coefficient}; a coefficient is a number, or a pair for a complex one."""
    terms: list[tuple[int, int, complex]] = []
    for word, coefficient in words.items():
        if isinstance(coefficient, Complex) and not isinstance(coefficient, Real):
            coefficient = [float(coefficient.real), float(coefficient.imag)]
        parts = coefficient if isinstance(coefficient, list) else [coefficient]
        if len(parts) not in (1, 2) or not all(map(is_finite, parts)):
            raise InputError(
                "", f"{_shown(word)} has the coefficient {_shown(coefficient)}",
                "give a number or [real, imaginary]",
            )
        if not isinstance(word, str) or not word.strip():
            raise InputError("", f"{_shown(word)} is not a Pauli word", "write one such as X0 Z3")
        value = complex(*parts) if len(parts) == 2 else float(parts[0])
        terms.append((*word_masks(word.strip(), n_qubits), value))
    return pauli_sum(terms, n_qubits)


def _listed(place: str, values: Any, remedy: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InputError(place, f"is {_shown(values)}", remedy)
    return list(values)


def _shown(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
