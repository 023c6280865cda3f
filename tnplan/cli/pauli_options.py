"""Options that commands of circuits share: the state, the truncation and the repetitions."""

from __future__ import annotations

from typing import Any

import click

from tnplan.cli.from_signature import options_of, refuse_without, taken
from tnplan.cli.option_types import added
from tnplan.common.errors import InputError
from tnplan.executor.pauli.terms.truncation import Truncation

truncation_options = options_of(Truncation, merged_cut={"flags": ["--min-coefficient"]})
"""Add which terms Pauli propagation drops to a command."""

repetition_options = added(
    click.option(
        "--repetitions", type=int,
        help="Monte Carlo: independent runs, which resample terms past --max-terms.",
    ),
    click.option(
        "--resample-by", "by", type=click.Choice(["magnitude", "letters", "square"]), default="magnitude",
        help="What makes a term likely to stay; letters has less noise in states of 0 and 1, square is for "
        "an echo with its own observable, and biased.",
    ),
)  # fmt: skip
"""Add Monte Carlo in place of truncations to a command, whose `--seed` is that of the repetitions."""

state_options = added(
    click.option("--state", metavar="LETTERS", help="One of 0 1 + - r l for each qubit. Default: all 0."),
    click.option(
        "--stabilizers", metavar="WORDS", help="A stabilizer state instead, such as 'X0 X1, -Z0 Z1'."
    ),
)  # fmt: skip
"""Add the state that a circuit begins with to a command."""


def propagation_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the state, the truncation and the repetitions as calls take them."""
    rest = dict(options)
    stabilizers = rest.pop("stabilizers")
    if stabilizers is not None:
        if rest["state"] is not None:
            raise InputError("--stabilizers", "are given with --state", "leave one of them out")
        rest["state"] = [word.strip() for word in stabilizers.split(",")]
    truncation = taken(Truncation, rest)
    if truncation != Truncation():
        rest["truncation"] = truncation
    if "repetitions" in rest:
        repetitions, by = rest.pop("repetitions"), rest.pop("by")
        if repetitions is None:
            refuse_without("repetitions", "by")
        else:
            from tnplan.executor.pauli.repetitions import MonteCarlo

            rest["monte_carlo"] = MonteCarlo(repetitions, rest.get("seed") or 0, by)
            rest["seed"] = None
    return rest
