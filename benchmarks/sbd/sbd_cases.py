"""The inputs of the benchmarks of selected-basis diagonalization. They lie beside a checkout."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals, pair_count
from tnplan.executor.sbd.basis.string_files import read_spin_strings
from tnplan.executor.sbd.basis.strings import StringSet, from_occupied, read_bits

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "sbd"


@dataclass(frozen=True)
class Case:
    """Strings of a molecule, and the energy in Hartree that is known for them."""

    name: str
    fcidump: str
    strings: str
    energy: float
    beside_pyscf: bool = True

    def present(self) -> bool:
        """Whether its files are there."""
        return (DATA / self.fcidump).exists() and (DATA / self.strings).exists()

    def read(self) -> tuple[Integrals, StringSet]:
        """Integrals, and strings in the order of their file."""
        integrals = read_fcidump(DATA / self.fcidump)
        counts = (integrals.n_alpha, integrals.n_alpha)
        strings = read_spin_strings(DATA / self.strings, integrals.n_orbitals, counts, 0).strings
        return integrals, strings


CASES = (
    Case("n2_239", "n2_631g_14e18o.fcidump", "n2_alpha_1em3.txt", -109.041621098),
    Case("n2_642", "n2_631g_14e18o.fcidump", "n2_alpha_3em4.txt", -109.046973041),
    Case("n2_1387", "n2_631g_14e18o.fcidump", "n2_alpha_1em4.txt", -109.048352695),
    Case("h2o_275", "h2o_ccpvdz_10e24o.fcidump", "h2o_alpha_1em3.txt", -76.235946631, False),
    Case("h2o_1543", "h2o_ccpvdz_10e24o.fcidump", "h2o_alpha_1em4.txt", -76.242958482, False),
)
LARGE = "fe4s4_alpha_36o_6000.txt"
WIDE = "wide"


def large_integrals(n: int, n_electrons: int) -> Integrals:
    """Random integrals with the symmetries that real orbitals give."""
    chance = np.random.default_rng(36)
    one = chance.standard_normal((n, n)) / n
    factors = chance.standard_normal((4, pair_count(n))) / n
    return Integrals(
        n_electrons, n_electrons, 0.0, one + one.T - np.diag(np.arange(n, 0.0, -1)), factors.T @ factors
    )


def large_case() -> tuple[Integrals, StringSet]:
    """fe4s4: integrals and strings."""
    bits, _ = read_bits(DATA / LARGE, 36)
    return large_integrals(36, int(bits[0].sum())), from_occupied(bits)


def wide_strings(n: int, n_electrons: int, count: int) -> StringSet:
    """The lowest string, all of one and of two excitations from it, and some of three."""
    lowest = np.arange(n) < n_electrons
    chance = np.random.default_rng(0)
    found = [lowest]
    for order in (1, 2):
        for out in combinations(range(n_electrons), order):
            for to in combinations(range(n_electrons, n), order):
                found.append(lowest.copy())
                found[-1][[*out, *to]] ^= True
    seen = {string.tobytes() for string in found}
    while len(found) < count:
        string = lowest.copy()
        string[chance.choice(n_electrons, 3, replace=False)] = False
        string[n_electrons + chance.choice(n - n_electrons, 3, replace=False)] = True
        if string.tobytes() not in seen:
            seen.add(string.tobytes())
            found.append(string)
    return from_occupied(np.array(found[:count]))
