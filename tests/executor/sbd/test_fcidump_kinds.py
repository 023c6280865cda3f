"""FCIDUMP files of complex orbitals, complex integrals and orbitals of each spin; files that are written."""

from __future__ import annotations

import gzip
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.spin_orbitals import Bodies, of_spin_orbitals
from tests.support.engines.fcidump_files import SPELLINGS, file_of
from tests.support.engines.sbd_kinds import KINDS, ORBITALS, integrals_of, random_bodies
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.fcidump import read_fcidump, write_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, unpacked

N = 3


def bodies_of(integrals: Integrals) -> Bodies:
    """[p, q] and [p, q, r, s] again."""
    n = integrals.n_orbitals
    (h_alpha, alpha), (h_beta, beta) = integrals.of_spin(0), integrals.of_spin(1)
    return h_alpha, h_beta, *(unpacked(v, n) for v in (alpha, integrals.mixed, beta))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("style", ["shared", "blocks", "in turn", "general"])
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_every_kind(tmp_path: Path, kind: str, style: str, spelling: str) -> None:
    orbitals = "shared" if style == "shared" else "each spin"
    bodies = random_bodies(kind, orbitals, N, 21)
    path = tmp_path / "h"
    path.write_text(file_of(bodies, kind, (2, 1), style, spelling))
    read = read_fcidump(path, spin_orbitals=True if style == "general" else None)
    assert read.core == 0.5
    assert read.is_complex == (kind == "complex")
    assert read.has_ordered_pairs == (kind != "real")
    if style == "general":
        assert (read.n_alpha, read.n_beta, read.is_general) == (3, 0, True)
        order = np.argsort([p + spin * N for p in range(N) for spin in (0, 1)])
        one, two = of_spin_orbitals(bodies)
        np.testing.assert_array_equal(read.one[np.ix_(order, order)], one)
        found = unpacked(read.two, 2 * N)[np.ix_(*[order] * 4)]
        np.testing.assert_array_equal(found, two)
        return
    assert (read.n_alpha, read.n_beta) == (2, 1)
    for found, expected in zip(bodies_of(read), bodies, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("kind", "orbitals"), [*product(KINDS, ORBITALS)])
