"""The terms of a Pauli propagation at every step, as a plot."""

from __future__ import annotations

from matplotlib.axes import Axes

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
