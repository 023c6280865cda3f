"""Selected CI beside TrimCI and PySCF: determinants at the same energy, and seconds of a core by turns.

Goals: at the energy of a rival's list no more determinants than it has, in at most 0.5 of its time. Ours are
counted for lists that are closed under spin flips and for lists that need not be; between two sizes the
count is interpolated, its logarithm in the energy. TrimCI (`pip install trimci`) runs with `--runs` random
starts; with `--rotate` it and ours optimize orbitals. PySCF's `selected_ci` has products of strings, whose
determinants are counted. Rivals that are not installed are skipped and said so.
`--published ENERGY:COUNT` compares with a number from a paper. Every measurement is a process of its own.

    python benchmarks/sbd/rivals.py FCIDUMP [--counts 1000,2000] [--published -116.459:1000] [--rotate]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from itertools import pairwise
from math import exp, log
from pathlib import Path
from time import process_time
from typing import Any

Row = dict[str, Any]
SECONDS = 600
"""A measurement that takes longer is ended."""


def by_tnplan(file: Path, given: argparse.Namespace) -> Row:
    """A growth to the first of the counts; with --natural, over the natural orbitals of another one."""
    import tnplan

    growth = tnplan.Growth(
        determinants=given.counts[0], epsilon_pt2=None, surplus=given.surplus, flips=given.flips,
        optimize_orbitals=given.counts[0] * given.rotate,
    )  # fmt: skip
    # The first call loads compiled kernels.
    few = tnplan.Growth(determinants=50, epsilon_pt2=None, flips=given.flips, optimize_orbitals=50)
    tnplan.diagonalize(file, grow=few, threads=1, device="cpu")
    begin = process_time()
    with tempfile.TemporaryDirectory() as folder:
        if given.natural:
            natural = Path(folder) / "natural.fcidump"
            tnplan.diagonalize(file, grow=growth, threads=1, device="cpu", natural=natural)
            file = natural
        result = tnplan.diagonalize(file, grow=growth, threads=1, device="cpu")
    assert result.determinants is not None
    return {
        "energy": float(result.energies[0]), "determinants": len(result.determinants),
        "cpu_s": process_time() - begin,
    }  # fmt: skip


def by_trimci(file: Path, given: argparse.Namespace) -> Row:
    """TrimCI to the first of the counts, without its second-order correction."""
    import trimci

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it writes logs
        config = trimci.Config(
            seed=given.seed, num_runs=given.runs, orbopt=given.rotate, orbopt_phase1=given.rotate,
            orbopt_cycles=5, orbopt_max_iter=100, tracking_dets=True, loaded_dets_randomness=0.1,
            pt2_correction=False, work_dir=folder, verbosity=0,
            max_dets_phase0=max(10, round(given.counts[0] ** 0.375)),
            max_dets_phase1=round(given.counts[0] ** 0.75), max_dets_phase2=given.counts[0],
        )  # fmt: skip
        begin = process_time()
        result = trimci.ground_state(str(file), config=config)
        return {
            "energy": float(result.energy), "determinants": len(result.wavefunction.coeffs),
            "cpu_s": process_time() - begin,
        }  # fmt: skip


def by_pyscf(file: Path, given: argparse.Namespace) -> Row:
    """PySCF's selected CI with `--cutoff` for couplings and coefficients."""
    from pyscf import fci
    from pyscf.tools import fcidump

    values = fcidump.read(str(file), verbose=False)
    n_alpha = (values["NELEC"] + values["MS2"]) // 2
    solver = fci.selected_ci.SelectedCI()
    solver.select_cutoff = solver.ci_coeff_cutoff = given.cutoff
    begin = process_time()
    energy, state = solver.kernel(
        values["H1"], values["H2"], values["NORB"], (n_alpha, values["NELEC"] - n_alpha)
    )
    cpu_s = process_time() - begin
    return {"energy": float(energy) + values["ECORE"], "determinants": state.size, "cpu_s": cpu_s}


PROGRAMS = {"tnplan": by_tnplan, "trimci": by_trimci, "pyscf": by_pyscf}


