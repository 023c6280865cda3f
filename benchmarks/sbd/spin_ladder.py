"""The lowest state of each total spin of a Hamiltonian, among all determinants with n_alpha - n_beta = 2 S.

Usage: python benchmarks/sbd/spin_ladder.py FCIDUMP [--from 0] [--device gpu] [-o results.json]
Goal: the whole ladder of 2Fe-2S (30 electrons in 20 orbitals, S = 0 to 5) in one run on an H200. Such a space
has no lower spin, and is smaller the higher the spin.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import tnplan


def rungs(file: Path, first: int, device: str, precision: str) -> list[dict[str, Any]]:
    """A row for each spin, from the least one that is wanted."""
    integrals, rows = tnplan.read_fcidump(file), []
    n_electrons, n_orbitals = integrals.n_alpha + integrals.n_beta, integrals.n_orbitals
    most = min(n_electrons, 2 * n_orbitals - n_electrons)
    for doubled in range(n_electrons % 2 + 2 * first, most + 1, 2):
        n_alpha = (n_electrons + doubled) // 2
        own = replace(integrals, n_alpha=n_alpha, n_beta=n_electrons - n_alpha)
        begin_s = perf_counter()
        found = tnplan.diagonalize(
            own, "all", "all", penalty=tnplan.SpinPenalty(doubled / 2), device=device, precision=precision,
            criteria=tnplan.Criteria(residual=1e-5, steps=500),
        )  # fmt: skip
        report = found.report
        rows.append({
            "spin": doubled / 2, "energy": report["energies_hartree"][0], "residual": report["residuals"][0],
            "spin_square": report["spin_square"][0], "converged": report["converged"],
            "shape": report["space"]["shape"], "multiplications": report["measured"]["multiplications"],
            "test_multiplications": report["measured"]["test_multiplications"],
            "seconds": round(perf_counter() - begin_s, 2),
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> int:
    """Print a line for each spin, and write them; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first rung")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="mixed")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = rungs(options.file, options.first, options.device, options.precision)
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=1))
    missed = not all(row["converged"] for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
