"""`tnplan show`: the use-chain of a schedule, on the terminal, as a plot or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tnplan.cli.options import FILE
from tnplan.planner.common.files import check_suffix, check_writable, write_text


@click.command()
@click.argument("schedule", type=FILE, metavar="SCHEDULE.json")
@click.option("--plot", type=FILE, metavar="FILE.svg", help="Draw the use-chain (paper, Fig. 5).")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Show only the N steps that take longest.")
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
def command(schedule: Path, plot: Path | None, top: int | None, as_json: bool) -> None:
    """Show the steps of a schedule.

    Listed are the steps that are distributed or whose largest tensor reaches the schedule's threshold, each
    with its sizes, state, distributed modes (marked by a star) and predicted time.
    """
    from tnplan.api.jobs.execute import load_verified
    from tnplan.reporting import json_documents as documents
    from tnplan.reporting import tables
    from tnplan.reporting.chain import largest, use_chain

    if plot:
        check_writable(plot, schedule)
        check_suffix(plot, ".svg")
    loaded = load_verified(schedule)
    if plot:
        from tnplan.reporting.plots import chain_svg

        write_text(plot, chain_svg(loaded))
    if as_json:
        click.echo(json.dumps(documents.chain_document(loaded, top)))
        return
    chain = use_chain(loaded)
    shown = largest(chain, top) if top else chain
    console = tables.console()
    console.print(tables.facts_table(str(schedule), tables.plan_facts(loaded, loaded.ranks_per_group)))
    if shown:
        title = (
            f"Large steps: the {len(shown)} longest of {len(chain)}" if top else f"Large steps: {len(chain)}"
        )
        console.print()
        console.print(tables.steps_table(loaded, shown, title))
    else:
        console.print("\nno step is large: nothing is distributed")
    if plot:
        click.echo(f"wrote {plot}")
