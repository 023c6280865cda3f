"""Lists of determinants: seconds a multiplication on a core, on threads, on ranks and on GPUs, and memory.

    python benchmarks/sbd/lists.py [--device cpu|gpu] [--count 1000000] [-o results.json]
    mpirun -n 2 python -m mpi4py benchmarks/sbd/lists.py [--device gpu] [--threads 1]

The list: 15 alpha and 15 beta electrons in 20 orbitals, as in an active space of Fe2S2; integrals are random.
Pairs of strings are drawn with a probability that falls with the sum of orbital energies.
On one CPU rank: one core with all elements kept, which is the code before; the same on all threads; and with
nothing kept but cells, on one core and on all threads. Elements are kept only where --memory holds them.
On GPUs or on several ranks: a multiplication on all ranks, and the memory predicted and taken. Rows for 1, 2,
... ranks of a device gather in the file; ratios are to the row of the code before and to that of one rank.
`--count 10000000 --device gpu` shows that such a list fits one GPU.
Goals: one GPU 30 times one core of the code before; two ranks 1.7 times one; 1e7 determinants in 80 GB.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sbd_cases import large_integrals

from tnplan.common.files import write_text
from tnplan.common.system_calls import cores
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.strings import from_occupied
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.lists.listed_rows import INDEX_BYTES, VALUE_BYTES
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.setup import SolveRequest, choose_device, set_up_solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "sbd" / "lists.json"
ORBITALS, ELECTRONS = 20, 15
GOAL_GPU, GOAL_RANKS, GOAL_BYTES = 30.0, 1.7, 80e9
BREADTH = 0.3
"""Of the weights of strings, in units of the highest orbital's energy."""
SAMPLED, STEPS = 101, 50
"""Of so many alpha strings one is looked at, and so many times, to find what probabilities give the count."""
SPARE = 1.1
"""So many times more determinants than are wanted are expected of a draw."""
REPEATS = 5
SAME, CHECKED = 1e-12, 10
Array = NDArray[Any]


def sampled_list(count: int, seed: int = 1) -> DeterminantList:
    """Pairs of strings, each drawn with a probability in proportion to its weight, up to 1."""
    holes = list(combinations(range(ORBITALS), ORBITALS - ELECTRONS))
    occupied = np.ones((len(holes), ORBITALS), bool)
    occupied[np.arange(len(holes))[:, None], holes] = False
    weights = np.exp(-(occupied @ np.linspace(0.0, 1.0, ORBITALS)) / BREADTH)
    some = weights[::SAMPLED]
    low, high = 0.0, 1e6 * count / weights.sum() ** 2
    for _ in range(STEPS):
        middle = (low + high) / 2
        expected = SAMPLED * sum(np.minimum(middle * one * weights, 1.0).sum() for one in some)
        low, high = (middle, high) if expected < SPARE * count else (low, middle)
    chance = np.random.default_rng(seed)
    found = [
        row * len(holes) + np.flatnonzero(chance.random(len(holes), np.float32) < high * one * weights)
        for row, one in enumerate(weights)
    ]
    chosen = np.concatenate(found)
    chosen = np.sort(chance.choice(chosen, count, replace=False))
    strings = from_occupied(occupied)
    return DeterminantList(strings, strings, *np.divmod(chosen, len(holes)), np.arange(count))


def timed(call: Callable[[], Any], repeats: int) -> float:
    """The median of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times)


def made_again(integrals: Integrals, basis: DeterminantList, x: Array) -> tuple[dict[str, Any], Array]:
    """Multiplications with cells alone, on one core and on all; and the product."""
    begin = time.perf_counter()
    h = ListHamiltonian(integrals, basis, memory_bytes=0)
    row = {"cells_bytes": h.cells.size_bytes, "cells_ready_s": time.perf_counter() - begin}
    row |= {"pairs_contributing": h.pairs_contributing, "threads": h.threads}
    y = np.empty_like(x)
    row["again_s"] = timed(lambda: h.apply(x, out=y), REPEATS)
    h.threads = 1
    row["again_one_core_s"] = timed(lambda: h.apply(x, out=y), 1)
    return row, y


def on_one_cpu(integrals: Integrals, basis: DeterminantList, memory_bytes: float) -> dict[str, Any]:
    """Multiplications with cells alone and with elements kept, on one core and on all."""
    x = np.random.default_rng(0).standard_normal(len(basis))
    row, y = made_again(integrals, basis, x)
    if (INDEX_BYTES + VALUE_BYTES) * row["pairs_contributing"] > memory_bytes:
        return row
    begin = time.perf_counter()
    kept = ListHamiltonian(integrals, basis)
    row |= {"kept_ready_s": time.perf_counter() - begin, "kept_bytes": kept.elements_bytes}
    z = np.empty_like(x)
    row["kept_s"] = timed(lambda: kept.apply(x, out=z), REPEATS)
    kept.threads = 1
    row["before_s"] = timed(lambda: kept.apply(x, out=z), 2)
    assert np.abs(y - z).max() < SAME * np.abs(z).max()
    return row


def on_ranks(
    world: Communicator, integrals: Integrals, basis: DeterminantList, device: str, threads: int
) -> dict[str, Any]:
    """A multiplication on all ranks, checked against a few rows made by rank 0's CPU."""
    chosen = choose_device(device, world, threads)
    try:
        with chosen.on_stream():
            begin = time.perf_counter()
            # Elements are not kept on CPUs either: cells alone, as on GPUs.
            site = None
            if device == "gpu":
                request = SolveRequest(1, Criteria(), np.inf, threads)
                site = set_up_solve(integrals, basis, chosen, world, request)
                assert isinstance(site.hamiltonian, ListHamiltonian)
                listed, backend = site.hamiltonian, site.backend
            else:
                listed = ListHamiltonian(
                    integrals, basis, threads=threads, memory_bytes=0, rank_of=(world.rank, world.size)
                )
                backend = DistributedVectors(listed, chosen.ranks, lambda dtype: listed)
                assert listed.cells.couplings > 0
            assert backend is not None
            operator = backend.operator("float64")
            x = np.random.default_rng(0).standard_normal(len(basis))
            part = backend.put(backend.local(x if world.rank == 0 else None), "float64")
            y = np.empty_like(part)
            ready_s = time.perf_counter() - begin
            times = []
            for _ in range(REPEATS + 1):
                world.barrier()
                begin = time.perf_counter()
                operator.apply(part, 0, y)
                operator.total(np.array([float(y @ y)]))
                times.append(time.perf_counter() - begin)
            slowest = max(world.gather_objects(median(times[1:])))
            made = backend.collect(y)
            if made is not None:
                check_rows(listed, x, made)
            return {
                "device": chosen.line, "ready_s": ready_s, "multiplication_s": slowest, "threads": threads,
                "pairs_contributing": site.pairs_contributing if site else None,
                "predicted_bytes": site.predicted_bytes if site else None,
                "peak_bytes": site.peak_bytes() if site else None,
            }  # fmt: skip
    finally:
        chosen.close()


