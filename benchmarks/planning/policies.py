"""Redistributed bytes and predicted time of both policies on real paths: the table of notes/planning.md.

Usage: python benchmarks/planning/policies.py PATH.json ... [-o results.json]
Goal: ours never slower than the paper's plan; at 64 ranks at most 0.75 of its bytes on one n60 m24 path.
Everything is predicted by the cost model under the profile dgx-h100, memory unlimited, one group of P ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
from math import inf
from pathlib import Path
from typing import Any

from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Schedule

RANKS = (8, 64, 1024)
COLUMNS = ("path", "P", "paper GB", "ours GB", "ratio", "ours* GB", "paper s", "ours s", "ours* s")

GOAL_PATH, GOAL_RANKS, GOAL_BYTES, ROUNDING = "n60_m24", 64, 0.75, 1e-9
"""On the path with the smallest share, our bytes over the paper's."""


def moved_gb(schedule: Schedule) -> float:
    """Gigabytes that all ranks receive in one slice, what is done once included."""
    predicted = schedule.predicted
    return (predicted.once_moved_bytes + predicted.slice_moved_bytes) * schedule.ranks_per_group / 1e9


def slice_s(schedule: Schedule) -> float:
    """Predicted seconds of one slice, what is done once included."""
    return schedule.predicted.once_s + schedule.predicted.slice_s


def row(path: ContractionPath, label: str, ranks: int, hardware: str) -> dict[str, Any]:
    """Both policies with the paper's threshold of 8 GiB, and ours (*) with its own."""
    profile = load_profile(hardware)
    threshold = {"threshold_bytes": 8 * 2**30}
    common = {"devices": ranks, "ranks_per_group": ranks, "memory_bytes": inf}
    paper = plan(path, profile, policy="paper", **threshold, **common)
    ours = plan(path, profile, **threshold, **common)
    free = plan(path, profile, **common)
    values = (
        label, ranks, moved_gb(paper), moved_gb(ours), moved_gb(ours) / (moved_gb(paper) or inf),
        moved_gb(free),
        slice_s(paper), slice_s(ours), slice_s(free),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def main() -> int:
    """Plan every path at every number of ranks and print the table in Markdown; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--hardware", default="dgx-h100")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    rows = []
    for name in options.paths:
        path = load_path(name)
        for ranks in RANKS:
            rows.append(row(path, name.stem, ranks, options.hardware))
            cells = [
                f"{value:.4g}" if isinstance(value, float) else str(value) for value in rows[-1].values()
            ]
            print("| " + " | ".join(cells) + " |", flush=True)
    if options.output:
        environment = {**host_facts(), "commit": commit()}
        document = {"environment": environment, "hardware": options.hardware, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    slower = any(row["ours s"] > (1 + ROUNDING) * row["paper s"] for row in rows)
    ratios = [row["ratio"] for row in rows if GOAL_PATH in row["path"] and row["P"] == GOAL_RANKS]
    missed = slower or (bool(ratios) and min(ratios) > GOAL_BYTES)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
