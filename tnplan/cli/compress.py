"""`tnplan compress`: an array in, a compressed one within a bound out; or a comparison of pipelines."""

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
@click.option("--compare", is_flag=True, help="Compare pipelines instead; nothing is written.")
@click.option(
    "--threshold",
    type=float,
    help="With --compare: that of the pipelines of Shah et al., relative to the range [default: the bound].",
)
@click.option("--plot", type=FILE, metavar="FILE.svg", help="With --compare: ratio over rates.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    array: Path, bound: float, mode: str, setting: str, refuse_nonfinite: bool, output: Path | None,
    compare: bool, threshold: float | None, plot: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compress an array: no real or imaginary part errs by more than the bound.

    FILE.npy holds float32, float64, complex64 or complex128 numbers. docs/explanation/compression.md
    explains bounds and settings.
    """
    if compare:
        if output is not None or mode != "range" or setting != "auto" or refuse_nonfinite:
            raise click.UsageError("--compare takes --bound, --threshold, --plot and --json only")
        _compare(array, bound, threshold, plot, as_json)
        return
    if threshold is not None or plot is not None:
        raise click.UsageError("--threshold and --plot go with --compare")
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


def _compare(array: Path, bound: float, threshold: float | None, plot: Path | None, as_json: bool) -> None:
    from dataclasses import asdict

    from tnplan.calls.compare_codecs import compare_codecs
    from tnplan.common.files import check_suffix, check_writable, write_text
    from tnplan.reporting import codecs, tables

    if plot is not None:
        check_writable(plot, array)
        check_suffix(plot, ".svg")
    rows = compare_codecs(array, bound, threshold=threshold)
    if plot is not None:
        from tnplan.reporting.plots import svg_of
        from tnplan.reporting.run_plots import codec_plot

        write_text(plot, svg_of(codec_plot(rows)))
    if as_json:
        say_json([{**asdict(row), "ratio": row.ratio} for row in rows])
        return
    cut = bound if threshold is None else threshold
    title = f"{array}: bound {bound:g}, threshold {cut:g} of the range"
    tables.console().print(codecs.codec_table(rows, bound, title))
    if plot is not None:
        say(f"written: {plot}")
