"""`tnplan plan`: a contraction path in, an annotated schedule out."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import click

from tnplan.cli.options import FILE, PROFILE, SIZE, SizeType
from tnplan.planner.common.files import check_writable

SHOWN_STEPS = 6


@click.command()
@click.argument("path", type=FILE, metavar="PATH")
@click.option("--devices", type=click.IntRange(1), default=1, show_default=True, help="Devices to plan for.")
@click.option(
    "--ranks-per-group",
    type=click.IntRange(1),
    help="Devices that share a slice [default: the fastest number].",
)
@click.option(
    "--hardware",
    type=PROFILE,
    metavar="PROFILE",
    default="cpu",
    show_default=True,
    help="A shipped profile or a TOML file.",
)
@click.option("--memory", type=SIZE, help="All bytes of a rank, or 'unlimited' [default: the profile's].")
@click.option(
    "--threshold",
    type=SizeType(unlimited=False),
    help="Size from which a whole tensor is large [default: see docs/cli.md].",
)
@click.option("--precision", help="How values are multiplied: fp32, fp64, ... [default: by the dtype].")
@click.option(
    "--compress",
    metavar="BOUNDS",
    help="exchange=BOUND[:RATIO], store=BOUND[:RATIO], setting=fast|small; with commas "
    "(docs/compression.md) [default: nothing].",
)
@click.option("--policy", type=click.Choice(["ours", "paper"]), default="ours", show_default=True)
@click.option("-o", "--output", type=FILE, help="Default: NAME.schedule.json, here.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    path: Path,
    devices: int,
    ranks_per_group: int | None,
    hardware: str,
    memory: float | None,
    threshold: int | None,
    precision: str | None,
    compress: str | None,
    policy: str,
    output: Path | None,
    as_json: bool,
) -> None:
    """Plan a contraction path as a schedule for a group of ranks.

    PATH is a path.json, or another file that holds a network with a path (docs/formats.md lists them).
    The schedule goes to --output, and with it the tensors where PATH itself carries values.
    """
    from rich.console import Console
    from rich.text import Text

    from tnplan.planner.hardware.compression_options import parse_request
    from tnplan.planner.hardware.profile import load_profile
    from tnplan.planner.networks.importers import read_any
    from tnplan.planner.networks.path_file import tensors_file
    from tnplan.planner.networks.tensors import save_tensors
    from tnplan.planner.passes import pipeline
    from tnplan.planner.schedule.file import save_schedule
    from tnplan.reporting import json_documents as documents
    from tnplan.reporting import tables
    from tnplan.reporting.chain import largest, use_chain

    target = output or Path(f"{path.name.removesuffix('.json')}.schedule.json")
    check_writable(target, path, hardware)
    compression = None if compress is None else parse_request(compress).planned()
    profile = load_profile(hardware)
    read, arrays = read_any(path)
    values = target.with_name(target.name.removesuffix(".json").removesuffix(".schedule") + ".npz")
    if arrays is not None:
        check_writable(values)
        read = replace(read, tensors=values.name)
    elif (values_file := tensors_file(path, read.tensors)) is not None:
        check_writable(target, values_file)
        read = replace(read, tensors=os.path.relpath(values_file, target.parent))
    with Console(stderr=True).status(Text(f"planning {read.name or path.name} for {devices} devices")):
        schedule = pipeline.plan(
            read,
            profile,
            devices=devices,
            ranks_per_group=ranks_per_group,
            memory_bytes=memory,
            threshold_bytes=threshold,
            precision=precision,
            policy=policy,
            compression=compression,
        )
    if arrays is not None:
        save_tensors(arrays, values)
    save_schedule(schedule, target)
    if as_json:
        click.echo(json.dumps({**documents.schedule_document(schedule, devices), "schedule": str(target)}))
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
    click.echo(f"wrote {target}")
