"""What slices share on a GPU, and what is summed early: the time of all slices with it and without.

Usage: python benchmarks/contraction/sharing.py PATH.json ... [--precision fp32] [--device gpu] [--seconds 3]
       [-o results.json]
Goal: the time that the planner predicts within 15 % of both, and the same values, within the precision. Both
are planned and replayed in one process, some slices of each; `ratio` is that of the times of all slices, as
often as each plan has them. A slice with an early sum stands for several slices without: the values are
compared of two slices in a row and of all that they stand for.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from shared import mean_slice_s, values

from tnplan.calls.execute import execute
from tnplan.common.files import write_text
from tnplan.common.units import size_text
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Schedule

COLUMNS = ("path", "precision", "parts", "apart s", "shared s", "ratio", "predicted", "difference")
COMPARED = (1, 3)
"""The slices whose sums are compared: they begin inside a run that shares."""

WITHIN, SAME = 1.15, 1e-4
"""Goals: the factor between predicted and measured time, and how far values may be apart."""


def stood_for(shared: Schedule, apart: Schedule) -> list[int]:
    """The slices of one schedule that the compared ones of another stand for, which sums some early."""
    rounds = range(shared.repeats(len(shared.summed)))
    numbers = []
    for compared, number in product(range(*COMPARED), rounds):
        values = {**shared.slice_values(compared), **shared.summed_values(number)}
        place = 0
        for index in apart.sliced:
            place = place * apart.size_dict[index] + values[index]
        numbers.append(place)
    return sorted(numbers)


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Some slices as ranges of those in a row."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = found[-1][0], number + 1
        else:
            found.append((number, number + 1))
    return found


def replayed(
    file: Path, schedule: Schedule, args: argparse.Namespace, compared: list[tuple[int, int]]
) -> dict[str, Any]:
    """Replay some slices on one device: figures, and the sum of the compared ones."""
    arrays = values(file)
    stop = min(max(int(args.seconds / schedule.predicted.slice_s), COMPARED[1]), schedule.n_slices)
    report = execute(schedule, arrays, ranks=1, device=args.device, slices=(0, stop)).report
    found = 0
    for slices in compared:
        found += execute(schedule, arrays, ranks=1, device=args.device, slices=slices).array
    slice_s = mean_slice_s(schedule, report["measured"])
    return {
        "slices": schedule.n_slices, "all_slices_s": slice_s * schedule.n_slices,
        "slice_s": slice_s, "predicted_over_measured": schedule.predicted.slice_s / slice_s,
        "flop_per_s": schedule.operations / schedule.n_slices / slice_s, "slices_timed": stop,
        "parts": report["measured"]["parts"], "peak_bytes": report["measured"]["peak_bytes"],
        "precision": schedule.precision, "environment": report["environment"], "found": found,
    }  # fmt: skip


def row(file: Path, profile: Profile, args: argparse.Namespace) -> dict[str, Any]:
    """Both replays of one path, and how far their values are apart in the largest value."""
    plans = [plan(load_path(file), profile, precision=args.precision, share=share) for share in (True, False)]
    shared, apart = (
        replayed(file, schedule, args, compared)
        for schedule, compared in zip(plans, ([COMPARED], runs(stood_for(*plans))), strict=True)
    )
    one, other = shared.pop("found"), apart.pop("found")
    return {
        "path": file.stem, "precision": shared.pop("precision"), "environment": shared.pop("environment"),
        "ratio": apart["all_slices_s"] / shared["all_slices_s"],
        "difference": float(np.abs(one - other).max() / np.abs(other).max()),
        "shared": shared, "apart": {name: apart[name] for name in shared},
    }  # fmt: skip


def _is_met(found: dict[str, Any]) -> bool:
    """Whether both predictions and the values are as near as the goal says."""
    ratios = [found[way]["predicted_over_measured"] for way in ("apart", "shared")]
    return found["difference"] <= SAME and all(1 / WITHIN <= ratio <= WITHIN for ratio in ratios)


def main() -> int:
    """Replay every path both ways and print the table in Markdown; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--precision")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--hardware", default="h200-nvlink")
    parser.add_argument("--seconds", type=float, default=3.0, help="predicted, for the slices of a replay")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    profile = load_profile(args.hardware)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    rows = json.loads(args.output.read_text())["rows"] if args.output and args.output.exists() else []
    for file in args.paths:
        found = row(file, profile, args)
        rows = [one for one in rows if (one["path"], one["precision"]) != (file.stem, found["precision"])]
        rows.append(found)
        served = ", ".join(f"{part['repeats']} in {part['serves']}" for part in found["shared"]["parts"][:-1])
        print(
            f"| {file.stem} | {found['precision']} | {served or '-'} "
            f"| {found['apart']['all_slices_s']:.4g} "
            f"| {found['shared']['all_slices_s']:.4g} | {found['ratio']:.3f} "
            f"| {found['apart']['predicted_over_measured']:.3f}, "
            f"{found['shared']['predicted_over_measured']:.3f} | {found['difference']:.1e} |",
            f"peak {size_text(found['shared']['peak_bytes'])}", flush=True,
        )  # fmt: skip
        if args.output:
            write_text(args.output, json.dumps({"rows": rows}, indent=1) + "\n")
    here = {file.stem for file in args.paths}
    missed = not all(_is_met(found) for found in rows if found["path"] in here)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
