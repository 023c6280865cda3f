"""`tnplan probabilities`: a circuit and qubits in, the probabilities of their values out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE, QUBITS
from tnplan.cli.options.from_signature import options_of
from tnplan.cli.options.questions import (
    answer_question,
    propagation_of,
    question_options,
    show_rows,
    truncation_options,
)
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.circuit import Circuit


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@options_of(Circuit.probabilities, qubits={"type": QUBITS})
@question_options(truncation=truncation_options)
def command(circuit: Path, qubits: tuple[int, ...] | None, **options: Any) -> None:
    """Compute the probabilities of all values of some qubits, and print the largest.

    CIRCUIT is a qsim or OpenQASM file. docs/how-to/questions.md explains the methods.
    """

    def show(answer: CircuitAnswer) -> None:
        width = answer.value.ndim
        rows = sorted(enumerate(answer.value.reshape(-1).tolist()), key=lambda row: -row[1])
        show_rows("probability", [(f"{k:0{width}b}", f"{value:.9g}") for k, value in rows])

    answer_question(
        circuit, lambda asked, more: asked.probabilities(qubits, **propagation_of(more)), show, options
    )
