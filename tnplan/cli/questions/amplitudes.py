"""`tnplan amplitudes`: a circuit and bit strings in, their amplitudes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE, QUBITS
from tnplan.cli.options.from_signature import options_of
from tnplan.cli.options.questions import answer_question, question_options, show_rows
from tnplan.questions.answer import CircuitAnswer
from tnplan.questions.circuit import Circuit


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@options_of(
    Circuit.amplitudes,
    bitstrings={"type": str, "metavar": "BITS,...", "help": "0 or 1 for each qubit; character k is qubit k."},
    open_qubits={
        "flags": ["--open"], "type": QUBITS,
        "help": "All values of these qubits; --bitstrings is one string then, with . for them. Default: 0 "
        "for the others.",
    },
)  # fmt: skip
@click.option("--file", type=FILE, help="Bit strings, one a line, or an array [string, qubit] in .npy.")
@question_options()
def command(
    circuit: Path, bitstrings: str | None, file: Path | None, open_qubits: tuple[int, ...] | None,
    **options: Any,
) -> None:  # fmt: skip
    """Compute amplitudes of bit strings, or of all values of some qubits.

    CIRCUIT is a qsim or OpenQASM file. docs/how-to/questions.md explains the methods.
    """
    if bitstrings is not None and file is not None:
        raise click.UsageError("--file stands beside --bitstrings; give one of them")
    given: Any = file
    if bitstrings is not None:
        given = bitstrings if open_qubits is not None else [one.strip() for one in bitstrings.split(",")]
    names = given if isinstance(given, list) else None

    def show(answer: CircuitAnswer) -> None:
        values = answer.value.reshape(-1)
        width = answer.value.ndim
        shown = [f"{k:0{width}b}" if names is None else names[k] for k in range(len(values))]
        if file is not None:
            shown = [str(k) for k in range(len(values))]
        rows = [f"{value.real:+.9e} {value.imag:+.9e}i" for value in values.tolist()]
        show_rows("amplitude", list(zip(shown, rows, strict=True)))

    answer_question(
        circuit, lambda asked, more: asked.amplitudes(given, open_qubits=open_qubits, **more), show, options
    )
