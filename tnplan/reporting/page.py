"""The HTML page of one projection or several: one file that asks nothing of the network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version

from tnplan.planner.common.units import count_text, figure_text, percent_text, size_text, time_text
from tnplan.planner.projection.projection import Projection, Row
from tnplan.reporting import plots
from tnplan.reporting.chain import largest, repeats, state_counts, use_chain
from tnplan.reporting.evaluation import (
    COMPARISON_COLUMNS,
    MEMORY_COLUMNS,
    PAPER_COLUMNS,
    SLICE_COLUMNS,
    comparison_rows,
    evaluation_notes,
    memory_rows,
    paper_rows,
    slice_rows,
)
from tnplan.reporting.style import CSS
from tnplan.reporting.tables import PROJECTION_COLUMNS, TIMES, projection_cells, projection_notes

TABULATED = (8, 1024)
"""The numbers of devices of the paper's Tables II and III."""
NOTES = (
    "All times are predictions of the planner's cost model, not measurements.",
    "Groups of ranks contract whole slices side by side: T is the time of the steps that no slice touches, "
    "plus that of the rounds of slices. Adding up the groups' partial results is not counted.",
    "For each number of devices the path and the size of group with the least time are chosen; devices that "
    "no group can use stay idle.",
    "The baseline is the best of the given paths by itself; a better path for it would lower S, E and R.",
)


def projection_page(projection: Projection) -> str:
    """The page of one projection as HTML text."""
    return report_page([projection])


def report_page(projections: Sequence[Projection], left_out: Sequence[str] = ()) -> str:
    """The whole page as HTML text; several projections are compared first, and follow folded up. It ends with
    lines on those that are left out."""
    if len(projections) == 1:
        title = _names(projections[0])
        body = f"<h1>{escape(title)}</h1>\n{_projection(projections[0])}"
    else:
        title = f"{len(projections)} projections"
        folded = "\n".join(
            f"<details><summary>{escape(_names(one))} on {escape(one.profile.name)}</summary>\n"
            f"{_projection(one)}</details>"
            for one in projections
        )
        body = f"<h1>{title}</h1>\n{_comparison(projections)}\n{folded}"
    body += "".join(f"\n<p>{escape(line)}</p>" for line in left_out)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}: projected contraction</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _names(projection: Projection) -> str:
    return " and ".join(dict.fromkeys(path.name or "unnamed network" for path in projection.paths))


def _comparison(projections: Sequence[Projection]) -> str:
    """All projections in one plot, and those numbers of devices that the paper tabulates, or the largest."""
    parts = [
        _plot(
            "Projected speedup",
            "Against the number of devices, each from its own path on one device, or on the fewest that hold "
            "one: a weak one makes it large.",
            plots.comparison_svg(projections, page=True),
        )
    ]
    shown = {row.devices for projection in projections for row in projection.rows}
    for devices in sorted(shown.intersection(TABULATED)) or [max(shown)]:
        listed = _table(COMPARISON_COLUMNS, comparison_rows(projections, devices), ("workload", "hardware"))
        on = count_text(devices, "device", "devices")
        parts.append(f"<section><h2>On {on}</h2>{listed}</section>")
    return "\n".join(parts)


def _projection(projection: Projection) -> str:
    return "\n".join(
        (
            f'<p class="soft">{escape(_headline(projection))}</p>',
            _cards(projection),
            _metrics(projection),
            _evaluation(projection),
            _plot(
                "Projected speedup",
                "Against the number of devices. Points above the dashed line gain more than slicing can.",
                plots.speedup_svg(projection, page=True),
            ),
            _plot(
                "Complexity reduction and extra speedup",
                "Fewer operations, because larger tensors fit together (R), and what of it becomes time (E). "
                "The closer the two, the less the exchanges cost.",
                plots.complexity_svg(projection, page=True),
            ),
            _plot(
                "Where the time goes",
                "Share of products, permutations and exchanges in the predicted time over each bar.",
                plots.split_svg(projection, page=True),
            ),
            *(_chain(projection, row) for row in _shown_chains(projection)),
            _assumptions(projection),
            _schedules(projection),
        )
    )


