"""The 127-qubit circuit of pauli.py at several angles, at cuts 2 times smaller each, beside converged values.

Usage: python benchmarks/pauli/pauli_angles.py [--angles 0.1,...] [--cuts both|merged] [--least 12]
       [--seconds 20] [--device gpu] [-o results.json]
Cuts are 2^-least at first, before and after merging or after it alone. An angle ends after a run that took
more than SECONDS / 4, since the next may take four times as long, or where the terms do not fit. Goal: the
last value of each angle is within 0.001 of the converged one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pauli_circuits as circuits
from pauli import environment

from tnplan.circuits.pauli_sum import parse
from tnplan.common.errors import InputError
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.truncation import Truncation

LAYERS = 20
CONVERGED = {
    0.1: 0.995725, 0.2: 0.978569, 0.3: 0.922777, 0.4: 0.854939, 0.5: 0.779003, 0.6: 0.609395, 0.7: 0.425782,
    0.8: 0.209009, 1.0: 0.011625,
}  # fmt: skip
"""<Z62> after 20 layers by the angle of RX, as published by others from tensor networks."""
GROWTH = 4.0
CLOSE = 1e-3
"""How near the last value of an angle is to be."""


def at_angle(angle: float, cuts: str, least: int, use: Resources, seconds: float) -> list[dict[str, Any]]:
    """The rows of one angle, printed."""
    steps, start = circuits.steps_of(circuits.eagle(angle, LAYERS)), parse("Z62", 127)
    rows: list[dict[str, Any]] = []
    for power in range(least, 40):
        begin, cut = time.perf_counter(), 2.0**-power
        limits = Truncation(cut if cuts == "both" else 0.0, cut)
        try:
            done = propagate(steps, start, limits, use, keep="none")
        except InputError as error:
            print(f"{angle} ends before 2^-{power}: {error}", flush=True)
            break
        time_s = time.perf_counter() - begin
        rows.append({
            "angle": angle, "cuts": cuts, "power": power, "value": done.value, "converged": CONVERGED[angle],
            "terms": done.n_terms, "largest": max(done.record.before), "time_s": time_s,
            "visits_per_s": done.visits / time_s,
            "dropped_l1": done.dropped.l1, "dropped_l2": done.dropped.l2,
        })  # fmt: skip
        print(
            f"{angle:4} {cuts} 2^-{power} {done.value:.6f} ({done.value - CONVERGED[angle]:+.6f})"
            f"{done.n_terms:>14,} terms, at most {max(done.record.before):>13,}{time_s:9.2f} s", flush=True,
        )  # fmt: skip
        if time_s * GROWTH > seconds:
            break
    return rows


def main() -> int:
    """Print a table and write it; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--angles", default=",".join(map(str, CONVERGED)))
    parser.add_argument("--cuts", choices=("both", "merged"), default="merged")
    parser.add_argument("--least", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    use = Resources(device=options.device)
    where = environment(options.device)
    rows: list[dict[str, Any]] = []
    for angle in map(float, options.angles.split(",")):
        rows += at_angle(angle, options.cuts, options.least, use, options.seconds)
        if options.output:
            options.output.write_text(json.dumps({"environment": where, "rows": rows}, indent=1) + "\n")
    last = {row["angle"]: row for row in rows}.values()
    missed = any(abs(row["value"] - row["converged"]) > CLOSE for row in last)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
