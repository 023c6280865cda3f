"""`tnplan report`: projected time and speedup for each number of devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tnplan.calls.report import ReportOptions, Reports, report_all
from tnplan.cli.from_signature import Call, command, taken
from tnplan.cli.option_types import DEVICES, FILE
from tnplan.cli.terminal import say
from tnplan.jobs.progress import StatusLine


@command(
    "report.report",
    paths=click.argument("paths", type=FILE, nargs=-1, required=True, metavar="PATH..."),
    devices={"type": DEVICES, "help": "Numbers of devices, as 1,2,4,...,1024."},
    hardware={"multiple": True},
    baseline_time={"type": click.FloatRange(0, 1e9), "metavar": "SECONDS"},
    baseline={"metavar": "FILE.json"},
    html={"metavar": "FILE.html"},
)  # fmt: skip
def report(
    call: Call, paths: tuple[Path, ...], devices: tuple[int, ...], hardware: tuple[str, ...],
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Of all PATHs (path.json, or other files that hold a network with a path) of one network and all ways to
    group the devices, the report takes the one with the least predicted time, for each number of devices.
    A path for one device is searched too, and competes with those given. Speedups count from the faster of
    this path and the paths given on one device. Paths of several networks or dtypes are reported one after
    the other; names of indices and the order of tensors do not matter. If nothing fits for one of several
    profiles or networks, the report says so and shows the others.
    """
    from tnplan.planner.hardware.profile import load_profile
    from tnplan.planner.networks.importers import read_any
    from tnplan.reporting.json_documents import projection_document

    report_options = taken(ReportOptions, options)
    report_options.check(*paths, *hardware)
    profiles = [load_profile(name) for name in dict.fromkeys(hardware)]
    read = [read_any(path)[0] for path in paths]
    with StatusLine() as line:

        def show(done: int, total: int, text: str) -> None:
            if line.is_terminal:
                line.show(f"planning {done} of {total}: {text}")

        reports = report_all(read, devices, profiles, report_options, labels=_labels(paths), progress=show)
    if as_json:
        documents = [projection_document(projection) for projection in reports.projections]
        say(json.dumps({"reports": documents, "left_out": reports.left_out}))
        return
    _print(reports)
    for file in reports.written:
        say(f"wrote {file}")


def _print(reports: Reports) -> None:
    """All tables and notes, projection by projection, and a line for each that is left out."""
    from tnplan.reporting import evaluation, tables
    from tnplan.reporting.tables import recommendation

    console, projections = tables.console(), reports.projections
    for projection in projections:
        if len(projections) > 1:
            console.rule(f"{evaluation.workload_name(projection)} on {projection.profile.name}")
        console.print(" ".join(recommendation(projection)), style="bold")
        console.print(tables.projection_table(projection))
        for listed in (evaluation.slice_table(projection), evaluation.memory_table(projection)):
            console.print(listed)
        for note in (*tables.projection_notes(projection), *evaluation.evaluation_notes(projection)):
            console.print(note, style="yellow")
    legends = [tables.projection_legend(projection) for projection in projections]
    legends += [evaluation.slice_table(each).legend(evaluation.SLICES_LEGEND) for each in projections]
    legends += [evaluation.memory_table(each).legend(evaluation.MEMORY_LEGEND) for each in projections]
    for legend in dict.fromkeys(legends):
        console.print(legend, style="dim")
    for line in reports.left_out:
        console.print(line, style="yellow", markup=False)


def _labels(paths: tuple[Path, ...]) -> list[str]:
    """The names of the files without `.json`, or whole paths where two names are equal."""
    names = [path.name.removesuffix(".json") for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
