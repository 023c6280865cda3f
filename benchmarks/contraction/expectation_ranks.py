"""Many observables on 1, 2 and more ranks: how much faster a sum over light cones becomes.

    for P in 1 2 4; do mpirun -n $P python -m mpi4py benchmarks/contraction/expectation_ranks.py; done

The circuit: Haar-random gates on a 5 x 6 lattice, 8 layers, seed 0. The observables: words on two neighbours
of a row, each its own light cone, by contraction and one thread a rank. Seconds go from the circuit in hand
to all values, after one call of the same question that compiles kernels; the searched paths are remembered.
Rows of several runs gather in one file. Values are compared with those on one rank. Goal: 0.8 P times faster.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from shared import RESULTS

import tnplan
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.workloads.lattice import lattice_circuit

ROWS, COLUMNS, LAYERS = 5, 6, 8
GOAL = 0.8
TOLERANCE = 1e-10
REPEATS = 3


def words() -> list[str]:
    """A word on each pair of neighbours in a row."""
    letters = np.random.default_rng(0)
    pairs = [(row * COLUMNS + column, row * COLUMNS + column + 1)
             for row in range(ROWS) for column in range(COLUMNS - 1)]  # fmt: skip
    return [f"{a}{first} {b}{second}" for first, second in pairs for a, b in [letters.choice([*"XYZ"], 2)]]


def main() -> int:
    """Ask on the ranks that there are, and add a row to the file; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "expectation_ranks.json")
    given = parser.parse_args()
    world = world_communicator()
    n_ranks = 1 if world is None else world.size
    circuit = tnplan.Circuit(lattice_circuit("rectangular", ROWS, COLUMNS, LAYERS, 0))
    seconds: list[float] = []
    for _ in range(1 + REPEATS):
        begin = time.perf_counter()
        answer = circuit.expectation(words(), method="contraction", device="cpu", threads=1)
        seconds.append(time.perf_counter() - begin)
    if world is not None and world.rank:
        return 0
    document: dict[str, Any] = {"rows": {}}
    if given.output.exists():
        document = json.loads(given.output.read_text())
    values = np.asarray(answer.value).tolist()
    rows = document["rows"]
    rows[str(n_ranks)] = {"ranks": n_ranks, "seconds": sorted(seconds[1:]), "values": values}
    first = rows.get("1", rows[str(n_ranks)])
    speedup = min(first["seconds"]) / min(seconds[1:])
    error = float(np.abs(np.array(values) - first["values"]).max())
    assert error <= TOLERANCE, error
    rows[str(n_ranks)] |= {"speedup": speedup, "largest_difference": error}
    document |= {"date": str(date.today()), "environment": host_facts(), "goal": GOAL}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(values)} words on {n_ranks} ranks: {min(seconds[1:]):.3f} s, {speedup:.2f} times faster, "
          f"goal {GOAL * n_ranks:g}, difference {error:.1e}")  # fmt: skip
    missed = speedup < GOAL * n_ranks
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
