"""The 127-qubit circuit of pauli.py at several angles by unbiased resampling, beside published values.

Usage: python benchmarks/pauli/pauli_sampled.py [--angles 0.3,...] [--terms 1000000] [--repetitions 8]
       [--layers 20] [--seed 1] [--device gpu] [-o results.json]
Goal: a standard error for the values that cuts do not converge on one GPU (pauli_angles.py). With fewer
layers than 20 there is no published value; the value beside is then that of cuts of 2^-18 after merging.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import date
from pathlib import Path
from typing import Any

import pauli_circuits as circuits
from pauli import environment
from pauli_angles import CONVERGED, LAYERS

from tnplan.executor.observables.pauli_sum import parse
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.sampling.estimate import estimate_of, nothing_met
from tnplan.executor.pauli.sampling.repetitions import MonteCarlo, linear_task, repetition
from tnplan.executor.pauli.terms.truncation import Truncation

CUT = 2.0**-18
ANGLES = "0.3,0.4,0.5,0.6,0.7,0.8,1.0"


def row(angle: float, options: argparse.Namespace) -> dict[str, Any]:
    """The estimate at one angle, printed."""
    steps, start = circuits.steps_of(circuits.eagle(angle, options.layers)), parse("Z62", 127)
    task, plan = (
        linear_task(steps, start, None, options.device),
        MonteCarlo(options.repetitions, options.seed),
    )
    begin = time.perf_counter()
    done = [repetition(task, plan, options.terms, number) for number in range(plan.repetitions)]
    time_s = time.perf_counter() - begin
    beside = CONVERGED[angle]
    if options.layers != LAYERS:
        use = Resources(device=options.device)
        beside = float(propagate(steps, start, Truncation(merged_cut=CUT), use, keep="none").value.real)
    values = [one.value for one in done]
    found = estimate_of(values, "unbiased") if any(values) else nothing_met(len(values), 1.0)
    print(
        f"{angle:4} {found.value:+.4f}, standard error {found.standard_error:.2g}, "
        f"{options.layers} layers, beside {beside:.4f}, "
        f"{time_s:.1f} s, resampled {done[0].resampled} times, values "
        + " ".join(f"{value:.4f}" for value in found.values), flush=True,
    )  # fmt: skip
    return {
        "angle": angle, "terms": options.terms, "repetitions": plan.repetitions, "seed": plan.seed,
        "kind": found.kind, "value": found.value, "standard_error": found.standard_error,
        "low": found.low, "high": found.high,
        "layers": options.layers, "beside": beside, "values": found.values, "time_s": time_s,
        "resampled": [one.resampled for one in done], "largest_terms": max(one.largest for one in done),
    }  # fmt: skip


def main() -> None:
    """Print a table and write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--angles", default=ANGLES)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--terms", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    where, rows = environment(options.device), []
    for angle in map(float, options.angles.split(",")):
        rows.append(row(angle, options))
        if options.output:
            report = {"date": date.today().isoformat(), "environment": where, "rows": rows}
            options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
