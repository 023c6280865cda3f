"""Random Hamiltonians of every kind: real or complex, of orbitals of each spin or shared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracles.spin_orbitals import Bodies
from tnplan.executor.sbd.basis.integrals import Integrals, from_arrays

Array = NDArray[Any]
KINDS = ("real", "four-fold", "complex")
ORBITALS = ("shared", "each spin")


def random_bodies(kind: str, orbitals: str, n: int, seed: int) -> Bodies:
    """Integrals that have the symmetry of a kind and no other."""
    chance = np.random.default_rng(seed)

    def numbers(*shape: int) -> Array:
        made = chance.standard_normal(shape) + 1j * chance.standard_normal(shape)
        return made if kind == "complex" else np.ascontiguousarray(made.real)

    def one() -> Array:
        h = numbers(n, n)
        return h + h.T.conj() + 3 * np.diag(np.arange(n))

    def two(is_mixed: bool) -> Array:
        v = numbers(n, n, n, n) / 8
        if not is_mixed:
            v = v + v.transpose(2, 3, 0, 1)
        v = v + v.transpose(1, 0, 3, 2).conj()
        if kind == "real":
            v = v + v.transpose(1, 0, 2, 3)
        return v

    if orbitals == "shared":
        h, v = one(), two(False)
        return h, h, v, v, v
    return one(), one(), two(False), two(True), two(False)


def integrals_of(
    bodies: Bodies, kind: str, counts: tuple[int, int], overlap: Array | None = None
) -> Integrals:
    """The same as `Integrals`, with a core energy of 0.5 Hartree."""
    fold = 8 if kind == "real" else 4
    if bodies[0] is bodies[1]:
        return from_arrays(bodies[0], bodies[2], *counts, 0.5, fold=fold)
    return from_arrays(bodies[:2], bodies[2:], *counts, 0.5, fold=fold, overlap=overlap)
