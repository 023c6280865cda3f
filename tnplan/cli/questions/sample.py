"""`tnplan sample`: a circuit in, counts of outcomes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE
from tnplan.cli.options.from_signature import options_of
from tnplan.cli.options.questions import (
    answer_question,
    question_options,
    show_rows,
    value_text,
)
from tnplan.cli.terminal import say
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.circuit import Circuit


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@options_of(Circuit.sample)
@question_options()
def command(
    circuit: Path, shots: int, sampling: str, open_qubits: int, fidelity: float, **options: Any
) -> None:
    """Draw outcomes of a circuit, and print the counts of the most frequent ones.

    An outcome has the classical bits, or the qubits where none of them is measured. CIRCUIT is a qsim or
    OpenQASM file, which may measure, reset and branch anywhere.
    docs/how-to/questions.md explains the methods.
    """

    def show(answer: CircuitAnswer) -> None:
        often = sorted(answer.value.items(), key=lambda row: -row[1])
        show_rows("count", [(bits, str(number)) for bits, number in often])
        if "linear_xeb" in answer.details:
            say(f"linear XEB: {value_text(answer.details['linear_xeb'], answer.details['linear_xeb_error'])}")

    how: dict[str, Any] = {"sampling": sampling, "open_qubits": open_qubits, "fidelity": fidelity}
    answer_question(circuit, lambda asked, more: asked.sample(shots, **how, **more), show, options)
