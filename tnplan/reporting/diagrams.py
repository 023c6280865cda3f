"""Diagrams: the tree of a contraction path with its slices, and a tensor over the ranks that hold it."""

from __future__ import annotations

from collections import Counter
from math import log2, prod

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.planner.hardware.process_grid import Layout, box, grid_size, rank_digits
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.schedule.schedule import Gather, Redistribute, Schedule
from tnplan.reporting.plots import BLUE, COLOURS, GREY, TEXT, VERMILION

WIDEST_LINE = 4.0
"""Points; of the largest tensor of a tree."""
MOST_LABELLED = 16
"""So many cells in a row have room for the numbers of their ranks."""
MOST_CELLS = 1 << 16


def tree(axes: Axes, path: ContractionPath) -> None:
    """The tree: a line is a tensor, wider if larger, from the step that makes it to the one that uses it."""
    tensors = _tensors(path)
    places = _places(path)
    sliced = frozenset(path.sliced_inds)
    sizes = path.network.size_dict
    # Widths go by the logarithm of the size, with sliced indices whole.
    logs = [sum(log2(sizes[index]) for index in indices) for indices, _ in tensors]
    largest = max([*logs, 1.0])
    lines, widths, colours = [], [], []
    n_inputs = len(path.network.inputs)
    for number, step in enumerate(path.ssa_path):
        above = places[n_inputs + number]
        for tensor in step:
            lines.append([places[tensor], above])
            widths.append(0.5 + WIDEST_LINE * logs[tensor] / largest)
            indices, below = tensors[tensor]
            colours.append(VERMILION if sliced & indices else BLUE if sliced & below else GREY)
    axes.add_collection(LineCollection(lines, linewidths=widths, colors=colours, capstyle="round"))
    axes.plot(*zip(*places[:n_inputs], strict=True), "o", color=TEXT, markersize=2.5, clip_on=False)
    axes.autoscale_view()
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_xlabel("input tensors")
    axes.set_ylabel("step of the path")
    meanings = {VERMILION: "has a sliced index", BLUE: "made for each slice", GREY: "the same for all slices"}
    handles = [
        Line2D([], [], color=key, lw=2.5, label=text) for key, text in meanings.items() if key in colours
    ]
    title = f"widest line: 2$^{{{largest:.0f}}}$ elements, all slices together"
    axes.legend(handles=handles, title=title, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def _tensors(path: ContractionPath) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Of every tensor of the tree: its indices, and the indices of all inputs below it."""
    total = Counter(path.network.output)
    for term in path.network.inputs:
        total.update(term)
    counts = [Counter(term) for term in path.network.inputs]
    for step in path.ssa_path:
        counts.append(sum((counts[tensor] for tensor in step), Counter()))
    return [
        (frozenset(index for index, count in below.items() if count < total[index]), frozenset(below))
        for below in counts
    ]


def _places(path: ContractionPath) -> list[tuple[float, float]]:
    """Where tensors stand: inputs side by side in the order of the tree, results as high as their step."""
    n_inputs = len(path.network.inputs)
    leaves = [1] * n_inputs
    for step in path.ssa_path:
        leaves.append(sum(leaves[tensor] for tensor in step))
    first = [0.0] * len(leaves)
    for number in reversed(range(len(path.ssa_path))):
        at = first[n_inputs + number]
        for tensor in sorted(path.ssa_path[number], key=lambda tensor: -leaves[tensor]):
            first[tensor] = at
            at += leaves[tensor]
    heights = [0] * n_inputs + list(range(1, len(path.ssa_path) + 1))
    return [(at + (count - 1) / 2, height) for at, count, height in zip(first, leaves, heights, strict=True)]


def redistribution(axes: Axes, schedule: Schedule) -> None:
    """A tensor before and after the largest redistribution, cut where ranks divide it; numbers are ranks."""
    item = _largest_redistribution(schedule)
    source, out = schedule.buffers[item.source], schedule.buffers[item.out]
    before = [mode for mode in source.layout if mode is not None]
    after = [mode for mode in out.layout if mode is not None and mode not in before]
    n_ranks = grid_size(schedule.grid)
    n_rows, n_columns = (prod(schedule.extents[mode] for mode in modes) for modes in (before, after))
    if n_rows * n_columns > MOST_CELLS:
        raise InputError(
            "plot", f"{n_rows * n_columns:,} parts are too many to draw", "plan for fewer devices"
        )
    for offset, layout, title in ((0.0, source.layout, "before"), (n_columns * 1.3, out.layout, "after")):
        lowest, counts = _holders(schedule, (before, after), layout)
        _draw_holders(axes, offset, lowest, counts, n_ranks)
        axes.text(offset + n_columns / 2, -0.03 * n_rows, title, ha="center", va="bottom", color=TEXT)
    axes.set_xlim(0, 2.3 * n_columns)
    axes.set_ylim(n_rows, -0.12 * n_rows)
    axes.set_axis_off()
    elements = prod(schedule.extents[mode] for mode in source.modes)
    axes.set_title(f"a tensor of {elements:,} elements over {n_ranks} ranks", fontsize=9.5)


def _largest_redistribution(schedule: Schedule) -> Redistribute | Gather:
    """The largest one; those in which ranks must exchange come first."""
    redistributions = [item for item in schedule.instructions if isinstance(item, Redistribute | Gather)]
    if not redistributions:
        raise InputError(
            "plot",
            "no tensor of the schedule is redistributed",
            "plan with more devices or a smaller threshold",
        )

    # An exchange between ranks before and after says more than a scatter or a gather, whatever the sizes.
    def rank(item: Redistribute | Gather) -> tuple[bool, bool, int]:
        source, out = schedule.buffers[item.source], schedule.buffers[item.out]
        elements = prod(schedule.extents[mode] for mode in source.modes)
        return (
            any(mode is not None for mode in source.layout),
            any(mode is not None for mode in out.layout),
            elements,
        )

    return max(redistributions, key=rank)


def _holders(
    schedule: Schedule, modes: tuple[list[int], list[int]], layout: Layout
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each part, in rows and columns: the lowest rank that holds it, and how many do."""
    extents = [schedule.extents[mode] for side in modes for mode in side]
    lowest, counts = np.full(extents, -1), np.zeros(extents, np.int64)
    # From the last rank to the first, so that the lowest holder of a part is written last.
    for rank in reversed(range(grid_size(schedule.grid))):
        bounds = box(
            [*modes[0], *modes[1]], layout, schedule.extents, rank_digits(rank, schedule.grid), schedule.grid
        )
        region = tuple(slice(start, stop) for start, stop in bounds)
        lowest[region] = rank
        counts[region] += 1
    shape = tuple(prod(schedule.extents[mode] for mode in side) for side in modes)
    return lowest.reshape(shape), counts.reshape(shape)


def _draw_holders(
    axes: Axes, offset: float, lowest: NDArray[np.int64], counts: NDArray[np.int64], n_ranks: int
) -> None:
    """Cells in the colour of the lowest rank; grey where all ranks have the part."""
    named = [colour for name, colour in COLOURS.items() if name not in ("text", "line", "grey")]
    colours = named if n_ranks <= len(named) else matplotlib.colormaps["viridis"](np.linspace(0, 1, n_ranks))
    n_rows, n_columns = lowest.shape
    image = np.array([[matplotlib.colors.to_rgba(colours[rank], 0.6) for rank in row] for row in lowest])
    image[counts == n_ranks] = matplotlib.colors.to_rgba(COLOURS["line"])
    axes.imshow(image, extent=(offset, offset + n_columns, n_rows, 0), aspect="auto", interpolation="nearest")
    if max(n_rows, n_columns) > MOST_LABELLED:
        return
    for row, column in np.ndindex(n_rows, n_columns):
        holders, rank = counts[row, column], lowest[row, column]
        text = "all" if holders == n_ranks > 1 else f"{rank}" if holders == 1 else f"{rank}, ... ({holders})"
        axes.text(offset + column + 0.5, row + 0.5, text, ha="center", va="center", color=TEXT)
