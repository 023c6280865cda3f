"""What `--json` prints: plans and projections for programs to read."""

from __future__ import annotations

from math import isinf
from typing import Any

from tnplan.planner.common.files import plain
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import Projection
from tnplan.planner.schedule.schedule import Schedule
from tnplan.reporting.chain import fused_counts, largest, link_document, state_counts, use_chain, used_groups
from tnplan.reporting.evaluation import workload_name
from tnplan.reporting.memory_only import memory_points


def schedule_document(schedule: Schedule, devices: int) -> dict[str, Any]:
    """The figures of one plan for `devices` devices."""
    groups = used_groups(schedule, devices)
    fused_steps, fused_chains = fused_counts(schedule)
    return {
        "name": schedule.name,
        "identity": schedule.identity,
        "path_identity": schedule.path_identity,
        "hardware": schedule.profile["name"],
        "policy": schedule.policy,
        "dtype": schedule.dtype,
        "precision": schedule.precision,
        "devices": devices,
        "n_groups": groups,
        "ranks_per_group": schedule.ranks_per_group,
        "grid": [digit.radix for digit in schedule.grid],
        "n_slices": schedule.n_slices,
        "sliced": list(schedule.sliced),
        "memory_bytes": schedule.memory_bytes,
        "threshold_bytes": schedule.threshold_bytes,
        "states": state_counts(schedule),
        "fused_steps": fused_steps,
        "fused_chains": fused_chains,
        "total_s": schedule.projected_s(groups),
        "predicted": plain(schedule.predicted),
    }


def chain_document(schedule: Schedule, top: int | None = None) -> dict[str, Any]:
    """The plan and its use-chain, or the `top` steps of it that take longest."""
    chain = use_chain(schedule)
    return {
        **schedule_document(schedule, schedule.ranks_per_group),
        "steps": [link_document(schedule, link) for link in (largest(chain, top) if top else chain)],
    }


def projection_document(projection: Projection) -> dict[str, Any]:
    """Every row with the paper's metrics; infinite limits are null."""
    return {
        "name": workload_name(projection),
        "hardware": projection.profile.name,
        "policy": projection.policy,
        "memory_bytes": None if isinf(projection.memory_bytes) else projection.memory_bytes,
        "baseline_devices": projection.baseline_devices,
        "paths": list(projection.labels),
        "rows": [
            {
                "devices": row.devices,
                "path": projection.labels[row.path],
                "path_identity": row.schedule.path_identity,
                "schedule_identity": row.schedule.identity,
                "n_groups": row.n_groups,
                "ranks_per_group": row.ranks_per_group,
                "idle_devices": row.idle_devices,
                "n_slices": row.schedule.n_slices,
                "T_P_s": row.time_s,
                "t_P_s": row.slice_time_s,
                "S_P": row.speedup,
                "E_P": row.extra_speedup,
                "R_P": row.complexity_reduction,
                "E_P_over_R_P": row.captured,
                "C_t_P": row.complexity,
                "peak_bytes": row.peak_bytes,
                "split_s": plain(row.split),
                "exchange_share": row.exchange_share,
                "sliced": len(row.schedule.sliced),
                "flop_per_s": row.flop_per_s,
                "reuse_saving": row.reuse_saving,
            }
            for row in projection.rows
        ],
        "plateaus": [plain(plateau) for plateau in plateaus(projection)],
        "memory": [plain(point) for point in memory_points(projection)],
        "refusals": [plain(refusal) for refusal in projection.refusals],
    }
