"""The plots, as SVG text: speedup, complexity, time split, and the use-chain of the paper's Fig. 5.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; every state of a step has a
mark of its own besides. For a page, colours become CSS variables so that they follow its light or dark look.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import log10
from types import MappingProxyType
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tnplan.common.shown_text import shown_text
from tnplan.common.units import count_text, figure_text, power_text, size_text, time_text
from tnplan.executor.pauli.terms.ledger import Record
from tnplan.planner.projection.projection import Projection
from tnplan.planner.schedule.schedule import Schedule
from tnplan.reporting.chain import use_chain
from tnplan.reporting.evaluation import memory_points, workload_name

Drawn = TypeVar("Drawn")
COLOURS = {
    "text": "#1b1f24", "line": "#d4d9df", "blue": "#0072b2", "vermilion": "#d55e00", "green": "#009e73",
    "purple": "#cc79a7", "orange": "#e69f00", "grey": "#7a828c",
}  # fmt: skip
"""By the names of the page's CSS variables."""
TEXT, GRID, BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY = COLOURS.values()
MARKS = {
    "local": ("s", GREY),
    "keep": ("o", BLUE),
    "redistribute": ("D", VERMILION),
    "activate": ("^", GREEN),
    "gather": ("v", PURPLE),
    "reduce": ("X", ORANGE),
}
FIXED: Any = {"svg.hashsalt": "tnplan", "svg.fonttype": "path", "font.size": 9.5}
"""The style of all figures; the salt makes equal figures equal files."""
LEAST_LOG10 = 0.2
"""What an axis of logarithms of operations spans at least."""
FEWEST_BARS = 5
"""Fewer bars are as wide as so many."""


class Plot(Figure):
    """A figure of matplotlib that any notebook shows, and the style that it was drawn in."""

    style: Any = MappingProxyType({})

    def _repr_svg_(self) -> str:
        return svg_of(self)


def svg(draw: Callable[[Axes, Drawn], None], drawn: Drawn, page: bool = False, height: float = 3.4) -> str:
    """What `draw` draws, 9 inches wide and `height` inches high; `page`: to stand in the page."""
    figure = styled(draw, drawn, height, "none" if page else "path")
    return _for_page(svg_of(figure, page)) if page else svg_of(figure)


def styled(
    draw: Callable[[Axes, Drawn], None], drawn: Drawn, height: float = 3.4, fonts: str = "path"
) -> Plot:
    """What `draw` draws, in the report's style."""
    style = {
        "svg.fonttype": fonts,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), TEXT),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "xtick.minor.visible"), False),
        "axes.edgecolor": GREY,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "lines.linewidth": 1.6,
    }
    return plain(lambda axes: draw(axes, drawn), height, style)


def plain(fill: Callable[[Axes], None], height: float, style: Any = MappingProxyType({})) -> Plot:
    """What `fill` draws in matplotlib's own style but for what `style` changes."""
    figure_style = {**FIXED, **style}
    with matplotlib.rc_context(figure_style):
        figure = Plot(figsize=(9, height), layout="constrained")
        figure.style = figure_style
        fill(figure.subplots())
    return figure


def svg_of(figure: Plot, transparent: bool = False) -> str:
    """The figure as SVG; the same text each time."""
    stream = io.StringIO()
    with matplotlib.rc_context(figure.style):
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=transparent)
    return stream.getvalue()


