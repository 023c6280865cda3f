"""`show`: the large steps of a schedule, as tables, as a plot or as a document."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from tnplan.common.checks import check_count, check_plots
from tnplan.common.errors import InputError
from tnplan.common.files import check_suffix, check_writable, write_text
from tnplan.common.shown_text import html_table
from tnplan.planner.passes.load import load_schedule
from tnplan.planner.schedule.schedule import Schedule
from tnplan.reporting import json_documents, tables
from tnplan.reporting.chain import Link, largest, use_chain

TOPIC = "files of networks and schedules"


@dataclass(frozen=True, eq=False, repr=False)
class UseChain:
    """The steps of a schedule that are distributed, or whose largest tensor reaches its threshold.

    `print` it for the tables of `tnplan show` (arXiv 2606.01852, section IV-B and Fig. 5).

    Parameters
    ----------
    schedule : Schedule
        The schedule.
    name : str
        What the schedule is called in the tables: its file, or its network.
    top : int, optional
        How many steps are shown, those that take longest. Default: all.

    Examples
    --------
    >>> print(tnplan.show("n53_m20.schedule.json", top=6))  # doctest: +SKIP
    """

    schedule: Schedule
    name: str
    top: int | None = None

    def __repr__(self) -> str:
        return f"UseChain({len(use_chain(self.schedule))} large steps of {len(self.schedule.steps)})"

    def __str__(self) -> str:
        console = tables.console()
        with console.capture() as text:
            console.print(self.view)
        return text.get().rstrip()

    def _repr_html_(self) -> str:
        facts, steps = self._facts, self._listing
        return html_table(self.name, facts) + html_table(steps.title, steps.rows, steps.columns)

    @property
    def steps(self) -> list[Link]:
        """The steps that are shown, with the sizes of their tensors."""
        chain = use_chain(self.schedule)
        return largest(chain, self.top) if self.top else chain

    @property
    def view(self) -> Group:
        """What the schedule amounts to, and its large steps, for a `rich` console."""
        listing = self._listing
        facts = tables.facts_table(self.name, self._facts)
        if not listing.rows:
            return Group(facts, Text(), Text(NOTHING_LARGE))
        return Group(facts, Text(), listing, Text(tables.steps_legend(self.steps), style="dim"))

    @property
    def _facts(self) -> list[tuple[str, str]]:
        return tables.plan_facts(self.schedule, self.schedule.devices or self.schedule.ranks_per_group)

    @property
    def _listing(self) -> tables.Listing:
        steps = self.steps
        longest = f"the {len(steps)} longest of " if self.top else ""
        title = f"Large steps: {longest}{len(use_chain(self.schedule))}"
        return tables.steps_table(self.schedule, steps, title)

    @property
    def document(self) -> dict[str, Any]:
        """The same for programs: what `tnplan show --json` prints."""
        return json_documents.chain_document(self.schedule, self.top)


NOTHING_LARGE = "no step is large: nothing is distributed"


def show(
    schedule: Schedule | str | Path, *, top: int | None = None, plot: str | Path | None = None
) -> UseChain:
    """Show the large steps of a schedule.

    Parameters
    ----------
    schedule : Schedule or path
        A schedule, or its file, which is verified.
    top : int, optional
        Show only this many steps, those that take longest.
    plot : path, optional
        An .svg to draw the use-chain into.

    Returns
    -------
    UseChain
        The steps with their sizes, states, distributed modes and predicted times; `print` shows tables.

    Raises
    ------
    InputError
        For a file that is no valid schedule, or a plot that cannot be written.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> tnplan.show(tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),))))
    UseChain(0 large steps of 1)
    """
    if not isinstance(schedule, Schedule | str | os.PathLike):
        raise InputError(
            "schedule", f"is of type {type(schedule).__name__}", "give what `plan` returns, or its file"
        )
    source = None if isinstance(schedule, Schedule) else schedule
    if top is not None:
        check_count("--top", top)
    if plot is not None:
        check_writable(plot, source)
        check_suffix(plot, ".svg")
        check_plots("--plot")
    # After all checks of the options, since a large schedule may take long to read.
    loaded = schedule if isinstance(schedule, Schedule) else load_schedule(schedule)
    if plot is not None:
        from tnplan.reporting.plots import chain, svg

        write_text(plot, svg(chain, loaded))
    return UseChain(loaded, loaded.name or "unnamed" if source is None else str(source), top)