def check_rows(listed: ListHamiltonian, x: Array, y: Array) -> None:
    """Compare a few rows of a product with those that a CPU makes."""
    for first in np.linspace(0, len(x) - CHECKED, 5).astype(int):
        few = listed.of_rows(int(first), int(first) + CHECKED)
        rows = np.zeros(CHECKED)
        few.add_rows(None, x, x, rows, False)
        assert np.abs(rows - y[slice(*few.rows)]).max() < SAME * np.abs(y).max()


def stored(path: Path, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Put a row in the place of the file's row of the same measurement; all rows."""
    document = json.loads(path.read_text()) if path.exists() else {}
    key = ("kind", "count", "ranks")
    kept = [old for old in document.get("lists", []) if any(old[name] != row[name] for name in key)]
    rows: list[dict[str, Any]] = [*kept, row]
    write_text(path, json.dumps({**document, "lists": rows}, indent=1) + "\n")
    return rows


def show(row: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Print a row, and its ratios to rows that the file has; whether a goal is missed."""
    missed = False
    same = [old for old in rows if old["count"] == row["count"]]
    print(f"{row['kind']}: {row['count']} determinants, {row['ranks']} ranks", flush=True)
    for name, value in row.items():
        if name not in ("kind", "count", "ranks", "environment") and value is not None:
            print(f"  {name:20} {value:.4g}" if isinstance(value, float) else f"  {name:20} {value}")
    before = next((old.get("before_s") for old in same if old["kind"] == "one cpu"), None)
    alone = next((old for old in same if old["kind"] == row["kind"] and old["ranks"] == 1), None)
    time_s = row.get("multiplication_s")
    if before and time_s:
        missed |= row["kind"] == "gpu ranks" and row["ranks"] == 1 and before / time_s < GOAL_GPU
        print(f"  {before / time_s:.1f} times one core of the code before (goal: {GOAL_GPU} on one GPU)")
    if alone and time_s and row["ranks"] > 1:
        missed |= row["ranks"] == 2 and alone["multiplication_s"] / time_s < GOAL_RANKS
        print(f"  {alone['multiplication_s'] / time_s:.2f} times one rank (goal: {GOAL_RANKS} on two)")
    if row.get("peak_bytes"):
        missed |= row["count"] <= 10_000_000 and row["peak_bytes"] > GOAL_BYTES
        print(f"  {row['peak_bytes'] / GOAL_BYTES:.2f} of 80 GB")
    return missed


def main() -> int:
    """Measure, print and store; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, help="of a rank (default: all cores)")
    parser.add_argument("--ranks", action="store_true", help="on one CPU rank, measure what several do")
    parser.add_argument("--memory", type=float, default=40e9, help="bytes for elements that are kept")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    world = world_communicator()
    size = 1 if world is None else world.size
    integrals, basis = large_integrals(ORBITALS, ELECTRONS), sampled_list(options.count)
    threads = options.threads or cores()

    def work(ranks: Communicator) -> dict[str, Any]:
        return on_ranks(ranks, integrals, basis, options.device, threads)

    kind = f"{options.device} ranks"
    if options.device == "cpu" and size == 1 and not options.ranks:
        kind, row = "one cpu", on_one_cpu(integrals, basis, options.memory)
    else:
        row = run_ranks(1, work)[0] if world is None else work(world)
    if world is not None and world.rank > 0:
        return 0
    row = {"kind": kind, "count": options.count, "ranks": size, **row}
    row["environment"] = {**host_facts(), "commit": commit()}
    missed = show(row, stored(options.output, row))
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
