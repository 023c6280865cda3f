"""`tnplan execute`: a schedule and tensors in, the contracted result out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tnplan.calls.execute import execute
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import FILE, as_json
from tnplan.cli.progress import ProgressLines
from tnplan.cli.terminal import say_once, say_result
from tnplan.common.units import count_text, size_text

SHOWN_VALUES = 4


@click.command()
@options_of(
    execute,
    schedule=click.argument("schedule", type=FILE, metavar="SCHEDULE.json"),
    tensors="An .npz with t0, t1, ... Default: the file that the schedule names.",
    slices={"type": str, "metavar": "FIRST:STOP"},
    compress={
        "metavar": "BOUNDS",
        "help": "exchange=BOUND[:RATIO], store=BOUND, setting=fast|small, checkpoints; with commas "
        "(docs/explanation/compression.md). Default: as planned.",
    },
)
@as_json
def command(schedule: Path, as_json: bool, **options: Any) -> None:
    """Carry out a schedule, in this process or on the ranks that mpirun started.

    mpirun -n P tnplan execute SCHEDULE takes any multiple P of the schedule's group. Without mpirun the ranks
    are threads of this process. The result goes to --output, with a .json of what was measured beside what
    was predicted; finished slices are kept in OUTPUT.ckpt until the result is written.
    """
    with warnings.catch_warnings(), ProgressLines() as progress:
        warnings.simplefilter("ignore", RuntimeWarning)
        outcome = execute(schedule, progress=progress, **options)
    report, output = outcome.report, options["output"]
    if report["not_finite"]:
        say_once(f"warning: the result holds {report['not_finite']} values that are NaN or infinite")
    if output is not None and outcome.array is None:
        output = output.with_suffix(".shards.json")
    say_result(report, as_json, _lines(outcome.array, report), [output])


def _lines(array: Any, report: dict[str, Any]) -> Iterator[str]:
    measured, predicted = report["measured"], report["predicted"]
    kinds = measured["kinds_s"]
    rows = [
        ("seconds in all", measured["run_s"], predicted["total_s"]),
        # Devices measure permutations together with products, so that the prediction adds them too.
        ("  contractions", kinds["contract_s"], predicted["contract_s"] + predicted["permute_s"]),
        ("  exchanges", kinds["exchange_s"], predicted["exchange_s"]),
    ]
    if measured["hidden_s"] or predicted["hidden_s"]:
        rows.append(("  hidden exchanges", measured["hidden_s"], predicted["hidden_s"]))
    if "codec_s" in kinds:
        rows.insert(3, ("  compression", kinds["codec_s"], predicted["codec_s"]))
    n_slices = report["slices"]["stop"] - report["slices"]["first"]
    yield (
        f"{count_text(report['ranks'], 'rank', 'ranks')} in "
        f"{count_text(report['groups'], 'group', 'groups')}, {count_text(n_slices, 'slice', 'slices')}, "
        f"{count_text(report['threads_per_rank'], 'thread', 'threads')} a rank"
    )
    yield f"{'':<20}{'measured':>12}{'predicted':>12}"
    for name, value, expected in rows:
        yield f"{name:<20}{value:>12.4g}{expected:>12.4g}"
    peaks = [size_text(figures["peak_bytes"]) for figures in (measured, predicted)]
    yield f"{'peak a rank':<20}{peaks[0]:>12}{peaks[1]:>12}"
    if report["compression"] is not None:
        yield _compression_line(report["compression"])
    if array is not None and array.size <= SHOWN_VALUES:
        yield f"result: {array.tolist()}"


def _compression_line(compression: dict[str, Any]) -> str:
    """The accumulated bound, the fidelity, and bytes before and after, in one line."""
    if not compression.keys() & {"exchange", "store"}:
        return "compressed: nothing, since no exchange is predicted to be faster and no tensor is to wait so"
    bound, fidelity = (
        "not known" if compression[name] is None else format(compression[name], form)
        for name, form in (("bound", ".3g"), ("fidelity", ".9g"))
    )
    kinds = [
        f"{kind} {size_text(sizes['tensor_bytes'])} to {size_text(sizes['stream_bytes'])}"
        for kind in ("exchange", "store")
        if (sizes := compression.get(kind))
    ]
    return "; ".join([f"compressed: bound {bound}, fidelity {fidelity}", *kinds])
