"""The tables of the evaluation, for a terminal and for the page: slices, memory, published values.

Makes cells of text and notes from projections; draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from tnplan.common.shown_text import shown_text
from tnplan.common.units import figure_text, time_text
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import Projection
from tnplan.reporting.memory_only import memory_points
from tnplan.reporting.tables import NOTHING, Listing, figures

if TYPE_CHECKING:
    from tnplan.reporting.published import Published, PublishedWorkload

SLICES_LEGEND = (
    "t_P: time of a slice in one group, in the mean. sliced: indices that are sliced. TFLOP/s a device: "
    "operations over the time, idle devices counted. saved by reuse: the share of the time that is saved "
    "because work common to several slices is done once."
)
MEMORY_LEGEND = (
    "Of the paths that fit into the memory of so many devices, that with the fewest operations C_t,P, all "
    "slices included; its time plays no part. searches: how many of these paths were searched under one "
    "limit, with the mean of their figures beside it."
)
"""What the columns of the tables mean."""
COMPARED = ("t_P", "sliced", "S_P", "E_P", "R_P", "TFLOP/s a device", "T_P")
"""The columns of a comparison."""


def workload_name(projection: Projection) -> str:
    """What the paths of a projection are called, shortest first."""
    given = {shown_text(path.name) or "unnamed network" for path in projection.paths}
    names = sorted(given, key=lambda name: (len(name), name))
    return names[0]


def workload_title(projection: Projection) -> str:
    """A short name of the workload: what the names of several paths have in common, or the shortest."""
    names = [shown_text(path.name).split("_") for path in projection.paths]
    common = [words[0] for words in takewhile(lambda words: len({*words}) == 1, zip(*names, strict=False))]
    return "_".join(common) or workload_name(projection)


def slice_table(projection: Projection) -> Listing:
    """The slices for each number of devices, and why E_P does not rise."""
    why = {plateau.devices: f"{plateau.cause}: {plateau.text}" for plateau in plateaus(projection)}
    columns = ("P", "t_P", "sliced", "TFLOP/s a device", "saved by reuse", "why E_P does not rise")
    rows = [
        (str(row.devices), *figures(row, columns[1:-1]), why.get(row.devices, "")) for row in projection.rows
    ]
    return Listing("Slices", columns, rows, columns[-1:])


def memory_table(projection: Projection) -> Listing:
    """What fits the memory of each number of devices: the paper's Fig. 1."""
    title = "What memory alone buys: operations of paths that fit (Fig. 1)"
    columns = ("P", "log10 C_t,P", "sliced", "path", "searches", "their log10 C_t", "their sliced")
    rows = [
        (
            str(point.devices),
            f"{point.log10_flops:.2f}",
            str(point.sliced),
            projection.labels[point.path],
            str(point.searches),
            _spread_text(point.mean_log10_flops, point.spread_log10_flops, 2),
            _spread_text(point.mean_sliced, point.spread_sliced, 1),
        )
        for point in memory_points(projection)
    ]
    return Listing(title, columns, rows, ("path",))


def published_table(projection: Projection, published: Published | None) -> Listing | None:
    """Our figures above published ones, where there are some."""
    known = None if published is None else published.workload(projection)
    if published is None or known is None:
        return None
    rows: list[tuple[str, ...]] = []
    for row in projection.rows:
        theirs, time_s = known.row(row.devices), known.time_s(row.devices)
        if theirs is not None or time_s is not None:
            ratio = figure_text(time_s / row.time_s) if time_s and row.time_s else NOTHING
            implied = NOTHING if time_s is None else f"{time_text(time_s)} (implied)"
            rows.append((str(row.devices), "ours", *figures(row, COMPARED), ratio))
            rows.append(("", published.label, *figures(theirs, COMPARED[:-1]), implied, ""))
    columns = ("P", "", *COMPARED, f"T_P {published.label} / ours")
    title = f"Beside the {published.label}, on {published.hardware}"
    return Listing(title, columns, rows, ("",), keys=2) if rows else None


def evaluation_notes(projection: Projection, published: Published | None = None) -> list[str]:
    """What a reader must know of the figures: how they compare with published ones, what is not modelled."""
    notes = []
    known = None if published is None else published.workload(projection)
    if published is not None and known is not None and projection.baseline_devices == 1:
        notes += _baseline_notes(projection, published.label, known)
    if not projection.profile.fused_bytes:
        notes.append(
            f"{shown_text(projection.profile.name)} has no rates of fused chains: every step reads and "
            "writes its tensors whole, so thin steps are bound by the memory's bandwidth."
        )
    return notes


def evaluation_tables(projection: Projection, published: Published | None) -> list[Listing]:
    """The tables for a terminal; that of published values only where there are some."""
    compared = published_table(projection, published)
    return [slice_table(projection), memory_table(projection), *([compared] if compared else [])]


def comparison_table(projections: Sequence[Projection], devices: int) -> Listing:
    """One row a projection at `devices` devices, as the paper's Tables II and III."""
    rows = [
        (workload_name(projection), shown_text(projection.profile.name), *figures(row, COMPARED))
        for projection in projections
        for row in projection.rows
        if row.devices == devices
    ]
    return Listing("", ("workload", "hardware", *COMPARED), rows, ("workload", "hardware"))


def _baseline_notes(projection: Projection, label: str, known: PublishedWorkload) -> list[str]:
    first = projection.rows[0]
    ours, theirs, theirs_s = first.complexity, known.one_device_complexity, known.one_device_s
    if theirs is None or theirs_s is None:
        return []
    which = "our searched path" if first.path == projection.baseline.path else "our path"
    text = (
        f"One device: the {label}'s tables imply {figure_text(theirs)} operations and "
        f"{time_text(theirs_s)}; {which} takes {figure_text(ours)} and {time_text(first.time_s)}."
    )
    if ours < theirs:
        text += " R_P and E_P count from the one-device path: the better it is, the smaller they are."
    return [text]


def _spread_text(average: float, spread: float | None, digits: int) -> str:
    return f"{average:.{digits}f}" if spread is None else f"{average:.{digits}f} \u00b1 {spread:.{digits}f}"
