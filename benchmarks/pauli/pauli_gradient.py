"""The gradient of the 127-qubit circuit of pauli.py by all rotation angles, on a GPU beside one CPU thread.

    python benchmarks/pauli/pauli_gradient.py [--devices cpu gpu] [--cuts EXPONENT ...] [-o results.json]

Goal: a GPU takes at most 1/20 of one thread's time, with derivatives that differ by 1e-6 at most. Branches
and terms are cut at 2^-EXPONENT. A GPU does everything twice; the first time loads kernels and takes memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pauli_circuits as circuits

from tnplan.circuits.pauli_sum import parse
from tnplan.executor.pauli.gradient import gradient
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.truncation import Truncation

RESULTS = Path(__file__).resolve().parents[1] / "results" / "pauli"
ANGLE, LAYERS = 0.7, 20

TIMES_FASTER, SAME = 20.0, 1e-6
"""Goals of a GPU beside one thread."""


def measured(devices: list[str], exponent: int, precision: str) -> dict[str, Any]:
    """The times of each device in seconds, and how far the derivatives of the last are from the first's."""
    steps, start = circuits.steps_of(circuits.eagle(ANGLE, LAYERS)), parse("Z62", 127)
    cut = 2.0**-exponent
    row: dict[str, Any] = {"cut": cut, "rotations": len(steps), "precision": precision}
    found = []
    for device in devices:
        for turn in ("first_gpu", "gpu") if device == "gpu" else ("cpu",):
            begin = time.perf_counter()
            use = Resources(device=device, precision=precision)
            found.append(gradient(steps, start, Truncation(cut, cut), use))
            row[f"{turn}_s"] = time.perf_counter() - begin
    last = found[-1]
    row |= {"terms": last.n_terms, "value": last.value, "tape_bytes": last.tape_bytes}
    row["largest_difference"] = float(np.abs(last.derivatives - found[0].derivatives).max())
    if len(devices) == 2:
        row["times_faster"] = row[f"{devices[0]}_s"] / row[f"{devices[1]}_s"]
    return row


def main() -> int:
    """Measure, print and write; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", nargs="+", choices=("cpu", "gpu"), default=["cpu", "gpu"])
    parser.add_argument("--cuts", nargs="+", type=int, default=[10, 12])
    parser.add_argument("--precision", choices=("fp32", "fp64"), default="fp64")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "gradient.json")
    options = parser.parse_args()
    small = circuits.steps_of(circuits.eagle(ANGLE, 2))
    for device in options.devices:
        use = Resources(device=device, precision=options.precision)
        gradient(small, parse("Z62", 127), Truncation(1e-3, 1e-3), use)
    rows = []
    for exponent in options.cuts:
        rows.append(measured(options.devices, exponent, options.precision))
        print(json.dumps(rows[-1]), flush=True)
    document = {"date": time.strftime("%Y-%m-%d"), "rows": rows}
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    missed = any(
        row["largest_difference"] > SAME or row.get("times_faster", TIMES_FASTER) < TIMES_FASTER
        for row in rows
    )
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
