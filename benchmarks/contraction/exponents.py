"""Time of a compiled contraction with exponents, beside that of the same one without.

    python benchmarks/contraction/exponents.py [--device gpu] [-o results.json] [NAME ...]

Goal: 1.1 times the time. Calls of both kinds are made in turn, with tensors of the host, and results come
back to it: their medians and their least. The values are compared too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from shared import PATHS, RESULTS

import tnplan
from tnplan.common.files import write_text
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.networks.tensors import random_tensors

NAMES = ("sycamore_n53_m10_b24_flops", "regular_84_3_unsliced_flops", "peps_11x11_unsliced_flops")
KINDS = ("plain", "exponents")
IN_A_ROW = 3
"""Calls of a kind before those of the other."""

GOAL = 1.1
"""The time with exponents, in parts of that without."""


def row_of(name: str, device: str, rounds: int) -> dict[str, Any]:
    """The figures of a network."""
    path = load_path(PATHS / f"{name}.json")
    arrays = random_tensors(path.network, path.dtype, 0)
    limits: dict[str, Any] = {"device": device, "threads": 1}
    with (
        tnplan.compile(path, memory=inf, **limits) as plain,
        tnplan.compile(path, memory=inf, strip_exponent=True, **limits) as stripped,
    ):
        for _ in range(IN_A_ROW):
            wanted, (mantissa, exponent) = plain(*arrays), stripped(*arrays)
        found: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind, contraction in zip(KINDS, (plain, stripped), strict=True):
                for _ in range(IN_A_ROW):
                    start = time.perf_counter()
                    contraction(*arrays)
                    found[kind].append(time.perf_counter() - start)
    times = {f"{kind}_ms": median(found[kind]) * 1e3 for kind in KINDS}
    least = {f"{kind}_least_ms": min(found[kind]) * 1e3 for kind in KINDS}
    apart = np.abs(mantissa * 10.0**exponent - wanted).max() / np.abs(wanted).max()
    return {
        "network": name, "dtype": path.dtype, **times, **least, "difference": float(apart),
        "ratio": times["exponents_ms"] / times["plain_ms"],
    }  # fmt: skip


def machine(device: str) -> str:
    """The name of what computes."""
    if device == "cpu":
        return platform.processor() or platform.machine()
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())


def main() -> int:
    """Measure, print and write; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, help="paths in paths/, without .json")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "exponents_gpu.json")
    options = parser.parse_args()
    rows = []
    for name in options.names:
        rows.append(row_of(name, options.device, options.rounds))
        print(json.dumps(rows[-1]), flush=True)
    facts = {"device": options.device, "machine": machine(options.device), "cores": os.cpu_count()}
    document = {**facts, "numpy": np.__version__, "date": time.strftime("%Y-%m-%d"), "rows": rows}
    write_text(options.output, json.dumps(document, indent=1) + "\n")
    missed = any(row["ratio"] > GOAL for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
