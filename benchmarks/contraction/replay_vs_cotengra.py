"""Times the replay on one CPU rank against cotengra's own contraction of the same tree and slices.

    python benchmarks/contraction/replay_vs_cotengra.py [PATH.json ...] [--threads N] [--repeats N]

Both contract the same arrays with the same number of BLAS threads, by turns in one run. The time is that of
the whole call, from arrays to result. Goal: ours takes at most 1.2 times as long.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from cotengra_check import cotengra_tree
from shared import PATHS, RESULTS
from threadpoolctl import threadpool_limits

from tnplan.calls.execute import execute
from tnplan.common.files import write_text
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.path_file import load_path, tensors_file
from tnplan.planner.networks.tensors import load_tensors
from tnplan.planner.passes.pipeline import plan

PATTERNS = ("sycamore_n53_m10_b24_flops.json", "peps_*.json", "regular_*.json")
GOAL = 1.2
TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12}


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and what it gave."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(file: Path, threads: int, repeats: int) -> dict[str, Any]:
    """Medians of both on one path, after one call of each to warm up; raises where the results differ."""
    path = load_path(file)
    tensors = tensors_file(file, path.tensors)
    if tensors is None:
        raise SystemExit(f"{file}: names no tensors")
    arrays = load_tensors(tensors, path.network, path.dtype)
    schedule = plan(path, load_profile("cpu"), memory_bytes=math.inf)
    tree = cotengra_tree(path)

    def ours() -> Any:
        return execute(schedule, arrays, ranks=1, device="cpu", threads=threads)

    def theirs() -> Any:
        with threadpool_limits(limits=threads, user_api="blas"):
            return tree.contract(arrays)

    run, expected = ours(), np.asarray(theirs())
    difference = float(np.linalg.norm(run.array - expected) / np.linalg.norm(expected))
    if not difference <= TOLERANCE[path.dtype]:
        raise SystemExit(f"{file}: the results differ by {difference:.2e}")
    seconds: dict[str, list[float]] = {"ours": [], "cotengra": []}
    for repeat in range(repeats):
        pair = [("ours", ours), ("cotengra", theirs)]
        for name, call in pair if repeat % 2 else reversed(pair):
            seconds[name].append(timed(call)[0])
    medians = {name: median(values) for name, values in seconds.items()}
    return {
        "path": file.name,
        "dtype": path.dtype,
        "slices": path.n_slices,
        "extents": sorted(set(path.network.size_dict.values())),
        "ours_s": medians["ours"],
        "cotengra_s": medians["cotengra"],
        "ratio": medians["ours"] / medians["cotengra"],
        "difference": difference,
        "all_s": seconds,
        "environment": run.report["environment"],
    }


def main() -> int:
    """Run, print the table, write the file; 1 where a ratio misses the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, help="path.json files that name their tensors")
    parser.add_argument("--threads", type=int, default=1, help="BLAS threads of both (default: 1)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "replay_vs_cotengra.json")
    options = parser.parse_args()
    files = options.paths or sorted(file for name in PATTERNS for file in PATHS.glob(name))
    rows = []
    print(f"{'path':42} {'ours s':>9} {'cotengra s':>11} {'ratio':>7}   goal: at most {GOAL}")
    for file in files:
        row = compare(file, options.threads, options.repeats)
        rows.append(row)
        print(
            f"{row['path']:42} {row['ours_s']:9.3f} {row['cotengra_s']:11.3f} {row['ratio']:7.3f}", flush=True
        )
    import cotengra

    environment = {**rows[-1]["environment"], "cotengra": cotengra.__version__}
    document = {
        "goal": GOAL,
        "threads": options.threads,
        "environment": environment,
        "rows": [{key: value for key, value in row.items() if key != "environment"} for row in rows],
    }
    write_text(options.output, json.dumps(document, indent=1) + "\n")
    return 0 if all(row["ratio"] <= GOAL for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
