"""`tnplan execute`: a schedule and tensors in, the contracted result out."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import click

from tnplan.cli.options import FILE

LOG_EVERY_S = 10.0
SHOW_EVERY_S = 1.0
SHOWN_VALUES = 4


@click.command()
@click.argument("schedule", type=FILE, metavar="SCHEDULE.json")
@click.option("--tensors", type=FILE, help="An .npz with t0, t1, ... [default: the path's].")
@click.option("-o", "--output", type=FILE, help="Write the result to this .npy.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu"]),
    default="auto",
    show_default=True,
    help="A GPU for each rank, or the CPU; auto takes GPUs that are there and have room, and says so.",
)
@click.option(
    "--ranks", type=click.IntRange(1), help="Ranks in this process [default: one group of the schedule]."
)
@click.option(
    "--result",
    type=click.Choice(["gathered", "sharded"]),
    default="gathered",
    show_default=True,
    help="One array, or the part of each rank in a file of its own.",
)
@click.option(
    "--engine",
    type=click.Choice(["native", "cutensormp"]),
    default="native",
    show_default=True,
    help="What contracts: tnplan, or NVIDIA's tensor libraries.",
)
@click.option("--slices", metavar="FIRST:STOP", help="Only these slices.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run from its checkpoint.")
@click.option("--checkpoint/--no-checkpoint", default=True, show_default=True, help="Keep finished slices.")
@click.option(
    "--compress",
    metavar="BOUNDS",
    help="exchange=BOUND[:RATIO], store=BOUND, setting=fast|small, checkpoints; with commas "
    "(docs/compression.md) [default: as planned].",
)
@click.option(
    "--threads", type=click.IntRange(1), help="Threads a rank [default: the host's cores over its ranks]."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    schedule: Path,
    tensors: Path | None,
    output: Path | None,
    device: str,
    ranks: int | None,
    result: str,
    engine: str,
    slices: str | None,
    resume: bool,
    checkpoint: bool,
    compress: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Carry out a schedule, in this process or on the ranks that mpirun started.

    mpirun -n P tnplan execute SCHEDULE takes any multiple P of the schedule's group. Without mpirun the ranks
    are threads of this process. The result goes to --output, with a .json of what was measured beside what
    was predicted; finished slices are kept in OUTPUT.ckpt until the result is written.
    """
    from tnplan.api.execute import execute
    from tnplan.executor.device.comm.launcher import launched_rank

    first = launched_rank() == 0
    with warnings.catch_warnings(), _Progress(first) as progress:
        warnings.simplefilter("ignore", RuntimeWarning)
        outcome = execute(
            schedule, tensors, ranks=ranks, device=device, result=result, slices=slices, resume=resume,
            output=output, threads=threads, checkpoint=checkpoint, engine=engine, compress=compress,
            progress=progress.update, announce=progress.choose,
        )  # fmt: skip
    if first:
        _show(outcome.array, outcome.report, output, as_json)


class _Progress:
    """Slices done and the time left: a line that is rewritten on a terminal, plain lines in a log."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._chosen: str | None = None
        self._terminal = shown and sys.stderr is not None and sys.stderr.isatty()
        self._start = self._last = time.monotonic()
        self._done_before: int | None = None
        self._live: Any = None

    def __enter__(self) -> _Progress:
        if self._terminal:
            from rich.live import Live

            self._live = Live("binding ...", refresh_per_second=4, transient=True, console=_stderr_console())
            self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def choose(self, line: str) -> None:
        """The device is chosen: it is said when the slices begin, so that a refusal stands alone."""
        self._chosen = line

    def update(self, done: int, n_slices: int) -> None:
        """The slices are about to begin, or one is done; says so when it is time to."""
        now = time.monotonic()
        if self._done_before is None:
            self._done_before = done
            self._start = now
            if self._shown and self._chosen is not None:
                self._say(self._chosen)
            return
        due = now - self._last >= (SHOW_EVERY_S if self._terminal else LOG_EVERY_S)
        if not self._shown or not due or done == self._done_before:
            return
        self._last = now
        left_s = (now - self._start) / (done - self._done_before) * (n_slices - done)
        line = f"slice {done} of {n_slices}, about {_duration(left_s)} left"
        if self._live is not None:
            self._live.update(line)
        else:
            self._say(line)

    def _say(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line)
        else:
            click.echo(line, err=True)


def _stderr_console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _duration(time_s: float) -> str:
    if time_s < 120:
        return f"{time_s:.0f} s"
    if time_s < 7200:
        return f"{time_s / 60:.0f} min"
    if time_s < 172800:
        return f"{time_s / 3600:.1f} h"
    from tnplan.planner.common.units import time_text

    return time_text(time_s)


def _show(array: Any, report: dict[str, Any], output: Path | None, as_json: bool) -> None:
    if report["not_finite"]:
        click.echo(
            f"warning: the result holds {report['not_finite']} values that are NaN or infinite", err=True
        )
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    from tnplan.planner.common.units import size_text

    measured, predicted = report["measured"], report["predicted"]
    kinds = measured["kinds_s"]
    rows = [
        ("seconds in all", measured["run_s"], predicted["total_s"]),
        ("  contractions", kinds["contract_s"], predicted["contract_s"] + predicted["permute_s"]),
        ("  exchanges", kinds["exchange_s"], predicted["exchange_s"]),
        ("  hidden ones", measured["hidden_s"], predicted["hidden_s"]),
    ]
    if "codec_s" in kinds:
        rows.insert(3, ("  compression", kinds["codec_s"], predicted["codec_s"]))
    n_slices = report["slices"]["stop"] - report["slices"]["first"]
    click.echo(
        f"{_count(report['ranks'], 'rank')} in {_count(report['groups'], 'group')}, "
        f"{_count(n_slices, 'slice')}, {_count(report['threads_per_rank'], 'thread')} a rank"
    )
    click.echo(f"{'':<18}{'measured':>12}{'predicted':>12}")
    for name, own, expected in rows:
        click.echo(f"{name:<18}{own:>12.4g}{expected:>12.4g}")
    peaks = [size_text(figures["peak_bytes"]) for figures in (measured, predicted)]
    click.echo(f"{'peak a rank':<18}{peaks[0]:>12}{peaks[1]:>12}")
    if report["compression"] is not None:
        click.echo(_compression_line(report["compression"]))
    if array is not None and array.size <= SHOWN_VALUES:
        click.echo(f"result: {array.tolist()}")
    if output is not None:
        click.echo(f"written: {output if array is not None else output.with_suffix('.shards.json')}")


def _compression_line(found: dict[str, Any]) -> str:
    """The accumulated bound, the fidelity, and bytes before and after, in one line."""
    if not found.keys() & {"exchange", "store"}:
        return "compressed: nothing, since no exchange is predicted to be faster and no tensor is to wait so"
    from tnplan.planner.common.units import size_text

    bound, fidelity = (
        "not known" if found[name] is None else format(found[name], form)
        for name, form in (("bound", ".3g"), ("fidelity", ".9g"))
    )
    sizes = [
        f"{kind} {size_text(found[kind]['tensor_bytes'])} to {size_text(found[kind]['stream_bytes'])}"
        for kind in ("exchange", "store")
        if kind in found
    ]
    return "; ".join([f"compressed: bound {bound}, fidelity {fidelity}", *sizes])


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
