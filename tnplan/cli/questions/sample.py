"""`tnplan sample`: a circuit in, counts of outcomes out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tnplan.cli.options.common import FILE
from tnplan.cli.options.questions import (
    answer_question,
    question_options,
    sampling_of,
    sampling_options,
    show_rows,
    value_text,
)
from tnplan.cli.terminal import say

if TYPE_CHECKING:
    from tnplan.questions.answer import CircuitAnswer


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@click.option("--shots", type=int, required=True, help="How many outcomes.")
@sampling_options
@question_options
def command(circuit: Path, shots: int, **options: Any) -> None:
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

    how = sampling_of(options)
    answer_question(circuit, lambda asked, more: asked.sample(shots, **how, **more), show, options)
