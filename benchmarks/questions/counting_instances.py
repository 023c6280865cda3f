"""Random instances of all combinatorial questions beside all of their configurations, on a CPU or a GPU.

    python benchmarks/questions/counting_instances.py [--device gpu] [--first 6000] [--count 1020]

Each instance is asked every question by one of three ways: contraction trees, sliced trees, and residues
modulo primes. Goal: 1,020 instances, no wrong answer. Prints the wrong ones and a line of JSON; the exit
status is 1 where there is a wrong one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.oracles.configurations import PROBLEMS, random_instance
from tests.support.engines.counting_checks import check, residues, slices, trees

WAYS = {"trees": trees, "slices": slices, "residues": residues}


def ask(device: str, seed: int) -> tuple[str, int, str]:
    """The way that an instance was asked, its calls, and what was wrong."""
    problem, way = PROBLEMS[seed % len(PROBLEMS)], list(WAYS)[seed // len(PROBLEMS) % len(WAYS)]
    try:
        with WAYS[way]():
            return way, check(random_instance(problem, seed), seed, device), ""
    except Exception as error:
        return way, 0, f"{problem}, seed {seed}, {way}: {type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--first", type=int, default=6000, help="the first seed")
    parser.add_argument("--count", type=int, default=1020)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    start, ways, calls, wrong = time.perf_counter(), Counter[str](), 0, list[str]()
    seeds = range(given.first, given.first + given.count)
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        for way, asked, what in pool.map(partial(ask, given.device), seeds, chunksize=4):
            ways[way] += 1
            calls += asked
            if what:
                wrong.append(what)
                print(what, flush=True)
    row = {"device": given.device, "instances": dict(ways), "calls": calls, "wrong": len(wrong), "goal": 0}
    print(json.dumps({**row, "seconds": round(time.perf_counter() - start, 1)}))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