def _evaluation(projection: Projection) -> str:
    """Slices and plateaus, the paper's values beside ours, and what memory alone buys."""
    why = SLICE_COLUMNS[-1]
    parts = [f"<section><h2>Slices</h2>{_table(SLICE_COLUMNS, slice_rows(projection), (why,))}</section>"]
    notes = "".join(f"<p>{escape(note)}</p>" for note in evaluation_notes(projection))
    beside = paper_rows(projection)
    if beside:
        listed = _table(PAPER_COLUMNS, beside, ("",))
        parts.append(f"<section><h2>Beside the paper, on DGX H100</h2>{notes}{listed}</section>")
    elif notes:
        parts.append(f"<section>{notes}</section>")
    parts.append(
        '<section><h2>What memory alone buys</h2><p class="soft">Operations and sliced indices of paths '
        "whose largest step fits together in the memory of the devices; exchanges play no part. Points are "
        "means over repeated searches under one limit, with their standard deviation.</p>"
        f"{plots.memory_svg(projection, page=True)}"
        f"{_table(MEMORY_COLUMNS, memory_rows(projection), ('path',))}</section>"
    )
    return "\n".join(parts)


def _headline(projection: Projection) -> str:
    counts = [row.devices for row in projection.rows]
    span = f"{counts[0]} to {counts[-1]} devices" if len(counts) > 1 else f"{counts[0]} device"
    return f"Projected contraction on {span} of {projection.profile.name}, before anything is run."


def _cards(projection: Projection) -> str:
    row = projection.rows[-1]
    cards = (
        (f"Time on {count_text(row.devices, 'device', 'devices')}", time_text(row.time_s)),
        ("Speedup", figure_text(row.speedup)),
        ("Extra speedup", figure_text(row.extra_speedup)),
        ("Complexity reduction", figure_text(row.complexity_reduction)),
        ("Time in exchanges", percent_text(row.exchange_share)),
    )
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><div class="name">{escape(name)}</div>'
            f'<div class="value">{escape(value)}</div></div>'
            for name, value in cards
        )
        + "</div>"
    )


def _metrics(projection: Projection) -> str:
    rows = [projection_cells(projection, row) for row in projection.rows]
    refused = "".join(
        f'<tr><td>{refusal.devices}</td><td class="wrap" colspan="{len(PROJECTION_COLUMNS) - 1}">'
        f"nothing fits: {escape(refusal.reason)}</td></tr>"
        for refusal in projection.refusals
    )
    base = projection.baseline_devices
    start = "1" if base == 1 else str(base)
    notes = "".join(
        f"<p>{escape(note)}</p>" for note in projection_notes(projection) if "nothing fits" not in note
    )
    return (
        "<section><h2>Figures</h2>"
        '<p class="soft">T<sub>P</sub> is the time to the full contraction on P devices, '
        f"S<sub>P</sub> = T<sub>{start}</sub> / T<sub>P</sub> the speedup, "
        f"E<sub>P</sub> = S<sub>P</sub> / P{'' if base == 1 else f' {TIMES} {base}'} the extra speedup "
        f"beyond ideal slicing, R<sub>P</sub> = C<sub>t,{start}</sub> / C<sub>t,P</sub> the reduction in "
        "operations, all slices included.</p>"
        f"{notes}{_table(PROJECTION_COLUMNS, rows, ('path',), refused)}</section>"
    )


