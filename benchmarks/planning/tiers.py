"""What a planner gains by knowing two tiers: bytes between nodes, against one tier at the slowest speed.

Usage: python benchmarks/planning/tiers.py PATH.json ... [--devices 64] [--hardware dgx-h100]
       [-o results.json]
Goal: on n60 m24 at 64 devices (8 nodes of 8) at most half of the bytes of one tier.
Bytes are those that rank 0 receives in a slice in the mean, counted by a null replay, in two plans: of one
group of all devices, and of the groups that the planner chooses. `placed` counts the bytes of the plan of one
tier that pass between nodes when its ranks stand on nodes in order. The planner minimises time;
benchmarks/notes/planning.md says how few bytes any plan of the same time could move.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.hardware.cost import make_grid
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Schedule

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.null_device.dry_run import dry_run

GOAL, GOAL_PATH, GOAL_DEVICES = 0.5, "n60_m24", 64
"""Bytes between nodes, in parts of those of one tier, of one group."""
COLUMNS = ("path", "groups", "two tiers GB", "one tier GB", "ratio", "placed GB", "ratio placed")


def between_nodes_gb(schedule: Schedule, profile: Profile) -> float:
    """GB that rank 0 receives over the slowest tier of `profile` in a slice, in the mean of all.

    What is done once is counted for a run of slices that share parts.
    """
    placed = replace(schedule, grid=make_grid(schedule.ranks_per_group, profile))
    run = schedule.most_shared
    counts, _ = dry_run(placed, 0, range(run))
    slow = len(profile.tiers) - 1
    return sum(counts.received_bytes[slow:]) / run / 1e9


def row(path: ContractionPath, label: str, profile: Profile, devices: int, ranks: int | None) -> list[object]:
    """Both plans of one path; with `ranks` of one group of so many, else of the groups that are fastest."""
    flat = replace(profile, tiers=profile.tiers[-1:])
    two = plan(path, profile, devices=devices, ranks_per_group=ranks)
    one = plan(path, flat, devices=devices, ranks_per_group=ranks)
    ours, theirs = between_nodes_gb(two, profile), between_nodes_gb(one, flat)
    placed = between_nodes_gb(one, profile)
    groups = f"{devices // two.ranks_per_group} x {two.ranks_per_group}"
    return [label, groups, ours, theirs, _ratio(ours, theirs), placed, _ratio(ours, placed)]


def _ratio(ours: float, theirs: float) -> float | None:
    return ours / theirs if theirs else None


def main() -> int:
    """Plan every path both ways and print the table in Markdown; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--hardware", default="dgx-h100")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    profile = load_profile(options.hardware)
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    rows = []
    for name in options.paths:
        path = load_path(name)
        for ranks in (options.devices, None):
            rows.append(row(path, name.stem, profile, options.devices, ranks))
            cells = [f"{cell:.3g}" if isinstance(cell, float) else str(cell or "-") for cell in rows[-1]]
            print("| " + " | ".join(cells) + " |", flush=True)
    if options.output:
        environment = {**host_facts(), "commit": commit()}
        document = {
            "environment": environment, "hardware": options.hardware, "devices": options.devices,
            "rows": [dict(zip(COLUMNS, cells, strict=True)) for cells in rows],
        }  # fmt: skip
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    one_group = [cells for cells in rows[::2] if GOAL_PATH in str(cells[0])]
    missed = options.devices == GOAL_DEVICES and any((cells[4] or 0.0) > GOAL for cells in one_group)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
