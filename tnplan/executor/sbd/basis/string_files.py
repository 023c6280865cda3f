"""Files of half-strings: lines of text, counts of a quantum computer as JSON, arrays of NumPy.

A bitstring's rightmost character, or an array's last column, is the first orbital. One of twice the orbitals
is a sample of both spins: alpha on the right, beta on the left, as qiskit-addon-sqd has it. Repeated strings
are taken once, their weights being summed. Knows files; no integrals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.array_file import open_archive
from tnplan.common.arrays import Array
from tnplan.common.checks import is_number
from tnplan.common.errors import InputError
from tnplan.common.files import load_json, open_input, read_text
from tnplan.executor.sbd.basis.strings import (
    LONGEST,
    StringSet,
    bits_of,
    check_bits,
    check_electrons,
    from_occupied,
)

BITS = ("bitstrings", "bitstring_matrix", "samples", "strings")
"""Arrays of an .npz that hold bits [string, bit]."""
OF_SPIN = ("ci_strs_a", "ci_strs_b")
"""Arrays of an .npz with the integers of alpha and of beta strings, as qiskit-addon-sqd saves a state."""
WEIGHTS = ("weights", "counts", "probabilities")
"""Arrays of an .npz that hold the weights of `BITS`."""
HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
"""A sample of both spins as Qiskit's results have it."""


Lengths = tuple[int, ...] | None
"""Lengths that strings of a file may have, rising; None: any one length."""
Samples = str | Path | Mapping[str, float] | Array
"""Samples of both spins: a file, counts of bitstrings, or booleans [shot, bit] with alpha's on the right."""


@dataclass(frozen=True)
class Bitstrings:
    """Bitstrings of a file: `bits` [string, bit], the first orbital first, and their weights.

    `places` are the line, key or row of each.
    """

    bits: Array
    weights: Array
    places: list[str]
    path: str

    def where(self, at: int) -> str:
        """The place of a string, for an error."""
        return f"{self.path}: {self.places[at]}"


@dataclass(frozen=True)
class SpinStrings:
    """The strings of one spin in a file, and the weight of samples left out, which have other electrons."""

    strings: StringSet
    is_sampled: bool
    left_out: float = 0.0


def read_spin_strings(path: str | Path, n_orbitals: int, counts: tuple[int, int], spin: int) -> SpinStrings:
    """The strings of alpha (spin 0) or beta (1) in a file.

    Of samples of both spins, those with other numbers of electrons than `counts` are left out. Raises
    InputError naming the string that cannot be used.
    """
    samples = _read(path, (n_orbitals, 2 * n_orbitals), spin)
    is_used = samples.weights > 0
    if not is_used.any():
        raise InputError(str(path), "holds no string", "give at least one")
    bits, weights, is_sampled, left_out = samples.bits, samples.weights, False, 0.0
    if bits.shape[1] == 2 * n_orbitals:
        is_sampled = True
        halves = bits[:, :n_orbitals], bits[:, n_orbitals:]
        # A sample counts where both spins have their electrons: noise of the device changes the numbers.
        fits = np.all([half.sum(1) == count for half, count in zip(halves, counts, strict=True)], axis=0)
        left_out = float(weights[~fits].sum())
        if not (fits & is_used).any():
            raise InputError(
                str(path), f"holds no sample of {counts[0]} alpha and {counts[1]} beta electrons",
                "give samples with alpha's bits on the right, or recover configurations first",
            )  # fmt: skip
        bits, is_used = halves[spin], is_used & fits
    else:
        check_electrons(bits, counts[spin], samples.where)
    return SpinStrings(_merged(bits[is_used], weights[is_used]), is_sampled, left_out)


def read_samples(samples: Samples, n_orbitals: int) -> Bitstrings:
    """Samples of both spins, of any electrons: `bits` [sample, bit] has alpha's orbitals, then beta's.

    They are distinct and rise, as `read_bitstrings` has them. InputError names a sample that cannot be used.
    """
    return read_bitstrings(
        samples, "counts", (n_orbitals, 2 * n_orbitals),
        f"give samples of both spins, {2 * n_orbitals} bits, with alpha's on the right",
    )  # fmt: skip


