"""What the commands of questions share: method, noise, truncation and job, and how an answer is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tnplan.cli.options.common import added, set_parameters
from tnplan.cli.options.jobs import CHECKPOINTS, SAY_EVERY_S, ProgressLines, job_options
from tnplan.cli.terminal import say, say_json

if TYPE_CHECKING:
    from tnplan.executor.pauli.sampling.repetitions import MonteCarlo
    from tnplan.questions.answer import CircuitAnswer
    from tnplan.questions.circuit import Circuit

SHOWN = 16
"""Values that are shown; --output and --json have all."""

TRUNCATIONS = (
    click.option("--branch-cut", type=float, default=0.0, help="Drop smaller contributions before merging."),
    click.option(
        "--min-coefficient", "merged_cut", type=float, default=0.0, help="Drop smaller terms after merging."
    ),
    click.option("--max-weight", type=int, help="Drop terms on more qubits."),
    click.option("--max-xy", type=int, help="Drop terms with more letters X and Y."),
    click.option("--max-frequency", type=int, help="Drop terms that more rotations split."),
    click.option("--max-terms", type=int, help="Keep this many terms, those of largest magnitude."),
    click.option("--every", type=int, default=1, help="Steps between truncations."),
)
"""Which terms Pauli propagation drops."""


REPETITIONS = (
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
"""Monte Carlo in place of truncations; `--seed` is that of the repetitions."""
STATES = (
    click.option("--state", metavar="LETTERS", help="One of 0 1 + - r l for each qubit [default: all 0]."),
    click.option(
        "--stabilizers", metavar="WORDS", help="A stabilizer state instead, such as 'X0 X1, -Z0 Z1'."
    ),
)  # fmt: skip
"""The state that a circuit begins with."""

SAMPLING = (
    click.option(
        "--sampling", type=click.Choice(["chain", "rejection"]), default="chain",
        help="How a contraction draws: qubits in turn, or among random candidates.",
    ),
    click.option(
        "--open-qubits", "n_open", type=int, default=0,
        help="By rejection: qubits of a candidate that take all their values.",
    ),
    click.option("--fidelity", type=float, default=1.0, help="By rejection, the share of the slices."),
)  # fmt: skip
"""How a contraction draws samples."""

truncation_options = added(*TRUNCATIONS)
"""Add the options of a truncation to a command."""

repetition_options = added(*REPETITIONS)
"""Add the options of Monte Carlo to a command that has a `--seed`."""

sampling_options = added(*SAMPLING)
"""Add how a contraction draws samples to a command."""

state_options = added(*STATES)
"""Add the options of an input state to a command."""

_COMMON = (
    set_parameters,
    *STATES,
    click.option(
        "--method", type=click.Choice(["auto", "contraction", "statevector", "pauli"]), default="auto",
        help="The engine; auto takes the one that suits the circuit.",
    ),
    click.option(
        "--depolarizing", type=float, default=0.0, help="Probability of an error after each gate."
    ),
    click.option(
        "--trajectories", type=int,
        help="Runs of a circuit that measures on its way or is noisy, whose mean the state vector gives.",
    ),
    click.option("--seed", type=click.IntRange(0), help="Makes outcomes the same in every run."),
    click.option("--precision", type=click.Choice(["fp64", "fp32"]), default="fp64"),
)  # fmt: skip
_ANSWER = "Write the answer as JSON."
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")

question_options = added(*_COMMON, job_options(_ANSWER, without=CHECKPOINTS), _AS_JSON)
"""Add the options of every question to a command."""

resumable_question_options = added(*_COMMON, job_options(_ANSWER), _AS_JSON)
"""The same for a question that keeps a checkpoint."""


def propagation_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options with those of a truncation made one, and those of repetitions, where they are given."""
    from tnplan.executor.pauli.terms.truncation import Truncation

    names = [item.name for item in fields(Truncation) if item.name in options]
    truncation = Truncation(**{name: options[name] for name in names})
    rest = {name: value for name, value in options.items() if name not in (*names, "repetitions", "by")}
    if truncation != Truncation():
        rest["truncation"] = truncation
    if "repetitions" in options:
        rest["monte_carlo"] = monte_carlo_of(options["repetitions"], options.get("seed"), options["by"])
        if rest["monte_carlo"] is not None:
            rest["seed"] = None
    return rest


def sampling_of(options: dict[str, Any]) -> dict[str, Any]:
    """How a contraction draws samples; taken out of the options."""
    return {
        "sampling": options.pop("sampling", "chain"), "open_qubits": options.pop("n_open", 0),
        "fidelity": options.pop("fidelity", 1.0),
    }  # fmt: skip


def monte_carlo_of(repetitions: int | None, seed: int | None, by: str) -> MonteCarlo | None:
    """The plan of repetitions; None where none are asked for."""
    from tnplan.common.errors import InputError

    if repetitions is not None:
        from tnplan.executor.pauli.sampling.repetitions import MonteCarlo

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
    from tnplan.executor.pauli.sampling.estimate import Estimate
    from tnplan.questions.ask import told_by_first, watched_ranks
    from tnplan.questions.circuit import Circuit

    parameters, as_json = options.pop("parameters"), options.pop("as_json")
    options["state"] = state_of(options["state"], options.pop("stabilizers"))
    is_first, output = launched_rank() == 0, options["output"]

    with watched_ranks(options["timeout"]), ProgressLines(is_first, SAY_EVERY_S) as progress:
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
