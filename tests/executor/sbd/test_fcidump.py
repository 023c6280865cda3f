"""FCIDUMP files: keywords that mean another Hamiltonian are refused, and values that no symmetry explains."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.engines.sbd import fcidump_text, random_integrals
from tests.support.root import ROOT
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.fcidump.header import KNOWN

N = 3
INTEGRALS = random_integrals(N, 2, 1, 5)
BODY = fcidump_text(INTEGRALS).split("&END\n")[1].splitlines()
HARMLESS = (
    "ORBSYM=1,1,1", "ORBSYM = 3*1", "ISYM=1", "SYML=0,-20,1", "SYMLZ=0,0,0", "SYMLZ=3*0", "LZ=F",
    "IUHF=0", "TREL=.false.", "TREAL=.TRUE.", "PROPBITLEN=15", "NPROP=1 1 1", "OCC=2,0", "CLOSED=-1",
    "FROZEN=0", "CORE=1", "IGENERAL=0", "VIBRONIC=F", "ST=0", "III=.FALSE.", "KSYM=0 0 0", "KMOD=2",
    "SYMML=0", "UHF=.FALSE.",
    "FOCK= -1.5, 2.5E-1,0", "ITGENERAL=1", "NSTATE=3", "NROOT=1", "PNTGRP=D2h", "NSYM=8", "DENSITY=.TRUE.",
)  # fmt: skip
HARMFUL = (
    "CORE=-1.5", "VIBRONIC=.TRUE.", "ST=1", "III=T", "ORBSYM=1,1,1 UHF", "ISYM=1 SYMLZ(2)=1", "ISYM=9",
    "UHF=perhaps", "LZ=-",
)  # fmt: skip
COMPLEX = (
    "SYMLZ=0,-1,1", "SYMLZ=1,2*0", "LZ=.TRUE.", "TREL=.true.", "NPROP=2 1 1", "KSYM=0 1 2", "KISYM=1",
    "SYMML=0 1 -1", "TREAL=.FALSE.",
)  # fmt: skip
SPINS = ("UHF=.TRUE.", "UHF=T", "IUHF=1")


@st.composite
def headers(draw: st.DrawFn, odd: str | None = None) -> str:
    """A header of harmless keywords, once each, in any order and case, with `odd` among them."""
    chosen = {text.split("=")[0].strip(): text for text in draw(st.permutations(HARMLESS))}
    names = draw(st.lists(st.sampled_from(sorted(chosen)), unique=True))
    words = [*draw(st.permutations(["NORB=3", "NELEC= 3", "MS2 =1"])), *(chosen[name] for name in names)]
    if odd is not None:
        name = odd.split("=")[0]
        words = [word for word in words if word.split("=")[0].strip() != name]
        words.insert(draw(st.integers(0, len(words))), odd)
    between = draw(st.sampled_from([",", ", ", ",\n ", "\n", " ", " ! a comment\n"]))
    head = draw(st.sampled_from(["&FCI ", " &FCI\n", "&fci  "])) + between.join(words)
    head = head.lower() if draw(st.booleans()) else head
    return head + draw(st.sampled_from([",\n&END", "\n/", " &end", " /"]))


def read(path: Path, header: str, body: list[str]) -> object:
    """The identity of a file's integrals."""
    path.write_text("\n".join([header, *body, ""]))
    return read_fcidump(path).identity


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fcidump") / "h"


@given(headers())
def test_harmless_keywords_are_taken(file: Path, header: str) -> None:
    assert read(file, header, BODY) == INTEGRALS.identity


@given(st.data())
def test_keywords_of_other_hamiltonians_are_refused_by_name(file: Path, data: st.DataObject) -> None:
    odd = data.draw(st.sampled_from(HARMFUL))
    with pytest.raises(InputError, match=f"(?i)h: {odd.split('=')[0]}: is ") as caught:
        read(file, data.draw(headers(odd)), BODY)
    assert "\n" not in str(caught.value)


@given(st.data())
def test_integrals_of_real_orbitals_are_none_of_complex_ones(file: Path, data: st.DataObject) -> None:
    odd = data.draw(st.sampled_from(COMPLEX))
    with pytest.raises(
        InputError, match=f"(?i)h: {odd.split('=')[0]}: is set, for orbitals that are complex"
    ):
        read(file, data.draw(headers(odd)), BODY)


@given(st.data())
def test_integrals_that_spins_share_are_none_of_each_spin(file: Path, data: st.DataObject) -> None:
    odd = data.draw(st.sampled_from(SPINS))
    with pytest.raises(InputError, match=r"has 1 lines whose four indices are 0|NORB: is 3, where UHF"):
        read(file, data.draw(headers(odd)), BODY)


@given(st.data())
def test_unknown_keywords_are_refused_by_name(file: Path, data: st.DataObject) -> None:
    name = data.draw(st.text(string.ascii_letters, min_size=1, max_size=8)).upper()
    assume(name not in KNOWN)
    value = data.draw(st.sampled_from(["0", "1", ".FALSE.", "1,2,3", "2*1", "'a'", "x"]))
    with pytest.raises(InputError, match=f"(?i)h: {name}: is a keyword that is not known here"):
        read(file, data.draw(headers(f"{name}={value}")), BODY)


def test_words_that_are_no_keywords_are_refused(file: Path) -> None:
    for header in ("&FCI UHF NORB=3,NELEC=3,MS2=1 /", "&FCI SYMLZ(1)=1,NORB=3,NELEC=3,MS2=1 /"):
        with pytest.raises(InputError, match="before its keywords"):
            read(file, header, BODY)


def partner(fields: list[str], way: int) -> list[str]:
    """The indices of an equal integral."""
    p, q, r, s = fields
    p, q = (q, p) if way & 1 else (p, q)
    r, s = (s, r) if way & 2 and r != "0" else (r, s)
    return [r, s, p, q] if way & 4 and r != "0" else [p, q, r, s]


