"""`tnplan pauli`: a circuit and an observable in, the expectation value and its error out.

Options of the state, the truncation and the repetitions are those of other commands too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.from_signature import Call, command, options_of, refuse_without, taken
from tnplan.cli.option_types import QUBITS, added
from tnplan.cli.terminal import ProgressLines, say_once, say_result
from tnplan.common.errors import InputError
from tnplan.executor.pauli.terms.truncation import Truncation

truncation_options = options_of(Truncation, merged_cut={"flags": ["--min-coefficient"]})
"""Add which terms Pauli propagation drops to a command."""

repetition_options = added(
    click.option(
        "--repetitions", type=int,
        help="Monte Carlo: the number of independent runs. Each draws terms at random where there are "
        "more than --max-terms.",
    ),
    click.option(
        "--resample-by", "by", type=click.Choice(["magnitude", "letters", "square"]), default="magnitude",
        help="What makes a term likely to be kept. letters: less noise in states of 0 and 1. square: for an "
        "echo with its own observable; biased.",
    ),
)  # fmt: skip
"""Add Monte Carlo in place of truncations to a command, whose `--seed` is that of the repetitions."""

state_options = added(
    click.option(
        "--state", metavar="LETTERS",
        help="One of 0 1 + - r l (r, l: Y = 1, -1) for each qubit. Default: all 0.",
    ),
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
            raise InputError("--stabilizers", "are given together with --state", "leave one of them out")
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


@command(
    "propagate.propagate",
    observable=click.option(
        "--observable", "observables", required=True, multiple=True, metavar="SUM",
        help="Such as 'Z62' or '0.5*X0 X1 - Z3'; several with --each-term.",
    ),
    truncation=truncation_options,
    state=state_options,
    overlap={"type": str, "metavar": "SUM", "help": "tr(B U^dagger O U) / 2^n with this sum B: no state."},
    symmetry={
        "type": QUBITS, "multiple": True, "metavar": "Q,Q,...",
        "help": "Merge words that are related by this permutation, the images of qubits 0, 1, ... It "
        "must map every layer of the circuit to itself.",
    },
    picture="Propagate the observable backwards through the circuit, or the state forwards.",
    monte_carlo=added(
        repetition_options, click.option("--seed", type=int, default=0, help="Seed of the repetitions.")
    ),
    keep=click.option("--allow-empty", is_flag=True, help="Exit status 0 also where no term was left."),
)  # fmt: skip
def pauli(
    call: Call, circuit: Path, observables: tuple[str, ...], as_json: bool, allow_empty: bool,
    seed: int, **options: Any,
) -> int:  # fmt: skip
    """CIRCUIT is a qsim or OpenQASM file. Without a truncation the value is exact; with one, the sum of what
    was dropped bounds its error; with repetitions it has a standard error. docs/explanation/pauli.md explains
    the options. mpirun -n P spreads the terms over P ranks, a power of two, or the repetitions.

    The exit status is 1 where no term was left.
    """
    if options["repetitions"] is None:
        refuse_without("repetitions", "seed")
    arguments = propagation_of({**options, "symmetry": options["symmetry"] or None, "seed": seed})
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