def test_what_is_written_is_read(tmp_path: Path, kind: str, orbitals: str) -> None:
    integrals = integrals_of(random_bodies(kind, orbitals, N, 22), kind, (2, 1))
    write_fcidump(tmp_path / "h", integrals)
    read = read_fcidump(tmp_path / "h")
    for found, expected in zip(bodies_of(read), bodies_of(integrals), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (read.n_alpha, read.n_beta, read.core) == (2, 1, 0.5)


def test_labels_are_written(tmp_path: Path) -> None:
    bodies = random_bodies("real", "shared", 2, 23)
    integrals = integrals_of(bodies, "real", (1, 1))
    labels = OrbitalLabels((1, 5), 5)
    labelled = Integrals(1, 1, 0.5, integrals.one, integrals.two, labels=labels)
    write_fcidump(tmp_path / "h", labelled)
    assert read_fcidump(tmp_path / "h").labels == labels


def test_values_say_that_orbitals_are_complex(tmp_path: Path) -> None:
    text = file_of(random_bodies("four-fold", "shared", N, 24), "four-fold", (2, 1), "shared")
    (tmp_path / "h").write_text(text.replace("TREAL=F,", ""))
    assert read_fcidump(tmp_path / "h").has_ordered_pairs
    real = file_of(random_bodies("real", "shared", N, 24), "real", (2, 1), "shared")
    (tmp_path / "h").write_text(real + "0.125 1 2 1 3\n0.25 2 1 1 3\n")
    with pytest.raises(
        InputError, match=r"line \d+: gives \(pq\|rs\) of line \d+ again, .*; write TREAL=.FALSE."
    ):
        read_fcidump(tmp_path / "h")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("IUHF=1,", "TREL=T,", "again, .* apart: the integrals are not symmetric"),
        ("\n0.0 0 0 0 0", "", "has 1 lines whose four indices are 0"),
        ("\n0.0 0 0 0 0", "\n0.25 0 0 0 0", "separates two blocks, but is not 0"),
        (" 0 0\n", " 1 1\n", "lines whose four indices are 0|stands in a block"),
    ],
)
def test_bad_blocks(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = file_of(random_bodies("real", "each spin", N, 25), "real", (2, 1), "blocks")
    assert old in text
    (tmp_path / "h").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_fcidump(tmp_path / "h")


def test_igeneral_needs_an_answer(tmp_path: Path) -> None:
    """Block2 writes it for orbitals and spin orbitals; more electrons than NORB decide, and so does IUHF."""
    bodies, path = random_bodies("real", "shared", N, 28), tmp_path / "h"
    text = file_of(bodies, "real", (1, 1), "shared").replace("MS2=0,", "MS2=0,IGENERAL=1,ITGENERAL=1,")
    path.write_text(text)
    with pytest.raises(
        InputError, match=r"IGENERAL: is set for .*; say which NORB counts: give spin_orbitals"
    ):
        read_fcidump(path)
    assert read_fcidump(path, spin_orbitals=True).is_general
    assert read_fcidump(path, spin_orbitals=False).has_common_orbitals
    path.write_text(text.replace("NELEC=2", "NELEC=4"))
    assert read_fcidump(path).has_common_orbitals
    path.write_text(file_of(bodies, "real", (1, 1), "blocks").replace("IUHF=1,", "IUHF=1,IGENERAL=1,"))
    assert read_fcidump(path).beta is not None
    with pytest.raises(
        InputError, match="spin_orbitals: is set, and IUHF says that orbitals are of each spin"
    ):
        read_fcidump(path, spin_orbitals=True)


def test_spin_orbitals_that_mix_are_refused(tmp_path: Path) -> None:
    text = file_of(random_bodies("real", "each spin", N, 26), "real", (2, 1), "in turn")
    (tmp_path / "h").write_text(text + "0.125 1 2 3 3\n")
    with pytest.raises(InputError, match=r"mixes the spins.*IGENERAL=1"):
        read_fcidump(tmp_path / "h")
    (tmp_path / "h").write_text(text.replace("NORB=6", "NORB=7"))
    with pytest.raises(InputError, match="NORB: is 7, where UHF says that it counts spin orbitals"):
        read_fcidump(tmp_path / "h")


def test_an_imaginary_part_where_there_is_none_is_refused(tmp_path: Path) -> None:
    text = file_of(random_bodies("complex", "shared", N, 27), "complex", (2, 1), "shared")
    (tmp_path / "h").write_text(text + "(0.1,0.2) 1 1 2 2\n")
    with pytest.raises(InputError, match=r"gives .* the imaginary part 0.2, and it is real"):
        read_fcidump(tmp_path / "h")


def test_momenta_are_checked(tmp_path: Path) -> None:
    head = "&FCI NORB=2,NELEC=2,MS2=0,SYMLZ=1,-1, &END\n"
    good = "0.5 1 1 1 1\n0.5 2 2 2 2\n0.5 1 1 2 2\n0.125 1 2 2 1\n-1 1 1 0 0\n-1 2 2 0 0\n"
    (tmp_path / "h").write_text(head + good)
    assert read_fcidump(tmp_path / "h").labels.momenta == (1, -1)
    (tmp_path / "h").write_text(head + good + "0.25 1 2 0 0\n")
    with pytest.raises(InputError, match="line 8: is an integral between orbitals of SYMLZ"):
        read_fcidump(tmp_path / "h")


def test_spellings(tmp_path: Path) -> None:
    """One Hamiltonian as programs write it, and one that is packed."""
    head, path = "&FCI NORB=2,NELEC=2,MS2=0 &END", tmp_path / "h"
    lines = ["0.5 1 1 1 1", "0.25 2 1 2 1", "-1.5 1 1 0 0", "-0.5 2 2 0 0", "0.75 0 0 0 0"]
    path.write_text("\n".join([head, *lines, ""]))
    expected = read_fcidump(path).identity
    body = "\n".join(lines)
    texts = (
        f"\n! by me\n{head}\n{body}\n",
        f"$FCI NORB=2,NELEC=2.,MS2=0 $END\n{body}\n",
        f"&FCI NORB=2 ! orbitals\n NELEC=2\n/ i a j b\n{body}\n",
        f"{head}\n{body} ! the core\n0.4-103 2 1 1 1\n",
        f"{head}\n{body}\n-0.57 1 0 0 0\n",
        head + "\n" + "\n".join(f"({v}, 0.0) {' '.join(i)}" for v, *i in map(str.split, lines)),
        head + "\n" + "\n".join(f"{v} 0.0 {' '.join(i)}" for v, *i in map(str.split, lines)),
        f"{head}\n{body[: -len(' 0 0 0 0')]}\n",
        f"{head}\n{body}\n".replace("\n", "\r\n"),
    )
    for text in texts:
        path.write_bytes(text.encode())
        read = read_fcidump(path)
        if "-103" in text:
            np.testing.assert_allclose(read.two, read_fcidump_of(path, head, lines).two, atol=1e-100)
        else:
            assert read.identity == expected, text
    path.write_bytes(gzip.compress(texts[0].encode()))
    assert read_fcidump(path).identity == expected
    path.write_bytes(gzip.compress(texts[0].encode())[:-9])
    with pytest.raises(InputError, match="is packed by gzip and cannot be unpacked"):
        read_fcidump(path)
    path.write_text(f"{head} 0.5 1 1 1 1\n{body}\n")
    with pytest.raises(InputError, match="line 1: has an integral after the header's end"):
        read_fcidump(path)


def read_fcidump_of(path: Path, head: str, lines: list[str]) -> Integrals:
    """A file of these lines, read."""
    path.write_text("\n".join([head, *lines, ""]))
    return read_fcidump(path)
