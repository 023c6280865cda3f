"""FCIDUMP files as many programs write them, from integrals of any kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.oracles.spin_orbitals import Array, Bodies, of_spin_orbitals

SPELLINGS = ("Fortran", "two columns")
"""How complex numbers are written."""


def _number(value: complex, spelling: str, is_complex: bool) -> str:
    if not is_complex:
        return f"{value.real:.17g}"
    real, imaginary = f"{value.real:.17g}", f"{value.imag:.17g}"
    return f"({real},{imaginary})" if spelling == "Fortran" else f"{real} {imaginary}"


def _equal(p: int, q: int, r: int, s: int, folds: int) -> list[tuple[tuple[int, ...], bool]]:
    """The indices of equal integrals, and whether one is the conjugate of the others."""
    found = [((p, q, r, s), False), ((q, p, s, r), True)]
    if folds >= 4:
        found += [((r, s, p, q), False), ((s, r, q, p), True)]
    if folds == 8:
        found += [((a, b, d, c), turned) for (a, b, c, d), turned in found]
    return found


def two_lines(v: Array, folds: int, spelling: str, chance: random.Random) -> Iterator[str]:
    """Lines of (pq|rs): of equal ones one by chance, sometimes two. `folds` is 8, 4, or 2 for both spins."""
    n, is_complex = len(v), np.iscomplexobj(v)
    written: set[tuple[int, ...]] = set()
    for indices in product(range(n), repeat=4):
        equal = _equal(*indices, folds)
        if min(one for one, _ in equal) in written:
            continue
        written.add(min(one for one, _ in equal))
        for chosen, turned in chance.sample(equal, 1 + (chance.random() < 0.2)):
            value = v[indices].conj() if turned else v[indices]
            yield f"{_number(value, spelling, is_complex)} {' '.join(str(p + 1) for p in chosen)}"


def one_lines(h: Array, spelling: str, chance: random.Random) -> Iterator[str]:
    """Lines of h(pq), of equal ones one by chance."""
    for p, q in zip(*np.tril_indices(len(h)), strict=True):
        a, b = chance.sample([p, q], 2)
        yield f"{_number(h[a, b], spelling, np.iscomplexobj(h))} {a + 1} {b + 1} 0 0"


def file_of(
    bodies: Bodies, kind: str, counts: tuple[int, int], style: str, spelling: str = "Fortran", seed: int = 1
) -> str:
    """A file of integrals with a core energy of 0.5; `style` is shared, blocks, in turn or general."""
    chance, n = random.Random(seed), len(bodies[0])
    folds = 8 if kind == "real" else 4
    h_alpha, h_beta, alpha, mixed, beta = bodies
    zeros = "0.0 0.0 0 0 0 0" if kind == "complex" and spelling == "two columns" else "0.0 0 0 0 0"
    norb, ms2 = n, counts[0] - counts[1]
    words = "" if kind == "real" else "TREAL=F,"
    if style == "shared":
        body = [*two_lines(alpha, folds, spelling, chance), *one_lines(h_alpha, spelling, chance)]
    elif style == "blocks":
        words += "IUHF=1,"
        body = []
        for v, fold in ((alpha, folds), (beta, folds), (mixed, 2 if folds == 4 else 0)):
            lines = two_lines(v, fold, spelling, chance) if fold else _mixed_real(v)
            body += [*lines, zeros]
        for h in (h_alpha, h_beta):
            body += [*one_lines(h, spelling, chance), zeros]
    else:
        one, two = of_spin_orbitals(bodies)
        order = [p + spin * n for p in range(n) for spin in (0, 1)]
        one, two = one[np.ix_(order, order)], two[np.ix_(*[order] * 4)]
        if kind != "complex":
            one, two = one.real, two.real
        norb = 2 * n
        words += "UHF=.TRUE.," if style == "in turn" else "IGENERAL=1,"
        body = [*two_lines(two, folds, spelling, chance), *one_lines(one, spelling, chance)]
    core = "0.5 0.0 0 0 0 0" if len(zeros.split()) == 6 else "0.5 0 0 0 0"
    head = f"&FCI NORB={norb},NELEC={sum(counts)},MS2={ms2},{words} &END"
    return "\n".join([head, *body, core, ""])


def _mixed_real(v: Array) -> Iterator[str]:
    """(pq|rs) of both spins over real orbitals: p >= q and r >= s."""
    for p, q in zip(*np.tril_indices(len(v)), strict=True):
        for r, s in zip(*np.tril_indices(len(v)), strict=True):
            yield f"{v[p, q, r, s]:.17g} {p + 1} {q + 1} {r + 1} {s + 1}"
