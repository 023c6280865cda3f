"""The evaluation: complexity and slices by the memory of a number of devices, and their tables.

Makes cells of text and notes from projections; draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import log10
from statistics import mean, stdev

from tnplan.common.shown_text import shown_text
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import Projection
from tnplan.reporting.tables import Listing, figures

SLICES_LEGEND = {
    "t_P": "t_P: mean time of a slice in one group.",
    "sliced": "sliced: indices that are sliced.",
    "rate per device": "rate per device: operations over the time, idle devices counted.",
    "saved by reuse": "saved by reuse: the share of the time that is saved because work common to several "
    "slices is done once.",
}
MEMORY_LEGEND = {
    "path": "For each number of devices: the path that fits into their memory and has the fewest "
    "operations, all slices included (C_t,P), whether or not it is the fastest.",
    "searches": "searches: how many paths were searched under the same limit; the mean of their figures "
    "stands next to it.",
}
"""What the columns of the tables mean."""
COMPARED = ("t_P", "sliced", "S_P", "E_P", "R_P", "rate per device", "T_P")
"""The columns of a comparison."""


@dataclass(frozen=True)
class MemoryPoint:
    """What fits the memory of `devices` devices.

    `log10_flops` and `sliced` are those of the path of fewest real operations. The means and spreads
    (standard deviations; None for one search) are over `searches` paths: those that fit and were searched
    under the largest limit among these.
    """

    devices: int
    path: int
    log10_flops: float
    sliced: int
    searches: int
    mean_log10_flops: float
    spread_log10_flops: float | None
    mean_sliced: float
    spread_sliced: float | None


def memory_points(projection: Projection) -> list[MemoryPoint]:
    """A point for every row of the projection, as in the paper's Fig. 1: what memory alone buys.

    Operations are those of paths for which the planner makes a schedule; its time plays no part.
    """
    demands, paths = projection.demands, projection.paths
    logs = [log10(max(demand.complexity, 1.0)) for demand in demands]
    points = []
    for row in projection.rows:
        fitting = [
            number
            for number, demand in enumerate(demands)
            if demand.least_devices is not None and demand.least_devices <= row.devices
        ]
        best = min(fitting, key=logs.__getitem__)
        limits = {number: _limit(paths[number].meta) for number in fitting}
        # Searches that were repeated under the largest limit which fits give the mean and the
        # deviation; paths from elsewhere have no limit, and then the best one stands alone.
        largest = max((limit for limit in limits.values() if limit is not None), default=None)
        repeated = [n for n in fitting if limits[n] == largest] if largest is not None else [best]
        cost, sliced = [logs[n] for n in repeated], [float(len(paths[n].sliced_inds)) for n in repeated]
        points.append(
            MemoryPoint(
                devices=row.devices,
                path=best,
                log10_flops=logs[best],
                sliced=len(paths[best].sliced_inds),
                searches=len(repeated),
                mean_log10_flops=mean(cost),
                spread_log10_flops=stdev(cost) if len(cost) > 1 else None,
                mean_sliced=mean(sliced),
                spread_sliced=stdev(sliced) if len(sliced) > 1 else None,
            )
        )
    return points


def _limit(meta: object) -> float | None:
    """The limit of the search, log2 of a tensor's elements, as the path's meta has it."""
    value = meta.get("log2_limit") if isinstance(meta, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def workload_name(projection: Projection) -> str:
    """What the paths of a projection are called, shortest first."""
    names = {shown_text(path.name) or "unnamed network" for path in projection.paths}
    ordered = sorted(names, key=lambda name: (len(name), name))
    return ordered[0]


def workload_title(projection: Projection) -> str:
    """A short name of the workload: what the names of several paths have in common, or the shortest."""
    names = [shown_text(path.name).split("_") for path in projection.paths]
    common = [words[0] for words in takewhile(lambda words: len({*words}) == 1, zip(*names, strict=False))]
    return "_".join(common) or workload_name(projection)


def slice_table(projection: Projection) -> Listing:
    """The slices for each number of devices, and why E_P does not rise."""
    why = {plateau.devices: f"{plateau.cause}: {plateau.text}" for plateau in plateaus(projection)}
    columns = ("P", "t_P", "sliced", "rate per device", "saved by reuse", "why E_P does not rise")
    rows = [
        (str(row.devices), *figures(row, columns[1:-1]), why.get(row.devices, "")) for row in projection.rows
    ]
    return Listing("Slices", columns, rows, columns[-1:])


def memory_table(projection: Projection) -> Listing:
    """What fits the memory of each number of devices: the paper's Fig. 1."""
    title = "What more memory saves: operations of paths that fit (Fig. 1)"
    columns = ("P", "log10 C_t,P", "sliced", "path", "searches", "their log10 C_t", "their sliced")
    rows = [
        (
            str(point.devices),
            f"{point.log10_flops:.2f}",
            str(point.sliced),
            projection.labels[point.path],
            # One search has no mean beside it.
            *(
                (
                    str(point.searches),
                    _spread_text(point.mean_log10_flops, point.spread_log10_flops, 2),
                    _spread_text(point.mean_sliced, point.spread_sliced, 1),
                )
                if point.searches > 1
                else ("", "", "")
            ),
        )
        for point in memory_points(projection)
    ]
    return Listing(title, columns, rows, ("path",))


def evaluation_notes(projection: Projection) -> list[str]:
    """What a reader must know of the figures: what is not modelled."""
    if projection.profile.fused_bytes:
        return []
    name = shown_text(projection.profile.name)
    return [
        f"{name} does not say how fast fused chains are, so each step is counted by itself: it reads and "
        f"writes whole "
        "tensors, and the memory's bandwidth limits steps of few operations."
    ]


def comparison_table(projections: Sequence[Projection], devices: int) -> Listing:
    """One row a projection at `devices` devices, as the paper's Tables II and III."""
    rows = [
        (workload_name(projection), shown_text(projection.profile.name), *figures(row, COMPARED))
        for projection in projections
        for row in projection.rows
        if row.devices == devices
    ]
    return Listing("", ("workload", "hardware", *COMPARED), rows, ("workload", "hardware"))


def _spread_text(average: float, spread: float | None, digits: int) -> str:
    return f"{average:.{digits}f}" if spread is None else f"{average:.{digits}f} \u00b1 {spread:.{digits}f}"
