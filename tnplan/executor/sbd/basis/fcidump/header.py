"""The header of an FCIDUMP file: a Fortran namelist, its keywords and which Hamiltonians they stand for.

Knows no integral. A keyword that asks for a Hamiltonian that is not there is refused, and so is one that is
not known here. Programs that write the keywords: Molpro, PySCF, Psi4, Forte, OpenMolcas, Block2, Dice, NECI,
HANDE, ElemCo.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import LARGEST_IRREP, OrbitalLabels

REMEDY = "give an FCIDUMP file of a molecule's Hamiltonian"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([EeDd][+-]?\d{1,3}|[+-]\d{1,3})?")
LOGICAL = re.compile(r"\.?(T|F|TRUE|FALSE)\.?", re.IGNORECASE)
BEGIN = re.compile(r"\s*[&$]FCI\b", re.IGNORECASE)
END = re.compile(r"([&$]END\b|/)", re.IGNORECASE)
NOTHING = ("0", "F")
"""Values that say no, as `_plain` writes them."""
COUNTS = ("NORB", "NELEC", "MS2")
"""Keywords of numbers that every header has; MS2 may be missing."""
LABELS = ("ORBSYM", "ISYM", "SYML", "PROPBITLEN", "KMOD", "ITGENERAL")
"""Symmetries of orbitals and of the state looked for, their numbering, and that all h(pq) are listed."""
ENERGIES = ("FOCK",)
"""Energies of orbitals."""
OCCUPATIONS = ("OCC", "CLOSED", "CORE", "FROZEN")
"""Numbers of orbitals of a reference, which the strings say here. A CORE that is no integer is an energy."""
COMPLEX_ORBITALS = {
    "SYMLZ": NOTHING, "LZ": NOTHING, "SYMML": NOTHING, "KSYM": NOTHING, "KISYM": NOTHING,
    "NPROP": (*NOTHING, "1"), "TREAL": ("1", "T"), "TREL": NOTHING,
}  # fmt: skip
"""Keywords of complex orbitals, over which (pq|rs) is not (qp|rs), and values that say that they are real."""
BLOCKS, SPIN_ORBITALS = "IUHF", "UHF"
"""Orbitals of each spin: one block of integrals after the other, or numbered alpha and beta in turn."""
GENERAL, LISTED = "TREL", "IGENERAL"
"""Spin orbitals of both spins, which NORB counts; and that all (pq|rs) are listed, of these or of others."""
SWITCHES = (GENERAL, BLOCKS, SPIN_ORBITALS, LISTED)
REFUSED = {
    "VIBRONIC": "the Hamiltonian has vibrations",
    "ST": "a similarity-transformed Hamiltonian is not symmetric",
    "III": "the Hamiltonian has integrals of three electrons",
}
"""Keywords that ask for what is not there, unless they say no."""
IGNORED = ("NSTATE", "NROOT", "NROOTS", "NSYM", "PNTGRP", "DENSITY")
"""What a program computed, and the point group whose representations ORBSYM numbers: of any value."""
KNOWN = {*COUNTS, *LABELS, *ENERGIES, *OCCUPATIONS, *COMPLEX_ORBITALS, *SWITCHES, *REFUSED, *IGNORED}


@dataclass(frozen=True)
class FcidumpHeader:
    """What a header says.

    - `n_orbitals`, `n_electrons`, `spin`: NORB, NELEC and MS2.
    - `n_lines`: The lines of the file that it takes.
    - `complex_keyword`: The keyword that says that orbitals are complex; empty where none does.
    - `spins`: "" where both spins share orbitals, else GENERAL, BLOCKS, SPIN_ORBITALS, or LISTED if nothing
      more.
    - `labels`: Symmetry labels, by orbital of the file.
    """

    n_orbitals: int
    n_electrons: int
    spin: int
    n_lines: int
    complex_keyword: str
    spins: str
    labels: OrbitalLabels


def read_header(place: str, lines: Sequence[str]) -> FcidumpHeader:
    """The header of a file of `lines`; raises InputError naming what asks for another kind of Hamiltonian."""
    first = next((at for at, line in enumerate(lines) if line.split("!")[0].strip()), 0)
    if not lines or BEGIN.match(lines[first]) is None:
        raise InputError(f"{place}: line {first + 1}", "does not begin with &FCI", REMEDY)
    head: list[str] = []
    for number, line in enumerate(lines[first:], first + 1):
        text = line.split("!")[0]
        end = END.search(text)
        head.append(text if end is None else text[: end.start()])
        if end is not None:
            _check_end_line(f"{place}: line {number}", text[end.end() :])
            break
    else:
        raise InputError(place, "has a header without &END or /", REMEDY)
    fields = _fields(place, " ".join(head))
    for name in sorted(fields, key=[*COUNTS, *sorted(KNOWN), *fields].index):
        _check(f"{place}: {name}", name, fields[name])
    norb, nelec, ms2 = (_count(place, fields, name) for name in COUNTS)
    set_names = {name for name in fields if set(_values(fields[name])) - set(NOTHING)}
    complex_ = [
        name for name, real in COMPLEX_ORBITALS.items() if set(_values(fields.get(name, ""))) - set(real)
    ]
    return FcidumpHeader(
        norb, nelec, ms2, first + len(head),
        complex_keyword=next(iter(complex_), ""),
        spins=next((name for name in SWITCHES if name in set_names), ""), labels=_labels(place, fields, norb),
    )  # fmt: skip


def _check_end_line(place: str, text: str) -> None:
    """Refuse an integral on the line that ends a header."""
    words = text.split()
    if len(words) >= 5 and all(NUMBER.fullmatch(word) for word in words[:5]):
        raise InputError(place, "has an integral after the header's end", "write it on a line of its own")


def _fields(place: str, head: str) -> dict[str, str]:
    """The keywords, in capitals, and their values."""
    before, *pairs = re.split(r"([A-Za-z]\w*)\s*=", head)
    stray = BEGIN.sub("", before).strip(" ,\t")
    if stray:
        raise InputError(
            f"{place}: header", f"has {stray[:40]!r} before its keywords", "write NORB=2,NELEC=2"
        )
    return {name.upper(): value.strip(" ,\t") for name, value in zip(pairs[::2], pairs[1::2], strict=True)}


def _check(place: str, name: str, text: str) -> None:
    """Refuse a keyword that is not known, or whose value is none of its kind."""
    values = _values(text)
    if name in COUNTS:
        return
    if name in REFUSED and not set(values) <= set(NOTHING):
        raise InputError(place, f"is {_short(text)}: {REFUSED[name]}", REMEDY)
    if name not in KNOWN:
        raise InputError(
            place, f"is a keyword that is not known here, and is {_short(text)}",
            "remove it from the header if it does not change the meaning of the integrals",
        )  # fmt: skip
    if name in ENERGIES + IGNORED:
        return
    pattern = r"[+-]?\d+" if name in LABELS + OCCUPATIONS else r"[+-]?\d+|T|F"
    if not all(re.fullmatch(pattern, value) for value in values):
        expected = "integers" if name in LABELS + OCCUPATIONS else "integers, T or F"
        raise InputError(place, f"is {_short(text)}", f"give {expected}")


def _values(text: str) -> list[str]:
    """The values of a keyword, repetitions written once."""
    return [plain for value in re.split(r"[,\s]+", text) if (plain := _plain(value))]


def _plain(value: str) -> str:
    """A value without its count of repetitions: T, F, or a number, a whole one as an integer."""
    value = re.sub(r"^\d+\*", "", value)
    if LOGICAL.fullmatch(value):
        return value.strip(".")[0].upper()
    if NUMBER.fullmatch(value):
        number = float(value.upper().replace("D", "E"))
        return str(int(number)) if re.fullmatch(r"[+-]?\d+", value) or number == 0 else value
    return value


def _integers(text: str) -> tuple[int, ...]:
    """The integers of a keyword, each as often as it is repeated; none where some value is no integer."""
    integers: list[int] = []
    for value in filter(None, re.split(r"[,\s]+", text)):
        if re.fullmatch(r"(\d{1,4}\*)?[+-]?\d{1,9}", value) is None:
            return ()
        count, _, number = value.rpartition("*")
        integers += [int(number)] * int(count or 1)
    return tuple(integers)


def _labels(place: str, fields: dict[str, str], n_orbitals: int) -> OrbitalLabels:
    """The symmetry labels, where each orbital has one."""
    irreps, momenta = (_integers(fields.get(name, "")) for name in ("ORBSYM", "SYMLZ"))
    state_irrep = (*_integers(fields.get("ISYM", "")), 1)[0]
    is_group = len(irreps) == n_orbitals and all(1 <= irrep <= LARGEST_IRREP for irrep in irreps)
    labels = OrbitalLabels(irreps if is_group else (), max(state_irrep, 1))
    if state_irrep > 1 and (not is_group or state_irrep > LARGEST_IRREP):
        raise InputError(
            f"{place}: ISYM",
            f"is {state_irrep}, and ORBSYM does not give every orbital a number from 1 to 8",
            "correct ORBSYM, or remove ISYM to look for states of any symmetry",
        )  # fmt: skip
    if len(momenta) == n_orbitals:
        labels = OrbitalLabels(labels.irreps, labels.wanted, momenta)
    return labels


def _count(place: str, fields: dict[str, str], name: str) -> int:
    text = fields.get(name)
    if text is None and name == "MS2":
        return 0
    if text is None or re.fullmatch(r"[+-]?\d{1,9}(\.0*)?", text) is None:
        problem = "is missing" if text is None else f"is {text!r}"
        raise InputError(f"{place}: {name}", problem, "give an integer in the header")
    return int(text.partition(".")[0])


def _short(text: str) -> str:
    """A value on one line of an error."""
    return text if len(text) <= 40 else text[:40] + "..."
