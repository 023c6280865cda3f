"""Selected-basis diagonalization: seconds a multiplication beside PySCF, energies, floors, and devices.

    python benchmarks/sbd/sbd.py [--case TEXT] [--device cpu|gpu] [--rounds 3] [-o results.json]
    mpirun -n 4 python -m mpi4py benchmarks/sbd/sbd.py --device gpu --case fe4s4

On the CPU, for molecules: a multiplication of a random vector, and of a symmetric one as the solver has it,
on one thread; for N2 PySCF's selected_ci.contract_2e, as it is called and with its tables made before, in
turn with ours in the same run. Ratios are those of CPU time, which other work on the machine disturbs little.
On two threads, wall time and CPU time over those of one thread. The solve to a residual of 1e-5, its energy
and its multiplications.
On GPUs, for fe4s4 (6,000 x 6,000, random integrals): the median of multiplications of a symmetric vector, and
on one GPU its seconds in each part over their floor; rows for 1, 2, ... ranks gather in the file. For
molecules the solve, its time, and the memory predicted and taken; the same for `wide`, the first steps for
20,000 x 20,000 strings near one determinant (only where --case names it). --ring sends rows round a ring, as
ranks do whose memory is short.
For fe4s4 on any device: contributing pairs, s and d a string, floors of the parts on one H200, and the time
on 1 to 16 devices: that of one, measured where the file has it and otherwise the floor, shared as rows are,
and exchanges at the rates of a hardware profile.
Goals: 30 times faster than PySCF at N2 1387 on one thread; 1.8 times at two threads; energies within 1e-8 Ha
in 40 multiplications; 0.30 s for fe4s4 on one H200, 3.2 times faster on four; 0.52 of linear at 16 devices.
Inputs lie beside a checkout; rows whose input is absent are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sbd_cases import CASES, DATA, LARGE, WIDE, Case, large_case, large_integrals, wide_strings
from sbd_gpu import measured_large, solved

from tnplan.common.files import write_text
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.integrals import Integrals, dense_two, pair_count
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.cost_model import partition_rows
from tnplan.executor.sbd.sigma.opposite_spin import ROWS
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ProductHamiltonian, row_costs
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.solve import solve
from tnplan.planner.hardware.profile import load_profile

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "sbd" / "sbd.json"
GOAL_RATIO, GOAL_THREADS, GOAL_ENERGY, GOAL_PRODUCTS = 30.0, 1.8, 1e-8, 40
GOAL_CASE = "n2_1387"
GOAL_S, GOAL_DEVICES, GOAL_EFFICIENCY = 0.30, {4: 3.2}, 0.52
DEVICES = (1, 2, 4, 8, 16)
GEMM_FLOP_PER_S, COPY_BYTES_PER_S = 60e12, 4.2e12
"""fp64 products on tensor cores and copies on one H200, as benchmarks measured them."""
LOAD_BYTES_PER_S = 132 * 128 * 1.755e9
"""What the threads of one H200 load from level-1 caches: 128 bytes a cycle in each of 132 multiprocessors."""
REPEATS = 5


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds of a call, those of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def least(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """The least wall and the least CPU seconds of several runs."""
    return min(wall for wall, _ in pairs), min(cpu for _, cpu in pairs)


def pyscf_calls(h: ProductHamiltonian, x: np.ndarray) -> list[Callable[[], np.ndarray]]:
    """PySCF's product with a state of rising strings: as it is called, and with its tables made before.

    Nothing where PySCF is absent.
    """
    try:
        from pyscf import lib
        from pyscf.fci import direct_spin1, selected_ci
    except ImportError:
        return []
    lib.num_threads(1)
    integrals, n = h.integrals, h.integrals.n_orbitals
    electrons = integrals.n_alpha, integrals.n_beta
    strings = np.array([int(line, 2) for line in h.alpha.strings.lines().split()])
    two = direct_spin1.absorb_h1e(integrals.one, dense_two(integrals), n, electrons, 0.5)
    state = selected_ci._as_SCIvector(x, (strings, strings))
    links = selected_ci._all_linkstr_index((strings, strings), n, electrons)
    return [
        lambda: np.asarray(selected_ci.contract_2e(two, state, n, electrons)),
        lambda: np.asarray(selected_ci.contract_2e(two, state, n, electrons, links)),
    ]


def molecule_row(case: Case, rounds: int) -> dict[str, Any]:
    """Multiplications of one molecule, PySCF beside them, and its solve."""
    integrals, strings = case.read()
    rising = strings.take(np.argsort([int(line, 2) for line in strings.lines().split()]))
    one, two = (ProductHamiltonian(integrals, rising, threads=threads) for threads in (1, 2))
    x = np.random.default_rng(0).standard_normal(one.shape)
    even = one.project(x, EVEN)
    theirs = pyscf_calls(one, x) if case.beside_pyscf else []
    pyscf: list[list[tuple[float, float]]] = [[] for _ in theirs]
    apart = None
    ours: dict[str, list[tuple[float, float]]] = {"whole": [], "even": [], "even_two_threads": []}
    made = one.apply(x, NEITHER), one.apply(even, EVEN), two.apply(even, EVEN)
    assert np.allclose(made[1], made[2], rtol=0, atol=1e-12 * np.abs(made[1]).max())
    for _ in range(rounds):
        for _ in range(REPEATS):
            ours["whole"].append(timed(lambda: one.apply(x, NEITHER)))
            ours["even"].append(timed(lambda: one.apply(even, EVEN)))
            ours["even_two_threads"].append(timed(lambda: two.apply(even, EVEN)))
        for call, times in zip(theirs, pyscf, strict=True):
            times.append(timed(call))
    if theirs:
        expected = theirs[1]()
        apart = float(np.abs(made[0] - expected).max() / np.abs(expected).max())
    found = solve(one, integrals, criteria=Criteria(residual=1e-5))
    mixed = solve(one, integrals, criteria=Criteria(residual=1e-5), mixed_precision=True)
    (whole_s, whole_cpu_s), (even_s, even_cpu_s), (both_s, both_cpu_s) = map(least, ours.values())
    (plain_s, plain_cpu_s), (ready_s, ready_cpu_s) = map(least, pyscf) if pyscf else [(None, None)] * 2
    return {
        "case": case.name, "strings": len(rising), "pairs_contributing": one.pairs_contributing,
        "whole_s": whole_s, "whole_cpu_s": whole_cpu_s, "even_s": even_s, "even_cpu_s": even_cpu_s,
        "pyscf_s": plain_s, "pyscf_cpu_s": plain_cpu_s,
        "pyscf_tables_made_s": ready_s, "pyscf_tables_made_cpu_s": ready_cpu_s,
        "ratio_whole": plain_cpu_s and plain_cpu_s / whole_cpu_s,
        "ratio_even": plain_cpu_s and plain_cpu_s / even_cpu_s,
        "ratio_whole_tables_made": ready_cpu_s and ready_cpu_s / whole_cpu_s,
        "ratio_even_tables_made": ready_cpu_s and ready_cpu_s / even_cpu_s,
        "error": apart,
        "two_threads_s": both_s, "two_threads_cpu_s": both_cpu_s, "speedup_two_threads": even_s / both_s,
        "cpu_of_two_threads": both_cpu_s / even_cpu_s,
        "energy_error": float(found.energies[0] - case.energy), "multiplications": found.multiplications,
        "mixed_energy_error": float(mixed.energies[0] - case.energy),
        "mixed_multiplications": [mixed.early_multiplications, mixed.multiplications],
    }  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Operations, bytes of memory and bytes that threads load, of one part, and its floor on one H200."""

    name: str
    flops: float
    size_bytes: float
    loaded_bytes: float = 0.0

    @property
    def floor_s(self) -> float:
        """The longest of the operations, the traffic and the loads."""
        return max(
            self.flops / GEMM_FLOP_PER_S,
            self.size_bytes / COPY_BYTES_PER_S,
            self.loaded_bytes / LOAD_BYTES_PER_S,
        )


