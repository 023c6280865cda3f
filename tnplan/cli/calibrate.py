"""`tnplan calibrate`: this machine's hardware profile, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.calls.calibrate import calibrate
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import PROFILE
from tnplan.cli.terminal import say, say_progress


@click.command()
@options_of(
    calibrate,
    base={
        "type": PROFILE, "metavar": "PROFILE",
        "help": "A shipped profile or a TOML file: what this run does not measure is taken from it.",
    },
    dtypes={
        "flags": ["--dtype"], "type": str, "multiple": True, "default": None,
        "help": "Only this dtype; may be given again. Default: all.",
    },
)  # fmt: skip
def command(base: str, dtypes: tuple[str, ...], output: Path | None, **options: Any) -> None:
    """Measure this machine and write its hardware profile.

    Copies, permutations, matrix products by size and precision, fused chains and launches are measured on
    one device; under mpirun, changes of layout between all ranks too. One profile serves all machines of a
    kind: plan and report take it with --hardware FILE.
    """
    from tnplan.planner.hardware.profile import profile_text

    if dtypes:
        options["dtypes"] = dtypes
    profile = calibrate(base, output=output, progress=say_progress, **options)
    say(profile_text(profile) if output is None else f"written: {output}")
