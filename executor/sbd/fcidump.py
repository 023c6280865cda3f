"""Reads FCIDUMP files: a header of counts, then one integral a line.

Knows the text of the format, strictly; what integrals are used for is not known here. Only real orbitals that
both spins share are read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.sbd.integrals import (
    MOST_ORBITALS,
    TOLERANCE,
    Integrals,
    check_counts,
    pair_count,
    pair_number,
)
from planner.errors import InputError
from planner.files import read_text
from planner.units import size_text

Array = NDArray[Any]

REMEDY = "give an FCIDUMP file of real, spin-restricted orbitals"


def read_fcidump(path: str | Path, room_bytes: float = np.inf) -> Integrals:
    """The integrals of an FCIDUMP file; raises InputError naming the line that cannot be used.

    Integrals that take more than `room_bytes` are refused before they are made.
    """
    text = read_text(path, "an FCIDUMP file")
    fields, first_line, body = _split(str(path), text)
    n_orbitals = _count(str(path), fields, "NORB")
    if not 1 <= n_orbitals <= MOST_ORBITALS:
        raise InputError(f"{path}: NORB", f"is {n_orbitals}", f"give 1 to {MOST_ORBITALS} orbitals")
    size_bytes = 8 * (pair_count(n_orbitals) ** 2 + n_orbitals**2)
    if size_bytes > room_bytes:
        raise InputError(
            f"{path}: NORB",
            f"is {n_orbitals}: the integrals take {size_text(size_bytes)}, and {size_text(room_bytes)} may "
            "be taken",
            "give fewer orbitals or more memory",
        )
    n_electrons = _count(str(path), fields, "NELEC")
    spin = _count(str(path), fields, "MS2", 0)
    if (n_electrons + spin) % 2:
        raise InputError(
            f"{path}: MS2",
            f"is {spin} with {n_electrons} electrons",
            "give numbers that are both even or both odd",
        )
    n_alpha, n_beta = (n_electrons + spin) // 2, (n_electrons - spin) // 2
    check_counts(f"{path}: NELEC", n_orbitals, n_alpha, n_beta)
    values, indices, lines = _numbers(str(path), body, first_line)
    return _sorted(str(path), values, indices, lines, (n_orbitals, n_alpha, n_beta))


def _split(place: str, text: str) -> tuple[dict[str, str], int, list[str]]:
    """The header's fields, the number of the first line after it, and the lines from there."""
    lines = text.splitlines()
    if not lines or re.match(r"\s*&FCI\b", lines[0], re.IGNORECASE) is None:
        raise InputError(f"{place}: line 1", "does not begin with &FCI", REMEDY)
    for number, line in enumerate(lines):
        end = re.search(r"(&END\b|/\s*$|\$END\b)", line, re.IGNORECASE)
        if end is not None:
            head = " ".join([*lines[:number], line[: end.start()]])
            break
    else:
        raise InputError(place, "has a header without &END or /", REMEDY)
    found = re.findall(r"([A-Za-z]\w*)\s*=\s*([^=]*?)(?=,?\s*[A-Za-z]\w*\s*=|,?\s*$)", head)
    fields = {name.upper(): value.strip(" ,\t") for name, value in found}
    for flag in ("IUHF", "UHF", "TREL"):
        if fields.get(flag, "0").strip(".").upper() not in ("0", "FALSE", "F"):
            raise InputError(f"{place}: {flag}", f"is {fields[flag]}", REMEDY)
    return fields, number + 2, lines[number + 1 :]


def _count(place: str, fields: dict[str, str], name: str, default: int | None = None) -> int:
    text = fields.get(name)
    if text is None and default is not None:
        return default
    if text is None or re.fullmatch(r"[+-]?\d{1,9}", text) is None:
        problem = "is missing" if text is None else f"is {text!r}"
        raise InputError(f"{place}: {name}", problem, "give an integer in the header")
    return int(text)


def _numbers(place: str, body: list[str], first_line: int) -> tuple[Array, Array, Array]:
    """The values (N,), indices (N, 4) and numbers of all lines that are not blank."""
    rows = [line.split() for line in body]
    for number, row in enumerate(rows):
        if len(row) not in (0, 5):
            raise InputError(
                f"{place}: line {first_line + number}",
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
        raise _bad_number(place, rows, first_line)
    lines = first_line + np.flatnonzero([len(row) for row in rows])
    return values, indices.reshape(-1, 4), lines


def _bad_number(place: str, rows: list[list[str]], first_line: int) -> InputError:
    real = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([EeDd][+-]?\d{1,3})?")
    for number, row in enumerate(rows):
        for column, entry in enumerate(row):
            if (real if column == 0 else re.compile(r"\d{1,9}")).fullmatch(entry) is None:
                what = "real number" if column == 0 else "orbital's number"
                return InputError(f"{place}: line {first_line + number}", f"{entry!r} is no {what}", REMEDY)
    return InputError(place, "holds a number out of range", REMEDY)


def _sorted(
    place: str, values: Array, indices: Array, lines: Array, counts: tuple[int, int, int]
) -> Integrals:
    """The integrals put in order, every one of them checked against the others."""
    n = counts[0]
    used = indices != 0
    kinds = used @ (1, 2, 4, 8)
    wrong = (indices > n).any(1) | (indices < 0).any(1) | ~np.isin(kinds, (0, 1, 3, 15))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{place}: line {lines[at]}", f"has the indices {indices[at].tolist()}",
            f"number orbitals from 1 to {n}, zeros last",
        )  # fmt: skip
    two_body, one_body, core = (kinds == kind for kind in (15, 3, 0))
    p, q, r, s = (indices[two_body] - 1).T
    pairs = pair_count(n)
    left, right = pair_number(p, q, n), pair_number(r, s, n)
    low, high = np.minimum(left, right), np.maximum(left, right)
    held = values[two_body], lines[two_body]
    two = _filled(place, low * pairs + high, *held, pairs * pairs, "(pq|rs)").reshape(pairs, pairs)
    two[high, low] = two[low, high]
    p, q = (indices[one_body][:, :2] - 1).T
    low, high = np.minimum(p, q), np.maximum(p, q)
    one = _filled(place, low * n + high, values[one_body], lines[one_body], n * n, "h(pq)").reshape(n, n)
    one[high, low] = one[low, high]
    none = np.zeros(int(core.sum()), np.int64)
    constant = _filled(place, none, values[core], lines[core], 1, "the core energy")[0]
    return Integrals(counts[1], counts[2], float(constant), one, two)


def _filled(place: str, keys: Array, values: Array, lines: Array, size: int, name: str) -> Array:
    """An array of `size` with values at keys; refuses keys that come twice with different values."""
    filled = np.zeros(size)
    filled[keys] = values
    apart = np.abs(filled[keys] - values)
    if (apart > TOLERANCE * np.maximum(1.0, np.abs(values))).any():
        at = int(np.argmax(apart))
        again = lines[keys == keys[at]][-1]
        raise InputError(
            f"{place}: line {again}",
            f"gives {name} of line {lines[at]} again, {apart[at]:.2g} apart: the integrals are not symmetric",
            REMEDY,
        )
    return filled