def _for_page(svg: str) -> str:
    """An SVG to stand inside a page: no XML header, no group names, the page's font, colours by name."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font: \1 var(--font)", svg)
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg


def chain(axes: Axes, schedule: Schedule) -> None:
    """Output size along the use-chain; marks show the state of each step (paper, Fig. 5)."""
    links = use_chain(schedule)
    if not links:
        axes.text(0.5, 0.5, "no step is large: nothing to distribute", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    steps = [link.number for link in links]
    sizes = [link.c_bytes for link in links]
    axes.set_yscale("log", base=2)
    floor = min([*sizes, schedule.threshold_bytes]) / 2
    # Areas are drawn for runs of neighbouring steps: no area spans steps that are not of the chain.
    for stretch in _stretches(steps):
        axes.fill_between(steps[stretch], sizes[stretch], floor, color=BLUE, alpha=0.13, linewidth=0)
        axes.plot(steps[stretch], sizes[stretch], color=BLUE, alpha=0.55, linewidth=1)
    for state, (mark, colour) in MARKS.items():
        here = [(link.number, link.c_bytes) for link in links if link.step.state == state]
        if here:
            axes.plot(
                *zip(*here, strict=True), mark, color=colour, label=f"{state} ({len(here)})",
                markersize=4 if state in ("keep", "local") else 7, clip_on=False,
            )  # fmt: skip
    axes.axhline(schedule.threshold_bytes, color=GREY, linestyle=":", linewidth=1.2)
    axes.annotate(
        f"threshold\n{_size_label(schedule.threshold_bytes)}", (1, schedule.threshold_bytes),
        xycoords=("axes fraction", "data"), xytext=(4, 0), textcoords="offset points", va="center",
        color=GREY,
    )  # fmt: skip
    axes.set_ylim(floor, max([*sizes, schedule.threshold_bytes]) * 2)
    axes.yaxis.set_major_formatter(lambda value, _: _size_label(value))
    axes.set_xlabel("step of the schedule")
    axes.set_ylabel("size of the output")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=6, handletextpad=0.3, columnspacing=1.4)


def _stretches(steps: list[int]) -> list[slice]:
    """Where the chain goes on without a long gap of small steps."""
    longest = max(16, (steps[-1] - steps[0]) // 20)
    cuts = [number for number in range(1, len(steps)) if steps[number] - steps[number - 1] > longest]
    return [slice(start, stop) for start, stop in zip([0, *cuts], [*cuts, len(steps)], strict=True)]


def speedup(axes: Axes, projection: Projection) -> None:
    """S_P against P, with the line of ideal slicing of the path that T_1 is of."""
    rows, base = projection.rows, projection.baseline_devices
    counts = _row_axis(axes, projection)
    axes.set_yscale("log")
    label = "ideal slicing"
    if not projection.has_searched_baseline:
        label += f" of {_name(projection.labels[rows[0].path])}, none searched"
    # Ideal slicing: P devices are P / base times as fast as the baseline's.
    axes.plot(counts, [p / base for p in counts], "--", color=GREY, label=label)
    axes.plot(counts, [row.speedup for row in rows], "o-", color=BLUE, label="projected", clip_on=False)
    row = rows[-1]
    axes.annotate(
        figure_text(row.speedup), (row.devices, row.speedup), xytext=(-6, 6), textcoords="offset points",
        ha="right", color=BLUE,
    )  # fmt: skip
    _log_labels(axes)
    axes.set_ylabel("speedup $S_P$" if base == 1 else f"speedup over {base} devices")
    axes.legend(loc="upper left")


def complexity(axes: Axes, projection: Projection) -> None:
    """R_P and E_P against P."""
    counts = _row_axis(axes, projection)
    axes.set_yscale("log")
    reduction = [row.complexity_reduction for row in projection.rows]
    extra = [row.extra_speedup for row in projection.rows]
    axes.plot(counts, reduction, "D--", color=VERMILION, label="complexity reduction $R_P$", clip_on=False)
    axes.plot(counts, extra, "o-", color=BLUE, label="extra speedup $E_P$", clip_on=False)
    low, high = min([*reduction, *extra]), max([*reduction, *extra])
    axes.set_ylim(min(low, 1) / 2, max(high, 1) * 2)
    _log_labels(axes)
    axes.set_ylabel(f"times that of {count_text(projection.baseline_devices, 'device', 'devices')}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, handletextpad=0.5)


def memory(axes: Axes, projection: Projection) -> None:
    """Operations and sliced indices of paths that fit, against P (paper, Fig. 1)."""
    from matplotlib.ticker import MaxNLocator

    points = memory_points(projection)
    counts = _row_axis(axes, projection)
    other = axes.twinx()
    other.grid(visible=False)
    lines: list[Any] = [
        side.errorbar(
            counts, values, [spread or 0.0 for spread in spreads], fmt=mark, color=colour, capsize=2.5,
            clip_on=False, label=label,
        )
        for side, colour, mark, label, values, spreads in (
            (axes, VERMILION, "o-", "operations",
             [p.mean_log10_flops for p in points], [p.spread_log10_flops for p in points]),
            (other, BLUE, "s-", "sliced indices",
             [p.mean_sliced for p in points], [p.spread_sliced for p in points]),
        )
    ]  # fmt: skip
    fewest = [point.log10_flops for point in points]
    # Where one path stands for each number of devices, it is that of fewest operations.
    if fewest != [point.mean_log10_flops for point in points]:
        lines += axes.plot(
            counts, fewest, "--", color=VERMILION, linewidth=1, label="path of fewest operations that fits"
        )
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, (low + high) / 2 - LEAST_LOG10 / 2), max(high, (low + high) / 2 + LEAST_LOG10 / 2))
    axes.set_ylabel("log$_{10}$ of all operations", color=VERMILION)
    other.set_ylabel("sliced indices", color=BLUE)
    other.set_ylim(0, max(1, 1.1 * max(point.mean_sliced + (point.spread_sliced or 0) for point in points)))
    other.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(handles=lines, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def comparison(axes: Axes, projections: Sequence[Projection]) -> None:
    """S_P against P for several projections, with the line of ideal slicing (paper, Fig. 6)."""
    counts = sorted({row.devices for projection in projections for row in projection.rows})
    machines = list(dict.fromkeys(projection.profile.name for projection in projections))
    _device_axis(axes, counts)
    if len(machines) == 1:
        _domain_line(axes, max(projections, key=lambda projection: projection.rows[-1].devices))
    axes.set_yscale("log")
    axes.plot(counts, counts, "--", color=GREY, label="ideal slicing")
    workloads = list(dict.fromkeys(workload_name(projection) for projection in projections))
    colours = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, TEXT)
    for projection in projections:
        workload, machine = workload_name(projection), projection.profile.name
        base = projection.baseline_devices
        axes.plot(
            [row.devices for row in projection.rows],
            [row.speedup for row in projection.rows],
            marker="osD^vX"[machines.index(machine) % 6],
            color=colours[workloads.index(workload) % len(colours)],
            label=_name(f"{workload}, {machine}")
            + (f", over {base} devices" if base > 1 else "")
            + ("" if projection.has_searched_baseline else ", no baseline searched"),
            markersize=4,
            linewidth=1.1,
        )
    _log_labels(axes)
    axes.set_ylabel("projected speedup $S_P$")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=7)


def split(axes: Axes, projection: Projection) -> None:
    """The shares of contraction, permutation, exchange and the rest in T_P, one bar for each P."""
    rows = projection.rows
    places = range(len(rows))
    kinds = (
        ("contract", BLUE, [row.split.contract_s for row in rows]),
        ("permute", ORANGE, [row.split.permute_s for row in rows]),
        ("exchange", VERMILION, [row.split.exchange_s for row in rows]),
        ("other", GREY, [row.split.other_s for row in rows]),
    )
    bottom = [0.0] * len(rows)
    for label, colour, seconds in kinds:
        # Shares of T_P, so that bars of very different times can be compared; the time stands above each.
        shares = [100 * s / row.time_s if row.time_s else 0 for s, row in zip(seconds, rows, strict=True)]
        axes.bar(places, shares, 0.66, bottom, color=colour, label=label)
        bottom = [low + share for low, share in zip(bottom, shares, strict=True)]
    for position, row in zip(places, rows, strict=True):
        axes.annotate(time_text(row.time_s).replace("years", "y"), (position, 101), ha="center", fontsize=7.5)
    axes.grid(visible=False, axis="x")
    axes.set_xticks(list(places), [str(row.devices) for row in rows])
    axes.set_xlim(-0.6, max(len(rows), FEWEST_BARS) - 0.4)
    axes.set_ylim(0, 109)
    axes.set_yticks([0, 25, 50, 75, 100], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.set_xlabel("devices $P$")
    axes.set_ylabel("share of $T_P$")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, handletextpad=0.5)


def _device_axis(axes: Axes, counts: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(p) for p in counts])
    axes.minorticks_off()
    axes.set_xlabel("devices $P$")


def _row_axis(axes: Axes, projection: Projection) -> list[int]:
    """The axis for the rows of a projection, and their numbers of devices."""
    counts = [row.devices for row in projection.rows]
    _device_axis(axes, counts)
    _domain_line(axes, projection)
    return counts


def _domain_line(axes: Axes, projection: Projection) -> None:
    """Where the devices are more than the first tier joins."""
    domain = projection.profile.tiers[0].devices
    if 0 < domain < projection.rows[-1].devices:
        axes.axvline(domain, color=GREY, linestyle=":", linewidth=1.2)
        tier = _name(projection.profile.tiers[0].name)
        axes.annotate(
            f"one {tier} domain", (domain, 0), xycoords=("data", "axes fraction"),
            xytext=(4, 4), textcoords="offset points", color=GREY,
        )  # fmt: skip


def _name(name: str) -> str:
    """A name as text of a figure, in which it begins no formula."""
    return shown_text(name, 80).replace("$", r"\$")


def _log_labels(axes: Axes) -> None:
    """Label powers of ten, and 2 and 5 times them where the axis is short."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(lambda value, _: _figure_label(value))


