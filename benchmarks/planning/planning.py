"""Seconds to plan paths at 1 to 1024 ranks, without loading. Goal: n60 m24 at 1024 ranks in at most 5 s.

Usage: python benchmarks/planning/planning.py PATH.json ... [-o results.json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from math import inf
from pathlib import Path

from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import plan

RANKS = (1, 8, 64, 1024)
GOAL_S, GOAL_PATH = 5.0, "n60_m24"
REPEATS = 3


def planned_s(path: ContractionPath, profile: Profile, ranks: int) -> float:
    """The least seconds of the processor of some plans for a group of ranks."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        plan(path, profile, devices=ranks, ranks_per_group=ranks, memory_bytes=inf)
        times.append(time.process_time() - start)
    return min(times)


def main() -> int:
    """Print a table: the least of three timings for every path and number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    profile = load_profile("dgx-h100")
    rows = []
    print(
        f"{'path':34s} {'steps':>6s} " + " ".join(f"{f'P = {ranks}':>9s}" for ranks in RANKS) + "   seconds"
    )
    for name in options.paths:
        path = load_path(name)
        seconds = {ranks: planned_s(path, profile, ranks) for ranks in RANKS}
        rows.append({"path": name.stem, "steps": len(path.ssa_path), "seconds": seconds})
        cells = " ".join(f"{value:9.2f}" for value in seconds.values())
        print(f"{name.stem:34s} {len(path.ssa_path):6d} {cells}", flush=True)
    print(f"goal: {GOAL_S:g} s at P = 1024")
    if options.output:
        environment = {**host_facts(), "commit": commit()}
        document = {"environment": environment, "goal_s": GOAL_S, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    named = [row["seconds"][1024] for row in rows if GOAL_PATH in row["path"]]
    missed = any(seconds > GOAL_S for seconds in named)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
