"""`tnplan plan`: a contraction path in, an annotated schedule out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tnplan.calls.plan import plan, seen_from
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import FILE, as_json
from tnplan.cli.terminal import say

SHOWN_STEPS = 6


@click.command()
@options_of(
    plan,
    path=click.argument("path", type=FILE, metavar="PATH"),
    devices={"type": click.IntRange(1)},
    ranks_per_group={"type": click.IntRange(1)},
    compress={
        "metavar": "BOUNDS",
        "help": "exchange=BOUND[:RATIO], store=BOUND[:RATIO], setting=fast|small; with commas "
        "(docs/explanation/compression.md). Default: nothing.",
    },
    output="Default: NAME.schedule.json, here.",
)
@as_json
def command(path: Path, devices: int, output: Path | None, as_json: bool, **options: Any) -> None:
    """Plan a contraction path as a schedule for a group of ranks.

    PATH is a path.json, or another file that holds a network with a path: docs/reference/formats.md lists
    them. The schedule goes to --output, and with it the tensors where PATH itself carries values.
    """
    from rich.text import Text

    from tnplan.reporting import json_documents as documents
    from tnplan.reporting import tables
    from tnplan.reporting.chain import largest, use_chain

    name = path.name.removesuffix(".json")
    target = output or Path(f"{name}.schedule.json")
    with tables.console(stderr=True).status(Text(f"planning {name} for {devices} devices")):
        schedule = seen_from(target.parent, plan(path, devices=devices, output=target, **options))
    if as_json:
        say(json.dumps({**documents.schedule_document(schedule, devices), "schedule": str(target)}))
        return
    console = tables.console()
    console.print(
        tables.facts_table(
            f"{path} for {devices} device{'s' if devices > 1 else ''}", tables.plan_facts(schedule, devices)
        )
    )
    chain = largest(use_chain(schedule), SHOWN_STEPS)
    if chain:
        console.print()
        console.print(tables.steps_table(schedule, chain, "The large steps that take longest"))
    say(f"wrote {target}")
