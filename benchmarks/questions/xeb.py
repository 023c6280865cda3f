"""Samples of a linear cross-entropy: predicted, beside what exact probabilities of the same strings say.

    python benchmarks/questions/xeb.py --seeds 0 40 [--rows 3 --columns 4] [--layers 16] [--gates haar]

A line a seed and target, on one core: random circuits of a rectangular lattice, sliced further than they
need, of which the share is summed that the target asks for. z is the difference over the predicted standard
error. Goal: |z| of at most 3.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from math import ceil
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
TARGETS = (1.0, 0.1, 0.01)


def circuit_of(gates: str, rows: int, columns: int, layers: int, seed: int) -> Any:
    """Layers of Haar-random gates on pairs, or of random rotations and gates of one kind."""
    from tests.support.circuit_families import rotations_and
    from tnplan.planner.workloads.lattice import lattice_circuit

    if gates == "haar":
        return lattice_circuit("rectangular", rows, columns, layers, seed)
    return rotations_and(gates, rows, columns, layers, seed)


def cases(options: argparse.Namespace, seed: int) -> Any:
    """The rows of a seed."""
    from tests.support.circuits import state_vector
    from tnplan.common.errors import InputError
    from tnplan.jobs.arrays.options import ContractionOptions
    from tnplan.questions.engines.task_list import linear_xeb
    from tnplan.questions.tensor_networks import samples_by_xeb

    n = options.rows * options.columns
    circuit = circuit_of(options.gates, options.rows, options.columns, options.layers, seed)
    chances = np.abs(state_vector(circuit).reshape(-1)) ** 2
    use = ContractionOptions(device="cpu", threads=1, precision="fp32")
    for target in TARGETS:
        begin, row = process_time(), {"seed": seed, "target": target}
        random = np.random.default_rng(seed)
        plan = samples_by_xeb.plan_bunches(circuit, options.shots, target, random, use)
        assert plan is not None
        # Small circuits have one slice. More are made, and the share that the target needs is taken of them.
        share = min(1.0, target / samples_by_xeb.raised_by(2**plan.n_open))
        plan.state.slice_more(max(options.slices, ceil(2 / share)))
        plan = replace(plan, n_slices=ceil(share * plan.state.plan.n_slices))
        try:
            found = samples_by_xeb.draw_along(plan, circuit, target)
        except InputError as error:
            yield row | {"refused": str(error)[:70]}
            continue
        values = chances[found.bitstrings @ (1 << np.arange(n - 1, -1, -1))]
        measured, error_of_mean = linear_xeb(values, n)
        difference = measured - found.xeb
        yield row | {
            "best_of": found.best_of, "slices": plan.state.plan.n_slices, "share": found.share,
            "fidelity": found.fidelity, "predicted": found.xeb, "error": found.error, "xeb": measured,
            "xeb_error": error_of_mean, "z": difference / found.error, "s": process_time() - begin,
        }  # fmt: skip


MOST_Z = 3.0


def main() -> int:
    """Print the rows, and how many hold; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 40))
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--gates", choices=("haar", "cz", "fs"), default="haar")
    parser.add_argument("--shots", type=int, default=1000)
    parser.add_argument("--slices", type=int, default=16, help="the fewest")
    options = parser.parse_args()
    rows = []
    for seed in range(*options.seeds):
        for row in cases(options, seed):
            rows.append(row)
            print(
                json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}),
                flush=True,
            )
    for target in TARGETS:
        z = [row["z"] for row in rows if row["target"] == target and "z" in row]
        refused = sum("refused" in row for row in rows if row["target"] == target)
        if z:
            print(f"{target}: {len(z)} cases, {refused} refused, rms z {np.sqrt(np.mean(np.square(z))):.2f}, "
                  f"largest {np.abs(z).max():.2f}, within 3 {np.mean(np.abs(z) <= 3):.1%}, "
                  f"mean z {np.mean(z):.2f}")  # fmt: skip
    missed = any(abs(row["z"]) > MOST_Z for row in rows if "z" in row)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
