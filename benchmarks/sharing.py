"""What slices in a row share on a GPU: the mean time of a slice with it and without, of the same slices.

Usage: python benchmarks/sharing.py PATH.json ... [--precision fp32] [--device gpu] [--seconds 3]
       [-o results.json]
Goal: the time that the planner predicts within 15 % of both, and the same values: in fp32 bit for bit where
both plans cut the work alike, else within the precision. Both are planned and replayed in one process.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from replay import mean_slice_s, values

from planner.files import write_text
from planner.hardware.profile import Profile, load_profile
from planner.networks.path_file import load_path
from planner.passes.pipeline import plan
from planner.units import size_text
from tnplan.execution import execute

COLUMNS = ("path", "precision", "serve slices", "apart s", "shared s", "ratio", "predicted", "difference")
COMPARED = (1, 4)
"""The slices whose sums are compared: they begin inside a run that shares."""


def replayed(file: Path, profile: Profile, args: argparse.Namespace, share: bool) -> dict[str, Any]:
    """Plan a path for one device and replay some slices: figures, and the sum of the compared ones."""
    schedule = plan(load_path(file), profile, precision=args.precision, share=share)
    arrays = values(file)
    stop = min(max(int(args.seconds / schedule.predicted.slice_s), COMPARED[1]), schedule.n_slices)
    report = execute(schedule, arrays, ranks=1, device=args.device, slices=(0, stop)).report
    found = execute(schedule, arrays, ranks=1, device=args.device, slices=COMPARED).array
    slice_s = mean_slice_s(schedule, report["measured"])
    return {
        "slice_s": slice_s, "predicted_over_measured": schedule.predicted.slice_s / slice_s,
        "flop_per_s": schedule.operations / schedule.n_slices / slice_s, "slices_timed": stop,
        "parts": report["measured"]["parts"], "peak_bytes": report["measured"]["peak_bytes"],
        "precision": schedule.precision, "environment": report["environment"], "found": found,
    }  # fmt: skip


def row(file: Path, profile: Profile, args: argparse.Namespace) -> dict[str, Any]:
    """Both replays of one path, and how far their values are apart in the largest value."""
    shared, apart = (replayed(file, profile, args, share) for share in (True, False))
    one, other = shared.pop("found"), apart.pop("found")
    return {
        "path": file.stem, "precision": shared.pop("precision"), "environment": shared.pop("environment"),
        "ratio": apart["slice_s"] / shared["slice_s"],
        "difference": float(np.abs(one - other).max() / np.abs(other).max()),
        "shared": shared, "apart": {name: apart[name] for name in shared},
    }  # fmt: skip


def main() -> None:
    """Replay every path both ways and print the table in Markdown."""
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
        served = ", ".join(str(part["serves"]) for part in found["shared"]["parts"][:-1]) or "-"
        print(
            f"| {file.stem} | {found['precision']} | {served} | {found['apart']['slice_s']:.4g} "
            f"| {found['shared']['slice_s']:.4g} | {found['ratio']:.3f} "
            f"| {found['apart']['predicted_over_measured']:.3f}, "
            f"{found['shared']['predicted_over_measured']:.3f} | {found['difference']:.1e} |",
            f"peak {size_text(found['shared']['peak_bytes'])}", flush=True,
        )  # fmt: skip
        if args.output:
            write_text(args.output, json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
