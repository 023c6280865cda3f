"""Reads FCIDUMP files: after the header one integral a line.

Knows the text of the format; which lines are equal by symmetry is in `symmetry`. What integrals are
used for is not known here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.files import read_text
from tnplan.common.units import size_text
from tnplan.executor.sbd.basis.fcidump.header import (
    BLOCKS,
    GENERAL,
    LISTED,
    NUMBER,
    REMEDY,
    SPIN_ORBITALS,
    FcidumpHeader,
    read_header,
)
from tnplan.executor.sbd.basis.fcidump.symmetry import IntegralLines, Symmetry, check_momenta, find_symmetry
from tnplan.executor.sbd.basis.integrals import (
    MOST_ORBITALS,
    BetaIntegrals,
    Integrals,
    OrbitalLabels,
    check_counts,
    pair_count,
)

FIELDS = 5
"""Of a line: a value and four indices. A value in two fields is complex; a line of one is the core energy."""
ALPHA, BETA, MIXED = "aa", "bb", "ab"
"""The blocks of two-electron integrals of a file with orbitals of each spin, which stand in this order."""
BOUNDS = 6
"""Lines of four zeros in such a file: after each of three two-electron blocks and two one-electron ones, and
the core energy."""


def read_fcidump(
    path: str | Path, room_bytes: float = np.inf, spin_orbitals: bool | None = None
) -> Integrals:
    """The integrals of an FCIDUMP file.

    Parameters
    ----------
    path : path
        The file, which gzip may have packed.
    room_bytes : float
        Integrals that take more are refused before they are made.
    spin_orbitals : bool, optional
        Whether NORB counts spin orbitals of both spins (GHF) or orbitals. Default: what the header says;
        IGENERAL, which programs write for both, needs an answer.

    Returns
    -------
    Integrals
        Real or complex, of orbitals that spins share or of each spin, as the header and the values say.

    Raises
    ------
    InputError
        Names the line or keyword that cannot be used.

    Examples
    --------
    >>> integrals = tnplan.from_arrays(np.eye(2), np.zeros((2, 2, 2, 2)), 1, 1)
    >>> tnplan.read_fcidump(tnplan.write_fcidump("h.fcidump", integrals))
    Integrals(2 orbitals, 1 alpha and 1 beta electrons)
    """
    place = str(path)
    lines = read_text(path, "an FCIDUMP file").splitlines()
    header = read_header(place, lines)
    if not 1 <= header.n_orbitals <= MOST_ORBITALS:
        raise InputError(f"{place}: NORB", f"is {header.n_orbitals}", f"give 1 to {MOST_ORBITALS} orbitals")
    # Before the lines are read, for real integrals; again once the symmetry of the values is known.
    _check_memory(place, header.n_orbitals, pair_count(header.n_orbitals), 8, room_bytes)
    general = _is_general(place, header, spin_orbitals)
    counts = _electrons(place, header, general)
    entries = _entries(place, lines, header.n_lines)
    if header.spins not in (BLOCKS, SPIN_ORBITALS):
        symmetry = find_symmetry(entries, header.complex_keyword, header.n_orbitals)
        _check_memory(place, header.n_orbitals, symmetry.n_pairs, entries.values.itemsize, room_bytes)
        one, two, core = _of_block(entries, symmetry, header.labels.momenta)
        return Integrals(*counts, core, one, two, is_general=general, labels=header.labels)
    return _of_spins(entries, header, counts, room_bytes)


def _check_memory(place: str, n_orbitals: int, n_pairs: int, item_bytes: int, memory_bytes: float) -> None:
    size_bytes = item_bytes * (n_pairs**2 + n_orbitals**2)
    if size_bytes > memory_bytes:
        problem = f"the integrals need {size_text(size_bytes)}, but the limit is {size_text(memory_bytes)}"
        raise InputError(
            f"{place}: NORB",
            f"is {n_orbitals}, and {problem}",
            "give fewer orbitals or more memory",
            topic="memory",
        )


def _is_general(place: str, header: FcidumpHeader, spin_orbitals: bool | None) -> bool:
    """Whether NORB counts spin orbitals of both spins."""
    if header.spins in (BLOCKS, SPIN_ORBITALS):
        if spin_orbitals:
            raise InputError(
                "--spin-orbitals",
                f"is set, and {header.spins} says that orbitals are of each spin",
                "leave it out",
            )
        return False
    if spin_orbitals is not None:
        return spin_orbitals
    if header.spins == LISTED and header.n_electrons <= header.n_orbitals:
        raise InputError(
            f"{place}: {LISTED}", "is set for orbitals and for spin orbitals of both spins (GHF)",
            "say which NORB counts: give --spin-orbitals or --no-spin-orbitals",
        )  # fmt: skip
    return header.spins == GENERAL


def _electrons(place: str, header: FcidumpHeader, general: bool) -> tuple[int, int]:
    """The numbers of alpha and beta electrons."""
    n_orbitals, n_electrons, spin = header.n_orbitals, header.n_electrons, header.spin
    if general:
        check_counts(f"{place}: NELEC", n_orbitals, n_electrons, 0)
        return n_electrons, 0
    if (n_electrons + spin) % 2:
        raise InputError(
            f"{place}: MS2",
            f"is {spin} with {n_electrons} electrons",
            "give numbers that are both even or both odd",
        )
    # MS2 = N_alpha - N_beta, NELEC their sum.
    counts = (n_electrons + spin) // 2, (n_electrons - spin) // 2
    check_counts(f"{place}: NELEC", n_orbitals, *counts)
    return counts


def _entries(place: str, text: Sequence[str], first: int) -> IntegralLines:
    """The integrals, from line `first` on, counted from 0."""
    plain = [line.split("!", 1)[0] for line in text[first:]]
    # Fortran writes complex numbers as (re,im).
    if any("(" in line for line in plain):
        plain = [line.translate(str.maketrans("(),", "   ")) for line in plain]
    rows = [line.split() for line in plain]
    is_complex = any(len(row) == FIELDS + 1 for row in rows)
    for number, row in enumerate(rows):
        if len(row) == 1:
            row += ["0"] * (FIELDS - 1)
        if len(row) == FIELDS and is_complex:
            row.insert(1, "0")
        if len(row) not in (0, FIELDS + is_complex):
            raise InputError(
                f"{place}: line {first + 1 + number}",
                f"has {len(row)} fields",
                "write a value and four indices",
            )
    flat = [entry for row in rows for entry in row]
    n_fields = FIELDS + is_complex
    try:
        columns = [_floats(flat[at::n_fields]) for at in range(n_fields - FIELDS + 1)]
        indices = np.array([flat[at::n_fields] for at in range(n_fields - 4, n_fields)], np.int64).T
    except (ValueError, OverflowError):
        raise _bad_number(place, rows, first + 1) from None
    if not all(np.isfinite(column).all() for column in columns):
        raise _bad_number(place, rows, first + 1)
    values = columns[0]
    if is_complex and columns[1].any():
        values = columns[0] + 1j * columns[1]
    lines = first + 1 + np.flatnonzero([len(row) for row in rows])
    return IntegralLines(place, values, indices.reshape(-1, 4), lines, text)


def _floats(words: Sequence[str]) -> Array:
    """Numbers as Fortran writes them: with D for E, and without E before an exponent of three digits."""
    plain = [word.replace("D", "E").replace("d", "e") for word in words]
    try:
        return np.array(plain, np.float64)
    except ValueError:
        return np.array([re.sub(r"(?<=[\d.])([+-]\d{1,3})$", r"E\1", word) for word in plain], np.float64)


def _bad_number(place: str, rows: list[list[str]], first_line: int) -> InputError:
    for number, row in enumerate(rows):
        for column, entry in enumerate(row):
            is_value = column < len(row) - 4
            if (NUMBER if is_value else re.compile(r"\d{1,9}")).fullmatch(entry) is None:
                kind = "a real number" if is_value else "the number of an orbital"
                return InputError(f"{place}: line {first_line + number}", f"{entry!r} is not {kind}", REMEDY)
    return InputError(place, "holds a number out of range", REMEDY)


def _of_block(
    entries: IntegralLines, symmetry: Symmetry, momenta: Sequence[int]
) -> tuple[Array, Array, float]:
    """One-electron and two-electron integrals, and the core energy."""
    two, one, core = entries.by_kind(symmetry.n_orbitals)
    for lines in (two, one):
        check_momenta(lines, momenta)
    bodies = symmetry.one_body(one), symmetry.two_body(two), symmetry.constant(core)
    if len(two.values) and not len(one.values):
        problem = "has no one-electron integrals, which are taken as 0; check that the file is complete"
        warnings.warn(f"{entries.place}: {problem}", stacklevel=2)
    return bodies


def _of_spins(
    entries: IntegralLines, header: FcidumpHeader, counts: tuple[int, int], memory_bytes: float
) -> Integrals:
    """Integrals of a file with orbitals of each spin: in blocks, or over spin orbitals in turn."""
    n, labels = header.n_orbitals, header.labels
    # Lines of four zeros part the blocks of a UHF file; a file over spin orbitals in turn has one,
    # the core energy.
    bounds = np.flatnonzero((entries.indices == 0).all(1))
    if header.spins == BLOCKS or len(bounds) > 1:
        blocks, core = _blocks(entries, bounds)
    else:
        if n % 2:
            raise InputError(
                f"{entries.place}: NORB", f"is {n}, where {SPIN_ORBITALS} says that it counts spin orbitals",
                "give an even number, or integrals in blocks with IUHF=1",
            )  # fmt: skip
        blocks, core = _in_turn(entries, n)
        n, labels = n // 2, OrbitalLabels(labels.irreps[::2], labels.wanted, labels.momenta[::2])
    check_counts(f"{entries.place}: NELEC", n, *counts)
    symmetry = find_symmetry(
        entries, header.complex_keyword, n, tuple(blocks[name] for name in (ALPHA, BETA))
    )
    _check_memory(entries.place, n, symmetry.n_pairs, 3 * entries.values.itemsize, memory_bytes)
    bodies = {}
    for name, block in blocks.items():
        two, one, _ = block.by_kind(n)
        for lines in (two, one):
            check_momenta(lines, labels.momenta)
        bodies[name] = symmetry.one_body(one), symmetry.two_body(two, name == MIXED)
    beta = BetaIntegrals(*bodies[BETA], bodies[MIXED][1])
    return Integrals(*counts, symmetry.constant(core), *bodies[ALPHA], beta, labels=labels)


def _blocks(entries: IntegralLines, bounds: Array) -> tuple[dict[str, IntegralLines], IntegralLines]:
    """The integrals of alpha, beta and both, and the core energy, parted by lines of four zeros."""
    if len(bounds) != BOUNDS:
        raise InputError(
            entries.place,
            f"has {len(bounds)} lines whose four indices are 0, which end the blocks of each spin",
            f"give {BOUNDS}: after integrals of alpha, of beta and of both, after h of each, the core energy",
        )
    wrong = np.flatnonzero(entries.values[bounds[:-1]] != 0)
    if len(wrong):
        raise entries.refusal(int(bounds[wrong[0]]), "separates two blocks, but is not 0")
    blocks = [
        entries.take(np.arange(*span)) for span in zip(np.append(-1, bounds[:-1]) + 1, bounds, strict=True)
    ]
    for block, n_indices in zip(blocks, (4, 4, 4, 2, 2, 0), strict=True):
        of_kind = (block.indices != 0).sum(1)
        odd = np.flatnonzero((of_kind != n_indices) & (of_kind != 1))
        if len(odd):
            raise block.refusal(int(odd[0]), f"stands in a block of integrals with {n_indices} indices")
    alpha, beta, mixed = blocks[:3]
    return (
        {ALPHA: alpha.and_those_of(blocks[3]), BETA: beta.and_those_of(blocks[4]), MIXED: mixed},
        entries.take(bounds[-1:]),
    )


def _in_turn(entries: IntegralLines, n: int) -> tuple[dict[str, IntegralLines], IntegralLines]:
    """The same of a file over spin orbitals, odd ones alpha's and even ones beta's."""
    indices = entries.indices
    core = (indices == 0).all(1)
    spins = (indices + 1) % 2
    spins[indices == 0] = 0
    # (pq|rs) is 0 where the spins of p and q, or of r and s, differ.
    electrons = spins[:, ::2] != spins[:, 1::2]
    electrons[indices[:, 1::2] == 0] = False
    wrong = np.flatnonzero(electrons.any(1) & (entries.values != 0) & (indices <= n).all(1))
    if len(wrong):
        raise entries.refusal(
            int(wrong[0]), f"mixes the spins, where {SPIN_ORBITALS} says that they do not mix",
            "write IGENERAL=1 for general spin orbitals",
        )  # fmt: skip
    unmixed = entries.take(np.flatnonzero(~electrons.any(1) & ~core))
    first, second = ((unmixed.indices[:, at] + 1) % 2 for at in (0, 2))
    has_two = unmixed.indices[:, 2] != 0
    spatial = replace(unmixed, indices=(unmixed.indices + 1) // 2)
    chosen = {
        ALPHA: (first == 0) & (~has_two | (second == 0)), BETA: (first == 1) & (~has_two | (second == 1)),
        MIXED: has_two & (first != second),
    }  # fmt: skip
    blocks = {name: spatial.take(np.flatnonzero(mask)) for name, mask in chosen.items()}
    # (pq|rs) = (rs|pq): mixed integrals have alpha's pair first.
    swap = first[chosen[MIXED]] == 1
    blocks[MIXED].indices[swap] = blocks[MIXED].indices[swap][:, [2, 3, 0, 1]]
    return blocks, entries.take(np.flatnonzero(core))
