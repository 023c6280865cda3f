"""The header of an FCIDUMP file: a Fortran namelist, its keywords and which Hamiltonians they stand for.

Knows no integral. A keyword that may change what the integrals mean is refused unless its value says that it
does not, and so is one that is not known here. Programs that write the keywords: Molpro, PySCF, Psi4, Forte,
OpenMolcas, Block2, Dice, NECI, HANDE, ElemCo.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tnplan.planner.common.errors import InputError

REMEDY = "give an FCIDUMP file of real, spin-restricted orbitals"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([EeDd][+-]?\d{1,3})?")
LOGICAL = re.compile(r"\.?(T|F|TRUE|FALSE)\.?", re.IGNORECASE)
NOTHING = ("0", "F")
"""Values that say no, as `_plain` writes them."""
COUNTS = ("NORB", "NELEC", "MS2")
"""Keywords of numbers that every header has; MS2 may be missing."""
LABELS = ("ORBSYM", "ISYM", "SYML", "PROPBITLEN", "KMOD")
"""Symmetries of orbitals and of the state looked for, and how they are numbered: not of the Hamiltonian."""
OCCUPATIONS = ("OCC", "CLOSED", "CORE", "FROZEN")
"""Numbers of orbitals of a reference, which the strings say here. A CORE that is no integer is an energy."""
MEANINGS = {
    "SYMLZ": (NOTHING, "orbitals of angular momenta that are not 0 are complex"),
    "LZ": (NOTHING, "orbitals of angular momenta are complex"),
    "SYMML": (NOTHING, "orbitals of angular momenta that are not 0 are complex"),
    "KSYM": (NOTHING, "orbitals of momenta that are not 0 are complex"),
    "KISYM": (NOTHING, "orbitals of momenta that are not 0 are complex"),
    "NPROP": ((*NOTHING, "1"), "orbitals of several momenta are complex"),
    "IGENERAL": (NOTHING, "general spin orbitals mix the spins"),
    "IUHF": (NOTHING, "each spin has orbitals of its own"),
    "UHF": (NOTHING, "each spin has orbitals of its own"),
    "TREL": (NOTHING, "relativistic orbitals are complex"),
    "TREAL": (("1", "T"), "the orbitals are complex"),
    "VIBRONIC": (NOTHING, "the Hamiltonian has vibrations"),
    "ST": (NOTHING, "a similarity-transformed Hamiltonian is not symmetric"),
    "III": (NOTHING, "the Hamiltonian has integrals of three electrons"),
}
"""Keywords that may change the meaning: values that do not, and what another one says."""


@dataclass(frozen=True)
class FcidumpHeader:
    """What a header says: NORB, NELEC and MS2; and how many lines of the file it takes."""

    n_orbitals: int
    n_electrons: int
    spin: int
    n_lines: int


def read_header(place: str, lines: Sequence[str]) -> FcidumpHeader:
    """The header of a file of `lines`; raises InputError naming what asks for another kind of Hamiltonian."""
    if not lines or re.match(r"\s*&FCI\b", lines[0], re.IGNORECASE) is None:
        raise InputError(f"{place}: line 1", "does not begin with &FCI", REMEDY)
    head: list[str] = []
    for line in lines:
        text = line.split("!")[0]
        end = re.search(r"(&END\b|/\s*$|\$END\b)", text, re.IGNORECASE)
        head.append(text if end is None else text[: end.start()])
        if end is not None:
            break
    else:
        raise InputError(place, "has a header without &END or /", REMEDY)
    fields = _fields(place, " ".join(head))
    for name in sorted(fields, key=[*COUNTS, *MEANINGS, *fields].index):
        _check(f"{place}: {name}", name, fields[name])
    norb, nelec, ms2 = (_count(place, fields, name) for name in COUNTS)
    return FcidumpHeader(norb, nelec, ms2, len(head))


def _fields(place: str, head: str) -> dict[str, str]:
    """The keywords, in capitals, and their values."""
    before, *rest = re.split(r"([A-Za-z]\w*)\s*=", head)
    stray = re.sub(r"^\s*&FCI\b", "", before, flags=re.IGNORECASE).strip(" ,\t")
    if stray:
        raise InputError(
            f"{place}: header", f"has {stray[:40]!r} before its keywords", "write NORB=2,NELEC=2"
        )
    return {name.upper(): value.strip(" ,\t") for name, value in zip(rest[::2], rest[1::2], strict=True)}


def _check(place: str, name: str, text: str) -> None:
    """Refuse a keyword that is not known, or whose value changes what the integrals mean."""
    if name in COUNTS:
        return
    values = [plain for value in re.split(r"[,\s]+", text) if (plain := _plain(value))]
    if name in MEANINGS:
        harmless, meaning = MEANINGS[name]
        if not set(values) <= set(harmless):
            raise InputError(place, f"is {_short(text)}: {meaning}", REMEDY)
    elif name not in LABELS + OCCUPATIONS:
        raise InputError(
            place, f"is a keyword that is not known here, and is {_short(text)}",
            "take it out of the header if it does not change what the integrals mean",
        )  # fmt: skip
    elif not all(re.fullmatch(r"-?\d+", value) for value in values):
        raise InputError(place, f"is {_short(text)}", "give integers")


def _plain(value: str) -> str:
    """A value without its count of repetitions: T, F, or a number, a whole one as an integer."""
    value = re.sub(r"^\d+\*", "", value)
    if LOGICAL.fullmatch(value):
        return value.strip(".")[0].upper()
    if NUMBER.fullmatch(value):
        number = float(value.upper().replace("D", "E"))
        return str(int(number)) if re.fullmatch(r"[+-]?\d+", value) or number == 0 else value
    return value


def _count(place: str, fields: dict[str, str], name: str) -> int:
    text = fields.get(name)
    if text is None and name == "MS2":
        return 0
    if text is None or re.fullmatch(r"[+-]?\d{1,9}", text) is None:
        problem = "is missing" if text is None else f"is {text!r}"
        raise InputError(f"{place}: {name}", problem, "give an integer in the header")
    return int(text)


def _short(text: str) -> str:
    """A value on one line of an error."""
    return text if len(text) <= 40 else text[:40] + "..."
