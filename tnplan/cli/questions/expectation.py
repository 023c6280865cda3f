"""`tnplan expectation`: a circuit and observables in, their expectation values out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE
from tnplan.cli.options.from_signature import options_of
from tnplan.cli.options.questions import (
    answer_question,
    propagation_of,
    question_options,
    repetition_options,
    show_rows,
    truncation_options,
    value_text,
)
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.circuit import Circuit


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@options_of(
    Circuit.expectation,
    observables={
        "flags": ["--observable"], "type": str, "multiple": True, "required": False, "metavar": "SUM",
        "help": "Such as 'Z62' or '0.5*X0 X1 - Z3'; may be given several times.",
    },
    gradient=click.option(
        "--gradient", is_flag=True, help="Add the derivatives by all parameters that --set gives."
    ),
)  # fmt: skip
@click.option("--wrt", multiple=True, metavar="NAME", help="Add those by this parameter; several times.")
@click.option("--file", type=FILE, help="Observables, one a line, or a JSON list.")
@question_options(resumable=True, truncation=truncation_options, monte_carlo=repetition_options)
def command(
    circuit: Path, observables: tuple[str, ...], file: Path | None, gradient: bool, wrt: tuple[str, ...],
    **options: Any,
) -> None:  # fmt: skip
    """Compute expectation values of sums of Pauli words, and their derivatives by parameters.

    CIRCUIT is a qsim or OpenQASM file. docs/how-to/questions.md explains the methods.
    """
    if bool(observables) == (file is not None):
        raise click.UsageError("give --observable, or a --file of observables")

    def show(answer: CircuitAnswer) -> None:
        errors = [answer.error] if answer.value.ndim == 0 else answer.error
        errors = [errors] * len(answer.value) if isinstance(errors, float) else errors
        rows = [value_text(one, error) for one, error in zip(answer.value.tolist(), errors, strict=True)]
        names = [f"of {text}" for text in observables] or [str(k) for k in range(len(rows))]
        show_rows("expectation value", list(zip(names, rows, strict=True)))
        for name, column in (answer.gradient or {}).items():
            values = [value_text(one) for one in column.tolist()]
            show_rows(f"derivative by {name}", list(zip(names, values, strict=True)))

    def ask(asked: Circuit, more: dict[str, Any]) -> CircuitAnswer:
        return asked.expectation(file or list(observables), gradient=wrt or gradient, **propagation_of(more))

    answer_question(circuit, ask, show, options)
