"""`tnplan show`: the use-chain of a schedule, on the terminal, as a plot or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tnplan.calls.show import show
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import FILE, as_json
from tnplan.cli.terminal import say


@click.command()
@options_of(
    show,
    schedule=click.argument("schedule", type=FILE, metavar="SCHEDULE.json"),
    top={"type": click.IntRange(1), "metavar": "N"},
    plot={"metavar": "FILE.svg"},
)
@as_json
def command(schedule: Path, plot: Path | None, top: int | None, as_json: bool) -> None:
    """Show the steps of a schedule.

    Listed are the steps that are distributed or whose largest tensor reaches the schedule's threshold, each
    with its sizes, state, distributed modes (marked by a star) and predicted time.
    """
    from tnplan.reporting.tables import console

    chain = show(schedule, top=top, plot=plot)
    if as_json:
        say(json.dumps(chain.document))
        return
    console().print(chain.view)
    if plot:
        say(f"wrote {plot}")
