"""Counting and optimization on lattices: processor seconds on one core, and the numbers.

    OMP_NUM_THREADS=1 python benchmarks/questions/counting.py
    OMP_NUM_THREADS=1 python benchmarks/questions/counting.py --only ising --threads 2 --memory 9GiB

A line a case: what it takes, and what was found. Kernels are compiled beforehand.
Goal: a spin glass of 32 x 32 with its number of ground states in five minutes on two cores.
"""

from __future__ import annotations

import argparse
import random
import sys
from time import perf_counter, process_time
from typing import Any

CASES = [
    *(("count", "independent-sets", f"grid {n}x{n}") for n in (16, 20, 24)),
    *(("count", "independent-sets", f"king {n}x{n}") for n in (12, 20, 26)),
    *(("optimize", "independent-sets", f"king {n}x{n}") for n in (12, 20, 26)),
    ("count", "independent-sets", "grid 8x1000"), ("optimize", "independent-sets", "grid 8x1000"),
    *(("optimize", "ising", f"glass {n}") for n in (16, 24, 28, 32)),
]  # fmt: skip

GOAL_S, GOAL_CASE = 300.0, "optimize ising glass 32"
"""Seconds of two cores for the ground states of a spin glass of 32 x 32."""


def instance(name: str) -> Any:
    """A lattice by name, or a grid with couplings of 1 and -1, whose seed is its extent."""
    if not name.startswith("glass "):
        return name
    n = int(name.removeprefix("glass "))
    chance = random.Random(n)
    points = [(x, y) for x in range(n) for y in range(n)]
    near = [(point, (point[0] + x, point[1] + y)) for point in points for x, y in ((1, 0), (0, 1))]
    return [(*ends, chance.choice((1, -1))) for ends in near if max(ends[1]) < n]


def main() -> int:
    """Do the cases, one after the other; 1 where a goal is missed."""
    import tnplan

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose line has this text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", default="9GiB")
    options = parser.parse_args()
    for verb in (tnplan.count, tnplan.optimize):
        verb("independent-sets", "grid 4x4", threads=options.threads)
    took_s: dict[str, float] = {}
    for verb, problem, lattice in CASES:
        line = f"{verb} {problem} {lattice}"
        if options.only not in line:
            continue
        given, wall, begin = instance(lattice), perf_counter(), process_time()
        found = getattr(tnplan, verb)(problem, given, threads=options.threads, memory=options.memory)
        took_s[line] = perf_counter() - wall
        seconds = f"{process_time() - begin:.2f} s of processors, {perf_counter() - wall:.2f} s"
        digits = str(found.value)
        text = f"{digits[:12]}... of {len(digits)} digits"
        if verb == "optimize":
            text = f"{digits} attained by {found.n_optima}"
        print(f"{line}: {seconds}: {text}", flush=True)
    missed = took_s.get(GOAL_CASE, 0.0) > GOAL_S
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
