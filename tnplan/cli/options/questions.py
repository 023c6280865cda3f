"""What the commands of questions share: method, noise, truncation and job, and how an answer is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tnplan.cli.options.common import added, as_json, set_parameters
from tnplan.cli.options.from_signature import Change, options_of, taken
from tnplan.cli.options.jobs import SAY_EVERY_S, ProgressLines
from tnplan.cli.terminal import say, say_json
from tnplan.executor.pauli.terms.truncation import Truncation

if TYPE_CHECKING:
    from tnplan.executor.pauli.repetitions import MonteCarlo
    from tnplan.questions.answer import CircuitAnswer
    from tnplan.questions.circuit import Circuit

SHOWN = 16
"""Values that are shown; --output and --json have all."""

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


def question_options(*, resumable: bool = False, **changes: Change) -> Callable[[Any], Any]:
    """Add the options of every question to a command, and what the question takes besides."""
    from tnplan.questions.options import QuestionOptions

    usual: dict[str, Change] = {"state": state_options, "truncation": None, "monte_carlo": None}
    usual["output"] = "A JSON file for the answer."
    if not resumable:
        usual |= {"checkpoint": None, "resume": None}
    return added(set_parameters, options_of(QuestionOptions, **{**usual, **changes}), as_json)


def propagation_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options with those of a truncation made one, and those of repetitions, where they are given."""
    rest = dict(options)
    truncation = taken(Truncation, rest)
    if truncation != Truncation():
        rest["truncation"] = truncation
    if "repetitions" in rest:
        rest["monte_carlo"] = monte_carlo_of(rest.pop("repetitions"), rest.get("seed"), rest.pop("by"))
        if rest["monte_carlo"] is not None:
            rest["seed"] = None
    return rest


def monte_carlo_of(repetitions: int | None, seed: int | None, by: str) -> MonteCarlo | None:
    """The plan of repetitions; None where none are asked for."""
    from tnplan.common.errors import InputError

    if repetitions is not None:
        from tnplan.executor.pauli.repetitions import MonteCarlo

        return MonteCarlo(repetitions, seed or 0, by)
    if by != "magnitude":
        raise InputError("--resample-by", "is of repetitions", "give --repetitions")
    return None


def state_of(state: str | None, stabilizers: str | None) -> str | list[str] | None:
    """The input state that `--state` or `--stabilizers` gives."""
    from tnplan.common.errors import InputError

    if stabilizers is None:
        return state
    if state is not None:
        raise InputError("--stabilizers", "are given with --state", "leave one of them out")
    return [word.strip() for word in stabilizers.split(",")]


def answer_question(
    circuit: Path,
    ask: Callable[[Circuit, dict[str, Any]], CircuitAnswer],
    show: Callable[[CircuitAnswer], None],
    options: dict[str, Any],
) -> None:
    """Read a circuit, ask, and print the answer on the first rank."""
    from tnplan.executor.device.comm.launcher import launched_rank
    from tnplan.executor.pauli.estimate import Estimate
    from tnplan.questions.ask import told_by_first, watched_ranks
    from tnplan.questions.circuit import Circuit

    parameters, as_json = options.pop("parameters"), options.pop("as_json")
    options["state"] = state_of(options["state"], options.pop("stabilizers"))
    is_first, output = launched_rank() == 0, options["output"]

    with watched_ranks(options["timeout"]), ProgressLines(is_first, SAY_EVERY_S) as progress:
        # Invariant: rank 0 reads the circuit and the others are told, inside the watch, as reading
        # may fail.
        answer = ask(told_by_first(lambda: Circuit(circuit, parameters)), {**options, "progress": progress})
    if not is_first:
        return
    if as_json:
        say_json(answer.document)
        return
    show(answer)
    for number, estimate in enumerate(answer.details.get("estimates", ())):
        if estimate["low"] is None or estimate["doubt"]:
            say(f"value {number}: {Estimate(**estimate).text}")
    say(f"{answer.error_kind}, by {answer.method} in {answer.time_s:.3g} s")
    if output is not None:
        say(f"written: {output} (answer)")


def value_text(value: complex, error: float | None = None) -> str:
    """A number with its error."""
    if isinstance(value, complex):
        text = f"{value.real!r}" if not value.imag else f"{value.real:+.12g} {value.imag:+.12g}i"
    else:
        text = repr(float(value))
    return text if not error else f"{text} +- {error:.2g}"


def show_rows(name: str, rows: list[tuple[str, str]]) -> None:
    """The first rows of a list, and how many are left out."""
    for key, text in rows[:SHOWN]:
        say(f"{name} {key}: {text}")
    if len(rows) > SHOWN:
        say(f"... and {len(rows) - SHOWN} more")
