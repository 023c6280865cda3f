"""Seconds and bytes of contractions with a bond limit, beside those that `estimate` predicts.

    OMP_NUM_THREADS=1 python benchmarks/contraction/bond_limit_prediction.py --first 500 --count 30

Each seed is a lattice, an amplitude of a circuit, or a 3-regular or 4-regular graph, of normal numbers or of
uniform ones from -0.8, -0.5 or -0.2 to 1, with a limit of 8 to 64. Seconds of the processor for a whole call
whose order is known, the least of `--repeats`, and the peak of `tracemalloc`. The last lines have measured
over predicted: the least, the quartiles and the largest, and the shares of the seeds within some percent; of
all, and of those from `--least-s` and `--least-bytes` on. Below, Python's calls and objects are most of it.
Goals for these: the quartiles of the time within 15 %, those of the memory within 5 %.
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
from tests.support.bond_limited_cases import circuit, on_graph

GOALS = {"time": 0.15, "memory": 0.05}
LONGEST_S = 5.0


def case(seed: int) -> tuple[str, list[Any], int]:
    """What the network is, its arguments, and a limit."""
    random = np.random.default_rng(seed)
    kind, bond = ("lattice", "circuit", "graph")[seed % 3], int(random.choice([8, 12, 16, 24, 32, 48, 64]))
    if kind == "lattice":
        sides = [int(side) for side in random.integers(6, 13, 2)]
        arguments = on_graph(nx.grid_2d_graph(*sides), int(random.integers(2, 6)), random)
    elif kind == "circuit":
        sides = [int(random.integers(2, 5)), int(random.integers(4, 8))]
        arguments = circuit(random, nx.grid_2d_graph(*sides))
    else:
        degree = int(random.integers(3, 5))
        n = 2 * int(random.integers(12, 40 if degree == 3 else 16))
        extent = int(random.integers(2, 5 if degree == 3 else 4))
        sides, bond = [degree, n], min(bond, 32 if degree == 3 else 16)
        arguments = on_graph(nx.random_regular_graph(degree, n, seed=seed), extent, random)
    return f"{kind} {sides}", arguments, bond


def measured(arguments: list[Any], bond: int, repeats: int) -> tuple[float, float, Any]:
    """Seconds and bytes of the call, and its answer."""
    least = inf
    for _ in range(repeats):
        begin = time.process_time()
        found = tnplan.contract(*arguments, max_bond=bond)
        least = min(least, time.process_time() - begin)
    tracemalloc.start()
    tnplan.contract(*arguments, max_bond=bond)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return least, float(peak), found


def main() -> int:
    """Measure all seeds; 1 where a quartile misses its goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=500, help="the first seed")
    parser.add_argument("--count", type=int, default=30, help="how many seeds")
    parser.add_argument("--repeats", type=int, default=10, help="calls of which the least time counts")
    parser.add_argument("--least-s", type=float, default=0.02, help="seconds from which on time counts")
    parser.add_argument("--least-bytes", type=float, default=1e6, help="the same of memory")
    options = parser.parse_args()
    ratios: dict[str, list[tuple[float, bool]]] = {"time": [], "memory": []}
    for seed in range(options.first, options.first + options.count):
        name, arguments, bond = case(seed)
        predicted = tnplan.BondLimitedContraction.estimate(*arguments, max_bond=bond)
        if predicted.time_s > LONGEST_S:
            print(f"{seed} {name}, max_bond {bond}: {predicted.time_s:.0f} s predicted, not run")
            continue
        begin = time.process_time()
        predicted = tnplan.BondLimitedContraction.estimate(*arguments, max_bond=bond)
        estimate_s = time.process_time() - begin
        seconds, size, found = measured(arguments, bond, options.repeats)
        ratios["time"].append((seconds / predicted.time_s, seconds > options.least_s))
        ratios["memory"].append((size / predicted.memory_bytes, size > options.least_bytes))
        print(
            f"{seed} {name}, max_bond {bond}, {found.details['cuts']} cuts: {seconds:.4f} s, "
            f"{ratios['time'][-1][0]:.2f} of predicted; {size / 1e6:.2f} MB, "
            f"{ratios['memory'][-1][0]:.3f} of predicted; "
            f"the estimate took {estimate_s:.3f} s", flush=True,
        )  # fmt: skip
    missed = False
    for key, pairs in ratios.items():
        goal = GOALS[key]
        for is_large in (False, True):
            values = [ratio for ratio, counts in pairs if counts or not is_large]
            quantiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
            share = np.mean(np.abs(np.log(values)) < np.log1p(goal))
            name = f"{key}, {'large' if is_large else 'all'}, {len(values)}"
            print(f"{name}: {quantiles.round(3).tolist()}; {share:.2f} within {goal:.0%}")
            missed = missed or (is_large and bool((abs(quantiles[1:4] - 1) > goal).any()))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
