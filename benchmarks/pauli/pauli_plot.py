"""The seed's table, the sweeps and the linearity of benchmarks/pauli/pauli.py as one SVG beside its JSON.

Usage: python benchmarks/pauli/pauli_plot.py results.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
DEVICES = {"cpu": ("CPU", "C0", "cpu_s"), "gpu": ("GPU", "C1", "time_s")}
"""Names, colours, and the time that is drawn: the processor's, or that of the clock."""


def main() -> None:
    """Draw the cases that the file has, on each device."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="the JSON of pauli.py")
    path: Path = parser.parse_args().results
    cases: dict[str, Rows] = json.loads(path.read_text())["cases"]
    with rc_context({"svg.fonttype": "none"}):
        draw(cases).savefig(path.with_suffix(".svg"), metadata={"Date": None})


def draw(cases: dict[str, Rows]) -> Figure:
    """The table (the seed's Fig. 4), what was varied (Figs. 5 and 6), bytes (Fig. 7), linearity in fp64."""
    figure = Figure(figsize=(11, 9.5), layout="constrained")
    grid: Any = figure.subplots(3, 3)
    panels: list[Axes] = list(grid.flat)
    for device, (name, colour, clock) in DEVICES.items():
        rows = {case: cases.get(f"{case}, {device}", []) for case in ("seed", "sweeps", "linear")}
        table(panels[0], rows["seed"], name, colour)
        style: dict[str, Any] = {"color": colour, "label": name}
        varied = list(dict.fromkeys(row["varied"] for row in rows["sweeps"]))
        for axes, quantity in zip(panels[1:6], varied, strict=False):
            some = [row for row in rows["sweeps"] if row["varied"] == quantity]
            axes.plot([row[quantity] for row in some], [1e3 * row[clock] for row in some], "o-", **style)
            axes.set(xlabel=quantity.replace("_", " "), ylabel="ms", yscale="log")
            if quantity == "words":
                axes.set(xscale="log")
                panels[6].loglog(
                    [row["largest"] for row in some], [row["size_bytes"] for row in some], "o-", **style
                )
        linear = [row for row in rows["linear"] if row["precision"] == "fp64"]
        terms, visit = [row["terms"] for row in linear], clock.replace("time_s", "s") + "_per_visit"
        for axes, per_term in ((panels[7], visit), (panels[8], "bytes_per_term")):
            axes.loglog(terms, [row[per_term] * row["terms"] for row in linear], "o-", **style)
    panels[6].set(xlabel="terms at most, of the sweep over words", ylabel="bytes")
    panels[7].set(xlabel="terms", ylabel="s a rotation")
    panels[8].set(xlabel="terms", ylabel="bytes")
    panels[0].set_ylim(top=1e5)
    for axes in panels:
        axes.legend(fontsize="small", ncols=2 if axes is panels[0] else 1)
    return figure


def table(axes: Axes, rows: Rows, name: str, colour: str) -> None:
    """The rows of the seed's table beside its columns."""
    places = range(len(rows))
    if rows and not axes.lines:
        for column, mark in (("seed_cpu_s", "s"), ("seed_gpu_s", "^")):
            label = f"the seed's {column[5:8].upper()}"
            axes.plot(places, [row[column] for row in rows], mark, color="grey", label=label)
        axes.set_xticks(places, [f"{row['words']} x {row['layers']}" for row in rows], rotation=60)
        axes.set(xlabel="words x layers", ylabel="s", yscale="log")
    axes.plot(places, [row["time_s"] for row in rows], "o", color=colour, label=f"{name}, layer by layer")
    axes.plot(places, [row["fused_time_s"] for row in rows], "x", color=colour, label=f"{name}, one map")


if __name__ == "__main__":
    main()
