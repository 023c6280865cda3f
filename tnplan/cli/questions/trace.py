"""`tnplan trace`: a circuit and two operators in, a normalised trace out."""

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
    truncation_options,
    value_text,
)
from tnplan.cli.terminal import say
from tnplan.questions.circuit import Circuit


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@options_of(
    Circuit.trace,
    a={"type": str, "metavar": "SUM", "help": "The operator A, such as 'Z62'."},
    b={"type": str, "metavar": "SUM", "help": "The operator B."},
)
@question_options(truncation=truncation_options, monte_carlo=repetition_options)
def command(circuit: Path, a: str, b: str, **options: Any) -> None:
    """Compute Tr(A U^dagger B U) / 2^n, U being the circuit on n qubits; with --state its value there.

    Operator Loschmidt echoes and out-of-time-order correlators are such traces. CIRCUIT is a qsim or OpenQASM
    file. docs/how-to/questions.md explains the methods.
    """
    answer_question(
        circuit, lambda asked, more: asked.trace(a, b, **propagation_of(more)),
        lambda answer: say(f"trace: {value_text(answer.value, answer.error)}"), options,
    )  # fmt: skip
