"""Tables for a terminal: a plan, the steps of a schedule, a projection and its advice in sentences."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from math import log2
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tnplan.common.shown_text import escaped, shown_text
from tnplan.common.units import count_text, figure_text, percent_text, rate_text, size_text, time_text
from tnplan.planner.projection.plateaus import plateaus
from tnplan.planner.projection.projection import Projection, Row
from tnplan.planner.schedule.schedule import Schedule, StepAnnotation
from tnplan.reporting.chain import Link, fused_counts, mode_names, state_counts, used_groups

TIMES = "\u00d7"
WIDTH_IN_A_FILE = 150
GAP, EDGES = 3, 2
"""Characters between columns, and at both ends of a line less the last gap."""
LONGEST_MODE = 40
WEAK = 1.1
"""A given path that takes so much longer than one searched in seconds can be repaired."""
TEXT_WIDTH = 32
"""Columns of text are folded to no less."""
LEGEND = (
    "A and B: operands. m, n, k: rows, columns and summed extent of the product. A star marks a mode that is "
    "distributed over ranks."
)
"""What the columns of a table of steps mean."""
STATES_LEGEND = {
    "local": "on each rank by itself",
    "activate": "distributed from here on",
    "keep": "no communication",
    "redistribute": "other modes are distributed",
    "gather": "whole again on every rank",
    "reduce": "summed over ranks",
}
NOTHING = "\u2013"


class NamesConsole(Console):
    """A console on which names are text: neither markup nor orders to the terminal."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of text, with what is not printed escaped."""
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable():
                yield Segment(escaped(segment.text, allowed="\n"), segment.style)
            else:
                yield segment


def console(*, stderr: bool = False) -> Console:
    """A console on standard output or error: as wide as the terminal, or wide enough for every table."""
    stream = sys.stderr if stderr else sys.stdout
    on_terminal = stream is not None and stream.isatty()
    width = None if on_terminal else WIDTH_IN_A_FILE
    return NamesConsole(width=width, highlight=False, markup=False, stderr=stderr)


@dataclass(frozen=True)
class Listing:
    """A table of text. Figures stay whole: what a terminal is too narrow for goes on below.

    There the first column comes again. Columns named in `left` are text, flush left, and fold. Columns in
    which no row has anything are left out.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.rows:
            columns = zip(*self.rows, strict=True)
            filled = [any(cell not in ("", NOTHING) for cell in column) for column in columns]
            object.__setattr__(self, "columns", tuple(compress(self.columns, filled)))
            object.__setattr__(self, "rows", [tuple(compress(row, filled)) for row in self.rows])

    def legend(self, texts: Mapping[str, str]) -> str:
        """What those of its columns mean that have a text."""
        return " ".join(text for column, text in texts.items() if column in self.columns)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One table, or several below each other, in the width that there is."""
        yield Text(self.title, style="bold")
        for numbers in self._parts(options.max_width):
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for number in numbers:
                name = self.columns[number]
                is_text = name in self.left
                table.add_column(
                    name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
                )
            for row in self.rows:
                table.add_row(*(row[number] for number in numbers))
            yield table

    def _parts(self, width: int) -> list[list[int]]:
        """The numbers of the columns that stand side by side."""
        parts, used = [[0]], self._width([0])
        for number in range(1, len(self.columns)):
            more = self._width([number])
            if len(parts[-1]) > 1 and EDGES + used + more > width:
                parts.append([0])
                used = self._width([0])
            parts[-1].append(number)
            used += more
        return parts

    def _width(self, numbers: Sequence[int]) -> int:
        """What columns take at least, each with the gap after it."""
        total = 0
        for number in numbers:
            widest = max(cell_len(cells[number]) for cells in (self.columns, *self.rows))
            total += GAP + (min(widest, TEXT_WIDTH) if self.columns[number] in self.left else widest)
        return total