def _plot(title: str, explanation: str, svg: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="soft">{escape(explanation)}</p>{svg}</section>'


def _shown_chains(projection: Projection) -> list[Row]:
    """The first row whose schedule distributes, and the last row."""
    distributed = [row for row in projection.rows if set(state_counts(row.schedule)) - {"local"}]
    chosen = [*distributed[:1], projection.rows[-1]]
    return list({row.devices: row for row in chosen}.values())


def _chain(projection: Projection, row: Row) -> str:
    schedule = row.schedule
    counts = ", ".join(f"{count} {state}" for state, count in state_counts(schedule).items()) or "none"
    groups = f"{row.n_groups} group{'s' if row.n_groups > 1 else ''} of {row.ranks_per_group}"
    rounds = -(-schedule.n_slices // row.n_groups)
    moved = schedule.predicted.once_moved_bytes + rounds * schedule.predicted.slice_moved_bytes
    text = (
        f"{projection.labels[row.path]}, {groups}, "
        f"{count_text(schedule.n_slices, 'slice', 'slices')}. "
        f"Steps: {counts}. A rank receives {size_text(moved)} in all."
    )
    times = repeats(schedule, row.n_groups)
    cells = [
        (
            str(link.number),
            link.step.state,
            size_text(link.a_bytes),
            size_text(link.b_bytes),
            size_text(link.c_bytes),
            size_text(link.step.moved_bytes),
            time_text(link.step.predicted_s),
            percent_text(times(link.step) * link.step.predicted_s / row.time_s if row.time_s else 0),
        )
        for link in largest(use_chain(schedule), 8)
    ]
    columns = ("step", "state", "A", "B", "output", "moved a rank", "time", "of T_P")
    longest = (
        f'<p class="soft">The steps that take longest:</p>{_table(columns, cells, ("state",))}'
        if cells
        else ""
    )
    title = f"Use-chain on {row.devices} device{'s' if row.devices > 1 else ''}"
    return (
        f'<section><h2>{title}</h2><p class="soft">{escape(text)}</p>'
        f"{plots.chain_svg(schedule, page=True)}{longest}</section>"
    )


def _assumptions(projection: Projection) -> str:
    profile = projection.profile
    used = {(row.schedule.dtype, row.schedule.precision) for row in projection.rows}
    rates = ", ".join(
        f"{profile.rate(dtype, precision) / 1e12:.3g} TFLOP/s in {dtype} {precision}"
        for dtype, precision in sorted(used)
    )
    facts = [
        ("hardware", profile.name),
        ("arithmetic", rates),
        (
            "memory",
            f"{size_text(profile.memory_bytes)} a device, {profile.memory_bytes_per_s / 1e9:.4g} GB/s",
        ),
        ("limit a rank", size_text(projection.memory_bytes)),
        (
            "large from",
            ", ".join(sorted({size_text(row.schedule.threshold_bytes) for row in projection.rows})),
        ),
        *(
            (
                tier.name,
                f"{tier.bytes_per_s / 1e9:.4g} GB/s one way a device, {time_text(tier.latency_s)} a message"
                + (f", {tier.devices} devices" if tier.devices else ""),
            )
            for tier in profile.tiers
        ),
        ("policy", projection.policy),
        ("paths given", ", ".join(projection.labels)),
    ]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return (
        f"<section><h2>Assumptions</h2><dl>{listed}</dl>"
        f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in NOTES)}</ul></section>"
    )


def _schedules(projection: Projection) -> str:
    rows = [
        (
            str(row.devices),
            projection.labels[row.path],
            f"<code>{escape(row.schedule.identity)}</code>",
        )
        for row in projection.rows
    ]
    body = "".join(
        f'<tr><td>{p}</td><td class="left">{escape(label)}</td><td class="left">{code}</td></tr>'
        for p, label, code in rows
    )
    return (
        f'<section><h2>Schedules</h2><p class="soft">Written by tnplan {version("tnplan")}; '
        "the identity is the SHA-256 of everything that changes the result.</p>"
        '<div class="scroll"><table><tr><th>P</th><th class="left">path</th>'
        f'<th class="left">identity</th></tr>{body}</table></div></section>'
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str], more: str = "") -> str:
    sides = [' class="left"' if column in left else "" for column in columns]
    head = "".join(f"<th{side}>{_symbol(column)}</th>" for column, side in zip(columns, sides, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{side}>{escape(cell)}</td>" for cell, side in zip(row, sides, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}{more}</table></div>'


def _symbol(column: str) -> str:
    """A column's name with its subscripts: 'E_P/R_P' -> 'E<sub>P</sub>/R<sub>P</sub>'."""
    return re.sub(r"_(t,P|t|P)", r"<sub>\1</sub>", escape(column))
