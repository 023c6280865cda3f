"""`plot`: a path, a schedule, a projection or a propagation as a figure of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tnplan.calls.show import UseChain
from tnplan.common.checks import check_choice, check_plots
from tnplan.common.errors import InputError
from tnplan.common.signatures import LaterModule
from tnplan.jobs.pauli import Expectation
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.projection.projection import Projection
from tnplan.planner.schedule.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib import figure
else:
    figure = LaterModule("matplotlib.figure")

TOPIC = "files of networks and schedules"

KINDS = ("speedup", "complexity", "memory", "split")
"""What is drawn of a projection, the first where nothing is said."""
SCHEDULE_KINDS = ("chain", "redistribution")
"""What is drawn of a schedule."""


def plot(shown: Any, kind: str | None = None) -> figure.Figure:
    """Draw a path, a plan or a result. Notebooks show the figure; `savefig` writes it.

    Parameters
    ----------
    shown : ContractionPath, Schedule, UseChain, Projection, sequence of Projection, or Expectation
        A path: its contraction tree. A schedule or a projection: what `kind` says. Several projections:
        their speedups beside each other. What `propagate` gives: its terms after each step.
    kind : str, optional
        Of a schedule: "chain" for the sizes along its use-chain (arXiv 2606.01852, Fig. 5; the default), or
        "redistribution" for the ranks that hold a tensor before and after its largest redistribution. Of a
        projection, by number of devices: "speedup" (Fig. 6; the default), "complexity" for the operations of
        all slices (Fig. 1), "memory" of a rank, or "split" for the parts of the time.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, 9 inches wide.

    Raises
    ------
    InputError
        For what cannot be drawn, for a schedule that redistributes nothing, and without matplotlib (extra
        `plot`).

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> figure = tnplan.plot(tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),))))
    >>> figure.savefig("chain.png")  # doctest: +SKIP
    """
    # matplotlib is imported by a call that draws, and by no other.
    check_plots("plot")
    from tnplan.reporting import plots

    if isinstance(shown, UseChain):
        shown = shown.schedule
    if isinstance(shown, Schedule):
        if _kind(kind, SCHEDULE_KINDS) == "chain":
            return plots.styled(plots.chain, shown)
        from tnplan.reporting.diagrams import redistribution

        return plots.styled(redistribution, shown)
    if isinstance(shown, Projection):
        return plots.styled(getattr(plots, _kind(kind, KINDS)), shown)
    if kind is not None:
        raise InputError("kind", f"is {kind!r}, and {type(shown).__name__} has one plot", "leave it out")
    if isinstance(shown, ContractionPath):
        from tnplan.reporting.diagrams import tree

        return plots.styled(tree, shown, 4.6)
    if isinstance(shown, Expectation) and shown.propagation is not None:
        from tnplan.reporting.plots import record_plot

        return record_plot(shown.propagation.record)
    if isinstance(shown, Sequence) and shown and all(isinstance(item, Projection) for item in shown):
        return plots.styled(plots.comparison, list(shown), 4.6)
    raise InputError(
        "plot", f"cannot draw {type(shown).__name__}",
        "give a path, a schedule, a projection or an expectation",
    )  # fmt: skip


def _kind(kind: str | None, kinds: Sequence[str]) -> str:
    if kind is None:
        return kinds[0]
    check_choice("kind", kind, kinds)
    return kind
