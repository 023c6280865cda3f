"""`tnplan warmup`: all kernels compiled before they are needed."""

from __future__ import annotations

import click

from tnplan.cli.terminal import say


@click.command()
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "gpu"]), default="auto",
    help="Kernels of the CPU, and of the first GPU if there is one; of the CPU alone; or of both.",
)  # fmt: skip
def command(device: str) -> None:
    """Compile the kernels of every engine for this machine.

    For containers and job scripts: afterwards no first call waits for them. What is in the caches already is
    not compiled again. TNPLAN_CACHE_DIR names the folder of the caches.
    """
    from tnplan.calls.warmup import warmup

    done = warmup(device=device, progress=lambda at: say(at.text, err=True))
    say(f"{done.compiled} files compiled in {done.time_s:.1f} s, in {done.folder}")
