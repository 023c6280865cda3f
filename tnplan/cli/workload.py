"""`tnplan workload`: a benchmark network from its geometry and a seed, written with its tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import getdoc, signature
from pathlib import Path
from typing import Any

import click

from tnplan.calls import workload
from tnplan.cli.from_signature import Change, commands, options_of
from tnplan.cli.terminal import say
from tnplan.planner.networks.tensors import TensorNetwork

SIDE, POSITIVE, NATURAL = click.IntRange(2), click.IntRange(1), click.IntRange(0)
LIMITS = {
    SIDE: ("rows", "columns", "distance", "bond", "n_tensors", "n_vertices", "qubits"),
    POSITIVE: ("cycles", "layers", "rounds", "steps"),
    NATURAL: ("edge", "n_open", "n_hyper"),
    click.IntRange(1, 6): ("degree",),
}
"""Which numbers parameters take."""
ANGLES = {"type": float, "multiple": True, "help": "One angle in radians a layer. Default: random."}
CHANGES: dict[str, dict[str, Any]] = {
    **{name: {"type": limit} for limit, names in LIMITS.items() for name in names},
    "gammas": {"flags": ["--gamma"], **ANGLES},
    "betas": {"flags": ["--beta"], **ANGLES},
    "syndrome": {"metavar": "BITS"},
    "output": {"help": "Network file; its tensors go beside it. Default: NAME.json."},
}
for name in ("n_open", "n_hyper", "n_tensors", "n_vertices"):
    CHANGES[name]["flags"] = [f"--{name.removeprefix('n_')}"]


group = click.Group("workload")


def _described(summary: str) -> click.Group:
    group.help = f"{summary}\n\nThe structure goes into JSON, the tensors into an .npz beside it."
    return group


commands["workload"] = _described


def add(make: Callable[..., TensorNetwork], **changes: Change) -> None:
    """Add the command of a function of `tnplan.workload`."""

    def called(output: Path | None, **options: Any) -> None:
        result = make(output=output or Path(), **options)
        say(f"wrote {output or f'{result.name}.json'}: {result.network.sizes}")
        for line in result.notes:
            say(line)
        if options.get("qsim") is not None:
            say(f"wrote {options['qsim']}")

    text = (getdoc(make) or "").partition("\n\nParameters\n")[0]
    listed = re.split("[:;,.]", text)[0].replace("\n", " ")
    usual = {name: change for name, change in CHANGES.items() if name in signature(make).parameters}
    group.command(make.__name__, help=text, short_help=f"{listed}.")(
        options_of(make, **{**usual, **changes})(called)
    )


OWN: dict[str, dict[str, Change]] = {
    "kings": {"rows": {"type": POSITIVE}, "columns": {"type": POSITIVE}},
    "regular": {"degree": {"type": SIDE}},
    "sycamore": {"qubits": {"type": int}},
    "zuchongzhi": {
        "qubits": {
            "type": click.Choice(["56", "60", "83"]), "callback": lambda context, parameter, value: int(value)
        }
    },
}  # fmt: skip
"""What one workload has otherwise."""
for workload_name in workload.__all__:
    add(getattr(workload, workload_name), **OWN.get(workload_name, {}))
