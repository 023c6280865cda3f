"""Samples of a linear cross-entropy: predicted, beside what exact probabilities of the same strings say.

    python benchmarks/questions/xeb.py --seeds 0 40 [--rows 3 --columns 4] [--layers 16] [--gates haar]
    python benchmarks/questions/xeb.py --device gpu --seeds 0 1 --gates sycamore --rows 6 --columns 6
        --layers 14 --shots 100000 [--exact contraction] [--plan-only --memory 135e9]

A line a seed and target. z is the difference over the predicted standard error. Goal: |z| of at most 3.

On one core: random circuits of a rectangular lattice, sliced further than they need, of which the share is
summed that the target asks for; exact probabilities are of a dense state. With `--device`: as users sample,
with no more slices than the target needs; exact probabilities are amplitudes in double precision, of another
search and seed. `--gates sycamore`: a patch of that chip with rows x columns qubits and so many cycles.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from math import ceil, log10
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
import tnplan
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.workloads.lattice import lattice_circuit
from tnplan.planner.workloads.sycamore import sycamore_circuit
from tnplan.questions.engines.task_list import linear_xeb
from tnplan.questions.tensor_networks import samples_by_xeb

TARGETS = (1.0, 0.1, 0.01)
GOAL = 3.0


def circuit_of(gates: str, rows: int, columns: int, layers: int, seed: int) -> Any:
    """Layers of Haar-random gates on pairs, or of random rotations and gates of one kind."""
    if gates == "sycamore":
        return sycamore_circuit(layers, seed, rows * columns)
    if gates == "haar":
        return lattice_circuit("rectangular", rows, columns, layers, seed)
    from tests.support.circuit_families import rotations_and

    return rotations_and(gates, rows, columns, layers, seed)


def cases(options: argparse.Namespace, seed: int) -> Any:
    """The rows of a seed."""
    from tests.support.circuits import state_vector

    n = options.rows * options.columns
    circuit = circuit_of(options.gates, options.rows, options.columns, options.layers, seed)
    chances = np.abs(state_vector(circuit).reshape(-1)) ** 2
    use = ContractionOptions(device="cpu", threads=1, precision="fp32")
    for target in options.targets:
        begin, row = process_time(), {"seed": seed, "target": target}
        random = np.random.default_rng(seed)
        plan = samples_by_xeb.plan_bunches(circuit, options.shots, target, random, use)
        assert plan is not None
        # Small circuits have one slice. More are made, and the share that the target needs is taken of them.
        share = min(1.0, target / samples_by_xeb.raised_by(2**plan.n_open))
        plan.state.slice_more(max(options.slices, ceil(samples_by_xeb.FAR_SLICES / share)))
        n_slices = samples_by_xeb.slices_for(share, plan.state.plan.n_slices)
        plan = replace(plan, n_slices=n_slices)
        try:
            found = samples_by_xeb.draw_along(plan, circuit, target)
        except tnplan.InputError as error:
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


def sampled(options: argparse.Namespace, seed: int) -> Any:
    """The rows of a seed, as users sample; exact probabilities of all strings come last."""
    circuit = circuit_of(options.gates, options.rows, options.columns, options.layers, seed)
    use = ContractionOptions(
        device=options.device, memory=options.memory, hardware=options.hardware, seed=seed
    )
    rows, found = [], []
    for target in options.targets:
        begin, random = perf_counter(), np.random.default_rng(seed)
        plan = samples_by_xeb.plan_bunches(circuit, options.shots, target, random, use)
        assert plan is not None
        state, planned = plan.state, perf_counter()
        row = {
            "seed": seed, "target": target, "best_of": 2**plan.n_open, "at_once": plan.at_once,
            "log10_products": log10(state.plan.products), "slices": state.plan.n_slices,
            "needed_GB": state.needed_bytes / 1e9, "precision": state.precision,
            "plan_s": planned - begin, "predicted_s": plan.time_s,
        }  # fmt: skip
        if options.plan_only:
            yield row
            continue
        try:
            samples = samples_by_xeb.draw_along(plan, circuit, target)
        except tnplan.InputError as error:
            yield row | {"refused": str(error)[:70]}
            continue
        found.append(samples.bitstrings)
        rows.append(row | {
            "draw_s": perf_counter() - planned, "share": samples.share, "fidelity": samples.fidelity,
            "predicted": samples.xeb, "error": samples.error,
        })  # fmt: skip
        print(shown(rows[-1]), file=sys.stderr, flush=True)
    if not found:
        return
    begin = perf_counter()
    exact = tnplan.Circuit(circuit).amplitudes(
        np.concatenate(found), method=options.exact, device=options.device, precision="fp64",
        memory=options.memory, seed=seed + 1,
    )  # fmt: skip
    exact_s = perf_counter() - begin
    for row, amplitudes in zip(rows, np.split(exact.value, len(rows)), strict=True):
        measured, error_of_mean = linear_xeb(np.abs(amplitudes) ** 2, circuit.n_qubits)
        z = (measured - row["predicted"]) / row["error"]
        yield row | {"xeb": measured, "xeb_error": error_of_mean, "z": z, "exact_s": exact_s}


def shown(row: dict[str, Any]) -> str:
    """A row as a line of JSON."""
    return json.dumps({key: float(f"{x:.4g}") if isinstance(x, float) else x for key, x in row.items()})


def main() -> int:
    """Print the rows, and how many hold; 1 where one is further off than the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 40))
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--gates", choices=("haar", "cz", "fs", "sycamore"), default="haar")
    parser.add_argument("--shots", type=int, default=1000)
    parser.add_argument("--targets", nargs="+", type=float, default=TARGETS)
    parser.add_argument("--slices", type=int, default=16, help="the fewest, without --device")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="sample as users do, on this device")
    parser.add_argument("--exact", choices=("contraction", "statevector"), default="contraction")
    parser.add_argument("--hardware", help="a profile; default: of the device")
    parser.add_argument("--memory", type=float, help="bytes; default: what is free")
    parser.add_argument("--plan-only", action="store_true", help="contract nothing; with --device")
    options = parser.parse_args()
    rows = []
    for seed in range(*options.seeds):
        for row in (sampled if options.device else cases)(options, seed):
            rows.append(row)
            print(shown(row), flush=True)
    largest = 0.0
    for target in options.targets:
        z = [row["z"] for row in rows if row["target"] == target and "z" in row]
        refused = sum("refused" in row for row in rows if row["target"] == target)
        if z:
            largest = max(largest, np.abs(z).max())
            print(f"{target}: {len(z)} cases, {refused} refused, rms z {np.sqrt(np.mean(np.square(z))):.2f}, "
                  f"largest {np.abs(z).max():.2f}, within {GOAL:g} {np.mean(np.abs(z) <= GOAL):.1%}, "
                  f"mean z {np.mean(z):.2f}")  # fmt: skip
    return int(largest > GOAL)


if __name__ == "__main__":
    sys.exit(main())
