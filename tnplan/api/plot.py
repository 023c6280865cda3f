"""`plot`: a schedule, a projection or a propagation as a figure of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tnplan.api.jobs.propagate import Expectation
from tnplan.api.planning.show import UseChain
from tnplan.planner.common.checks import check_choice
from tnplan.planner.common.errors import InputError
from tnplan.planner.projection.projection import Projection
from tnplan.planner.schedule.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("speedup", "complexity", "memory", "split")
"""What is drawn of a projection."""


def plot(shown: Any, kind: str = "speedup") -> Figure:
    """Draw a result. Notebooks show the figure; `savefig` writes it.

    Parameters
    ----------
    shown : Schedule, UseChain, Projection, sequence of Projection, or Expectation
        A schedule: the sizes along its use-chain (arXiv 2606.01852, Fig. 5). A projection: by number of
        devices, what `kind` says. Several projections: their speedups beside each other. What `propagate`
        gives: its terms after each step.
    kind : {"speedup", "complexity", "memory", "split"}
        Of a projection: speedups (Fig. 6), operations of all slices (Fig. 1), memory of a rank, or the parts
        of the time.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, 9 inches wide.

    Raises
    ------
    InputError
        For what cannot be drawn.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> figure = tnplan.plot(tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),))))
    >>> figure.savefig("chain.png")  # doctest: +SKIP
    """
    from tnplan.reporting import plots

    check_choice("kind", kind, KINDS)
    if isinstance(shown, UseChain):
        shown = shown.schedule
    if isinstance(shown, Schedule):
        return plots.styled(plots.chain, shown)
    if isinstance(shown, Projection):
        return plots.styled(getattr(plots, kind), shown)
    if isinstance(shown, Expectation) and shown.propagation is not None:
        from tnplan.reporting.run_plots import record_plot

        return record_plot(shown.propagation.record)
    if isinstance(shown, Sequence) and shown and all(isinstance(one, Projection) for one in shown):
        return plots.styled(plots.comparison, list(shown), 4.6)
    raise InputError(
        "plot", f"cannot draw {type(shown).__name__}", "give a schedule, a projection or an expectation"
    )
