"""What many amplitudes take together, beside one by one, by contraction on one core.

    python benchmarks/questions/together.py --seeds 5000 5100 --output together.jsonl
    python benchmarks/questions/together.py --read together.jsonl

A line a case: a random circuit of `tests/support/circuit_families.py`, and 2 to 256 strings of a kind. The
processor seconds of all strings together with an empty cache of paths are divided by those of the same
strings asked one by one: the first with an empty cache, the others with what it found, in the mean of a few.
Kernels are compiled before. A case has as many strings as take some `--limit` seconds one by one. With
`--hard` circuits are those where one string takes some 1e7 to 3e9 multiply-adds by a path found at once.
Goals: at most 1.1; 0.2 where strings share much, which are all kinds but the random one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"
GRAPHS = ("line", "ring", "lattice", "random regular")
KINDS = ("random", "few qubits", "few flips", "last qubits", "all but one bit", "duplicates")
SINGLES = 4
"""Strings that are asked alone, after the first."""
FEWEST_PRODUCTS, MOST_PRODUCTS = 1e7, 3e9
JOBS: dict[str, dict[str, Any]] = {
    "cpu": {"method": "contraction", "device": "cpu", "threads": 1},
    "gpu": {"method": "contraction", "device": "gpu"},
}
"""Options of the question, by device; on a GPU times are those of the clock."""


def strings(kind: str, n: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Bit strings, uint8 [string, qubit]."""
    rows = random.integers(0, 2, (count, n), dtype=np.uint8)
    if kind == "random":
        return rows
    if kind == "duplicates":
        return rows[np.arange(count) // 2]
    bits = np.repeat(rows[:1], count, axis=0)
    if kind == "few qubits":
        chosen = random.choice(n, max(2, int(np.ceil(np.log2(count)))), replace=False)
        bits[:, chosen] = rows[:, chosen]
    elif kind == "last qubits":
        width = max(2, int(np.ceil(np.log2(count))))
        bits[:, n - width :] = np.arange(count)[:, None] >> np.arange(width) & 1
    else:
        for row in bits[1:]:
            row[random.choice(n, 1 if kind == "all but one bit" else 3, replace=False)] ^= 1
    return bits


def measure(
    seed: int, limit_s: float, hard: bool, kind: str | None, device: str = "cpu"
) -> dict[str, Any] | None:
    """The case of a seed; None where one string alone takes too many operations, or too few."""
    import tnplan
    from tests.support.circuit_families import brickwork, graph
    from tnplan.jobs.arrays.planning import _remembered_plan

    random = np.random.default_rng(seed)
    shapes = GRAPHS[2:] if hard else GRAPHS
    shape, drawn = str(random.choice(shapes)), str(random.choice(KINDS))
    kind = kind or drawn
    n, edges = graph(shape, int(random.integers(20 if hard else 12, 37)), random)
    depth, count = int(random.integers(8 if hard else 4, 17)), int(2 ** random.uniform(1, 8))
    gates = tnplan.GateSequence(n, tuple(brickwork(n, edges, depth, random)))
    products = products_of_one(gates)
    if products > MOST_PRODUCTS or products < hard * FEWEST_PRODUCTS:
        return None
    circuit, bits = tnplan.Circuit(gates), strings(kind, n, count, random)

    clock = process_time if device == "cpu" else perf_counter

    def time_of(bits: np.ndarray) -> tuple[float, np.ndarray]:
        begin = clock()
        value = circuit.amplitudes(bits, **JOBS[device]).value
        return clock() - begin, value

    def with_empty_cache(run: Callable[[], Any]) -> Any:
        _remembered_plan.cache_clear()
        with TemporaryDirectory() as folder:
            os.environ["TNPLAN_PATH_CACHE"] = folder
            try:
                return run()
            finally:
                os.environ["TNPLAN_PATH_CACHE"] = ""

    def one_by_one() -> tuple[list[float], np.ndarray]:
        pairs = [time_of(bits[[number]]) for number in range(min(count, SINGLES + 1))]
        return [pair[0] for pair in pairs], np.concatenate([pair[1] for pair in pairs])

    took, values = with_empty_cache(one_by_one)
    single_s = float(np.mean(took[1:]))
    count = max(2, min(count, int(limit_s / single_s)))
    together_s, found = with_empty_cache(lambda: time_of(bits[:count]))
    compared = min(count, len(values))
    error = float(np.abs(found[:compared] - values[:compared]).max() * 2 ** (n / 2))
    return {
        "seed": seed, "name": f"{n} qubits on a {shape}, {depth} layers", "kind": kind, "strings": count,
        "together_s": together_s, "first_s": took[0], "single_s": single_s, "error": error,
        "ratio": together_s / (took[0] + (count - 1) * single_s),
    }  # fmt: skip


def products_of_one(circuit: Any) -> float:
    """Multiply-adds of one string along a path that is found at once."""
    from tnplan.planner.hardware.profile import load_profile
    from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
    from tnplan.planner.networks.simplify import simplify
    from tnplan.planner.search.path_cost import path_cost
    from tnplan.planner.search.search_in_proportion import quick_path

    network, _ = simplify(*circuit_network(circuit))
    return 10 ** path_cost(quick_path(network, "complex128", load_profile("cpu"))).log10_mnk_all_slices


def summary(path: Path) -> bool:
    """The ratios by kind, and the cases that miss the goal; whether there are any."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    print("kind, cases, median, worst, above 1.1, largest error")
    missed = any(row["ratio"] > 1.1 for row in rows)
    for kind in (*KINDS, "all"):
        here = [row for row in rows if kind in (row["kind"], "all")]
        if here:
            ratios, error = [row["ratio"] for row in here], max(row["error"] for row in here)
            above = sum(ratio > 1.1 for ratio in ratios)
            missed |= kind not in ("random", "all") and median(ratios) > 0.2
            print(f"{kind}, {len(here)}, {median(ratios):.2f}, {max(ratios):.2f}, {above}, {error:.1g}")
    for row in rows:
        if row["ratio"] > 1.1:
            singly = f"singly {row['first_s']:.3g} and {row['single_s']:.3g} s"
            print(f"{row['seed']}: {row['name']}, {row['strings']} strings ({row['kind']}): "
                  f"{row['ratio']:.2f}, {row['together_s']:.3g} s; {singly}")  # fmt: skip
    return missed


def main() -> int:
    """Measure, or read what was measured; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, default=(5000, 5100))
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--device", choices=JOBS, default="cpu")
    parser.add_argument("--kind", choices=KINDS, help="of strings, for all seeds")
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--output", type=Path, default=Path("together.jsonl"))
    parser.add_argument("--read", type=Path)
    options = parser.parse_args()
    if options.read is None:
        measure(0, options.limit, False, None, options.device)  # imports, and kernels
        with options.output.open("a") as file:
            for seed in range(*options.seeds):
                row = measure(seed, options.limit, options.hard, options.kind, options.device)
                if row is not None:
                    file.write(json.dumps(row) + "\n")
                    file.flush()
    missed = summary(options.read or options.output)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
