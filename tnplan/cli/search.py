"""`tnplan search`: a network in, a contraction path under the memory of P devices out."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tnplan.cli.options import COUNT

if TYPE_CHECKING:
    from planner.networks.contraction_path import ContractionPath

OBJECTIVES = ["flops", "write", "size", "combo"]
METHODS = ["greedy", "random-greedy", "labels"]


@click.command()
@click.argument("network", type=click.Path(path_type=Path), metavar="NET.json")
@click.option("--devices", type=click.IntRange(1), help="Devices whose memory a tensor may fill (with --hardware).")
@click.option("--hardware", help="A shipped profile or a TOML file: the memory of a device.")
@click.option("--max-tensor", type=COUNT, help="Elements of the largest tensor, such as 2^32.")
@click.option("--unlimited", is_flag=True, help="No limit: nothing is sliced.")
@click.option("--from", "start", type=click.Path(path_type=Path), metavar="PATH.json", help="Start from this path.")
@click.option("--time", "time_s", type=click.FloatRange(0), default=60.0, show_default=True, help="Seconds.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--minimize", type=click.Choice(OBJECTIVES), default="flops", show_default=True)
@click.option("--method", "methods", type=click.Choice(METHODS), multiple=True, help="May be repeated. Default: all.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes, each its own search.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: NET.path.json, here.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    network: Path,
    devices: int | None,
    hardware: str | None,
    max_tensor: int | None,
    unlimited: bool,
    start: Path | None,
    time_s: float,
    seed: int,
    minimize: str,
    methods: tuple[str, ...],
    workers: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find a contraction path under a memory limit.

    NET.json is a network (or a path: its network is taken). The limit is --max-tensor, or what leaves room
    for three of the largest tensors in the memory of --devices devices of --hardware. Slicing is part of the
    search: a sliced path is not an unsliced one that was cut afterwards.
    """
    from planner.files import check_writable
    from planner.hardware.profile import load_profile
    from planner.networks.importers import read_any
    from planner.networks.path_file import load_network, save_path, tensors_file
    from planner.search.cotengra_search import Effort, search_path
    from planner.search.figures import path_figures

    target = output or Path(f"{network.name.removesuffix('.json')}.path.json")
    check_writable(target)
    _check_limit(devices, hardware, max_tensor, unlimited)
    memory_bytes = None
    if devices is not None and hardware is not None:
        profile = load_profile(hardware)
        memory_bytes = devices * (profile.memory_bytes - profile.reserved_bytes)
    structure, dtype, tensors = load_network(network)
    with _Line(time_s) as line:
        path = search_path(
            structure,
            dtype,
            max_tensor_elements=max_tensor,
            memory_bytes=memory_bytes,
            effort=Effort(time_s=time_s),
            seed=seed,
            minimize=minimize,
            methods=methods or METHODS,
            from_path=read_any(start)[0] if start is not None else None,
            n_workers=workers,
            report=line.show,
        )
    values = tensors_file(network, tensors)
    path = replace(
        path,
        name=network.name.removesuffix(".json"),
        tensors=None if values is None else os.path.relpath(values, target.parent),
    )
    save_path(path, target)
    figures = path_figures(path)
    if as_json:
        click.echo(json.dumps({"path": str(target), "n_slices": figures.n_slices, **path.meta}))
        return
    click.echo(
        f"wrote {target}: 10^{figures.log10_mnk_all_slices:.3f} multiply-adds, largest tensor "
        f"2^{figures.log2_largest:.2f} elements, {figures.n_slices} slices of {len(path.sliced_inds)} indices"
    )


def _check_limit(devices: int | None, hardware: str | None, max_tensor: int | None, unlimited: bool) -> None:
    if (devices is None) != (hardware is None):
        raise click.UsageError("--devices and --hardware belong together")
    if sum((devices is not None, max_tensor is not None, unlimited)) != 1:
        raise click.UsageError("give one limit: --devices with --hardware, --max-tensor, or --unlimited")


class _Line:
    """One line of progress: seconds left, and the best path so far."""

    def __init__(self, time_s: float) -> None:
        from rich.console import Console
        from rich.status import Status

        self.time_s = time_s
        self.started = time.monotonic()
        self.status = Status("searching", console=Console(stderr=True))

    def __enter__(self) -> _Line:
        self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.status.stop()

    def show(self, elapsed_s: float, path: ContractionPath) -> None:
        """Say what the best path so far costs."""
        from planner.search.figures import path_figures

        figures = path_figures(path)
        self.status.update(
            f"searching, {max(self.time_s - elapsed_s, 0):.0f} s left; best at {elapsed_s:.0f} s: "
            f"10^{figures.log10_mnk_all_slices:.2f} multiply-adds, largest 2^{figures.log2_largest:.1f}"
        )