def plan_facts(schedule: Schedule, devices: int) -> list[tuple[str, str]]:
    """What a plan amounts to, as names and values."""
    expected = schedule.predicted
    groups = used_groups(schedule, devices)
    idle = devices - groups * schedule.ranks_per_group
    grid = f" {TIMES} ".join(str(digit.radix) for digit in schedule.grid) or "1"
    states = ", ".join(f"{count} {state}" for state, count in state_counts(schedule).items()) or "none"
    fused, chains = fused_counts(schedule)
    if fused:
        states += f"; {fused} of them fused in {count_text(chains, 'chain', 'chains')}"
    # Groups take slices in turn: the one with most has this many.
    rounds = -(-schedule.n_slices // groups)
    moved_bytes = expected.once_moved_bytes + rounds * expected.slice_moved_bytes
    slices = ("", "")
    if schedule.sliced:
        slices = (
            f": {time_text(expected.once_s)} before the first slice, {time_text(expected.slice_s)} "
            + ("in the mean" if schedule.outer else "each"),
            f", {size_text(expected.slice_moved_bytes)} a slice",
        )
    compressed = [] if schedule.compression is None else [("compressed", _compressed_text(schedule))]
    ranks = f"{count_text(groups, 'group', 'groups')} of {schedule.ranks_per_group}, process grid {grid}"
    machine = shown_text(schedule.profile["name"])
    limit = "unlimited" if schedule.memory_bytes is None else size_text(schedule.memory_bytes)
    return [
        (
            "network",
            f"{shown_text(schedule.name) or 'unnamed'} "
            f"({count_text(len(schedule.leaves), 'tensor', 'tensors')}, "
            f"{schedule.values_text})",
        ),
        ("hardware", f"{machine}, {schedule.precision}{_policy_text(schedule.policy)}"),
        (
            "slices",
            f"{figure_text(schedule.n_slices)} over {count_text(len(schedule.sliced), 'index', 'indices')}"
            + _shared_text(schedule)
            if schedule.sliced
            else "none",
        ),
        ("ranks", ranks + (f", {idle} of {devices} devices idle" if idle > 0 else "")),
        ("steps", states),
        (
            "predicted time",
            f"{time_text(schedule.projected_s(groups))} on "
            f"{count_text(groups * schedule.ranks_per_group, 'device', 'devices')}{slices[0]}",
        ),
        ("bytes moved", f"{size_text(moved_bytes)} a rank{slices[1]}"),
        ("peak memory", f"{size_text(expected.peak_bytes)} a rank (limit {limit})"),
        *compressed,
        ("identity", schedule.identity[:16]),
    ]


def _policy_text(policy: str) -> str:
    """How modes are distributed, where that is not as always: see docs/explanation/policies.md."""
    return "" if policy == "ours" else f", policy {policy}"


def _shared_text(schedule: Schedule) -> str:
    """How many slices in a row share the results of each outer part, the first part first, and how many
    values are summed within a slice."""
    served = [
        figure_text(schedule.serves(level.depth))
        for level in schedule.outer if not level.inner and schedule.serves(level.depth) > 1
    ]  # fmt: skip
    text = f"; parts that serve {', '.join(dict.fromkeys(served))} of them in a row" if served else ""
    if schedule.summed:
        values = figure_text(schedule.repeats(len(schedule.summed)))
        text += f"; {values} values of {count_text(len(schedule.summed), 'index', 'indices')} summed early"
    return text


def _often_text(step: StepAnnotation) -> str:
    """How often a step is done, where that is not once a slice."""
    times = f"{figure_text(step.repeats)} times in" if step.repeats > 1 else "1 in"
    slices = "slices" if step.serves > 1 else "a slice"
    count = f"{figure_text(step.serves)} " if step.serves > 1 else ""
    return f" ({times} {count}{slices})" if step.repeats * step.serves > 1 else ""


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
    table = Table(
        title=shown_text(title), title_justify="left", title_style="bold", box=None, show_header=False,
        pad_edge=False,
    )  # fmt: skip
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    return table


def steps_legend(chain: Sequence[Link]) -> str:
    """What the columns and states of these steps mean, and how often they are done."""
    steps = [link.step for link in chain]
    states = {step.state for step in steps}
    listed = [f"{state}: {text}" for state, text in STATES_LEGEND.items() if state in states]
    more = (
        (bool(listed), f"{'; '.join(listed)}."),
        (any(step.once for step in steps), "once: before the first slice, for all of them."),
        (any(step.repeats * step.serves > 1 for step in steps), "1 in N slices: for N slices in a row."),
        (any(step.fused is not None for step in steps), "chain: steps that share a kernel."),
    )
    return " ".join([LEGEND, *(text for is_there, text in more if is_there)])


def steps_table(schedule: Schedule, chain: Sequence[Link], title: str) -> Listing:
    """One row a step; distributed modes carry a star."""
    columns = ("step", "state", "A", "B", "output", "m · n · k", "moved a rank", "time", "modes")
    return Listing(title, columns, [_step_cells(schedule, link) for link in chain], ("state", "modes"))


def _step_cells(schedule: Schedule, link: Link) -> tuple[str, ...]:
    step = link.step
    names = [shown_text(name, LONGEST_MODE) for name in mode_names(schedule, step.c_modes, step.layout)]
    chain = "" if step.fused is None else f" (chain {step.fused})"
    return (
        str(link.number),
        f"{step.state}{' (once)' if step.once else ''}{_often_text(step)}{chain}",
        size_text(link.a_bytes),
        size_text(link.b_bytes),
        size_text(link.c_bytes),
        f"{step.m} · {step.n} · {step.k}" + (f" (batch {step.batch})" if step.batch > 1 else ""),
        size_text(step.moved_bytes),
        time_text(step.predicted_s),
        " ".join(names[:8]) + (f" +{len(names) - 8}" if len(names) > 8 else ""),
    )


def projection_table(projection: Projection) -> Listing:
    """The metrics of the paper's section V-A, one row a number of devices."""
    precisions = sorted({row.schedule.precision for row in projection.rows})
    machine = shown_text(projection.profile.name)
    title = ", ".join([f"Projected on {machine}", *precisions]) + _policy_text(projection.policy)
    has_energy = any(row.energy_kwh is not None for row in projection.rows)
    columns = (
        "P", "path", f"groups {TIMES} ranks", "slices", "T_P", "S_P", "E_P", "R_P", "E_P/R_P",
        "memory a rank", "exchange", *(("energy",) if has_energy else ()),
    )  # fmt: skip
    costs = has_energy and projection.price is not None
    rows = []
    for row in projection.rows:
        idle = f" ({row.idle_devices} idle)" if row.idle_devices else ""
        groups = f"{row.n_groups} {TIMES} {row.ranks_per_group}{idle}"
        slices = figure_text(row.schedule.n_slices)
        cost = (figure_text(projection.cost(row) or 0.0),) if costs else ()
        rows.append(
            (str(row.devices), projection.labels[row.path], groups, slices, *figures(row, columns[4:]), *cost)
        )
    return Listing(title, (*columns, *(("cost",) if costs else ())), rows, ("path",))


def projection_legend(projection: Projection) -> str:
    """What the columns of the projection's table mean."""
    base = projection.baseline_devices
    texts = {
        "T_P": "T_P is the time to the full contraction on P devices, "
        f"S_P = T_{base} / T_P the speedup, "
        f"E_P = S_P / P{'' if base == 1 else f' {TIMES} {base}'} the extra speedup beyond ideal slicing, "
        f"R_P = C_t,{base} / C_t,P the reduction in operations, all slices included. E_P / R_P is the part "
        "of this reduction that became time. Groups contract different slices; the ranks of a group, one a "
        "device, share each slice.",
        "exchange": "exchange: the share of T_P in which ranks exchange data.",
        "energy": "energy: only that of the devices, idle ones too.",
        "cost": "cost: the price of this energy.",
    }
    return projection_table(projection).legend(texts)


def figures(row: object, columns: Sequence[str]) -> list[str]:
    """The cells of a row under columns of `FIGURES`; a dash where there is no figure."""
    values = [(getattr(row, FIGURES[column][0], None), FIGURES[column][1]) for column in columns]
    return [NOTHING if value is None else text(value) for value, text in values]


FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "t_P": ("slice_time_s", time_text),
    "sliced": ("sliced", str),
    "saved by reuse": ("reuse_saving", percent_text),
    "S_P": ("speedup", figure_text),
    "E_P": ("extra_speedup", figure_text),
    "R_P": ("complexity_reduction", figure_text),
    "E_P/R_P": ("captured", figure_text),
    "rate per device": ("flop_per_s", lambda rate: rate_text(rate, "FLOP/s")),
    "T_P": ("time_s", time_text),
    "memory a rank": ("peak_bytes", size_text),
    "exchange": ("exchange_share", percent_text),
    "energy": ("energy_kwh", lambda energy_kwh: f"{figure_text(energy_kwh)} kWh"),
}
"""By column, the field of a row that it shows, and how."""


