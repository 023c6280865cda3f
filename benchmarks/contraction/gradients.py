"""Time and memory of a contraction with all of its gradients, beside those of the contraction alone.

    python benchmarks/contraction/gradients.py [--device cpu] [-o results.json]

Goals: the backward pass takes at most 3 times the time of the forward pass; the arena is what was predicted,
also under a limit at which values are made again. The least of several calls: processor time of one thread of
a CPU, or time of a call on a GPU, to which tensors are brought, and from which results come back.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from shared import PATHS, RESULTS

import tnplan
from tnplan.common.files import write_text
from tnplan.executor.contraction.bind.program import arena_bytes
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.jobs.arrays.gradient_calls import GradientCalls, GradientPlan
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.networks.tensors import random_tensors

NAMES = (
    "sycamore_n53_m10_unsliced_flops", "sycamore_n53_m10_b22_flops",
    "peps_11x11_unsliced_flops", "peps_11x11_b21_flops",
)  # fmt: skip
GOAL = 3.0
"""Times the forward time that the way back may take."""
SHARES = (1.0, 0.65)
"""Of the memory that keeping everything takes."""


CLOCKS = {"cpu": ("cpu_s", time.process_time), "gpu": ("gpu_s", time.perf_counter)}
PROFILES = {"cpu": "cpu", "gpu": "h100-nvlink"}


def least_s(call: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    """The least time of some calls, after one that is not counted."""
    call()
    found = []
    for _ in range(calls):
        start = clock()
        call()
        found.append(clock() - start)
    return min(found)


def rows_of(name: str, calls: int, device: str) -> list[dict[str, Any]]:
    """The figures of a network: a row for each limit."""
    path = load_path(PATHS / f"{name}.json")
    arrays, (unit, clock) = random_tensors(path.network, path.dtype, 0), CLOCKS[device]
    options = ContractionOptions(device=device, threads=1)
    with blas_threads(1), tnplan.compile(path, device=device, threads=1, memory=inf) as contraction:
        forward_s = least_s(lambda: contraction(*arrays), calls, clock)
        forward_bytes = arena_bytes(contraction.schedule)
    profile, wrt, rows = load_profile(PROFILES[device]), range(len(arrays)), []
    whole_bytes = arena_bytes(GradientPlan(path, profile, inf).schedule(options, wrt))
    cotangent = np.ones(contraction.schedule.output_shape, path.dtype)
    for share in SHARES:
        try:
            schedule = GradientPlan(path, profile, share * whole_bytes).schedule(options, wrt)
        except tnplan.InputError as refusal:
            rows.append({"network": name, "share": share, "refused": str(refusal)})
            continue
        calls_of = GradientCalls(schedule, options, {})
        with blas_threads(1):
            values = dict(enumerate(arrays))
            both_s = least_s(lambda: calls_of.call(values, cotangent), calls, clock)  # noqa: B023
        calls_of.close()
        rows.append(
            {
                "network": name,
                "slices": schedule.n_slices,
                "share": share,
                f"forward_{unit}": forward_s,
                f"backward_{unit}": both_s - forward_s,
                "backward_over_forward": both_s / forward_s - 1.0,
                "operations_over_forward": schedule.operations / contraction.schedule.operations - 1.0,
                "forward_mib": forward_bytes / 2**20,
                "arena_mib": arena_bytes(schedule) / 2**20,
                "limit_mib": share * whole_bytes / 2**20,
            }
        )
    return rows


def main() -> int:
    """Measure, print and write; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, help="paths in paths/, without .json")
    parser.add_argument("--device", choices=tuple(CLOCKS), default="cpu")
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "gradients.json")
    options = parser.parse_args()
    rows = []
    for name in options.names:
        for row in rows_of(name, options.calls, options.device):
            rows.append(row)
            print(json.dumps(row))
    facts = {
        "device": options.device,
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "numpy": np.__version__,
    }
    write_text(
        options.output,
        json.dumps({**facts, "date": time.strftime("%Y-%m-%d"), "rows": rows}, indent=1) + "\n",
    )
    missed = any(
        row["backward_over_forward"] > GOAL or row["arena_mib"] > row["limit_mib"]
        for row in rows
        if "refused" not in row
    )
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
