"""`tnplan search`: a network in, a contraction path under the memory of P devices out."""

from __future__ import annotations

import json
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tnplan.cli.from_signature import Call, command
from tnplan.cli.option_types import COUNT, FILE, SECONDS
from tnplan.cli.terminal import say
from tnplan.common.units import count_text
from tnplan.jobs.progress import Progress, StatusLine
from tnplan.planner.search.search_options import JOINT, METHODS, PARTITIONER

if TYPE_CHECKING:
    from tnplan.planner.networks.contraction_path import ContractionPath

LIMIT_ERROR = 1e-4
"""What log2 of a limit is rounded by."""
LOG_EVERY_S, EVERY_S = 10.0, 3.0
"""Seconds between lines of progress, in a log and on a terminal."""


@command(
    "search.search",
    network=click.argument("network", type=FILE, metavar="NET.json"),
    max_tensor={"type": COUNT, "help": "Elements of the largest tensor, such as 2^32."},
    start={"flags": ["--from"], "multiple": True, "metavar": "PATH.json"},
    time={"type": SECONDS},
    methods={"flags": ["--method"], "multiple": True},
    workers={"type": click.IntRange(1)},
    output="Default: NET.path.json, here.",
    progress=click.option(
        "--compare", is_flag=True,
        help="First run cotengra's methods, each for the same time and with flops as its goal, and print "
        "a table of all. The path "
        "written is that of --method.",
    ),
)  # fmt: skip
def search(
    call: Call, network: Path, time: float | str, compare: bool, output: Path | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """NET.json is a network file, cotengra's network JSON, or any path (its network is taken). The limit is
    --max-tensor, or none with --unlimited, or else what leaves room for three of the largest tensors in the
    memory of --devices devices of --hardware. Tree and slices are searched for together.

    A search by the method joint that was killed continues with --resume and the same options; --time is that
    of the whole search. Its checkpoint is deleted when the path is written.
    """
    from tnplan.planner.search.path_cost import path_cost

    target = output or Path(f"{network.name.removesuffix('.json')}.path.json")
    others = _others(call, network, time, options) if compare else {}
    with _Line() as line:
        path = call(network, time=time, output=target, progress=line, **options)
    figures = path_cost(path)
    named = ", ".join(options["methods"]) or JOINT
    rows = {**others, named: path} if compare else {}
    if as_json:
        compared = {"compared": {name: row.meta for name, row in rows.items()}} if compare else {}
        say(json.dumps({"path": str(target), "n_slices": figures.n_slices, **path.meta, **compared}))
        return
    if compare:
        say(_table(rows))
    slices = "no slices"
    if path.sliced_inds:
        indices = count_text(len(path.sliced_inds), "index", "indices")
        slices = f"{count_text(figures.n_slices, 'slice', 'slices')} over {indices}"
    say(
        f"wrote {target}: 10^{figures.log10_mnk_all_slices:.3f} multiply-adds in all slices, "
        f"10^{path.meta['log10_mnk_planned']:.3f} with shared work done once, largest tensor "
        f"2^{figures.log2_largest:.2f} elements, {slices}{_predicted(path)}"
    )
    if _is_below_inputs(path):
        say("An input is larger than the limit, and sliced, too: a limit that holds it may cost far less.")


def _is_below_inputs(path: ContractionPath) -> bool:
    """Whether the limit of a search is below an input."""
    sizes, log2_limit = path.network.size_dict, path.meta["log2_limit"]
    if log2_limit is None:
        return False
    limit = 2 ** (log2_limit + LIMIT_ERROR)
    return any(prod(map(sizes.__getitem__, term)) > limit for term in path.network.inputs)


def _others(
    call: Call, network: Path, time: float | str, options: dict[str, Any]
) -> dict[str, ContractionPath]:
    """The paths of cotengra's methods, one after the other."""
    common = ("devices", "hardware", "max_tensor", "unlimited", "dtype", "seed", "workers")
    same = {name: options[name] for name in common} | {"time": time, "minimize": "flops"}
    paths = {}
    for name in (*METHODS, *([PARTITIONER] if find_spec(PARTITIONER) else [])):
        with _Line(name) as line:
            paths[name] = call(network, methods=[name], progress=line, **same)
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


def _predicted(path: ContractionPath) -> str:
    time_s = path.meta.get("predicted_s")
    return "" if time_s is None else f", {time_s:.3g} s predicted"


class _Line(StatusLine):
    """Shows the cost of the best path so far, a few times a minute at most: to count it takes a while."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name = f"searching {name}".rstrip()
        self.shown_s = -LOG_EVERY_S

    def __call__(self, at: Progress) -> None:
        """Show that the search begins, or a better path."""
        from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost

        path = at.detail
        if path is None:
            self.show(f"{self.name}: {at.text}")
        elif at.done - self.shown_s >= (EVERY_S if self.is_terminal else LOG_EVERY_S):
            self.shown_s = at.done
            cost = f"10^{log10_mnk_planned(path):.2f} multiply-adds"
            largest = f"largest 2^{path_cost(path).log2_largest:.1f}"
            self.show(f"{at.text}: {cost}, {largest}{_predicted(path)}")
