"""The 127-qubit circuit of pauli.py at several angles by unbiased resampling, beside published values.

Usage: python benchmarks/pauli/pauli_sampled.py [--angles 0.3,...] [--terms 1000000] [--repetitions 8]
       [--by letters] [--layers 20,10] [--seed 1] [--seconds 20] [--device gpu] [--budget 600]
       [--rows 0.3:12:4e6,0.5:8:1e6] [-o results.json]
Goal: an interval for each value that cuts do not converge on one GPU (pauli_angles.py). With fewer
layers than 20 there is no published value; the value beside is then that of cuts of 2^-POWER after merging,
2^-18 by default. ROWS, each an angle, layers and terms, are done instead of all angles with all layers. A row
ends early, after two repetitions or more, once it has taken SECONDS; no row begins after BUDGET seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import pauli_circuits as circuits
from pauli import environment
from pauli_angles import CONVERGED, LAYERS

from tnplan.circuits.pauli_sum import parse
from tnplan.executor.pauli.estimate import estimate_of, nothing_met
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.repetitions import MonteCarlo, linear_task, repetition
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.pauli_sampling import DOUBTS

ANGLES = "0.3,0.4,0.5,0.6,0.7,0.8,1.0"


def row(angle: float, layers: int, terms: int, options: argparse.Namespace) -> dict[str, Any]:
    """The estimate at one angle, printed."""
    steps, start = circuits.steps_of(circuits.eagle(angle, layers)), parse("Z62", 127)
    plan = MonteCarlo(options.repetitions, options.seed, options.by)
    task = linear_task(steps, start, None, options.device, keep_cliffords=options.by == "letters")
    begin, done = time.perf_counter(), []
    while len(done) < plan.repetitions and (len(done) < 2 or time.perf_counter() - begin < options.seconds):
        done.append(repetition(task, plan, terms, len(done)))
    time_s = time.perf_counter() - begin
    beside = CONVERGED[angle]
    if layers != LAYERS:
        use = Resources(device=options.device)
        beside = float(
            propagate(steps, start, Truncation(merged_cut=2.0**-options.power), use, keep="none").value.real
        )
    values = [one.value for one in done]
    doubt = DOUBTS.get(plan.by, "")
    found = estimate_of(values, farthest=1.0, doubt=doubt) if any(values) else nothing_met(len(values), 1.0)
    print(
        f"{angle:4} {found.value:+.4f}, standard error {found.standard_error:.2g}, "
        f"{layers} layers, {terms} terms by {plan.by}, beside {beside:.6f}, {found.text}, "
        f"{time_s:.1f} s, resampled {done[0].resampled} times, values "
        + " ".join(f"{value:.4f}" for value in found.values), flush=True,
    )  # fmt: skip
    return {
        "angle": angle, "terms": terms, "repetitions": len(done), "seed": plan.seed, "by": plan.by,
        "kind": found.kind, "doubt": found.doubt, "value": found.value,
        "standard_error": found.standard_error, "low": found.low, "high": found.high,
        "layers": layers, "beside": beside, "power": options.power, "values": found.values, "time_s": time_s,
        "resampled": [one.resampled for one in done], "largest_terms": max(one.largest for one in done),
    }  # fmt: skip


def main() -> int:
    """Print a table and write it; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--angles", default=ANGLES)
    parser.add_argument("--layers", default=str(LAYERS))
    parser.add_argument("--by", choices=("magnitude", "letters"), default="letters")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rows", default="")
    parser.add_argument("--power", type=int, default=18)
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--terms", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    where, rows, begin = environment(options.device), [], time.perf_counter()
    angles, depths = options.angles.split(","), options.layers.split(",")
    asked = [(angle, layers, options.terms) for layers, angle in product(depths, angles)]
    if options.rows:
        asked = [one.split(":") for one in options.rows.split(",")]
    for angle, layers, terms in asked:
        if time.perf_counter() - begin > options.budget:
            print(f"no time for {angle} with {layers} layers", flush=True)
            continue
        rows.append(row(float(angle), int(layers), int(float(terms)), options))
        if options.output:
            report = {"date": date.today().isoformat(), "environment": where, "rows": rows}
            options.output.write_text(json.dumps(report, indent=1) + "\n")
    missed = any(row["low"] is None for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
