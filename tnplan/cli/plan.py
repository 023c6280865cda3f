"""`tnplan plan`: a contraction path in, an annotated schedule out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE, PROFILE, SIZE, SizeType
from tnplan.cli.terminal import say

SHOWN_STEPS = 6


@click.command()
@click.argument("path", type=FILE, metavar="PATH")
@click.option("--devices", type=click.IntRange(1), default=1, help="Devices to plan for.")
@click.option(
    "--ranks-per-group",
    type=click.IntRange(1),
    help="Devices that share a slice [default: the fastest number].",
)
@click.option(
    "--hardware", type=PROFILE, metavar="PROFILE", default="cpu", help="A shipped profile or a TOML file."
)
@click.option("--memory", type=SIZE, help="Most bytes of a rank, or 'unlimited' [default: the profile's].")
@click.option(
    "--threshold",
    type=SizeType(unlimited=False),
    help="Size from which a whole tensor is large [default: see docs/reference/cli.md].",
)
@click.option("--precision", help="How values are multiplied: fp32, fp64, ... [default: by the dtype].")
@click.option(
    "--compress",
    metavar="BOUNDS",
    help="exchange=BOUND[:RATIO], store=BOUND[:RATIO], setting=fast|small; with commas "
    "(docs/explanation/compression.md) [default: nothing].",
)
@click.option("--policy", type=click.Choice(["ours", "paper"]), default="ours")
@click.option("-o", "--output", type=FILE, help="Default: NAME.schedule.json, here.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(path: Path, devices: int, output: Path | None, as_json: bool, **options: Any) -> None:
    """Plan a contraction path as a schedule for a group of ranks.

    PATH is a path.json, or another file that holds a network with a path: docs/reference/formats.md lists
    them. The schedule goes to --output, and with it the tensors where PATH itself carries values.
    """
    from rich.text import Text

    from tnplan.calls.plan import plan, seen_from
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
