"""The rows of the paper's evaluation, for a terminal and for the page: slices, memory, the paper's values.

Makes cells of text and notes from projections; draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.planner.common.units import figure_text, percent_text, time_text
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import Projection, Row
from tnplan.reporting.memory_only import MemoryPoint, memory_points
from tnplan.reporting.paper_values import PaperRow, PaperWorkload, paper_workload
from tnplan.reporting.tables import Listing

SLICE_COLUMNS = ("P", "t_P", "sliced", "TFLOP/s a device", "saved by reuse", "why E_P does not rise")
MEMORY_COLUMNS = ("P", "log10 C_t,P", "sliced", "path", "searches", "their log10 C_t", "their sliced")
PAPER_COLUMNS = ("P", "", "t_P", "sliced", "S_P", "E_P", "R_P", "TFLOP/s a device", "T_P", "T_P paper / ours")
NOTHING = "\u2013"


def workload_name(projection: Projection) -> str:
    """What the paths of a projection are called, shortest first."""
    names = sorted({path.name or "unnamed network" for path in projection.paths}, key=lambda n: (len(n), n))
    return names[0]


def slice_rows(projection: Projection) -> list[tuple[str, ...]]:
    """The cells under `SLICE_COLUMNS`."""
    why = {plateau.devices: f"{plateau.cause}: {plateau.text}" for plateau in plateaus(projection)}
    return [
        (
            str(row.devices),
            time_text(row.slice_time_s),
            str(len(row.schedule.sliced)),
            _rate_text(row.flop_per_s),
            percent_text(row.reuse_saving),
            why.get(row.devices, ""),
        )
        for row in projection.rows
    ]


def memory_rows(projection: Projection) -> list[tuple[str, ...]]:
    """The cells under `MEMORY_COLUMNS`: the paper's Fig. 1."""
    return [
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


def paper_rows(projection: Projection) -> list[tuple[str, ...]]:
    """The cells under `PAPER_COLUMNS`: ours and the paper's, where it says something."""
    known = paper_workload(projection)
    rows: list[tuple[str, ...]] = []
    for row in projection.rows if known else ():
        assert known is not None
        theirs = known.rows.get(row.devices, PaperRow())
        time_s = known.time_s(row.devices)
        if time_s is None and theirs == PaperRow():
            continue
        rows.append(_our_cells(row, time_s))
        rows.append(_their_cells(theirs, time_s))
    return rows


def evaluation_notes(projection: Projection) -> list[str]:
    """What a reader must know of the figures: how they compare with the paper's, and what is not modelled."""
    notes = []
    known = paper_workload(projection)
    if known is not None and projection.baseline_devices == 1:
        notes.append(_baseline_note(projection, known))
    if not projection.profile.fused_bytes:
        notes.append(
            f"{projection.profile.name} has no rates of fused chains: every step reads and writes its "
            "tensors whole, so thin steps are bound by the memory's bandwidth."
        )
    return notes


def evaluation_tables(projection: Projection) -> list[Listing]:
    """The tables for a terminal; that of the paper's values only where it has some."""
    made = [
        _filled("Slices", SLICE_COLUMNS, slice_rows(projection), ("why E_P does not rise",)),
        _filled(
            "What memory alone buys: operations of paths that fit (Fig. 1)",
            MEMORY_COLUMNS, memory_rows(projection), ("path",),
        ),
    ]  # fmt: skip
    beside = paper_rows(projection)
    if beside:
        made.append(_filled("Beside the paper, on DGX H100", PAPER_COLUMNS, beside, ("",), keys=2))
    return made


def comparison_rows(projections: Sequence[Projection], devices: int) -> list[tuple[str, ...]]:
    """One row a projection at `devices` devices, as the paper's Tables II and III."""
    rows: list[tuple[str, ...]] = []
    for projection in projections:
        for row in projection.rows:
            if row.devices == devices:
                cells = (
                    time_text(row.slice_time_s), str(len(row.schedule.sliced)), figure_text(row.speedup),
                    figure_text(row.extra_speedup), figure_text(row.complexity_reduction),
                    _rate_text(row.flop_per_s), time_text(row.time_s),
                )  # fmt: skip
                rows.append((workload_name(projection), projection.profile.name, *cells))
    return rows


COMPARISON_COLUMNS = ("workload", "hardware", *PAPER_COLUMNS[2:-1])


def point_log10(point: MemoryPoint) -> float:
    """What Fig. 1 draws for a point: the mean over searches, or the best where there is one search."""
    return point.mean_log10_flops if point.searches > 1 else point.log10_flops


def _filled(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str], keys: int = 1
) -> Listing:
    made = Listing(title, columns, left, keys)
    for row in rows:
        made.add_row(*row)
    return made


def _our_cells(row: Row, paper_s: float | None) -> tuple[str, ...]:
    return (
        str(row.devices),
        "ours",
        time_text(row.slice_time_s),
        str(len(row.schedule.sliced)),
        figure_text(row.speedup),
        figure_text(row.extra_speedup),
        figure_text(row.complexity_reduction),
        _rate_text(row.flop_per_s),
        time_text(row.time_s),
        NOTHING if paper_s is None or not row.time_s else figure_text(paper_s / row.time_s),
    )


def _their_cells(row: PaperRow, time_s: float | None) -> tuple[str, ...]:
    return (
        "",
        "paper",
        NOTHING if row.slice_time_s is None else time_text(row.slice_time_s),
        NOTHING if row.sliced is None else str(row.sliced),
        _figure(row.speedup),
        _figure(row.extra_speedup),
        _figure(row.complexity_reduction),
        NOTHING if row.flop_per_s is None else _rate_text(row.flop_per_s),
        NOTHING if time_s is None else f"{time_text(time_s)} (implied)",
        "",
    )


def _baseline_note(projection: Projection, known: PaperWorkload) -> str:
    first = projection.rows[0]
    ours, theirs = first.complexity, known.one_device_complexity
    text = (
        f"One device: the paper's tables imply {figure_text(theirs)} operations and "
        f"{time_text(known.one_device_s)}; our path takes {figure_text(ours)} and {time_text(first.time_s)}."
    )
    if ours < theirs:
        text += " R_P and E_P count from the one-device path: the better it is, the smaller they are."
    return text


def _figure(value: float | None) -> str:
    return NOTHING if value is None else figure_text(value)


def _rate_text(flop_per_s: float) -> str:
    rate = flop_per_s / 1e12
    return figure_text(rate) if rate >= 1 else f"{rate:.3g}"


def _spread_text(average: float, spread: float | None, digits: int) -> str:
    return f"{average:.{digits}f}" if spread is None else f"{average:.{digits}f} \u00b1 {spread:.{digits}f}"