def read_bitstrings(
    source: Samples | Sequence[str], name: str, lengths: Lengths, remedy: str, is_reversed: bool = False
) -> Bitstrings:
    """Bitstrings of the last of some lengths: a file, counts, texts, or booleans [string, bit].

    Equal strings are taken once, their weights being summed; they rise as numbers, whose lowest bit is the
    rightmost one of a string, or the leftmost where `is_reversed`. `name` is what errors call strings that
    are in no file, `remedy` what to do about those of another length.
    """
    if isinstance(source, str | Path):
        read = _read(source, lengths, 0)
    elif isinstance(source, Mapping):
        read = _checked(name, _rows_of_counts(source), lengths)
    elif isinstance(source, np.ndarray):
        read = _from_array(source, name)
    elif isinstance(source, Sequence) and all(isinstance(text, str) for text in source):
        rows: list[tuple[str, Any, str]] = [(text, 1.0, f"string {at}") for at, text in enumerate(source)]
        read = _checked(name, rows, lengths)
    else:
        raise _no_strings(name, f"of type {type(source).__name__}")
    has_weight = read.weights > 0
    if not has_weight.any():
        raise InputError(read.path, "holds no sample", "give at least one")
    length = read.bits.shape[1]
    if lengths is not None and length != lengths[-1]:
        raise InputError(read.path, f"holds strings of {length} bits, not {lengths[-1]}", remedy)
    bits = read.bits[has_weight][:, ::-1] if is_reversed else read.bits[has_weight]
    words = from_occupied(bits).words
    # Equal strings become one with the sum of their weights.
    order = np.lexsort(words.T)
    is_new = np.ones(len(order), bool)
    is_new[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    weights = np.add.reduceat(read.weights[has_weight][order], np.flatnonzero(is_new))
    places = [f"sample {at}" for at in range(len(weights))]
    return Bitstrings(np.ascontiguousarray(bits[order[is_new]]), weights, places, read.path)


def _from_array(bits: Array, name: str) -> Bitstrings:
    """Booleans [string, bit], the last column first."""
    if bits.ndim != 2 or bits.dtype != bool:
        raise _no_strings(name, f"an array of shape {bits.shape} and {bits.dtype}")
    return Bitstrings(bits[:, ::-1], np.ones(len(bits)), [f"shot {shot}" for shot in range(len(bits))], name)


def _no_strings(name: str, shown: str) -> InputError:
    return InputError(name, f"are {shown}", "give a file, counts as a dict, or a boolean array [shot, bit]")


def union(first: StringSet, second: StringSet) -> StringSet:
    """The strings of both, those of the first before the others."""
    bits = np.concatenate([first.occupied, second.occupied])
    return _merged(bits, np.ones(len(bits)))


def _merged(bits: Array, weights: Array) -> StringSet:
    """Every string once, by falling weight; those of equal weight in order of their first row."""
    words = from_occupied(bits).words
    _, first, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
    sums = np.bincount(inverse.ravel(), weights)
    order = np.lexsort((first, -sums))
    return from_occupied(np.ascontiguousarray(bits[first[order]]))


def _read(path: str | Path, lengths: Lengths, spin: int) -> Bitstrings:
    """The strings of a file, which have one of these lengths: those of a spin, or of both."""
    with open_input(path) as stream:
        start = stream.read(4)
    if start.startswith(b"PK"):
        return _from_archive(path, lengths, spin)
    if Path(path).name.removesuffix(".gz").endswith(".json"):
        return _from_counts(path, lengths)
    return _from_lines(path, lengths)


def _from_lines(path: str | Path, lengths: Lengths) -> Bitstrings:
    """A bitstring a line, with its weight behind it where it has one; what follows # is a comment."""
    rows: list[tuple[str, Any, str]] = []
    for number, line in enumerate(read_text(path, "a file of bitstrings, one per line").splitlines(), 1):
        words = re.split(r"[\s,:]+", line.split("#")[0].strip())
        if words == [""]:
            continue
        place = f"line {number}"
        if len(words) > 2:
            raise InputError(
                f"{path}: {place}", f"has {len(words)} fields", "write a bitstring and its weight"
            )
        rows.append((words[0], words[1] if len(words) == 2 else 1.0, place))
    return _checked(path, rows, lengths)


def _from_counts(path: str | Path, lengths: Lengths) -> Bitstrings:
    """A JSON object of bitstrings and their counts, also under `counts`; or a list of bitstrings."""
    document = load_json(path)
    if isinstance(document, Mapping) and isinstance(document.get("counts"), Mapping):
        document = document["counts"]
    rows: list[tuple[str, Any, str]] = []
    if isinstance(document, Mapping):
        rows = _rows_of_counts(document)
    elif isinstance(document, list):
        rows = [(str(key).replace(" ", ""), 1.0, f"entry {number}") for number, key in enumerate(document)]
    else:
        raise InputError(
            str(path), "is neither an object of counts nor a list of bitstrings", 'write {"0011": 12}'
        )
    return _checked(path, rows, lengths)


def _rows_of_counts(counts: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """Bitstring, count and place of each entry."""
    texts = [(str(key), count) for key, count in counts.items()]
    return [(key.replace(" ", ""), count, f"key {key[:LONGEST]!r}") for key, count in texts]


def _checked(path: str | Path, rows: list[tuple[str, Any, str]], lengths: Lengths) -> Bitstrings:
    """Bitstrings and weights, checked; all of one length, or hexadecimal numbers of the longest."""
    if lengths is None:
        lengths = (len(rows[0][0]) if rows else 1,)
        is_hexadecimal = False
    else:
        is_hexadecimal = bool(rows) and HEXADECIMAL.fullmatch(rows[0][0]) is not None
    longest = lengths[-1]
    length = longest if is_hexadecimal or any(len(text) == longest for text, _, _ in rows) else lengths[0]
    weights = np.empty(len(rows))
    texts = []
    for at, (text, weight, place) in enumerate(rows):
        if is_hexadecimal and HEXADECIMAL.fullmatch(text):
            text = f"{int(text, 16):0{length}b}"
        check_bits(f"{path}: {place}", text, length)
        weights[at] = _weight(f"{path}: {place}", weight)
        texts.append(text)
    return Bitstrings(bits_of(texts, length), weights, [place for _, _, place in rows], str(path))


def _weight(place: str, value: Any) -> float:
    try:
        weight = float(value)
    except (TypeError, ValueError):
        weight = np.nan
    if not (is_number(weight) and 0 <= weight < np.inf) or isinstance(value, bool):
        raise InputError(place, f"has the weight {value!r}", "give a number of 0 or more")
    return weight


def _from_archive(path: str | Path, lengths: Lengths, spin: int) -> Bitstrings:
    """Arrays of bits with or without weights, or of integers for each spin."""
    remedy = f"give an .npz with an array named {BITS[0]} [string, bit] and, if you like, {WEIGHTS[0]}"
    with open_archive(path, remedy) as archive:
        names = archive.names
        named = next((name for name in (*BITS, OF_SPIN[spin]) if name in names), None)
        if named is None:
            raise InputError(str(path), f"holds {', '.join(names) or 'nothing'}", remedy)
        values = archive.read(named)
        weighted = next((name for name in WEIGHTS if name in names and named in BITS), None)
        weights = np.ones(len(values)) if weighted is None else archive.read(weighted)
    n_orbitals = lengths[0] if lengths is not None else 0
    if values.ndim == 1 and values.dtype.kind in "iu" and 0 < n_orbitals <= 64 and len(values):
        numbers = values.astype(np.uint64)
        if (values < 0).any() or (n_orbitals < 64 and (numbers >> np.uint64(n_orbitals)).any()):
            raise InputError(f"{path}: {named}", f"has strings beyond {n_orbitals} orbitals", remedy)
        # The last column is the first orbital, as in text.
        values = (numbers[:, None] >> np.arange(n_orbitals, dtype=np.uint64)[::-1]) & np.uint64(1)
    columns = values.shape[1] if values.ndim == 2 else 0
    if not columns or (lengths is not None and columns not in lengths):
        expected = "some" if lengths is None else " or ".join(map(str, lengths))
        raise InputError(f"{path}: {named}", f"has the shape {values.shape}", f"give {expected} columns")
    if values.dtype.kind not in "biu" or ((values != 0) & (values != 1)).any():
        raise InputError(f"{path}: {named}", "holds other values than 0 and 1", remedy)
    if weights.shape != values.shape[:1] or weights.dtype.kind not in "iuf":
        raise InputError(
            f"{path}: {weighted}", f"has the shape {weights.shape}", "give a number for each string"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InputError(
            f"{path}: {weighted}", "holds a weight below 0, NaN or infinite", "give numbers of 0 or more"
        )
    places = [f"row {row} of {named}" for row in range(len(values))]
    bits = np.ascontiguousarray(values[:, ::-1] == 1)
    return Bitstrings(bits, np.asarray(weights, np.float64), places, str(path))
