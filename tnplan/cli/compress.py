"""`tnplan compress`: an array in, a compressed one within a bound out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE
from tnplan.cli.terminal import say, say_json

MODES = ("range", "absolute", "pointwise")
SETTINGS = ("auto", "fast", "small")


@click.command()
@click.argument("array", type=FILE, metavar="FILE.npy")
@click.option("--bound", type=float, default=1e-3, help="Largest error; 0 is lossless.")
@click.option(
    "--mode", type=click.Choice(MODES), default="range",
    help="What the bound is relative to: the range of values, nothing, or each value.",
)  # fmt: skip
@click.option(
    "--setting", type=click.Choice(SETTINGS), default="auto",
    help="Coding that is fast or small; auto chooses on a sample.",
)  # fmt: skip
@click.option("--refuse-nonfinite", is_flag=True, help="Refuse NaN and infinities instead of keeping them.")
@click.option("-o", "--output", type=FILE, help="[default: FILE.npy.tnz]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    array: Path, bound: float, mode: str, setting: str, refuse_nonfinite: bool, output: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Compress an array: no real or imaginary part errs by more than the bound.

    FILE.npy holds float32, float64, complex64 or complex128 numbers. docs/explanation/compression.md
    explains bounds and settings.
    """
    from tnplan.calls.compress_file import compress_file

    report = compress_file(
        array, output, bound, mode=mode, setting=setting, nonfinite="refuse" if refuse_nonfinite else "keep"
    )
    show(report, as_json)


def show(report: dict[str, Any], as_json: bool) -> None:
    """Print what was done."""
    if as_json:
        say_json(report)
        return
    kind = report["coder"] + ("" if report["mirror"] == "none" else ", half of a mirrored array")
    limit = "lossless" if report["mode"] == "lossless" else f"{report['mode']} bound {report['bound']:g}"
    say(
        f"{report['array_bytes']} bytes of {report['dtype']}, {report['stream_bytes']} compressed: "
        f"ratio {report['ratio']:.2f} ({kind}; {limit}) in {report['time_s']:.3g} s"
    )
    say(f"written: {report['output']}")
