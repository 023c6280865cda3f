"""`tnplan overlap`: two circuits in, the overlap of their states out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE
from tnplan.cli.options.questions import answer_question, question_options, value_text
from tnplan.cli.terminal import say


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@click.argument("other", type=FILE, metavar="OTHER")
@question_options()
def command(circuit: Path, other: Path, **options: Any) -> None:
    """Compute the overlap <OTHER|CIRCUIT> of the final states of two circuits.

    Both are qsim or OpenQASM files; --set gives values to the first.
    docs/how-to/questions.md explains the methods.
    """
    answer_question(
        circuit, lambda asked, more: asked.overlap(other, **more),
        lambda answer: say(f"overlap: {value_text(answer.value)}"), options,
    )  # fmt: skip
