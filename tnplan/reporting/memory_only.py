"""Operations and sliced indices against devices, as the paper's Fig. 1: what memory alone buys.

Counts operations of paths for which the planner makes a schedule; its time plays no part.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from statistics import mean, stdev

from tnplan.planner.projection.projection import Projection


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
    """A point for every row of the projection."""
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
