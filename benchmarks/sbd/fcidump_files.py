"""FCIDUMP files of other programs: full CI by tnplan beside PySCF's solvers. Needs PySCF.

Goal: energies agree to 1e-9 Hartree, for real, 4-fold and complex integrals, UHF and GHF. The argument is a
folder with copies of the files, which are in the repositories block-hczhai/block2-preview (data) and
hande-qmc/hande (test_suite), named as in `FILES`; files that are not there are left out.

    python benchmarks/sbd/fcidump_files.py FOLDER [-o results.json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import tnplan
from tnplan.executor.sbd.basis.integrals import Integrals, unpacked
from tnplan.executor.sbd.solver.davidson import Criteria

RESULT = Path(__file__).parents[1] / "results" / "sbd" / "fcidump_files.json"
GOAL = 1e-9
CRITERIA = Criteria(residual=1e-7, steps=200)


def every_string(n_orbitals: int, n_electrons: int) -> list[int]:
    """All strings of so many electrons."""
    return [sum(1 << p for p in chosen) for chosen in itertools.combinations(range(n_orbitals), n_electrons)]


def restricted(integrals: Integrals) -> float:
    """PySCF's solver for real orbitals."""
    from pyscf.fci import direct_spin1

    i, n = integrals, integrals.n_orbitals
    energy, _ = direct_spin1.kernel(
        i.one, unpacked(i.two, n), n, (i.n_alpha, i.n_beta), tol=1e-13, max_cycle=300
    )
    return float(energy)


def four_fold(integrals: Integrals) -> float:
    """PySCF's solver for integrals without (pq|rs) = (qp|rs)."""
    from pyscf.fci import direct_nosym

    solver = direct_nosym.FCISolver()
    solver.conv_tol, solver.max_cycle = 1e-13, 300
    i, n = integrals, integrals.n_orbitals
    return float(solver.kernel(i.one, unpacked(i.two, n), n, (i.n_alpha, i.n_beta))[0])


def unrestricted(integrals: Integrals) -> float:
    """PySCF's solver for orbitals of each spin."""
    from pyscf.fci import direct_uhf

    i, n, beta = integrals, integrals.n_orbitals, integrals.beta
    assert beta is not None
    ones, twos = (i.one, beta.one), tuple(unpacked(v, n) for v in (i.two, beta.mixed, beta.two))
    return float(direct_uhf.kernel(ones, twos, n, (i.n_alpha, i.n_beta), tol=1e-13, max_cycle=300)[0])


def spinors(integrals: Integrals) -> float:
    """PySCF's solver for complex spin orbitals; orbitals that spins share are written as such."""
    from pyscf.fci import fci_dhf_slow

    i, n = integrals, integrals.n_orbitals
    one, two = i.one.astype(complex), unpacked(i.two, n).astype(complex)
    if not i.is_general:
        spins = np.eye(2)
        one = np.kron(spins, one)
        two = np.einsum("ab,cd,pqrs->apbqcrds", spins, spins, two).reshape((2 * n,) * 4)
        n *= 2
    solver = fci_dhf_slow.FCI()
    solver.conv_tol, solver.max_cycle = 1e-12, 200
    return float(np.real(solver.kernel(one, two, n, i.n_alpha + i.n_beta)[0]))


FILES: dict[str, tuple[Callable[[Integrals], float], bool | None]] = {
    "N2.STO3G.FCIDUMP": (restricted, None),
    "N2.STO3G.RHF.FCIDUMP": (restricted, None),
    "N2.STO3G.UHF.FCIDUMP": (unrestricted, None),
    "H8.STO6G.R1.8.FCIDUMP": (restricted, None),
    "HUBBARD-L6.FCIDUMP": (restricted, None),
    "H2O.STO3G.DHF-B.FCIDUMP": (spinors, True),
    "H2O.STO3G.DHF-C.FCIDUMP": (spinors, True),
    "H2O.STO3G.DHF-G.FCIDUMP": (spinors, True),
    "H2-RHF-cc-pVTZ-Lz": (four_fold, None),
    "H2_complex_k311": (spinors, None),
    "Ne-complex-k111": (restricted, None),
}
"""The reference of each file, and whether NORB counts spin orbitals."""


def main() -> int:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args()
    folder, rows = options.folder, []
    for name, (reference, spin_orbitals) in FILES.items():
        if not (folder / name).exists():
            print(f"{name}: not there")
            continue
        integrals = tnplan.read_fcidump(folder / name, spin_orbitals=spin_orbitals)
        sets = [every_string(integrals.n_orbitals, count) for count in (integrals.n_alpha, integrals.n_beta)]
        begin = perf_counter()
        found = tnplan.diagonalize(
            integrals, *sets, criteria=CRITERIA, symmetry=0, device="cpu", threads=1, memory="5GB"
        )
        row: dict[str, Any] = {
            "file": name, "kind": integrals.kind or "real orbitals", "determinants": found.states[0].size,
            "energy_hartree": float(found.energies[0]), "time_s": perf_counter() - begin,
            "difference_hartree": abs(float(found.energies[0]) - reference(integrals) - integrals.core),
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        rows.append(row)
    if not rows:
        parser.error(f"{folder}: holds none of the files")
    environment = {"machine": platform.machine(), "python": platform.python_version(), "threads": 1}
    document = {"date": str(date.today()), "goal_hartree": GOAL, "files": rows, "environment": environment}
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(not row["difference_hartree"] <= GOAL for row in rows))


if __name__ == "__main__":
    sys.exit(main())
