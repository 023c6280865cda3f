"""The figures that others published for a workload, beside those of `tnplan report`.

Usage: python benchmarks/planning/published.py PATH.json ... --devices 1,8,64 --hardware dgx-h100
       [--published benchmarks/published/arxiv_2606_01852.json] [--baseline-time SECONDS]

Papers give speedups and rates. Times and operations follow from them by Eqs. 8 to 11 of arXiv 2606.01852.
README.md beside this file has the fields of a file of published values.

Changelog of `tnplan.published`:
1 (2026-11-25): first version.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

import tnplan
from tnplan.common.errors import InputError
from tnplan.common.files import converted_file, read_json
from tnplan.common.units import figure_text, time_text
from tnplan.planner.projection.projection import Projection
from tnplan.reporting import tables
from tnplan.reporting.evaluation import COMPARED

FORMAT = "tnplan.published"
VERSION = 1
PAPER = Path(__file__).resolve().parent / "arxiv_2606_01852.json"

Count = Annotated[int, Meta(ge=1, le=2**24)]
Figure = Annotated[int, Meta(gt=0, le=2**62)] | Annotated[float, Meta(gt=0, le=1e300)]
"""A whole number is printed without decimals."""


class PublishedRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The published figures on some number of devices; None where there is none. `sliced` counts indices."""

    devices: Count
    speedup: Figure | None = None
    extra_speedup: Figure | None = None
    complexity_reduction: Figure | None = None
    flop_per_s: Figure | None = None
    slice_time_s: Figure | None = None
    sliced: Annotated[int, Meta(ge=0, le=512)] | None = None


class PublishedWorkload(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workload; `prefix` begins the names of our paths of it."""

    name: str
    prefix: Annotated[str, Meta(min_length=1)]
    rows: tuple[PublishedRow, ...]

    def row(self, devices: int) -> PublishedRow | None:
        """The figures on so many devices."""
        return next((row for row in self.rows if row.devices == devices), None)

    @property
    def one_device_s(self) -> float | None:
        """T_1 = S_P t_P 2^b_P (Eqs. 8 and 9) of the most devices for which all three are given."""
        implied = [
            (row.devices, row.speedup * row.slice_time_s * 2.0**row.sliced)
            for row in self.rows
            if row.speedup and row.slice_time_s and row.sliced is not None
        ]
        return max(implied)[1] if implied else None

    @property
    def one_device_complexity(self) -> float | None:
        """C_t,1 in real operations: R_P times what the fewest devices with a rate do in T_P."""
        implied = [
            (row.devices, row.complexity_reduction * row.devices * row.flop_per_s * time_s)
            for row in self.rows
            if row.flop_per_s and row.complexity_reduction and (time_s := self.time_s(row.devices))
        ]
        return min(implied)[1] if implied else None

    def time_s(self, devices: int) -> float | None:
        """T_P that the figures imply."""
        row, one_device_s = self.row(devices), self.one_device_s
        if devices == 1 or one_device_s is None:
            return one_device_s
        speedup = row and (row.speedup or (row.extra_speedup and row.extra_speedup * devices))
        return one_device_s / speedup if speedup else None


class Published(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All workloads of a publication; reports call it `label`."""

    source: str
    label: str
    hardware: str
    workloads: tuple[PublishedWorkload, ...]

    def workload(self, projection: Projection) -> PublishedWorkload | None:
        """The workload that a projection is of, by the names of its paths."""
        names = [path.name for path in projection.paths]
        names += [label.split("/")[-1] for label in projection.labels]
        return next((one for one in self.workloads if any(n.startswith(one.prefix) for n in names)), None)


def load_published(path: str | Path) -> Published:
    """Read a file of published values."""
    document = read_json(path, FORMAT, VERSION)
    found: Published = converted_file(
        document, Published, str(path), "see benchmarks/planning/published.md for its fields"
    )
    for number, workload in enumerate(found.workloads):
        counts = [row.devices for row in workload.rows]
        for devices in counts:
            if counts.count(devices) > 1:
                raise InputError(
                    f"{path}: workloads[{number}].rows", f"has {devices} devices twice", "give a row for each"
                )
    return found


def published_table(projection: Projection, published: Published) -> tables.Listing | None:
    """Our figures above published ones; None where there are none of this workload."""
    known = published.workload(projection)
    if known is None:
        return None
    rows: list[tuple[str, ...]] = []
    for row in projection.rows:
        theirs, time_s = known.row(row.devices), known.time_s(row.devices)
        if theirs is not None or time_s is not None:
            ratio = figure_text(time_s / row.time_s) if time_s and row.time_s else tables.NOTHING
            implied = tables.NOTHING if time_s is None else f"{time_text(time_s)} (implied)"
            rows.append((f"{row.devices}, ours", *tables.figures(row, COMPARED), ratio))
            label = f"{row.devices}, {published.label}"
            rows.append((label, *tables.figures(theirs, COMPARED[:-1]), implied, ""))
    columns = ("P", *COMPARED, f"T_P {published.label} / ours")
    title = f"Beside the {published.label}, on {published.hardware}"
    return tables.Listing(title, columns, rows) if rows else None


def baseline_notes(projection: Projection, published: Published) -> list[str]:
    """How our path for one device compares with the published one, where that can be said."""
    known = published.workload(projection)
    if known is None or projection.baseline_devices != 1:
        return []
    first = projection.rows[0]
    ours, theirs, theirs_s = first.complexity, known.one_device_complexity, known.one_device_s
    if theirs is None or theirs_s is None:
        return []
    which = "our searched path" if first.path == projection.baseline.path else "our path"
    text = (
        f"One device: the {published.label}'s tables imply {figure_text(theirs)} operations and "
        f"{time_text(theirs_s)}; {which} takes {figure_text(ours)} and {time_text(first.time_s)}."
    )
    if ours < theirs:
        text += " R_P and E_P count from the one-device path: the better it is, the smaller they are."
    return [text]


def main() -> None:
    """Project the paths and print our figures beside those published."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH.json")
    parser.add_argument("--devices", required=True, metavar="P,P,...")
    parser.add_argument("--hardware", required=True, metavar="PROFILE")
    parser.add_argument("--published", type=Path, default=PAPER, metavar="FILE.json")
    parser.add_argument("--baseline-time", type=float, default=10.0, metavar="SECONDS")
    given = parser.parse_args()
    try:
        published = load_published(given.published)
        devices = [int(word) for word in given.devices.split(",")]
        projection = tnplan.report(
            given.paths, devices, hardware=given.hardware, baseline_time=given.baseline_time
        )
    except (InputError, ValueError) as error:
        parser.error(str(error))
    made = published_table(projection, published)
    if made is None:
        parser.error(f"{given.published} has no workload of these paths")
    console = tables.console()
    console.print(made)
    for note in baseline_notes(projection, published):
        console.print(note)


if __name__ == "__main__":
    main()