def parts(h: ProductHamiltonian) -> Iterator[Part]:
    """The parts of a multiplication of an even state in fp64 as a GPU makes it, the matrix dense.

    Tables that stay in a cache count once. A tile takes the excitations of a row whose pair is one of its own
    or stands before them; columns without a string, in the last tile of some pairs, count too.
    """
    rows, n_beta = h.shape
    elements, item = rows * n_beta, 8
    values = item * float(len(h.alpha.singles.other)) * n_beta
    additions = float(rows) * len(h.beta.singles.other)
    tiles = h.tiles
    rank = np.sort(h.alpha.matching.active[h.alpha.singles.pairs])
    depths = np.searchsorted(rank, ROWS * np.arange(1, len(tiles.start)))
    columns = float(tiles.columns[0].size * depths @ np.diff(tiles.start))
    tables = item * pair_count(h.integrals.n_orbitals)
    yield Part("add_product", 2.0 * rows * elements, 3.0 * item * elements + item * rows * rows)
    yield Part("numbers", 0.0, 3.0 * item * elements + tables * n_beta, 2 * values)
    loaded = item * (columns + 2 * additions)
    yield Part("mixed", 2.0 * ROWS * columns, 3.0 * item * elements + tiles.size_bytes, loaded)
    yield Part("transpose", 0.0, 5.0 * item * elements)