def _size_label(size_bytes: float) -> str:
    return size_text(size_bytes).replace(".00", "").replace(".0", "")


def _figure_label(value: float) -> str:
    exponent = round(log10(value))
    return power_text(exponent) if abs(exponent) > 2 else f"{value:g}"


def record_plot(record: Record) -> Plot:
    """Terms after each step, the terms that it split, and the branches that met a term, against the step."""

    def fill(axes: Axes) -> None:
        for name, colour in (("terms", BLUE), ("branched", VERMILION), ("merged", GREY)):
            values = getattr(record, name)
            axes.plot(range(1, len(values) + 1), values, color=colour, label=name, linewidth=1)
        axes.set(xlabel="step, from the end of the circuit", ylabel="terms", yscale="symlog")
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)

    return plain(fill, 4.6)


def iterations_plot(iterations: Sequence[dict[str, Any]]) -> Plot:
    """Energies of all batches, and the lowest so far, against the iteration of `tnplan.sqd.run`."""

    def fill(axes: Axes) -> None:
        numbers = range(1, len(iterations) + 1)
        for number, iteration in zip(numbers, iterations, strict=True):
            energies = iteration["batch_energies_hartree"]
            label = "a batch" if number == 1 else None
            axes.plot([number] * len(energies), energies, "o", color=GREY, markersize=4, label=label)
        lowest = accumulate((iteration["energy_hartree"] for iteration in iterations), min)
        axes.plot(numbers, list(lowest), color=BLUE, linewidth=1.2, label="lowest so far")
        axes.set(xlabel="iteration", ylabel="energy (Ha)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)

    return plain(fill, 4.6)
