"""`tnplan pauli`: a circuit and an observable in, the expectation value and the error bound out."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from tnplan.cli.job_options import CHECKPOINTS, ProgressLines, job_options
from tnplan.cli.options import FILE, set_parameters

SAY_EVERY_S = 1.0
"""Seconds between lines of progress."""


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@set_parameters
@click.option("--observable", required=True, metavar="SUM", help="Such as 'Z62' or '0.5*X0 X1 - Z3'.")
@click.option("--state", metavar="BITS", help="0 or 1 for each qubit [default: all 0].")
@click.option("--branch-cut", type=float, default=0.0, help="Drop smaller contributions before merging.")
@click.option(
    "--min-coefficient", "merged_cut", type=float, default=0.0, help="Drop smaller terms after merging."
)
@click.option("--max-weight", type=int, help="Drop terms on more qubits.")
@click.option("--max-xy", type=int, help="Drop terms with more letters X and Y.")
@click.option("--max-frequency", type=int, help="Drop terms that more rotations split.")
@click.option("--max-terms", type=int, help="Keep this many terms, those of largest magnitude.")
@click.option("--every", type=int, default=1, help="Steps between truncations.")
@click.option("--stop-above", type=int, help="Stop where more terms than this are left.")
@click.option(
    "--depolarizing", "depolarize", type=float, default=0.0, help="Probability of an error after each gate."
)
@click.option(
    "--picture", type=click.Choice(["heisenberg", "schroedinger"]), default="heisenberg",
    help="Take the observable backwards, or the state forward.",
)  # fmt: skip
@click.option("--gradient", is_flag=True, help="Add the derivatives by all angles of rotations.")
@click.option("--precision", type=click.Choice(["fp64", "fp32"]), default="fp64")
@click.option(
    "--when-full", type=click.Choice(["stop", "truncate"]), default="stop",
    help="Stop where the memory is full, or keep the largest terms and go on.",
)  # fmt: skip
@click.option("--record", type=FILE, help="Write the terms at every step: .json, or a plot, .svg.")
@job_options("Write the result as JSON.", without=CHECKPOINTS)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    circuit: Path, observable: str, output: Path | None, record: Path | None, as_json: bool, **options: Any
) -> None:
    """Propagate an observable backwards through a circuit, and print its expectation value.

    CIRCUIT is a qsim or OpenQASM file. Without a truncation the value is exact; with one, the sum of what was
    dropped bounds its error. docs/explanation/pauli.md explains the truncations.
    mpirun -n P spreads the terms over P ranks, a power of two.
    """
    from tnplan.api.jobs.propagate import propagate
    from tnplan.executor.device.comm.launcher import launched_rank
    from tnplan.executor.pauli.terms.truncation import Truncation

    truncation = Truncation(**{item.name: options.pop(item.name) for item in fields(Truncation)})
    first = launched_rank() == 0
    with ProgressLines(first, SAY_EVERY_S) as progress:
        done = propagate(
            circuit, observable, truncation, keep="none", output=output, record=record, progress=progress,
            **options,
        )  # fmt: skip
    if first:
        _show(done.report, [path for path in (output, record) if path is not None], as_json)


def _show(report: dict[str, Any], written: list[Path], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    dropped = report["dropped"]["terms"]
    click.echo(f"expectation value {report['expectation']!r}, error at most {report['error_bound']:.3g}")
    click.echo(
        f"{report['terms']} terms at the end, {report['largest_terms']} at most, "
        f"{'over 1e308' if dropped is None else dropped} dropped; "
        f"{report['steps']} steps in {report['time_s']:.3g} s"
    )
    if report["memory_full"]:
        click.echo(f"the memory was full {report['memory_full']} times: the largest terms were kept")
    for entry in report.get("gradient", ()):
        where = f"gate {entry['gate']}, {entry['rotation']}, angle {entry['angle']:.6g}"
        click.echo(f"derivative at {where}: {entry['derivative']!r}")
    for path in written:
        click.echo(f"written: {path}")