def measured(program: str, file: Path, *options: str) -> Row | None:
    """The row of one process, printed; None where it did not end well."""
    command = [sys.executable, __file__, str(file), "--alone", program, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False
        )
        row: Row = json.loads(run.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        print(f"{program:8} {' '.join(options)}: no result ({type(error).__name__})", flush=True)
        return None
    row = {"program": program, "options": " ".join(options), **row}
    print(
        f"{program:8} {row['determinants']:9} determinants {row['energy']:15.8f} Ha {row['cpu_s']:8.2f} s  "
        f"{row['options']}", flush=True,
    )  # fmt: skip
    return row


def count_at(rows: list[Row], energy: float) -> float | None:
    """Determinants at an energy, between two lists; None where all are above it or all below."""
    rows = sorted(rows, key=lambda row: float(row["determinants"]))
    for short, long in pairwise(rows):
        if short["energy"] > energy >= long["energy"]:
            share = (short["energy"] - energy) / (short["energy"] - long["energy"])
            first, last = log(short["determinants"]), log(long["determinants"])
            return exp(first + share * (last - first))
    return None


def compare(ours: dict[str, list[Row]], rival: Row) -> None:
    """Print the determinants of ours at a rival's energy, and the time of the first list below it."""
    for name, rows in ours.items():
        needed = count_at(rows, rival["energy"])
        below = [row for row in rows if row["energy"] <= rival["energy"]]
        text = "not reached" if not below else f"fewer than {below[0]['determinants']} determinants"
        if needed is not None:
            text = f"{needed:.0f} determinants, {needed / rival['determinants']:.2f} of its"
        if below and "cpu_s" in rival:
            text += f"; the first list below takes {below[0]['cpu_s'] / rival['cpu_s']:.2f} of its time"
        print(f"  {name}, at {rival['program']}'s {rival['energy']:.6f} Ha: {text}", flush=True)


def main() -> int:
    """Measure and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("fcidump", type=Path)
    counts = {"type": lambda text: [int(part) for part in text.split(",")], "default": [1000, 2000]}
    parser.add_argument("--counts", **counts, help="sizes of our lists; rivals grow to the first")
    parser.add_argument("--published", action="append", default=[], metavar="ENERGY:COUNT")
    parser.add_argument("--surplus", type=float, default=3.0)
    parser.add_argument("--natural", action="store_true", help="ours over natural orbitals too")
    parser.add_argument("--rotate", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cutoff", type=float, default=3e-3)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--skip", default="", help="rivals to leave out, with commas")
    parser.add_argument("--flips", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--alone", choices=PROGRAMS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    file = given.fcidump.resolve()
    if given.alone:
        print(json.dumps(PROGRAMS[given.alone](file, given)))
        return 0
    names = [name for name in ("trimci", "pyscf") if name not in given.skip.split(",")]
    missing = [name for name in names if find_spec(name) is None]
    print("".join(f"{name} is not installed: skipped\n" for name in missing), end="")
    fixed = ["--surplus", str(given.surplus), "--rotate" if given.rotate else "--no-rotate"]
    kinds: dict[str, list[str]] = {"with flips": [], "without flips": ["--no-flips"]}
    if given.natural:
        kinds["natural orbitals"] = ["--natural"]
    of_rival = {
        "trimci": [
            "--counts", str(given.counts[0]), "--runs", str(given.runs), "--seed", str(given.seed), fixed[-1],
        ],
        "pyscf": ["--cutoff", str(given.cutoff)],
    }  # fmt: skip
    best: dict[tuple[str, ...], Row] = {}
    for _ in range(given.repeats):
        runs = [(name, *of_rival[name]) for name in names if name not in missing]
        for more in kinds.values():
            runs += [("tnplan", "--counts", str(n), *fixed, *more) for n in given.counts]
        for run in runs:
            row = measured(run[0], file, *run[1:])
            if row and (run not in best or row["cpu_s"] < best[run]["cpu_s"]):
                best[run] = row
    ours = {
        kind: [row for run, row in best.items() if run[0] == "tnplan" and run[6:] == tuple(more)]
        for kind, more in kinds.items()
    }  # fmt: skip
    for run, row in best.items():
        if run[0] != "tnplan":
            compare(ours, row)
    for text in given.published:
        energy, _, count = text.partition(":")
        compare(ours, {"program": "published", "energy": float(energy), "determinants": int(count)})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