def projection_notes(projection: Projection) -> list[str]:
    """What a reader of the table must know besides."""
    notes = [
        f"{count_text(refusal.devices, 'device', 'devices')}: nothing fits; {refusal.reason}"
        for refusal in projection.refusals
    ]
    if projection.baseline_devices > 1:
        notes.append(
            f"No path fits on fewer devices than {projection.baseline_devices}: "
            f"S_P, E_P and R_P count from there, not from one device."
        )
    ratio = projection.baseline.ratio
    if ratio is not None and ratio >= WEAK:
        notes.append(
            f"The paths given are weak: on 1 device the fastest takes {figure_text(ratio)} times as long as "
            "one found here. 'tnplan search PATH.json --from PATH.json --devices P --hardware PROFILE -o "
            "BETTER.json' improves a path, and --baseline FILE.json keeps the one found here."
        )
    if projection.price is not None and not projection.profile.watts:
        name = shown_text(projection.profile.name)
        notes.append(f"{name} has no watts, so no energy and no cost are projected: see tnplan calibrate.")
    return notes


LEAST_GAIN = 0.1
"""More devices are worth while as long as each doubling takes at least this share off the time."""
EQUAL_COST = 0.05
"""Device time that differs by a smaller share is the same."""


def recommended(projection: Projection) -> Row:
    """The row with the most devices that are worth while: beyond it the time hardly falls."""
    chosen = projection.rows[0]
    for row in projection.rows[1:]:
        if _left_by_a_doubling(chosen, row) <= 1 - LEAST_GAIN:
            chosen = row
    return chosen


