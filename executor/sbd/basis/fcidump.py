"""Reads FCIDUMP files: after the header one integral a line.

Knows the text of the format, strictly; what integrals are used for is not known here. Only real orbitals that
both spins share are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tnplan.executor.sbd.basis.fcidump_header import NUMBER, REMEDY, read_header
from tnplan.executor.sbd.basis.integrals import (
    MOST_ORBITALS,
    TOLERANCE,
    Integrals,
    check_counts,
    pair_count,
    pair_number,
)
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import read_text
from tnplan.planner.common.units import size_text

DIGITS = 2
"""How many units of the last digit printed integrals that ought to be equal may differ."""
MOST_ROUNDING = 1e-6
"""How much that is at most, in Hartree or relative to their size."""
SLACK = 1e-3
"""Units of the last digit that doubles may add."""


@dataclass(frozen=True)
class IntegralLines:
    """The lines of integrals that are not blank: values (N,), indices (N, 4), the lines' numbers (N,).

    `text` has all lines of the file.
    """

    place: str
    values: Array
    indices: Array
    lines: Array
    text: Sequence[str]

    def refusal(self, entry: int, problem: str, remedy: str = REMEDY) -> InputError:
        """What is wrong with the line of an entry."""
        return InputError(f"{self.place}: line {self.lines[entry]}", problem, remedy)

    def unit(self, entry: int) -> float:
        """What one unit of the last digit of a value is."""
        printed = self.text[self.lines[entry] - 1].split()[0].upper().replace("D", "E")
        mantissa, _, exponent = printed.partition("E")
        return float(f"1E{int(exponent or 0) - len(mantissa.partition('.')[2])}")


def read_fcidump(path: str | Path, room_bytes: float = np.inf) -> Integrals:
    """The integrals of an FCIDUMP file; raises InputError naming the line that cannot be used.

    Integrals that take more than `room_bytes` are refused before they are made.
    """
    text = read_text(path, "an FCIDUMP file")
    lines = text.splitlines()
    header = read_header(str(path), lines)
    n_orbitals, n_electrons, spin = header.n_orbitals, header.n_electrons, header.spin
    if not 1 <= n_orbitals <= MOST_ORBITALS:
        raise InputError(f"{path}: NORB", f"is {n_orbitals}", f"give 1 to {MOST_ORBITALS} orbitals")
    size_bytes = 8 * (pair_count(n_orbitals) ** 2 + n_orbitals**2)
    if size_bytes > room_bytes:
        taken = f"the integrals take {size_text(size_bytes)}, and {size_text(room_bytes)} may be taken"
        raise InputError(f"{path}: NORB", f"is {n_orbitals}: {taken}", "give fewer orbitals or more memory")
    if (n_electrons + spin) % 2:
        raise InputError(
            f"{path}: MS2",
            f"is {spin} with {n_electrons} electrons",
            "give numbers that are both even or both odd",
        )
    n_alpha, n_beta = (n_electrons + spin) // 2, (n_electrons - spin) // 2
    check_counts(f"{path}: NELEC", n_orbitals, n_alpha, n_beta)
    return _sorted(_entries(str(path), lines, header.n_lines), (n_orbitals, n_alpha, n_beta))


def _entries(place: str, text: Sequence[str], first: int) -> IntegralLines:
    """The integrals, from line `first` on, counted from 0."""
    rows = [line.split() for line in text[first:]]
    for number, row in enumerate(rows):
        if len(row) not in (0, 5):
            raise InputError(
                f"{place}: line {first + 1 + number}",
                f"has {len(row)} fields",
                "write a value and four indices",
            )
    flat = [entry for row in rows for entry in row]
    try:
        values = np.array([entry.replace("D", "E").replace("d", "e") for entry in flat[::5]], np.float64)
        indices = np.array([flat[first::5] for first in range(1, 5)], np.int64).T
    except (ValueError, OverflowError):
        values, indices = np.empty(0), np.empty((0, 4), np.int64)
    if len(values) != len(flat) // 5 or not np.isfinite(values).all():
        raise _bad_number(place, rows, first + 1)
    lines = first + 1 + np.flatnonzero([len(row) for row in rows])
    return IntegralLines(place, values, indices.reshape(-1, 4), lines, text)


def _bad_number(place: str, rows: list[list[str]], first_line: int) -> InputError:
    for number, row in enumerate(rows):
        for column, entry in enumerate(row):
            if (NUMBER if column == 0 else re.compile(r"\d{1,9}")).fullmatch(entry) is None:
                what = "real number" if column == 0 else "orbital's number"
                return InputError(f"{place}: line {first_line + number}", f"{entry!r} is no {what}", REMEDY)
    return InputError(place, "holds a number out of range", REMEDY)


def _sorted(entries: IntegralLines, counts: tuple[int, int, int]) -> Integrals:
    """The integrals put in order, every one of them checked against the others."""
    n, indices = counts[0], entries.indices
    used = indices != 0
    kinds = used @ (1, 2, 4, 8)
    wrong = (indices > n).any(1) | (indices < 0).any(1) | ~np.isin(kinds, (0, 1, 3, 15))
    if wrong.any():
        at = int(np.argmax(wrong))
        remedy = f"number orbitals from 1 to {n}, zeros last"
        raise entries.refusal(at, f"has the indices {indices[at].tolist()}", remedy)
    two_body, one_body, core = (np.flatnonzero(kinds == kind) for kind in (15, 3, 0))
    p, q, r, s = (indices[two_body] - 1).T
    pairs = pair_count(n)
    left, right = pair_number(p, q, n), pair_number(r, s, n)
    low, high = np.minimum(left, right), np.maximum(left, right)
    two = _filled(entries, two_body, low * pairs + high, pairs * pairs, "(pq|rs)").reshape(pairs, pairs)
    two[high, low] = two[low, high]
    p, q = (indices[one_body][:, :2] - 1).T
    low, high = np.minimum(p, q), np.maximum(p, q)
    one = _filled(entries, one_body, low * n + high, n * n, "h(pq)").reshape(n, n)
    one[high, low] = one[low, high]
    constant = _filled(entries, core, np.zeros(len(core), np.int64), 1, "the core energy")[0]
    return Integrals(counts[1], counts[2], float(constant), one, two)


def _filled(entries: IntegralLines, chosen: Array, keys: Array, size: int, name: str) -> Array:
    """An array of `size` with the values of the entries `chosen` at keys, which symmetry makes equal.

    Where a key comes twice, the values must agree to TOLERANCE, or to DIGITS units of the last digit printed
    of the one that has fewer; that of the most digits is taken, or the last of several.
    """
    filled, values = np.zeros(size), entries.values[chosen]
    filled[keys] = values
    differences = np.abs(filled[keys] - values) / np.maximum(1.0, np.abs(values))
    if (differences > MOST_ROUNDING).any():
        at = int(np.argmax(differences))
        raise _unequal(entries, name, chosen[at], chosen[keys == keys[at]][-1])
    near = np.flatnonzero(np.isin(keys, keys[differences > TOLERANCE]))
    near = near[np.argsort(keys[near], kind="stable")]
    for group in np.split(near, np.flatnonzero(np.diff(keys[near])) + 1) if len(near) else []:
        filled[keys[group[0]]] = _finest(entries, name, chosen[group].tolist())
    return filled


def _finest(entries: IntegralLines, name: str, alike: Sequence[int]) -> float:
    """The value that entries agree upon to the digits that they print."""
    finest = min(reversed(alike), key=entries.unit)
    value = float(entries.values[finest])
    for entry in alike:
        size = max(1.0, abs(value))
        rounding = min(MOST_ROUNDING * size, (DIGITS + SLACK) * entries.unit(entry))
        if abs(entries.values[entry] - value) > max(TOLERANCE * size, rounding):
            raise _unequal(entries, name, *sorted((entry, finest)))
    return value


def _unequal(entries: IntegralLines, name: str, first: int, again: int) -> InputError:
    difference = abs(entries.values[first] - entries.values[again])
    problem = f"gives {name} of line {entries.lines[first]} again, {difference:.2g} apart"
    return entries.refusal(again, f"{problem}: the integrals are not symmetric")
