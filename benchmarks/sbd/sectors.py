"""States of one representation of D2h: seconds and memory of a solve by blocks, beside that by all products.

    python benchmarks/sbd/sectors.py [--strings 1500] [--seed 5] [--threads 1] [-o results.json]
    python benchmarks/sbd/sectors.py --write PREFIX

The molecule is random: 5 alpha and 5 beta electrons in 24 orbitals, of which every representation has three,
with the integrals between them that D2h allows. The strings are those of least sum of orbital energies, with
a random part. Both solves look for the lowest state of symmetry 1, in one process, one after the other: first
over all products of strings, with those of other symmetries kept zero, then over blocks. Memory is what NumPy
allocates, by tracemalloc, in a second solve of each.
Goals: energies agree to 1e-8 Hartree; a multiplication takes an eighth of the time, and a solve with its
tables half of the memory. With --write nothing is measured; PREFIX.fcidump and PREFIX.txt are written.
"""

from __future__ import annotations

import argparse
import json
import sys
import tracemalloc
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sbd_cases import large_integrals

from tnplan.common.files import write_text
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.sbd.basis.fcidump import write_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, dense_two, from_arrays
from tnplan.executor.sbd.basis.sector import Sector, string_irreps
from tnplan.executor.sbd.basis.strings import StringSet, from_occupied
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, ProductHamiltonian, ProductTables
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.solve import solve

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "sbd" / "sectors.json"
ORBITALS, ELECTRONS, IRREPS = 24, 5, 8
SAME, GOAL_TIME, GOAL_MEMORY = 1e-8, 8.0, 2.0
BREADTH = 3.0
"""Of the random part of a string's energy, in units of the distance between orbitals."""
REPEATS = 5


def molecule(seed: int) -> Integrals:
    """Random integrals of D2h."""
    labels = np.random.default_rng(seed).permutation(np.arange(ORBITALS) % IRREPS)
    made, pairs = large_integrals(ORBITALS, ELECTRONS), labels[:, None] ^ labels
    two = dense_two(made) * (pairs[:, :, None, None] == pairs)
    integrals = from_arrays(made.one * (pairs == 0), two, ELECTRONS, ELECTRONS, made.core)
    return replace(integrals, labels=OrbitalLabels(tuple((labels + 1).tolist()), 1))


def chosen_strings(count: int, seed: int) -> StringSet:
    """Strings of least energy, about."""
    filled = np.array(list(combinations(range(ORBITALS), ELECTRONS)))
    energies = filled.sum(1) + BREADTH * np.random.default_rng(seed).standard_normal(len(filled))
    occupied = np.zeros((count, ORBITALS), bool)
    occupied[np.arange(count)[:, None], filled[np.argsort(energies)[:count]]] = True
    return from_occupied(occupied)


def seconds_of(h: Any, x: Any) -> float:
    """The least of several multiplications of an even state."""
    y, times = np.empty_like(x), []
    for _ in range(REPEATS):
        begin = perf_counter()
        h.apply(x, EVEN, y)
        times.append(perf_counter() - begin)
    return min(times)


def measured(integrals: Integrals, make: Any) -> dict[str, Any]:
    """One way: time of a multiplication and of a solve, then the memory of tables and solve."""
    h = make()
    x = h.project(np.random.default_rng(0).standard_normal(h.shape), EVEN)
    multiplication_s, n_elements = seconds_of(h, x), int(np.prod(h.shape))
    begin = perf_counter()
    solution = solve(h, integrals, criteria=Criteria())
    solve_s = perf_counter() - begin
    del h, x
    tracemalloc.start()
    try:
        begin_bytes = tracemalloc.get_traced_memory()[0]
        solve(make(), integrals, criteria=Criteria())
        peak_bytes = tracemalloc.get_traced_memory()[1] - begin_bytes
    finally:
        tracemalloc.stop()
    return {
        "multiplication_s": multiplication_s, "solve_s": solve_s, "peak_bytes": peak_bytes,
        "converged": solution.converged, "energy": float(solution.energies[0]),
        "multiplications": solution.multiplications + solution.test_multiplications,
        "elements": n_elements,
    }  # fmt: skip


def main() -> int:
    """Measure, print and store; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strings", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--write", type=Path, metavar="PREFIX", help="only write both to files")
    options = parser.parse_args()
    integrals, strings = molecule(options.seed), chosen_strings(options.strings, options.seed)
    if options.write is not None:
        write_fcidump(options.write.with_suffix(".fcidump"), integrals)
        write_text(options.write.with_suffix(".txt"), strings.lines())
        return 0
    irreps = string_irreps(strings, integrals.labels.irreps)
    sector, threads = Sector(irreps, irreps, 0), options.threads

    def of_all() -> ProductHamiltonian:
        product = ProductHamiltonian(integrals, strings, threads=threads)
        product.restrict(sector)
        return product

    ways = {
        "all products": measured(integrals, of_all),
        "blocks": measured(
            integrals, lambda: SectorHamiltonian(ProductTables(integrals, strings, threads=threads), sector)
        ),
    }
    for name, way in ways.items():
        print(
            f"{name:>13}: {way['elements']:>9} elements, {way['multiplication_s']:.4g} s a multiplication, "
            f"{way['solve_s']:.3g} s for {way['multiplications']}, {way['peak_bytes'] / 1e6:.4g} MB, "
            f"{way['energy']:.10f} Ha"
        )
    whole, blocks = ways.values()
    faster = whole["multiplication_s"] / blocks["multiplication_s"]
    smaller = whole["peak_bytes"] / blocks["peak_bytes"]
    print(f"{faster:.3g} times faster, {smaller:.3g} times less memory")
    row = {"strings": options.strings, "seed": options.seed, "threads": threads, **ways}
    row["environment"] = {**host_facts(), "commit": commit()}
    write_text(options.output, json.dumps(row, indent=1) + "\n")
    same = abs(whole["energy"] - blocks["energy"]) < SAME and whole["converged"] and blocks["converged"]
    missed = not same or faster < GOAL_TIME or smaller < GOAL_MEMORY
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
