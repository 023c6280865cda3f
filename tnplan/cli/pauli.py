"""`tnplan pauli`: a circuit and an observable in, the expectation value and its error out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.from_signature import Call, command, refuse_without
from tnplan.cli.option_types import added
from tnplan.cli.pauli_options import (
    propagation_of,
    repetition_options,
    state_options,
    truncation_options,
)
from tnplan.cli.progress import ProgressLines
from tnplan.cli.terminal import say_once, say_result


@command(
    "propagate.propagate",
    observable=click.option(
        "--observable", "observables", required=True, multiple=True, metavar="SUM",
        help="Such as 'Z62' or '0.5*X0 X1 - Z3'; several with --each-term.",
    ),
    truncation=truncation_options,
    state=state_options,
    overlap={"type": str, "metavar": "SUM", "help": "tr(B U^dagger O U) / 2^n with this sum B: no state."},
    picture="Take the observable backwards, or the state forward.",
    monte_carlo=added(
        repetition_options, click.option("--seed", type=int, default=0, help="Seed of the repetitions.")
    ),
    keep=click.option("--allow-empty", is_flag=True, help="Succeed also where everything was cut."),
)  # fmt: skip
def pauli(
    call: Call, circuit: Path, observables: tuple[str, ...], as_json: bool, allow_empty: bool,
    seed: int, **options: Any,
) -> int:  # fmt: skip
    """CIRCUIT is a qsim or OpenQASM file. Without a truncation the value is exact; with one, the sum of what
    was dropped bounds its error; with repetitions it has a standard error. docs/explanation/pauli.md explains
    the options. mpirun -n P spreads the terms over P ranks, a power of two, or the repetitions.

    The exit status is 1 where everything was cut.
    """
    if options["repetitions"] is None:
        refuse_without("repetitions", "seed")
    arguments = propagation_of({**options, "seed": seed})
    del arguments["seed"]
    observable = list(observables) if len(observables) > 1 else observables[0]
    with ProgressLines() as progress:
        result = call(circuit, observable, keep="none", progress=progress, **arguments)
    report = result.report
    say_result(report, as_json, [result], [options["output"], options["record"]])
    # A value of 0 from no terms would look like an answer to a script.
    if report["empty"] and not allow_empty:
        what = "every repetition gave 0" if "estimate" in report else "everything was cut"
        say_once(f"error: {what}, so that the value says nothing; allow more terms")
        return 1
    return 0
