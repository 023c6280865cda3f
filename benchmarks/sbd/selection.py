"""Selection of determinants on a GPU beside that of all cores: the same candidates, and the seconds of both.

    python benchmarks/sbd/selection.py FCIDUMP [--sizes 1e5,1e6] [--beside 1e6] [--correction 1e-6]

The list grows from the determinant of lowest orbitals by selections alone: a new determinant has the weight
|H c| / 2 Ha. epsilon is halved where a selection adds little. At each size of `--sizes` the GPU selects three
times, by turns with the cores up to `--beside` determinants, and candidates are compared bit for bit.
With `--correction` the second-order sum above that threshold is taken, too.
Goal: the GPU 10 times as fast as 16 cores. Exit status 1 where it is not, or where candidates differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import tnplan
from tnplan.common.system_calls import cores
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.sbd.selected_ci import shards
from tnplan.executor.sbd.selected_ci.connections import (
    Candidates,
    from_keys,
    member_keys,
    second_order,
    select,
)
from tnplan.executor.sbd.selected_ci.excitation_tables import excitation_tables
from tnplan.executor.sbd.selected_ci.shards import Workers

GOAL = 10.0
TURNS = 3
FIRST_EPSILON, LEAST_ELEMENT = 1e-3, 1e-9
LITTLE = 0.3
"""A selection of fewer candidates in those of the list adds little."""
GAP = 2.0
"""Ha, between a candidate and the state."""
ENERGY = -1e3
"""Ha, of the correction: below all determinants."""


def timed(work: Callable[[Workers], Any], on_gpu: Any, threads: int) -> tuple[Any, float]:
    """A result of one rank, and its seconds."""
    begin = perf_counter()
    memory_bytes = float(host_memory()[1])
    found = run_ranks(1, lambda group: work(Workers(group, threads, memory_bytes, on_gpu)))[0]
    return found, perf_counter() - begin


def is_same(candidates: Candidates, others: Candidates) -> bool:
    """Whether keys and sizes have the same bits."""
    return np.array_equal(candidates.keys, others.keys) and np.array_equal(candidates.sizes, others.sizes)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fcidump")
    parser.add_argument("--sizes", default="1e5,1e6", help="determinants of a list")
    parser.add_argument(
        "--beside", type=float, default=1e6, help="the largest list that cores select for, too"
    )
    parser.add_argument("--correction", type=float, help="the threshold of second-order terms, in Ha")
    parser.add_argument("--threads", type=int, default=cores())
    options = parser.parse_args()

    from tnplan.executor.sbd.cuda.coupling_steps import GpuCouplings

    gpu = partial(GpuCouplings, memory_bytes=np.inf)
    shards.SHORTEST = 1  # the GPU takes short lists, too
    integrals = tnplan.read_fcidump(options.fcidump)
    tables = excitation_tables(integrals, LEAST_ELEMENT, float(host_memory()[1]))
    lowest = [(1 << count) - 1 for count in (integrals.n_alpha, integrals.n_beta)]
    keys, weights, epsilon = np.array([lowest], np.uint64), np.ones(1), FIRST_EPSILON
    failed = False
    for size in (int(float(text)) for text in options.sizes.split(",")):
        while len(keys) < size:
            basis = from_keys(keys, integrals.n_orbitals)
            keys, weights = member_keys(basis), weights[basis.given]
            found, _ = timed(partial(select, basis, weights, epsilon, tables), gpu, options.threads)
            if len(found) > size - len(keys):
                found = found.largest(size - len(keys))
            elif len(found) < LITTLE * len(keys):
                epsilon /= 2
            keys = np.concatenate([keys, found.keys])
            weights = np.concatenate([weights, found.sizes / GAP])
        basis = from_keys(keys, integrals.n_orbitals)
        keys, weights = member_keys(basis), weights[basis.given]
        selection = partial(select, basis, weights, epsilon, tables)
        row: dict[str, Any] = {"determinants": len(basis), "epsilon": epsilon, "gpu_s": [], "cpu_s": []}
        for _ in range(TURNS):
            found, seconds = timed(selection, gpu, options.threads)
            row["candidates"] = len(found)
            row["gpu_s"].append(round(seconds, 4))
            if size <= options.beside:
                others, seconds = timed(selection, None, options.threads)
                row["cpu_s"].append(round(seconds, 4))
                row["is_same"] = is_same(found, others)
                failed |= not row["is_same"]
        if row["cpu_s"]:
            row["ratio"] = median(row["cpu_s"]) / median(row["gpu_s"])
            failed |= row["ratio"] < GOAL
        if options.correction:
            state = weights / np.linalg.norm(weights)
            work = partial(second_order, basis, state, ENERGY, options.correction, tables)
            made, row["correction_gpu_s"] = timed(work, gpu, options.threads)
            row |= {"correction": made.energy, "outside": made.determinants}
        print(json.dumps(row), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
