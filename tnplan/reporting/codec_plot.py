"""The comparison of codecs as a plot."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from tnplan.api.codecs.compare_codecs import CodecRow
from tnplan.reporting.plots import BLUE, GREY, VERMILION, Plot, plain


def codec_plot(rows: Sequence[CodecRow]) -> Plot:
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

    return plain(fill, 4.6)
