"""The sweeps and the linearity of benchmarks/pauli.py as one SVG beside its JSON (the seed's Figs. 4 to 7).

Usage: python benchmarks/pauli_plot.py results.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def main() -> None:
    """Draw every case that the file has, on the device that it names."""
    path = Path(sys.argv[1])
    cases: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())["cases"]
    for device in ("cpu", "gpu"):
        sweeps, linear = (cases.get(f"{name}, {device}", []) for name in ("sweeps", "linear"))
        if sweeps and linear:
            output = path.with_name(f"{path.stem}_{device}.svg")
            draw(sweeps, linear, device).savefig(output, metadata={"Date": None})


def draw(sweeps: list[dict[str, Any]], linear: list[dict[str, Any]], device: str) -> Figure:
    """A panel for each quantity that was varied, and time and bytes a term against terms.

    Time is the processor's, or by the clock with a GPU.
    """
    time, visit, clock = "time_s", "s_per_visit", "by the clock"
    if device == "cpu":
        time, visit, clock = "cpu_s", "cpu_s_per_visit", "of processor time"
    names = list(dict.fromkeys(row["varied"] for row in sweeps))
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    figure.subplots(2, 4)
    for axes, name in zip(figure.axes, names, strict=False):
        rows = [row for row in sweeps if row["varied"] == name]
        axes.plot([row[name] for row in rows], [1e3 * row[time] for row in rows], "o-")
        axes.set(xlabel=name.replace("_", " "), ylabel=f"ms {clock}", ylim=(0, None))
    terms = [row["terms"] for row in linear]
    per_visit = [1e9 * row[visit] for row in linear]
    per_term = [row["bytes_per_term"] for row in linear]
    labels = (f"ns {clock}\na term and rotation", "bytes a term")
    for axes, values, label in zip(figure.axes[-2:], (per_visit, per_term), labels, strict=True):
        axes.plot(terms, values, "o-")
        axes.set(xlabel="terms", ylabel=label, xscale="log", ylim=(0, None))
    figure.axes[5].set_axis_off()
    return figure


if __name__ == "__main__":
    main()
