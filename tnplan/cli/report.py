"""`tnplan report`: projected time and speedup for each number of devices."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tnplan.cli.options.common import FILE, PROFILE, SIZE, SizeType, TextType
from tnplan.cli.terminal import say
from tnplan.common.files import check_suffix, check_writable, write_text

if TYPE_CHECKING:
    from tnplan.planner.projection.projection import Projection


class DeviceCounts(TextType):
    """Numbers of devices: `1,2,6`; `1,2,4,...,1024` and `1,...,1024` go on by doubling."""

    name = "P,P,..."

    def read(self, text: str) -> tuple[int, ...]:
        """The numbers, in rising order."""
        counts: list[int] = []
        doubling = False
        for word in map(str.strip, text.split(",")):
            if word == "..." and counts and not doubling:
                doubling = True
            elif re.fullmatch(r"[1-9][0-9]{0,8}", word):
                last = int(word)
                # "1,2,4,...,1024": dots stand for doubling up to the number behind them.
                while doubling and counts[-1] * 2 < last:
                    counts.append(counts[-1] * 2)
                doubling = False
                counts.append(last)
            else:
                self.fail(f"{word!r} in {text!r} is no number of devices; write 1,2,4 or 1,2,4,...,1024")
        if doubling:
            self.fail(f"{text!r} ends in dots; say up to which number, as in 1,2,4,...,1024")
        return tuple(sorted(set(counts)))


@click.command()
@click.argument("paths", type=FILE, nargs=-1, required=True, metavar="PATH...")
@click.option("--devices", type=DeviceCounts(), required=True, help="Numbers of devices, as 1,2,4,...,1024.")
@click.option(
    "--hardware",
    "machines",
    type=PROFILE,
    metavar="PROFILE",
    required=True,
    multiple=True,
    help="A shipped profile or a TOML file. May be repeated.",
)
@click.option("--memory", type=SIZE, help="Most bytes of a rank, or 'unlimited' [default: the profile's].")
@click.option("--threshold", type=SizeType(unlimited=False), help="Size from which a whole tensor is large.")
@click.option("--precision", help="How values are multiplied: fp32, fp64, ... [default: by the dtype].")
@click.option("--policy", type=click.Choice(["ours", "paper"]), default="ours", show_default=True)
@click.option(
    "--baseline-time",
    type=click.FloatRange(0, 1e9),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="Seconds of search for a path for one device, for each network and profile; 0: none, no headline.",
)
@click.option(
    "--baseline",
    type=FILE,
    metavar="FILE.json",
    help="Where the searched path is written, or read from if the file is there.",
)
@click.option("--html", type=FILE, metavar="FILE.html", help="Write a page with plots.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    paths: tuple[Path, ...],
    devices: tuple[int, ...],
    machines: tuple[str, ...],
    memory: float | None,
    threshold: int | None,
    precision: str | None,
    policy: str,
    baseline_time: float,
    baseline: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Project time and speedup for each device count.

    Of all PATHs (path.json, or other files that hold a network with a path) of one network and all ways to
    group the devices, the one with the least predicted time is taken for each number of devices. A path for
    one device is searched too, and competes with those given. Speedups count from the faster of this path
    and the paths given on one device. Paths of several networks or dtypes are reported one after the other;
    names of indices and the order of tensors do not matter. Where nothing fits on one of several profiles,
    or of one of several networks, the report says so and has the others.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tnplan.calls.report import baseline_search, save_baseline, workload_key
    from tnplan.common.errors import InputError, NothingFitsError
    from tnplan.planner.hardware.profile import load_profile
    from tnplan.planner.networks.importers import read_any
    from tnplan.planner.projection.projection import project
    from tnplan.reporting import json_documents as documents
    from tnplan.reporting import tables
    from tnplan.reporting.page import report_page

    if html:
        check_writable(html, *paths, *machines, *([baseline] if baseline else []))
        check_suffix(html, ".html")
    search = baseline_search(baseline_time, baseline)
    profiles = [load_profile(hardware) for hardware in dict.fromkeys(machines)]
    read = [read_any(path)[0] for path in paths]
    # Paths of one network in one dtype compete with each other; different networks get projections
    # of their own.
    workloads: dict[tuple[str, str], list[int]] = {}
    for number, path in enumerate(read):
        workloads.setdefault(workload_key(path), []).append(number)
    if baseline and len(workloads) * len(profiles) > 1:
        raise InputError("--baseline", "is of one network on one profile", "report them one at a time")
    labels = _labels(paths)
    columns = (
        TextColumn("planning"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    projections: list[Projection] = []
    refusals: list[tuple[str, NothingFitsError]] = []
    terminal = tables.console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("")
        for numbers in workloads.values():
            for profile in profiles:
                own_labels = [labels[number] for number in numbers]
                try:
                    found = project(
                        [read[number] for number in numbers],
                        profile,
                        devices,
                        memory_bytes=memory,
                        threshold_bytes=threshold,
                        precision=precision,
                        policy=policy,
                        labels=own_labels,
                        progress=lambda done, total, text: bar.update(
                            task, completed=done, total=total, description=text
                        ),
                        baseline=search,
                    )
                # A machine that holds no path is left out with its reason, unless nothing is left
                # at all.
                except NothingFitsError as refusal:
                    refusals.append((", ".join(own_labels), refusal))
                else:
                    projections.append(found)
    if not projections:
        raise refusals[0][1]
    left_out = [f"left out: {names}: {refusal.text}" for names, refusal in refusals]
    if html:
        write_text(html, report_page(projections, left_out))
    written = [baseline] if baseline and save_baseline(projections[0], baseline) else []
    if as_json:
        reports = [documents.projection_document(found) for found in projections]
        say(json.dumps({"reports": reports, "left_out": left_out}))
        return
    _print(projections, left_out)
    for file in (*([html] if html else []), *written):
        say(f"wrote {file}")


def _print(projections: Sequence[Projection], left_out: Sequence[str]) -> None:
    """All tables and notes, projection by projection, and a line for each that is left out."""
    from tnplan.reporting import tables
    from tnplan.reporting.evaluation import (
        MEMORY_LEGEND,
        SLICES_LEGEND,
        evaluation_notes,
        memory_table,
        slice_table,
        workload_name,
    )
    from tnplan.reporting.recommendation import recommendation

    console = tables.console()
    for projection in projections:
        if len(projections) > 1:
            console.rule(f"{workload_name(projection)} on {projection.profile.name}")
        console.print(" ".join(recommendation(projection)), style="bold")
        console.print(tables.projection_table(projection))
        for table in (slice_table, memory_table):
            console.print(table(projection))
        for note in (*tables.projection_notes(projection), *evaluation_notes(projection)):
            console.print(note, style="yellow")
    legends = dict.fromkeys(tables.projection_legend(projection) for projection in projections)
    for legend in (*legends, SLICES_LEGEND, MEMORY_LEGEND):
        console.print(legend, style="dim")
    for line in left_out:
        console.print(line, style="yellow", markup=False)


def _labels(paths: tuple[Path, ...]) -> list[str]:
    """The names of the files without `.json`, or whole paths where two names are equal."""
    names = [path.name.removesuffix(".json") for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
