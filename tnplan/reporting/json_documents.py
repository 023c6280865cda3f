"""What `--json` prints: plans and projections for programs to read."""

from __future__ import annotations

from math import isinf
from typing import Any

from tnplan.common.files import plain
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import Projection, Row
from tnplan.planner.schedule.schedule import Schedule
from tnplan.reporting import chain
from tnplan.reporting.evaluation import memory_points, workload_name

ROW_FIELDS = {
    "T_P_s": "time_s", "t_P_s": "slice_time_s", "S_P": "speedup", "E_P": "extra_speedup",
    "R_P": "complexity_reduction", "E_P_over_R_P": "captured", "C_t_P": "complexity",
}  # fmt: skip
"""The paper's symbols for the fields of a row."""


def schedule_document(schedule: Schedule, devices: int) -> dict[str, Any]:
    """The figures of one plan for `devices` devices."""
    groups = chain.used_groups(schedule, devices)
    fused_steps, fused_chains = chain.fused_counts(schedule)
    return {
        **_fields(schedule, "name", "identity", "path_identity"),
        "hardware": schedule.profile["name"],
        **_fields(schedule, "policy", "dtype", "algebra", "precision"),
        "devices": devices,
        "n_groups": groups,
        "ranks_per_group": schedule.ranks_per_group,
        "grid": [digit.radix for digit in schedule.grid],
        **_fields(schedule, "n_slices", "sliced", "memory_bytes", "threshold_bytes"),
        "states": chain.state_counts(schedule),
        "fused_steps": fused_steps,
        "fused_chains": fused_chains,
        "total_s": schedule.projected_s(groups),
        "predicted": plain(schedule.predicted),
    }


def chain_document(schedule: Schedule, top: int | None = None) -> dict[str, Any]:
    """The plan and its use-chain, or the `top` steps of it that take longest."""
    steps = chain.use_chain(schedule)
    return {
        **schedule_document(schedule, schedule.devices or schedule.ranks_per_group),
        "steps": [link_document(schedule, link) for link in (chain.largest(steps, top) if top else steps)],
    }


def link_document(schedule: Schedule, link: chain.Link) -> dict[str, Any]:
    """One step for programs to read."""
    step = link.step
    return {
        "step": link.number,
        **_fields(step, "state", "once", "serves", "repeats", "fused"),
        **_fields(link, "a_bytes", "b_bytes", "c_bytes"),
        **{
            name: chain.mode_names(schedule, getattr(step, name))
            for name in ("a_modes", "b_modes", "c_modes")
        },
        "distributed_modes": [
            None if mode is None else chain.mode_names(schedule, (mode,))[0] for mode in step.layout
        ],
        **_fields(step, "batch", "m", "n", "k", "moved_bytes", "flops"),
        **_fields(step, "contract_s", "permute_s", "exchange_s", "hidden_s", "predicted_s"),
    }


def projection_document(projection: Projection) -> dict[str, Any]:
    """Every row with the paper's metrics; infinite limits are null."""
    return {
        "name": workload_name(projection),
        "hardware": projection.profile.name,
        "policy": projection.policy,
        "memory_bytes": None if isinf(projection.memory_bytes) else projection.memory_bytes,
        "baseline_devices": projection.baseline_devices,
        "baseline": _baseline_document(projection),
        "paths": list(projection.labels),
        "rows": [_row_document(projection, row) for row in projection.rows],
        "plateaus": plain(plateaus(projection)),
        "memory": plain(memory_points(projection)),
        "refusals": plain(projection.refusals),
    }


def _baseline_document(projection: Projection) -> dict[str, Any]:
    """Where the time comes from that speedups count from; `ratio`: given over searched."""
    baseline, first = projection.baseline, projection.rows[0]
    return {
        "source": "searched" if first.path == baseline.path else "given",
        "path": projection.labels[first.path],
        "devices": projection.baseline_devices,
        "time_s": first.time_s,
        **_fields(baseline, "search_s", "given_s", "searched_s", "ratio"),
    }


def _row_document(projection: Projection, row: Row) -> dict[str, Any]:
    return {
        "devices": row.devices,
        "path": projection.labels[row.path],
        "path_identity": row.schedule.path_identity,
        "schedule_identity": row.schedule.identity,
        **_fields(row, "n_groups", "ranks_per_group", "idle_devices"),
        "n_slices": row.schedule.n_slices,
        **{symbol: getattr(row, name) for symbol, name in ROW_FIELDS.items()},
        "peak_bytes": row.peak_bytes,
        "split_s": plain(row.split),
        **_fields(row, "exchange_share", "sliced", "flop_per_s", "reuse_saving", "energy_kwh"),
        "cost": projection.cost(row),
    }


def _fields(source: object, *names: str) -> dict[str, Any]:
    return {name: plain(getattr(source, name)) for name in names}
