"""`tnplan compress` and `tnplan decompress`: an array in, a compressed one within a bound out, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tnplan.calls.compress_file import compress_file, decompress_file
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import FILE, as_json
from tnplan.cli.terminal import say_result


@click.command()
@options_of(
    compress_file,
    source=click.argument("source", type=FILE, metavar="FILE.npy"),
    nonfinite={
        "flags": ["--refuse-nonfinite"], "flag_value": "refuse", "show_default": False,
        "help": "Refuse NaN and infinities instead of keeping them.",
    },
)  # fmt: skip
@as_json
def compress(as_json: bool, **options: Any) -> None:
    """Compress an array: no real or imaginary part errs by more than the bound.

    FILE.npy holds float32, float64, complex64 or complex128 numbers. docs/explanation/compression.md
    explains bounds and settings.
    """
    report = compress_file(**options)
    say_result(report, as_json, _lines(report), [report["output"]])


@click.command()
@options_of(
    decompress_file,
    source=click.argument("source", type=FILE, metavar="FILE.npy.tnz"),
)
@as_json
def decompress(as_json: bool, **options: Any) -> None:
    """Restore the array that 'tnplan compress' wrote."""
    report = decompress_file(**options)
    say_result(report, as_json, _lines(report), [report["output"]])


commands = {"compress": compress, "decompress": decompress}


def _lines(report: dict[str, Any]) -> Iterator[str]:
    kind = report["coder"] + ("" if report["mirror"] == "none" else ", half of a mirrored array")
    limit = "lossless" if report["mode"] == "lossless" else f"{report['mode']} bound {report['bound']:g}"
    yield (
        f"{report['array_bytes']} bytes of {report['dtype']}, {report['stream_bytes']} compressed: "
        f"ratio {report['ratio']:.2f} ({kind}; {limit}) in {report['time_s']:.3g} s"
    )
