"""The comparison of codecs as a table for a terminal and as a plot (the seed's Fig. 15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tnplan.api.codecs.compare_codecs import CodecRow
from tnplan.planner.common.units import figure_text
from tnplan.reporting.plots import BLUE, GREY, VERMILION, plain_svg
from tnplan.reporting.tables import Listing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("pipeline", "ratio", "compress MB/s", "restore MB/s", "worst error / bound")


def codec_table(rows: Sequence[CodecRow], bound: float, title: str) -> Listing:
    """A row for each pipeline; errors above the bound are those of a threshold above it."""
    cells = [
        (
            row.name,
            f"{row.ratio:.2f}",
            figure_text(row.encode_bytes_per_s / 1e6),
            figure_text(row.decode_bytes_per_s / 1e6),
            f"{row.worst_error / bound:.4f}",
        )
        for row in rows
    ]
    return Listing(title, COLUMNS, cells, left=("pipeline",))


def codec_svg(rows: Sequence[CodecRow]) -> str:
    """Ratio against rates of compressing (filled) and restoring (open), both on logarithmic axes."""

    def fill(axes: Axes) -> None:
        for row in rows:
            colour = VERMILION if row.name.startswith("tnplan") else BLUE
            rates = (row.encode_bytes_per_s / 1e6, row.decode_bytes_per_s / 1e6)
            axes.plot(rates, (row.ratio, row.ratio), color=GREY, linewidth=0.6, zorder=1)
            axes.plot(rates[0], row.ratio, "o", color=colour)
            axes.plot(rates[1], row.ratio, "o", color=colour, fillstyle="none")
            axes.annotate(row.name, (rates[0], row.ratio), xytext=(5, 4), textcoords="offset points")
        axes.set(
            xscale="log", yscale="log", ylabel="ratio",
            xlabel="MB/s, compressing (filled) and restoring (open)",
        )  # fmt: skip
        axes.grid(alpha=0.3)

    return plain_svg(fill, 4.6)
