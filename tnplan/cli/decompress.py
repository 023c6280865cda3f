"""`tnplan decompress`: a compressed array in, a .npy file out."""

from __future__ import annotations

from pathlib import Path

import click

from tnplan.cli.compress import show
from tnplan.cli.options.common import FILE


@click.command()
@click.argument("stream", type=FILE, metavar="FILE.npy.tnz")
@click.option("-o", "--output", type=FILE, help="[default: the name without .tnz, if it is free]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(stream: Path, output: Path | None, as_json: bool) -> None:
    """Restore the array that 'tnplan compress' wrote."""
    from tnplan.calls.compress_file import decompress_file

    show(decompress_file(stream, output), as_json)
