"""Tables for a terminal: a plan, the steps of a schedule, a projection."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from planner.projection import Projection, Row
from planner.schedule import Schedule
from planner.units import figure_text, percent_text, size_text, time_text
from tnplan.reporting.chain import Link, fused_counts, mode_names, state_counts, used_groups

TIMES = "\u00d7"
WIDTH_IN_A_FILE = 150
PROJECTION_COLUMNS = (
    "P",
    "path",
    f"groups {TIMES} ranks",
    "slices",
    "T_P",
    "S_P",
    "E_P",
    "R_P",
    "E_P/R_P",
    "memory a rank",
    "exchange",
)


def console() -> Console:
    """A console on standard output: as wide as the terminal, or wide enough for every table.

    Brackets in names of files and indices are no markup.
    """
    return Console(width=None if sys.stdout.isatty() else WIDTH_IN_A_FILE, highlight=False, markup=False)


def table(title: str, columns: Sequence[str], left: Sequence[str] = ()) -> Table:
    """An empty table; columns named in `left` are flush left, others flush right."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return made


def plan_facts(schedule: Schedule, devices: int) -> list[tuple[str, str]]:
    """What a plan amounts to, as names and values."""
    expected = schedule.predicted
    groups = used_groups(schedule, devices)
    idle = devices - groups * schedule.ranks_per_group
    grid = f" {TIMES} ".join(str(digit.radix) for digit in schedule.grid) or "1"
    states = ", ".join(f"{count} {state}" for state, count in state_counts(schedule).items()) or "none"
    fused, chains = fused_counts(schedule)
    if fused:
        states += f"; {fused} of them fused in {chains} chain{'s' if chains > 1 else ''}"
    rounds = -(-schedule.n_slices // groups)
    moved_bytes = expected.once_moved_bytes + rounds * expected.slice_moved_bytes
    slices = ("", "")
    if schedule.sliced:
        slices = (
            f": {time_text(expected.once_s)} before the first slice, {time_text(expected.slice_s)} each",
            f", {size_text(expected.slice_moved_bytes)} a slice",
        )
    compressed = [] if schedule.compression is None else [("compressed", _compressed_text(schedule))]
    ranks = f"{groups} group{'s' if groups > 1 else ''} of {schedule.ranks_per_group}, process grid {grid}"
    limit = "unlimited" if schedule.memory_bytes is None else size_text(schedule.memory_bytes)
    return [
        ("network", f"{schedule.name or 'unnamed'} ({len(schedule.leaves)} tensors, {schedule.dtype})"),
        ("hardware", f"{schedule.profile['name']}, {schedule.precision}, policy {schedule.policy}"),
        (
            "slices",
            f"{figure_text(schedule.n_slices)} over {len(schedule.sliced)} indices"
            if schedule.sliced
            else "none",
        ),
        ("ranks", ranks + (f", {idle} of {devices} devices idle" if idle > 0 else "")),
        ("steps", states),
        ("predicted time", f"{time_text(schedule.projected_s(groups))}{slices[0]}"),
        ("bytes moved", f"{size_text(moved_bytes)} a rank{slices[1]}"),
        ("peak memory", f"{size_text(expected.peak_bytes)} a rank (limit {limit})"),
        *compressed,
        ("identity", schedule.identity[:16]),
    ]


def _compressed_text(schedule: Schedule) -> str:
    """What of a schedule is compressed, and the memory that a codec takes beside the peak."""
    exchanges, stored = schedule.compressed_counts
    named = (("exchanges", exchanges), ("tensors that wait", stored))
    counts = [f"{name}: {count}" for name, count in named if count]
    if schedule.compression is None or not counts:
        return "nothing: no exchange is predicted to be faster, and memory is not short"
    beside_bytes = schedule.profile["codecs"][schedule.compression.setting]["workspace_bytes"]
    return f"{', '.join(counts)}; {size_text(beside_bytes)} beside the peak"


def facts_table(title: str, facts: Sequence[tuple[str, str]]) -> Table:
    """Names and values in two columns."""
    made = Table(
        title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
    )
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in facts:
        made.add_row(name, value)
    return made


def steps_table(schedule: Schedule, chain: Sequence[Link], title: str) -> Table:
    """One row a step; distributed modes carry a star."""
    made = table(
        title,
        ("step", "state", "A", "B", "output", "m · n · k", "moved", "time", "modes"),
        ("state", "modes"),
    )
    for link in chain:
        step = link.step
        names = mode_names(schedule, step.c_modes, step.layout)
        shape = f"{step.m} · {step.n} · {step.k}" + (f" (batch {step.batch})" if step.batch > 1 else "")
        made.add_row(
            str(link.number),
            step.state
            + (" (once)" if step.once else "")
            + ("" if step.fused is None else f" (chain {step.fused})"),
            size_text(link.a_bytes),
            size_text(link.b_bytes),
            size_text(link.c_bytes),
            shape,
            size_text(step.moved_bytes),
            time_text(step.predicted_s),
            " ".join(names[:8]) + (f" +{len(names) - 8}" if len(names) > 8 else ""),
        )
    return made


def projection_cells(projection: Projection, row: Row) -> tuple[str, ...]:
    """The cells of one row under `PROJECTION_COLUMNS`."""
    idle = f" ({row.idle_devices} idle)" if row.idle_devices else ""
    return (
        str(row.devices),
        projection.labels[row.path],
        f"{row.n_groups} {TIMES} {row.ranks_per_group}{idle}",
        figure_text(row.schedule.n_slices),
        time_text(row.time_s),
        figure_text(row.speedup),
        figure_text(row.extra_speedup),
        figure_text(row.complexity_reduction),
        figure_text(row.captured),
        size_text(row.peak_bytes),
        percent_text(row.exchange_share),
    )


def projection_table(projection: Projection) -> Table:
    """The metrics of the paper's section V-A, one row a number of devices."""
    made = table(f"Projected on {projection.profile.name}", PROJECTION_COLUMNS, ("path",))
    for row in projection.rows:
        made.add_row(*projection_cells(projection, row))
    return made


def projection_notes(projection: Projection) -> list[str]:
    """What a reader of the table must know besides."""
    notes = [f"{refusal.devices} devices: nothing fits; {refusal.reason}" for refusal in projection.refusals]
    if projection.baseline_devices > 1:
        notes.append(
            f"No path fits on fewer devices than {projection.baseline_devices}: "
            f"S_P, E_P and R_P count from there, not from one device."
        )
    return notes
