"""Seconds and bytes of a PEPS as `estimate` predicts them, beside those of the calls.

    OMP_NUM_THREADS=1 python benchmarks/questions/peps_prediction.py --first 200 --count 24

Each seed is a random circuit of 12 to 61 qubits on squares, heavy hexagons, a 3-regular graph or a tree, with
two words and a bond limit of 4 to 32. Seconds of the processor, the least of `--repeats`, and the peak of
`tracemalloc`. The last lines have measured over predicted: the least, the quartiles and the largest, and the
shares of the seeds within some percent. Goals: 15 % of the time and 5 % of the memory.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from math import inf
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tnplan
from tests.support.circuit_families import brickwork, graph, qaoa, trotter
from tnplan.circuits.circuit import GateSequence

KINDS = ("lattice", "heavy hexagons", "random regular", "tree")
GOALS = {"time": (0.15, 0.3), "memory": (0.05, 0.1)}


def case(seed: int) -> tuple[str, tnplan.Circuit, list[str], int]:
    """What the circuit is, the circuit, two words, and a bond limit."""
    random = np.random.default_rng(seed)
    kind, n_qubits = KINDS[seed % 4], int(random.integers(12, 62))
    if kind == "tree":
        n, edges = n_qubits, [*nx.random_labeled_tree(n_qubits, seed=seed).edges]
    else:
        n, edges = graph(kind, n_qubits, random)
    family = (brickwork, trotter, qaoa)[int(random.integers(3))]
    depth, bond = int(random.integers(3, 9)), int(random.choice([4, 8, 16, 32]))
    if kind in ("lattice", "tree"):  # tensors with four edges and more
        bond = min(bond, 16)
    first = edges[int(random.integers(len(edges)))]
    words = [f"Z{first[0]}", f"X{first[0]} Z{first[1]}"]
    gates = family(n, edges, depth, random)
    name = f"{family.__name__} on a {kind}, {n} qubits, depth {depth}, bond {bond}"
    return name, tnplan.Circuit(GateSequence(n, tuple(gates))), words, bond


def measured(circuit: tnplan.Circuit, words: list[str], repeats: int, **options: Any) -> tuple[float, float]:
    """Seconds and bytes of the call."""
    least = inf
    for _ in range(repeats):
        begin = time.process_time()
        circuit.expectation(words, **options)
        least = min(least, time.process_time() - begin)
    tracemalloc.start()
    circuit.expectation(words, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return least, float(peak)


def main() -> int:
    """Measure all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=200, help="the first seed")
    parser.add_argument("--count", type=int, default=24, help="how many seeds")
    parser.add_argument("--repeats", type=int, default=2, help="calls of which the least time counts")
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {"time": [], "memory": []}
    job: dict[str, Any] = {"method": "peps", "device": "cpu", "threads": 1}
    for seed in range(options.first, options.first + options.count):
        name, circuit, words, bond = case(seed)
        begin = time.process_time()
        (row,) = circuit.estimate(expectation=words, max_bond=bond, **job).rows
        estimate_s = time.process_time() - begin
        seconds, size = measured(circuit, words, options.repeats, max_bond=bond, **job)
        ratios["time"].append(seconds / row.cost.time_s)
        ratios["memory"].append(size / row.cost.memory_bytes)
        print(
            f"{seed} {name}: {seconds:.3f} s, {ratios['time'][-1]:.2f} of predicted; {size / 1e6:.2f} MB, "
            f"{ratios['memory'][-1]:.2f} of predicted; the estimate took {estimate_s:.3f} s", flush=True,
        )  # fmt: skip
    for key, values in ratios.items():
        quantiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).round(2).tolist()
        shares = [f"{np.mean(np.abs(np.log(values)) < np.log1p(g)):.2f} within {g:.0%}" for g in GOALS[key]]
        print(f"{key}: {quantiles}; {', '.join(shares)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
