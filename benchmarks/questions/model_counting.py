"""Weighted and plain model counting beside Ganak (pyganak), and MaxSAT, on random formulas of a band.

    pip install pyganak
    OMP_NUM_THREADS=1 python benchmarks/questions/model_counting.py
    OMP_NUM_THREADS=1 python benchmarks/questions/model_counting.py --instances 10 --variables 150 --window 14

Clauses have three literals of near variables. A line an instance: whether the numbers agree, and the
processor seconds of both, reading included. Weighted counts agree where they differ by 1e-12 of themselves at
most: Ganak gives a number of floating point, and tnplan a fraction. Kernels are compiled beforehand.
Goal: all agree.
"""

from __future__ import annotations

import argparse
import random
import sys
from time import process_time
from typing import Any


def formula(seed: int, n: int, window: int, per_variable: float) -> list[list[int]]:
    """Clauses of three variables within a window, in random order; any variable is in one."""
    chance = random.Random(seed)
    clauses = [[k, -k] for k in range(1, n + 1)]
    for _ in range(int(per_variable * n)):
        first = chance.randint(1, n - window + 1)
        names = chance.sample(range(first, first + window), 3)
        clauses.append([name * chance.choice((1, -1)) for name in names])
    chance.shuffle(clauses)
    return clauses


def random_weights(seed: int, n: int) -> dict[int, float]:
    """A weight with three decimals for each literal."""
    chance = random.Random(seed)
    return {sign * k: chance.randint(1, 999) / 1000 for k in range(1, n + 1) for sign in (1, -1)}


def by_ganak(clauses: list[list[int]], n: int, weights: dict[int, float] | None) -> Any:
    """The count of Ganak."""
    import pyganak

    counter = pyganak.Counter() if weights is None else pyganak.WeightedCounter()
    counter.new_vars(n)
    counter.add_clauses(clauses)
    for literal, weight in (weights or {}).items():
        counter.set_lit_weight(literal, weight)
    return counter.count()


def main() -> int:
    """Do the instances, one after the other; 1 where a goal is missed."""
    import tnplan

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--variables", type=int, default=100)
    parser.add_argument("--window", type=int, default=10, help="how far apart variables of a clause are")
    parser.add_argument("--clauses", type=float, default=2.0, help="for each variable")
    options = parser.parse_args()
    n, threads = options.variables, {"threads": 1}
    tnplan.count("sat", [[1, 2]], weights={1: 2, -1: 3}, **threads)
    tnplan.optimize("sat", [[1, 2]], **threads)
    totals = dict.fromkeys(("count", "Ganak's", "weighted", "Ganak's weighted", "MaxSAT"), 0.0)
    n_equal = 0
    for seed in range(options.instances):
        clauses = formula(seed, n, options.window, options.clauses)
        weights = random_weights(seed, n)
        calls: list[Any] = [
            lambda c=clauses: tnplan.count("sat", c, **threads).value,
            lambda c=clauses: by_ganak(c, n, None),
            lambda c=clauses, w=weights: tnplan.count("sat", c, weights=w, **threads).value,
            lambda c=clauses, w=weights: by_ganak(c, n, w),
            lambda c=clauses: tnplan.optimize("sat", c, **threads),
        ]
        results, seconds = [], []
        for name, call in zip(totals, calls, strict=True):
            begin = process_time()
            results.append(call())
            seconds.append(process_time() - begin)
            totals[name] += seconds[-1]
        number, ganaks, weighted, ganaks_weighted, best = results
        is_equal = number == ganaks and abs(float(weighted) - ganaks_weighted) <= 1e-12 * ganaks_weighted
        n_equal += is_equal
        times = ", ".join(f"{name} {each:.3f} s" for name, each in zip(totals, seconds, strict=True))
        text = f"{float(number):.3e}, {float(weighted):.3e}, {best.value} of {len(clauses)} clauses"
        print(f"{seed}: {'equal' if is_equal else 'NOT EQUAL'}: {text}: {times}", flush=True)
    print(f"{n_equal} of {options.instances} equal; processor seconds together: "
          + ", ".join(f"{name} {each:.2f}" for name, each in totals.items()))  # fmt: skip
    missed = n_equal < options.instances
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
