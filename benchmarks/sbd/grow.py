"""Selected CI from nothing: lists that grow beside lists of the largest coefficients of an exact state.

Goals: within 1 mHa of the exact energy with at most 1.3 times the determinants of a list of the exact state's
largest coefficients; the extrapolated energy within 0.3 mHa. The exact state is full CI by PySCF
(`--exact STATE.npz`, which is made and kept where it is missing). Without `--exact` the largest grown list
stands for it, with the extrapolated energy.

    python benchmarks/sbd/grow.py INTEGRALS.fcidump [--exact state.npz] [--frozen 2] [--epsilon 1e-2,...]
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import tnplan
from tnplan.executor.sbd.basis.determinants import DeterminantList, from_bits
from tnplan.executor.sbd.basis.integrals import Integrals, dense_two

RESULT = Path(__file__).parents[1] / "results" / "sbd" / "grow.json"
GOALS = {"determinants_ratio": 1.3, "extrapolation_hartree": 3e-4}
ACCURACY = 1e-3
"""In Hartree above the exact energy."""
SERIES = (1e-2, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4)


def without_core(integrals: Integrals, frozen: int) -> Integrals:
    """The integrals with the first orbitals doubly filled."""
    one, two, core, active = integrals.one, dense_two(integrals), slice(0, frozen), slice(frozen, None)
    field = 2 * np.einsum("pqkk->pq", two[:, :, core, core]) - np.einsum("pkkq->pq", two[:, core, core])
    energy = integrals.core + (2 * one + field)[core, core].trace()
    counts = integrals.n_alpha - frozen, integrals.n_beta - frozen
    kept = np.ascontiguousarray(two[active, active, active, active])
    return tnplan.from_arrays((one + field)[active, active], kept, *counts, energy)


def full_ci(integrals: Integrals, path: Path) -> tuple[float, Any]:
    """The energy and the state [alpha string, beta string] of the whole space, from a file if it is there."""
    from pyscf import ao2mo, fci

    if path.exists():
        with np.load(path) as kept:
            return float(kept["energy"]), kept["state"]
    n, counts = integrals.n_orbitals, (integrals.n_alpha, integrals.n_beta)
    solver = fci.direct_spin0.FCI()
    solver.max_space, solver.conv_tol = 8, 1e-9
    two = ao2mo.restore(8, dense_two(integrals), n)
    energy, state = solver.kernel(integrals.one, two, n, counts, ecore=integrals.core)
    np.savez(path, energy=energy, state=state)
    return float(energy), np.asarray(state)


def sorted_list(integrals: Integrals, state: Any) -> tuple[Any, Any]:
    """Bits [determinant, orbital] of both spins by falling coefficients, as many as are of interest."""
    from pyscf.fci import cistring

    n, most = integrals.n_orbitals, 2_000_000
    flat = np.abs(state).ravel()
    chosen = np.argpartition(-flat, min(most, len(flat) - 1))[:most]
    chosen = chosen[np.argsort(-flat[chosen], kind="stable")]
    strings = [np.asarray(cistring.make_strings(range(n), k)) for k in (integrals.n_alpha, integrals.n_beta)]
    bits = [strings[spin][part] for spin, part in enumerate(np.divmod(chosen, state.shape[1]))]
    alpha, beta = ((part[:, None] >> np.arange(n) & 1).astype(bool) for part in bits)
    return alpha, beta


def largest_of(grown: tnplan.Diagonalization) -> tuple[Any, Any]:
    """The same from a list that has grown."""
    basis = grown.determinants
    assert isinstance(basis, DeterminantList)
    order = np.argsort(-np.abs(grown.states[0]), kind="stable")
    alpha = basis.alpha_strings.occupied[basis.alpha[order]]
    return alpha, basis.beta_strings.occupied[basis.beta[order]]


def count_within(counts: Sequence[int], errors: Sequence[float]) -> float | None:
    """Determinants at an error of ACCURACY, between two lists by a power law; None where no list has it."""
    for (n, worse), (more, better) in zip(
        zip(counts, errors, strict=True), list(zip(counts, errors, strict=True))[1:], strict=False
    ):
        if worse > ACCURACY >= better:
            share = np.log(worse / ACCURACY) / np.log(worse / better)
            return float(n * (more / n) ** share)
    return None


def main() -> int:
    """Grow, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("fcidump", type=Path)
    parser.add_argument("--exact", type=Path)
    parser.add_argument("--frozen", type=int, default=0)
    parser.add_argument("--epsilon", type=lambda text: tuple(map(float, text.split(","))), default=SERIES)
    parser.add_argument("--epsilon-pt2", type=float, default=1e-7)
    parser.add_argument(
        "--counts", type=lambda text: list(map(int, text.split(","))), default=[20_000, 40_000, 80_000]
    )
    parser.add_argument("--surplus", type=float, default=3.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    given = parser.parse_args()
    integrals = tnplan.read_fcidump(given.fcidump)
    if given.frozen:
        integrals = without_core(integrals, given.frozen)
    begin = perf_counter()
    grown = tnplan.diagonalize(
        integrals, grow=tnplan.Growth(given.epsilon, epsilon_pt2=given.epsilon_pt2), device=given.device,
        progress=lambda at: print(f"{perf_counter() - begin:8.1f} s  {at.text}", flush=True),
    )  # fmt: skip
    growth = grown.report["growth"]
    fit = growth["extrapolation"][0]
    if given.exact is not None:
        exact, state = full_ci(integrals, given.exact)
        bits = sorted_list(integrals, state)
    else:
        exact, bits = fit["energy_hartree"], largest_of(grown)
    rows: list[dict[str, Any]] = []
    for point in growth["points"]:
        n, energy, correction = (
            point["determinants"], point["energies_hartree"][0], point["corrections_hartree"][0]
        )  # fmt: skip
        rows.append({
            "epsilon": point["epsilon"], "determinants": n, "error_hartree": energy - exact,
            "correction_hartree": correction, "corrected_error_hartree": energy + correction - exact,
            "pt2_s": point["time_s"],
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    sizes = []
    for n in given.counts:
        to_size = tnplan.Growth(determinants=n, epsilon_pt2=None, surplus=given.surplus)
        begin = perf_counter()
        ours = tnplan.diagonalize(integrals, grow=to_size, device=given.device)
        time_s = perf_counter() - begin
        best = tnplan.diagonalize(
            integrals, determinants=from_bits(bits[0][:n], bits[1][:n]), device=given.device
        ).energies[0]
        sizes.append({
            "determinants": n, "error_hartree": float(ours.energies[0]) - exact,
            "sorted_error_hartree": float(best) - exact, "time_s": time_s,
        })  # fmt: skip
        print(json.dumps(sizes[-1]), flush=True)
    needed = count_within(given.counts, [row["error_hartree"] for row in sizes])
    sorted_needed = count_within(given.counts, [row["sorted_error_hartree"] for row in sizes])
    result = {
        "goals": GOALS, "date": str(date.today()), "machine": platform.machine(), "file": given.fcidump.name,
        "frozen": given.frozen, "reference": "full CI" if given.exact else "the largest grown list",
        "exact_hartree": exact, "extrapolation": fit,
        "extrapolation_error_hartree": fit["energy_hartree"] - exact,
        "determinants_within_1mHa": needed, "sorted_determinants_within_1mHa": sorted_needed,
        "determinants_ratio": needed / sorted_needed if needed and sorted_needed else None,
        "rows": rows, "sizes": sizes, "surplus": given.surplus, "iterations": growth["iterations"],
        "device": grown.report["device"], "threads": grown.report["threads"],
    }  # fmt: skip
    given.output.write_text(json.dumps(result, indent=1) + "\n")
    long = "rows", "sizes", "iterations"
    print(json.dumps({key: result[key] for key in result if key not in long}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