def projected(h: ProductHamiltonian, one_s: float, profile_name: str) -> list[dict[str, Any]]:
    """The time on several devices: rows as they are shared, exchanges at the profile's rates.

    Every rank receives the other rows of the state, and its part of the transpose; links inside a node and
    between nodes work at the same time.
    """
    profile = load_profile(profile_name)
    work = row_costs(h.alpha.singles, h.beta.singles, True, cost.GPU)
    state_bytes = 8.0 * h.shape[0] * h.shape[1]
    rows = []
    for devices in DEVICES:
        shares = partition_rows(work, devices)
        most = max(work[slice(*shares.rows(rank))].sum() for rank in range(devices)) / work.sum()
        inside = min(devices, profile.tiers[0].devices)
        sent_bytes = state_bytes * (1 + 1 / devices)
        exchange_s = max(
            sent_bytes * (inside - 1) / devices / profile.tiers[0].bytes_per_s,
            sent_bytes * (devices - inside) / devices / profile.tiers[-1].bytes_per_s,
        )
        time_s = one_s * most + exchange_s
        rows.append(
            {
                "devices": devices, "share": float(most), "exchange_s": exchange_s, "time_s": time_s,
                "efficiency": one_s / devices / time_s,
            }
        )  # fmt: skip
    return rows


def solve_on_gpus(
    options: argparse.Namespace, world: Communicator | None, environment: dict[str, Any]
) -> None:
    """Solve molecules, and begin with `wide` where it is asked for; print and store."""
    cases: list[tuple[str, float | None, Integrals, StringSet, Criteria]] = []
    for case in CASES:
        if options.case in case.name and case.present():
            cases.append((case.name, case.energy, *case.read(), Criteria(residual=1e-5)))
    if options.case == WIDE:
        begun = Criteria(steps=2, vectors=6)
        cases.append((WIDE, None, large_integrals(36, 27), wide_strings(36, 27, 20_000), begun))
    for name, energy, integrals, strings, criteria in cases:

        def work(ranks: Communicator) -> dict[str, Any]:
            return solved(ranks, name, integrals, strings, criteria)  # noqa: B023

        row = run_ranks(1, work)[0] if world is None else work(world)
        if world is not None and world.rank > 0:
            continue
        row["energy_error"] = None if energy is None else row["energy"] - energy
        stored(options.output, "solved_on_gpus", {**row, "environment": environment}, "case")
        error = "" if energy is None else f"energy {row['energy_error']:+.1e} in {row['multiplications']}, "
        print(
            f"{name:9} {row['ranks']} GPUs: {error}{min(row['multiplication_s']):.4f} s a multiplication, "
            f"ready in {row['ready_s']:.1f} s, done in {row['seconds']:.1f} s; "
            f"{row['predicted_bytes'] / 1e9:.3f} GB predicted, "
            f"{row['peak_bytes'] / row['predicted_bytes']:.3f} of it taken",
            flush=True,
        )


