"""Runs as plots: terms of a Pauli propagation, and energies of `tnplan.sqd.run`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tnplan.executor.pauli.terms.ledger import Record
from tnplan.reporting.plots import BLUE, GREY, VERMILION, Plot, plain


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
