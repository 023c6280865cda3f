"""Energies of public Hamiltonians beside the values that others have published: one command a row.

Usage: python benchmarks/sbd/scoreboard.py FOLDER [--row NAME ...] [--grow-to 1000000]
       [--device gpu] [-o results.json]
Goal: each energy is at or below the published one. A variational energy is an upper bound: the lower one is
better, whoever made it. Rows that are not lower say so.

FOLDER has copies of the files, named as in `ROWS`. Those of the Quantum Advantage Tracker are in its
repository under data/variational-problems/hamiltonians; a file with another SHA-256 is refused. A row of
`lists` grows a list of determinants. `whole` takes all determinants. One of `products` makes the orbitals
symmetry-adapted, optimizes them over a short list, and takes the natural ones of a tenth of the list (30,000
determinants at most). It grows the list over these, and solves among all products of its strings that have
the symmetry of the lowest state.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

TRACKER = "quantum-advantage-tracker issue"


@dataclass(frozen=True)
class Entry:
    """A file, how it is solved, and a published energy in Hartree with its source."""

    file: str
    sha256: str
    how: str
    published: float
    source: str


ROWS = {
    "2fe2s": Entry("fe2s2", "95d8786a", "whole", -116.60560912042631, f"{TRACKER} 239, not converged"),
    "anderson": Entry("anderson_impurity_model_4i_28b_32e.fcidump", "9c8ceb3f", "lists", -62.25668182839704,
                      f"{TRACKER} 5: SKQD, 345,600 s"),
    "n2-0.8": Entry("n2_0-80_14e_28o.fcidump", "c2ab2fe9", "products", -108.6659061, f"{TRACKER} 123"),
    "n2-0.9": Entry("n2_0-90_14e_28o.fcidump", "ddb16b79", "products", -109.0625337, f"{TRACKER} 122"),
    "n2-1.0": Entry("n2_1-00_14e_28o.fcidump", "6f3ad188", "products", -109.2322559, f"{TRACKER} 121"),
    "n2-1.1": Entry("n2_1-10_14e_28o.fcidump", "e7496ffe", "products", -109.2810451, f"{TRACKER} 120"),
    "n2-1.2": Entry("n2_1-20_14e_28o.fcidump", "81dabcc3", "products", -109.2684836, f"{TRACKER} 119"),
    "n2-1.5": Entry("n2_1-50_14e_28o.fcidump", "947a5413", "products", -109.128547, f"{TRACKER} 191: HCI"),
    "n2-2.0": Entry("n2_2-00_14e_28o.fcidump", "946fa3c8", "products", -108.9849804, f"{TRACKER} 117"),
    "n2-2.5": Entry("n2_2-50_14e_28o.fcidump", "9efba986", "products", -108.9640293, f"{TRACKER} 116"),
}  # fmt: skip
"""HI-VQE of Qunova and RIKEN where nothing else is said: 5,966 to 23,580 s on 192 cores. Heat-bath selection
by Dice on 4,480 cores is 0.06 to 0.21 mHa lower (issues 188 to 196)."""


OPTIMIZED = "3000"
"""Determinants of the list whose orbitals are optimized."""
ORBITALS_OF = 30_000
"""Determinants, at most, of the list whose natural orbitals are taken."""
SYMMETRIC = ("--symmetry", "1")
"""The representation of the lowest state, that of closed shells."""


def commands(entry: Entry, file: Path, options: argparse.Namespace) -> list[list[str]]:
    """What is run for a row, one after the other; the last one's result counts."""
    stem = str(file.with_suffix(""))
    job = ["--device", options.device, "--json"]
    if entry.how == "whole":
        whole = ["--alpha", "all", "--spin", "0", "--residual", "1e-5", "--steps", "500"]
        return [["sbd", str(file), *whole, *job]]

    def grow(integrals: str, count: int, *others: str) -> list[str]:
        return [
            "sbd", integrals, "--grow-to", str(count), "--no-pt2", "--residual", "1e-4", *others, *job
        ]  # fmt: skip

    if entry.how == "lists":
        return [grow(str(file), options.grow_to)]
    natural = f"{stem}.natural.fcidump"
    strings = ["--alpha", f"{stem}.alpha.txt", "--beta", f"{stem}.beta.txt"]
    return [
        grow(
            str(file),
            min(options.grow_to // 10, ORBITALS_OF),
            "--rotation",
            "adapted",
            *SYMMETRIC,
            "--optimize-orbitals",
            OPTIMIZED,
            "--natural",
            natural,
        ),
        grow(natural, options.grow_to, *SYMMETRIC, "--carryover", stem, "--carryover-ratio", "1"),
        ["sbd", natural, *strings, *SYMMETRIC, "--residual", "1e-5", *job],
    ]


def solved(entry: Entry, file: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The energy of a row, and what it took."""
    lines = commands(entry, file, options)
    began = perf_counter()
    for line in lines:
        command = [sys.executable, "-m", "tnplan", *line]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # 1: the solve did not converge; its energy is an upper bound nevertheless.
        if done.returncode not in (0, 1):
            raise SystemExit(f"tnplan {' '.join(line)}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    return {
        "energy": report["energies_hartree"][0], "residual": report["residuals"][0],
        "converged": report["converged"],
        "determinants": report["space"].get("elements", prod(report["space"]["shape"])),
        "device": report["device"], "seconds": round(perf_counter() - began, 1),
        "commands": [f"tnplan {' '.join(line)}" for line in lines],
    }  # fmt: skip


def main() -> None:
    """Print a line for each row whose file is there, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--row", nargs="+", choices=ROWS, default=[*ROWS])
    parser.add_argument("--grow-to", type=int, default=1_000_000, help="determinants of a list at most")
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.row:
        entry = ROWS[name]
        file = options.folder / entry.file
        if not file.is_file():
            print(f"{name}: {file} is not there")
            continue
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if not found.startswith(entry.sha256):
            raise SystemExit(f"{file} has the SHA-256 {found[:8]}, and {entry.sha256} is meant: another file")
        published = {"published": entry.published, "source": entry.source}
        row = {"row": name, **solved(entry, file, options), **published}
        above = 1e3 * (row["energy"] - entry.published)
        print(f"{name}: {row['energy']:.9f} Ha of {row['determinants']} determinants in {row['seconds']} s "
              f"({row['device']}), {above:+.4f} mHa of {entry.source}", flush=True)  # fmt: skip
        rows.append(row)
        if options.output is not None:
            facts = {"date": date.today().isoformat(), "machine": platform.processor(), "rows": rows}
            options.output.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
