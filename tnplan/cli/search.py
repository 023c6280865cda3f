"""`tnplan search`: a network in, a contraction path under the memory of P devices out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tnplan.calls.search import search
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import COUNT, FILE, SECONDS, as_json
from tnplan.cli.terminal import say
from tnplan.planner.search.search_options import JOINT, METHODS

if TYPE_CHECKING:
    from tnplan.jobs.progress import Progress
    from tnplan.planner.networks.contraction_path import ContractionPath

LOG_EVERY_S, BAR_EVERY_S = 10.0, 3.0
PARTITIONER = "kahypar"


@click.command()
@options_of(
    search,
    network=click.argument("network", type=FILE, metavar="NET.json"),
    devices={"type": click.IntRange(1)},
    max_tensor={"type": COUNT, "help": "Elements of the largest tensor, such as 2^32."},
    start={
        "flags": ["--from"], "multiple": True, "metavar": "PATH.json",
        "help": "Start from this path; with joint it may be repeated: from the best of several, perhaps for "
        "other limits. The four cheapest serve as starts.",
    },
    time={"type": SECONDS},
    methods={
        "flags": ["--method"], "type": click.Choice([JOINT, *METHODS, PARTITIONER]), "multiple": True,
        "help": "Default: joint, unless --minimize is write, size or combo. Others are cotengra's and may be "
        "repeated; beside joint they give its first tree. kahypar needs the extra [search].",
    },
    workers={"type": click.IntRange(1)},
    output="Default: NET.path.json, here.",
)  # fmt: skip
@click.option(
    "--compare",
    is_flag=True,
    help="First run cotengra's methods, each as long and for flops, and print a table of all. The path "
    "written is that of --method.",
)
@as_json
def command(
    network: Path, time: float | str, compare: bool, output: Path | None, as_json: bool, **options: Any
) -> None:
    """Find a contraction path under a memory limit.

    NET.json is a network file, cotengra's network JSON, or any path (its network is taken). The limit is
    --max-tensor, or none with --unlimited, or else what leaves room for three of the largest tensors in the
    memory of --devices devices of --hardware. Tree and slices are searched for together.

    A search with joint that is killed goes on with --resume and the same options; --time is that of the whole
    search. Its checkpoint is deleted when the path is written.
    """
    from tnplan.planner.search.path_cost import path_cost

    target = output or Path(f"{network.name.removesuffix('.json')}.path.json")
    others = _others(network, time, options) if compare else {}
    with _Line(time) as line:
        path = search(network, time=time, output=target, progress=line.show, **options)
    figures = path_cost(path)
    named = ", ".join(options["methods"]) or JOINT
    rows = {**others, named: path} if compare else {}
    if as_json:
        compared = {"compared": {name: row.meta for name, row in rows.items()}} if compare else {}
        say(json.dumps({"path": str(target), "n_slices": figures.n_slices, **path.meta, **compared}))
        return
    if compare:
        say(_table(rows))
    say(
        f"wrote {target}: 10^{figures.log10_mnk_all_slices:.3f} multiply-adds in all slices, "
        f"10^{path.meta['log10_mnk_planned']:.3f} with shared work done once, largest tensor "
        f"2^{figures.log2_largest:.2f} elements, {_slices(figures.n_slices, len(path.sliced_inds))}"
        f"{_predicted(path)}"
    )


def _others(network: Path, time: float | str, options: dict[str, Any]) -> dict[str, ContractionPath]:
    """The paths of cotengra's methods, one after the other."""
    from importlib.util import find_spec

    names = [*METHODS, *([PARTITIONER] if find_spec(PARTITIONER) else [])]
    common = ("devices", "hardware", "max_tensor", "unlimited", "dtype", "seed", "workers")
    same = {name: options[name] for name in common}
    paths = {}
    for name in names:
        with _Line(time, name) as line:
            paths[name] = search(
                network, time=time, methods=[name], minimize="flops", progress=line.show, **same
            )
    return paths


def _table(rows: dict[str, ContractionPath]) -> str:
    """The methods beside each other, in Markdown."""
    from tnplan.planner.search.path_cost import path_cost

    lines = [
        "| method | log10 multiply-adds | as planned | log2 largest | sliced | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for name, path in rows.items():
        cost = path_cost(path)
        lines.append(
            f"| {name} | {cost.log10_mnk_all_slices:.3f} | {path.meta['log10_mnk_planned']:.3f} "
            f"| {cost.log2_largest:.2f} | {len(path.sliced_inds)} | {path.meta['time_s']:.1f} |"
        )
    return "\n".join(lines)


def _slices(n_slices: int, n_sliced: int) -> str:
    from tnplan.common.units import count_text

    if not n_sliced:
        return "no slices"
    return f"{count_text(n_slices, 'slice', 'slices')} over {count_text(n_sliced, 'index', 'indices')}"


def _predicted(path: ContractionPath) -> str:
    time_s = path.meta.get("predicted_s")
    return "" if time_s is None else f", {time_s:.3g} s predicted"


class _Line:
    """One line of progress on a terminal: seconds used of those given, and the best path so far."""

    def __init__(self, time: float | str, name: str = "") -> None:
        from rich import progress

        from tnplan.reporting import tables

        self.name = f"searching {name}".rstrip()
        self.console = tables.console(stderr=True)
        self.is_log = not self.console.is_terminal
        self.shown_s = -LOG_EVERY_S
        columns = (
            progress.TextColumn(self.name, markup=False),
            progress.TimeElapsedColumn(),
            progress.TextColumn("" if isinstance(time, str) else f"of {time:.0f} s"),
            progress.BarColumn(pulse_style="bar.complete"),
            progress.TextColumn("{task.description}", markup=False),
        )
        self.bar = progress.Progress(*columns, console=self.console, transient=True, disable=self.is_log)
        self.task = self.bar.add_task("first trees", total=None)

    def __enter__(self) -> _Line:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, at: Progress) -> None:
        """Print that the search begins, then the cost of the best path so far, a few times a minute at most:
        to count it takes a while."""
        from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost

        path = at.detail
        if path is None:
            if self.is_log:
                self.console.print(f"{self.name}: {at.text}", markup=False)
            return
        if at.done - self.shown_s < (LOG_EVERY_S if self.is_log else BAR_EVERY_S):
            return
        self.shown_s = at.done
        largest = path_cost(path).log2_largest
        text = f"10^{log10_mnk_planned(path):.2f} multiply-adds, largest 2^{largest:.1f}{_predicted(path)}"
        self.bar.update(self.task, description=f"best: {text}")
        if self.is_log:
            self.console.print(f"{at.text}: {text}")