def stored(path: Path, name: str, row: dict[str, Any], key: str) -> None:
    """Put a row in the place of the file's row with the same key."""
    document = json.loads(path.read_text()) if path.exists() else {}
    kept = [old for old in document.get(name, []) if old[key] != row[key]]
    document[name] = [*kept, row]
    write_text(path, json.dumps(document, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    """The command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="", help="only cases with this in their name")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ring", action="store_true", help="send rows round a ring, on GPUs")
    parser.add_argument("--hardware", default="h200-nvlink", help="the profile of the projection")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    return parser.parse_args()


def misses(row: dict[str, Any]) -> list[str]:
    """The goals that a molecule misses."""
    met = {
        "energy": abs(row["energy_error"]) <= GOAL_ENERGY,
        "multiplications": row["multiplications"] <= GOAL_PRODUCTS,
    }
    if row["case"] == GOAL_CASE:
        met["PySCF / ours"] = (row["ratio_even"] or GOAL_RATIO) >= GOAL_RATIO
        met["two threads"] = row["speedup_two_threads"] >= GOAL_THREADS
    return [f"{row['case']}: {name} MISSED" for name, is_met in met.items() if not is_met]


def main() -> int:
    """Measure, print and store; 1 where a goal is missed."""
    options, missed = arguments(), list[str]()
    environment = {**host_facts(), "commit": commit()}
    if options.device == "cpu":
        print(f"goals: {GOAL_RATIO} times PySCF at n2_1387, {GOAL_THREADS} at two threads, {GOAL_ENERGY} Ha")
        for case in CASES:
            if options.case not in case.name or not case.present():
                print(f"{case.name}: left out")
                continue
            row = {**molecule_row(case, options.rounds), "environment": environment}
            stored(options.output, "molecules", row, "case")
            print(
                f"{row['case']:9} {row['whole_cpu_s']:8.4f} s whole {row['even_cpu_s']:8.4f} s even (CPU), "
                f"PySCF / ours {row['ratio_whole'] or 0:.1f} and {row['ratio_even'] or 0:.1f}, "
                f"its tables made {row['ratio_whole_tables_made'] or 0:.1f} and "
                f"{row['ratio_even_tables_made'] or 0:.1f}, two threads "
                f"{row['speedup_two_threads']:.2f} (CPU {row['cpu_of_two_threads']:.2f}), energy "
                f"{row['energy_error']:+.1e} in {row['multiplications']}, mixed "
                f"{row['mixed_energy_error']:+.1e} in {row['mixed_multiplications']}",
                flush=True,
            )
            missed += misses(row)
            print(*missed, sep="\n", end="\n" if missed else "")
    world = world_communicator() if options.device == "gpu" else None
    if options.device == "gpu":
        solve_on_gpus(options, world, environment)
    if options.case not in "fe4s4" or not (DATA / LARGE).exists():
        print("fe4s4: left out")
        return int(bool(missed))
    integrals, strings = large_case()
    if options.device == "gpu":

        def measure(ranks: Communicator) -> dict[str, Any]:
            return measured_large(ranks, integrals, strings, options.ring)

        row = run_ranks(1, measure)[0] if world is None else measure(world)
        if world is None or world.rank == 0:
            name = "fe4s4_ring" if options.ring else "fe4s4_measured"
            stored(options.output, name, {**row, "environment": environment}, "ranks")
            way = "round a ring" if options.ring else "gathered"
            time_s = row["multiplication_s"]
            print(f"fe4s4 on {row['ranks']} GPUs, {way}: {time_s:.4f} s, goal {GOAL_S} on one", flush=True)
            missed += ["fe4s4: seconds MISSED"] if row["ranks"] == 1 and time_s > GOAL_S else []
    if (world is not None and world.rank > 0) or options.ring:
        return int(bool(missed))
    describe_large(options, integrals, strings, environment)
    return int(bool(missed))


def describe_large(
    options: argparse.Namespace, integrals: Integrals, strings: Any, environment: dict[str, Any]
) -> None:
    """Counts, floors, times over floors and the projection of fe4s4."""
    h = ProductHamiltonian(integrals, strings, dense=False)
    n, singles = len(strings), len(h.alpha.singles.other)
    found = list(parts(h))
    floor_s = sum(part.floor_s for part in found)
    document = json.loads(options.output.read_text()) if options.output.exists() else {}
    known = next((row for row in document.get("fe4s4_measured", []) if row["ranks"] == 1), None)
    measured = (known or {}).get("parts_s") or {}
    doubles = int(h.alpha.singles.linked.sum()) - singles - n
    form = "dense" if cost.dense_is_faster(n, doubles, cost.GPU) else "sparse"
    print(
        f"fe4s4: {h.pairs_contributing:.4g} pairs, s {singles / n:.2f}, d {doubles / n:.1f}, {form} in a spin"
    )
    for part in found:
        over = f", {measured[part.name] / part.floor_s:.2f} of it measured" if part.name in measured else ""
        print(
            f"  {part.name:14} {part.flops:9.3g} flop {part.size_bytes:9.3g} B "
            f"{part.loaded_bytes:9.3g} B loaded, {part.floor_s:.4f} s{over}"
        )
    one_s = known["multiplication_s"] if known else floor_s
    source = "measured" if known else "floor"
    print(f"  {'all':14} floor {floor_s:.4f} s; on one device {one_s:.4f} s ({source})")
    projection = projected(h, one_s, options.hardware)
    for row in projection:
        print(f"  {row['devices']:3} devices {row['time_s']:.4f} s, efficiency {row['efficiency']:.2f}")
    row = {
        "case": "fe4s4", "strings": n, "pairs_contributing": h.pairs_contributing, "singles": singles / n,
        "doubles": doubles / n, "hardware": options.hardware, "one_device": source,
        "parts": [
            {
                "part": part.name, "flops": part.flops, "bytes": part.size_bytes,
                "loaded_bytes": part.loaded_bytes, "floor_s": part.floor_s,
            }
            for part in found
        ],
        "floor_s": floor_s, "projection": projection, "environment": environment,
    }  # fmt: skip
    stored(options.output, "fe4s4", row, "case")


if __name__ == "__main__":
    sys.exit(main())
