"""The HTML page of one projection or several: one file that loads nothing from the network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from tnplan.common.release import release
from tnplan.common.shown_text import shown_text
from tnplan.common.units import count_text, percent_text, rate_text, size_text, time_text
from tnplan.planner.projection.projection import Projection, Row
from tnplan.reporting import evaluation, plots
from tnplan.reporting.chain import largest, repeats, state_counts, use_chain
from tnplan.reporting.tables import (
    Listing,
    figures,
    projection_legend,
    projection_notes,
    projection_table,
    recommendation,
)

TABULATED = (8, 1024)
"""Of several projections, these numbers of devices have a table, as in the paper: a node, and many."""
NOTES = (
    "All times are predictions of the planner's cost model, not measurements.",
    "Groups of ranks contract whole slices side by side: T is the time of the steps that no slice touches, "
    "plus that of the rounds of slices. Adding up the groups' partial results is not counted.",
    "For each number of devices the path and the size of group with the least time are chosen; devices that "
    "no group can use stay idle.",
    "A faster path for the baseline than those compared would lower S, E and R.",
)


def report_page(projections: Sequence[Projection], left_out: Sequence[str] = ()) -> str:
    """The whole page as HTML text; several projections are compared first, and follow folded up.

    It ends with lines on those that are left out. Published values stand beside those of their workloads.
    """
    if len(projections) == 1:
        title = evaluation.workload_title(projections[0])
        body = f"<h1>{escape(title)}</h1>\n{_projection(projections[0])}"
    else:
        title = f"{len(projections)} projections"
        folded = "\n".join(
            f"<details><summary>{escape(evaluation.workload_title(projection))} on "
            f"{escape(shown_text(projection.profile.name))}</summary>\n"
            f"{_projection(projection)}</details>"
            for projection in projections
        )
        body = f"<h1>{title}</h1>\n{_comparison(projections)}\n{folded}"
    body += "".join(f"\n<p>{escape(line)}</p>" for line in left_out)
    # One file, style included: a page that was sent on needs nothing else.
    css = (resources.files("tnplan.reporting") / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}: projected contraction</title>\n<style>\n{css}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _comparison(projections: Sequence[Projection]) -> str:
    """All projections in one plot, and those numbers of devices that the paper tabulates, or the largest."""
    parts = [
        _section(
            "Projected speedup",
            plots.svg(plots.comparison, projections, page=True, height=4.6),
            "Against the number of devices, each from its own path on one device, or on the fewest that hold "
            "one. The first lines of each projection say what this path was compared with.",
        )
    ]
    shown = {row.devices for projection in projections for row in projection.rows}
    for devices in sorted(shown.intersection(TABULATED)) or [max(shown)]:
        on = count_text(devices, "device", "devices")
        parts.append(_section(f"On {on}", _table(evaluation.comparison_table(projections, devices))))
    return "\n".join(parts)


def _projection(projection: Projection) -> str:
    plotted = (
        (
            "Projected speedup", plots.speedup, 3.9,
            "Against the number of devices. Points above the dashed line gain more than slicing can.",
        ),
        (
            "Complexity reduction and extra speedup", plots.complexity, 3.4,
            "Fewer operations, because larger tensors fit together (R), and what of it becomes time (E). "
            "The closer the two, the less the exchanges cost.",
        ),
        (
            "Where the time goes", plots.split, 3.2,
            "Share of products, permutations and exchanges in the predicted time over each bar.",
        ),
    )  # fmt: skip
    pictures = [
        _section(title, plots.svg(draw, projection, page=True, height=height), text)
        for title, draw, height, text in plotted
    ]
    return "\n".join(
        (
            f"<p><strong>{escape(' '.join(recommendation(projection)))}</strong></p>",
            f'<p class="soft">{escape(_headline(projection))}</p>',
            _cards(projection),
            pictures[0],
            _metrics(projection),
            *_evaluation(projection),
            *pictures[1:],
            *(_chain(projection, row) for row in _shown_chains(projection)),
            _assumptions(projection),
            _schedules(projection),
        )
    )


def _evaluation(projection: Projection) -> list[str]:
    """Slices and plateaus, and what memory alone buys."""
    slices, memory = evaluation.slice_table(projection), evaluation.memory_table(projection)
    parts = [_explained("Slices", slices.legend(evaluation.SLICES_LEGEND), _table(slices))]
    notes = _paragraphs(evaluation.evaluation_notes(projection))
    if notes:
        parts.append(f"<section>{notes}</section>")
    plot = plots.svg(plots.memory, projection, page=True)
    parts.append(
        _explained(
            "What more memory saves",
            f"{memory.legend(evaluation.MEMORY_LEGEND)} Points of the plot are these paths, or the means of "
            "several searches with their standard deviation.",
            plot + _table(memory),
        )
    )
    return parts


def _headline(projection: Projection) -> str:
    counts = [row.devices for row in projection.rows]
    span = f"{counts[0]} to {counts[-1]} devices" if len(counts) > 1 else f"{counts[0]} device"
    machine = shown_text(projection.profile.name)
    return f"Projected contraction on {span} of {machine}, before anything is run."


def _cards(projection: Projection) -> str:
    """Figures of the last row; no speedups where no path for the baseline was searched."""
    row = projection.rows[-1]
    shown = {"T_P": f"Time on {count_text(row.devices, 'device', 'devices')}"}
    if projection.has_searched_baseline:
        shown |= {"S_P": "Speedup", "E_P": "Extra speedup", "R_P": "Complexity reduction"}
    shown["exchange"] = "Time in exchanges"
    cards = "".join(
        f'<div class="card"><div class="name">{escape(name)}</div>'
        f'<div class="value">{escape(value)}</div></div>'
        for name, value in zip(shown.values(), figures(row, [*shown]), strict=True)
    )
    return f'<div class="cards">{cards}</div>'


def _metrics(projection: Projection) -> str:
    listed = projection_table(projection)
    refused = "".join(
        f'<tr><td>{refusal.devices}</td><td class="wrap" colspan="{len(listed.columns) - 1}">'
        f"nothing fits: {escape(refusal.reason)}</td></tr>"
        for refusal in projection.refusals
    )
    notes = _paragraphs(note for note in projection_notes(projection) if "nothing fits" not in note)
    text = projection_legend(projection)
    return _explained("Figures", text, f"{notes}{_table(listed, refused)}")


def _shown_chains(projection: Projection) -> list[Row]:
    """The first row whose schedule distributes, and the last row."""
    distributed = [row for row in projection.rows if set(state_counts(row.schedule)) - {"local"}]
    chosen = [*distributed[:1], projection.rows[-1]]
    return list({row.devices: row for row in chosen}.values())


def _chain(projection: Projection, row: Row) -> str:
    schedule = row.schedule
    counts = ", ".join(f"{count} {state}" for state, count in state_counts(schedule).items()) or "none"
    groups = f"{row.n_groups} group{'s' if row.n_groups > 1 else ''} of {row.ranks_per_group}"
    # The group with most slices decides what a rank receives.
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
        f'<p class="soft">The steps that take longest:</p>{_table(Listing("", columns, cells, ("state",)))}'
        if cells
        else ""
    )
    title = f"Use-chain on {row.devices} device{'s' if row.devices > 1 else ''}"
    return _section(title, plots.svg(plots.chain, schedule, page=True) + longest, text)


def _assumptions(projection: Projection) -> str:
    profile = projection.profile
    used = {(row.schedule.dtype, row.schedule.precision) for row in projection.rows}
    rates = ", ".join(
        f"{rate_text(profile.rate(dtype, precision), 'FLOP/s')} in {dtype} {precision}"
        for dtype, precision in sorted(used)
    )
    memory = f"{size_text(profile.memory_bytes)} per device, {rate_text(profile.memory_bytes_per_s, 'B/s')}"
    large = sorted({size_text(row.schedule.threshold_bytes) for row in projection.rows})
    tiers = [
        (
            shown_text(tier.name),
            f"{rate_text(tier.bytes_per_s, 'B/s')} one way per device, "
            f"{time_text(tier.latency_s)} per message"
            + (f", {tier.devices} devices" if tier.devices else ""),
        )
        for tier in profile.tiers
    ]
    facts = [
        ("hardware", shown_text(profile.name)),
        ("arithmetic", rates),
        ("memory", memory),
        ("limit a rank", size_text(projection.memory_bytes)),
        ("large from", ", ".join(large)),
        *tiers,
        *([("policy", projection.policy)] if projection.policy != "ours" else []),
        ("paths compared", ", ".join(projection.labels)),
    ]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    notes = "".join(f"<li>{escape(note)}</li>" for note in NOTES)
    return _section("Assumptions", f"<dl>{listed}</dl><ul>{notes}</ul>")


def _schedules(projection: Projection) -> str:
    rows = [(str(row.devices), projection.labels[row.path], row.schedule.identity) for row in projection.rows]
    listed = Listing("", ("P", "path", "identity"), rows, ("path", "identity"))
    return _section(
        "Schedules",
        _table(listed, code="identity"),
        f"Written by tnplan {release()}; the identity is the SHA-256 of everything that changes the result.",
    )


def _section(title: str, body: str, text: str = "") -> str:
    """A part of the page under a heading, with an explanation."""
    explained = f'<p class="soft">{escape(text)}</p>' if text else ""
    return f"<section><h2>{escape(title)}</h2>{explained}{body}</section>"


def _explained(title: str, legend: str, body: str) -> str:
    """A part of the page whose explanation has subscripts."""
    return _section(title, f'<p class="soft">{_subscripts(legend)}</p>{body}')


def _paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _table(listed: Listing, more: str = "", code: str | None = None) -> str:
    """A table, with `more` rows at its end; the cells of the column `code` are code."""
    flush = [' class="left"' if column in listed.left else "" for column in listed.columns]
    head = "".join(
        f"<th{left}>{_subscripts(column)}</th>" for column, left in zip(listed.columns, flush, strict=True)
    )
    marks = [("<code>", "</code>") if column == code else ("", "") for column in listed.columns]
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{left}>{start}{escape(cell)}{end}</td>"
            for cell, left, (start, end) in zip(row, flush, marks, strict=True)
        )
        + "</tr>"
        for row in listed.rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}{more}</table></div>'


def _subscripts(text: str) -> str:
    """Text with its subscripts: 'E_P/R_P' -> 'E<sub>P</sub>/R<sub>P</sub>'."""
    return re.sub(r"_(t,P|t,[0-9]+|t|P|[0-9]+)\b", r"<sub>\1</sub>", escape(text))