@st.composite
def doubled(draw: st.DrawFn) -> tuple[list[str], int, int]:
    """Lines of which some have a partner, printed to other digits; one line and its partner, from 0."""
    digits, other = draw(st.integers(7, 16)), draw(st.integers(7, 16))
    rows = [line.split() for line in BODY]
    twice = draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8, unique=True))
    lines = [f"{float(value):.{digits}f} {' '.join(indices)}" for value, *indices in rows]
    for at in twice:
        value, *indices = rows[at]
        lines.append(f"{float(value):.{other}E} {' '.join(partner(indices, draw(st.integers(0, 7))))}")
    chosen = draw(st.integers(0, len(twice) - 1))
    return lines, twice[chosen], len(rows) + chosen


CASES = ROOT.parent / "shared" / "cases" / "sbd"
HEADER = "&FCI NORB=3,NELEC=3,MS2=1 /"


@given(doubled())
def test_partners_that_differ_by_rounding_are_taken(file: Path, case: tuple[list[str], int, int]) -> None:
    lines, _, _ = case
    read(file, HEADER, lines)
    found = read_fcidump(file)
    np.testing.assert_allclose(found.two, INTEGRALS.two, rtol=0, atol=6e-8)
    np.testing.assert_allclose(found.one, INTEGRALS.one, rtol=0, atol=6e-8)


@given(doubled(), st.floats(3, 1e6), st.booleans(), st.booleans())
def test_a_partner_that_is_another_number_is_refused(
    file: Path, case: tuple[list[str], int, int], units: float, is_first: bool, is_less: bool
) -> None:
    lines, first, again = case
    changed = first if is_first else again
    value, *indices = lines[changed].split()
    digits = min(len(text.split()[0].split("E")[0].split(".")[1]) for text in (lines[first], lines[again]))
    more = (units + 1) * max(10.0 ** (1 - digits), 1e-7) * max(1.0, abs(float(value)))
    lines[changed] = f"{float(value) + (-more if is_less else more):.16E} {' '.join(indices)}"
    with pytest.raises(
        InputError, match=f"h: line {again + 2}: gives .* of line {first + 2} again, .* apart"
    ):
        read(file, HEADER, lines)


def test_the_partner_of_more_digits_is_taken(file: Path) -> None:
    for lines in (
        ["0.66347204 2 2 1 1", "0.6634720448605567 1 1 2 2", "-1.2 1 1 0 0"],
        ["0.6634720448605567 2 2 1 1", "0.66347206 1 1 2 2", "-1.2 1 1 0 0"],
    ):
        read(file, HEADER, lines)
        assert 0.6634720448605567 in read_fcidump(file).two
    for other in ("0.66347218", "0.6634723"):
        with pytest.raises(InputError, match=r"h: line 3: gives .* of line 2 again"):
            read(file, HEADER, ["0.6634720448605567 2 2 1 1", f"{other}0 1 1 2 2"])
    for other in ("0.7", "1"):
        with pytest.raises(InputError, match=r"h: line 3: gives .* of line 2 again"):
            read(file, HEADER, ["0.6 2 2 1 1", f"{other} 1 1 2 2"])


def test_a_file_that_ends_before_the_one_electron_integrals_is_noted(file: Path) -> None:
    """As a copy that was cut off does: its energies would be those of another Hamiltonian."""
    electrons = [line for line in BODY if "0" not in line.split()[1:]]
    file.write_text("\n".join([HEADER, *electrons, ""]))
    with pytest.warns(UserWarning, match="h: has no one-electron integrals.*check that the file is complete"):
        assert not read_fcidump(file).one.any()


@given(st.integers(0, len(BODY) - 2), st.integers(0, 7), st.floats(1.2e-8, 1e-7), st.booleans())
def test_the_mean_of_partners_that_are_near_is_taken_with_a_note(
    file: Path, at: int, way: int, apart: float, is_less: bool
) -> None:
    value, *indices = BODY[at].split()
    other = float(value) + max(1.0, abs(float(value))) * (-apart if is_less else apart)
    file.write_text("\n".join([HEADER, *BODY, f"{other:.17E} {' '.join(partner(indices, way))}", ""]))
    note = f"h: line {len(BODY) + 2}: gives .* of line {at + 2} again, .* apart; the mean is taken"
    with pytest.warns(UserWarning, match=note):
        found = read_fcidump(file)
    mean = (float(value) + other) / 2
    assert np.isclose([*found.two.flat, *found.one.flat], mean, rtol=1e-15, atol=1e-15).any()


def test_files_of_other_programs() -> None:
    """What is wrong with a file is said; what is right is read."""
    if not CASES.exists():
        pytest.skip(f"needs {CASES}")
    assert read_fcidump(CASES / "h2_lz.fcidump.gz").has_ordered_pairs
    assert read_fcidump(CASES / "n2_ghf.fcidump.gz", spin_orbitals=True).is_general
    for name in ("n2_ghf.fcidump.gz", "h2_igen.fcidump"):
        with pytest.raises(InputError, match="IGENERAL: is set for orbitals and for spin orbitals"):
            read_fcidump(CASES / name)
    with pytest.raises(InputError, match="SYMLZ: is set, for orbitals that are complex"):
        read_fcidump(CASES / "h2_symlz.fcidump")
    for path in CASES.glob("h2_*.fcidump"):
        if path.name not in ("h2_symlz.fcidump", "h2_igen.fcidump"):
            expected = read_fcidump(CASES / "h2_ok.fcidump")
            np.testing.assert_allclose(read_fcidump(path).two, expected.two, rtol=0, atol=2e-8)
