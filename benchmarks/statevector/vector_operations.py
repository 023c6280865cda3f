"""Every operation of `vector_operations` beside its plain loop, in pairs: how much longer the loop takes.

Both run over the same 1024 numbers in the nearest cache, compiled with the same options, one after the other
in turn. Goal: an operation that gains less than 10 % goes, and the plain loop stays.

Usage: python benchmarks/statevector/vector_operations.py [--only rotate] [--pairs 40]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.kernels.plain_operations import CALLS, driver, operands_of, plain_operations
from tnplan.common.kernels import vector_operations

REPEATS, BEST_OF = 400, 3
GOAL = 1.1
SMALL = 1e-3
"""States are so small that sums do not overflow, however often they grow."""


def seconds(run: Callable[..., None], operands: list[Any]) -> float:
    """The least of a few runs: the machine is shared."""
    taken = []
    for _ in range(BEST_OF):
        begin = time.perf_counter()
        run(*operands)
        taken.append(time.perf_counter() - begin)
    return min(taken)


def ratios(name: str, dtype: str, pairs: int) -> Any:
    """The plain loop's time over the operation's, pair by pair, the first of a pair in turn."""
    lanes = vector_operations.VECTOR_BYTES // np.dtype(dtype).itemsize
    operation = getattr(vector_operations, name.partition(" ")[0]).value
    plain = numba.njit(plain_operations(lanes)[name], fastmath={"contract"}, error_model="numpy")
    runs = [driver(CALLS[name], step, lanes, REPEATS) for step in (operation, plain)]
    operands = operands_of(dtype, 1)
    for array in (*operands[0], *operands[1]):
        array *= SMALL
    for run in runs:
        run(*operands)
    found = []
    for number in range(pairs):
        order = (0, 1) if number % 2 else (1, 0)
        times = {which: seconds(runs[which], operands) for which in order}
        found.append(times[1] / times[0])
    return np.array(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="operations whose names have this in them")
    parser.add_argument("--pairs", type=int, default=40)
    given = parser.parse_args()
    useless = []
    for dtype in ("float64", "float32"):
        lanes = vector_operations.VECTOR_BYTES // np.dtype(dtype).itemsize
        for name in plain_operations(lanes):
            if given.only in name:
                low, middle, high = np.percentile(ratios(name, dtype, given.pairs), [25, 50, 75])
                useless += [name] if middle < GOAL else []
                print(f"{dtype} {name}: {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)
    missed = bool(useless)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
