"""The terms of a Pauli propagation at every step, as a plot (the seed's Fig. 1)."""

from __future__ import annotations

import io

from tnplan.executor.pauli.terms.ledger import Record
from tnplan.reporting.plots import BLUE, GREY, VERMILION


def record_svg(record: Record) -> str:
    """Terms after each step, the terms that it split, and the branches that met a term, against the step."""
    import matplotlib
    from matplotlib.figure import Figure

    lines = (("terms", BLUE), ("branched", VERMILION), ("merged", GREY))
    with matplotlib.rc_context({"svg.hashsalt": "tnplan", "svg.fonttype": "path", "font.size": 9.5}):
        figure = Figure(figsize=(9, 4.6), layout="constrained")
        axes = figure.subplots()
        for name, colour in lines:
            values = getattr(record, name)
            axes.plot(range(1, len(values) + 1), values, color=colour, label=name, linewidth=1)
        axes.set(xlabel="step, from the end of the circuit", ylabel="terms", yscale="symlog")
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