def recommendation(projection: Projection) -> list[str]:
    """Sentences: the time on the recommended number of devices, why not more, and what costs least.

    The last one says where the time on one device comes from.
    """
    row = recommended(projection)
    text = f"{count_text(row.devices, 'device', 'devices')}: {time_text(row.time_s)}"
    more = [other for other in projection.rows if other.devices > row.devices]
    first = projection.rows[0]
    if more:
        text += (
            f"; with more than {figure_text(row.devices)}, each doubling shortens the time by less than "
            f"{LEAST_GAIN:.0%}{_cause(projection, more[0])}"
        )
    elif row is not first and projection.has_searched_baseline:
        text += f", {figure_text(first.time_s / row.time_s)} times faster than {_devices_text(first)}"
    sentences = [f"{text}."]
    # Without a path that was searched for one device, "so many times faster" would compare with a bad path.
    if not projection.has_searched_baseline:
        return [*sentences, projection.baseline_text]
    # Device time P T_P is what clusters bill.
    cheapest = min(projection.rows, key=lambda other: other.devices * other.time_s)
    cost_s, least_s = row.devices * row.time_s, cheapest.devices * cheapest.time_s
    if cost_s > (1 + EQUAL_COST) * least_s:
        saved = figure_text(cost_s / least_s)
        takes, costs = ("takes", "costs") if cheapest.devices == 1 else ("take", "cost")
        sentences.append(
            f"{_devices_text(cheapest).capitalize()} {takes} "
            f"{time_text(cheapest.time_s)} and {costs} {saved} times fewer device-hours."
        )
    elif row is not first and first.devices * first.time_s > (1 + EQUAL_COST) * cost_s:
        saved = figure_text(first.devices * first.time_s / cost_s)
        sentences.append(f"This costs {saved} times fewer device-hours than {_devices_text(first)}.")
    return [*sentences, projection.baseline_text]


def _left_by_a_doubling(before: Row, row: Row) -> float:
    """The share of the time that is left when the devices are doubled once, on the way from row to row."""
    if not before.time_s:
        return 1.0
    return float((row.time_s / before.time_s) ** (1 / log2(row.devices / before.devices)))


def _devices_text(row: Row) -> str:
    return count_text(row.devices, "device", "devices")


def _cause(projection: Projection, row: Row) -> str:
    """Why the time does not fall at this row, where that is known."""
    for plateau in plateaus(projection):
        if plateau.devices == row.devices:
            return f", because of the {plateau.cause}: {plateau.text}"
    return ""
