"""`tnplan warmup`: all kernels compiled before they are needed."""

from __future__ import annotations

import click

from tnplan.calls.warmup import warmup
from tnplan.cli.from_signature import options_of
from tnplan.cli.terminal import say, say_progress


@click.command()
@options_of(warmup)
def command(device: str) -> None:
    """Compile the kernels of every engine for this machine.

    For containers and job scripts: afterwards no first call waits for them. What is in the caches already is
    not compiled again. TNPLAN_CACHE_DIR names the folder of the caches.
    """
    done = warmup(device=device, progress=say_progress)
    say(f"{done.compiled} files compiled in {done.time_s:.1f} s, in {done.folder}")
