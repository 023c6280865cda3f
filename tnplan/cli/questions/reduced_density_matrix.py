"""`tnplan reduced-density-matrix`: a circuit and qubits in, their density matrix out."""

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
@options_of(Circuit.reduced_density_matrix, qubits={"type": QUBITS})
@question_options(truncation=truncation_options)
def command(circuit: Path, qubits: tuple[int, ...], **options: Any) -> None:
    """Compute the density matrix of some qubits, and print its largest elements.

    The first qubit is the most significant bit of a row and of a column. CIRCUIT is a qsim or OpenQASM file.
    docs/how-to/questions.md explains the methods.
    """

    def show(answer: CircuitAnswer) -> None:
        width = len(qubits)
        elements = [
            (f"{i:0{width}b} {j:0{width}b}", value)
            for i, row in enumerate(answer.value.tolist()) for j, value in enumerate(row)
        ]  # fmt: skip
        elements.sort(key=lambda element: -abs(element[1]))
        show_rows("element", [(key, f"{value.real:+.9g} {value.imag:+.9g}i") for key, value in elements])

    answer_question(
        circuit, lambda asked, more: asked.reduced_density_matrix(qubits, **propagation_of(more)), show,
        options,
    )  # fmt: skip
