"""Values that others published for a workload, read from a file and set beside ours. Plans nothing.

Papers give speedups and rates. Times and operations follow from them by Eqs. 8 to 11 of arXiv 2606.01852.

Changelog of `tnplan.published`:
1 (2026-11-25): first version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from tnplan.common.convert import converted_file
from tnplan.common.errors import InputError
from tnplan.common.files import read_json
from tnplan.planner.projection.projection import Projection

FORMAT = "tnplan.published"
VERSION = 1

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
        document, Published, str(path), "see docs/reference/formats.md for its fields"
    )
    for number, workload in enumerate(found.workloads):
        counts = [row.devices for row in workload.rows]
        for devices in counts:
            if counts.count(devices) > 1:
                raise InputError(
                    f"{path}: workloads[{number}].rows", f"has {devices} devices twice", "give a row for each"
                )
    return found
