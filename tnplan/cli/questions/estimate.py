"""`tnplan estimate`: a circuit and a question in, what each method would need out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import BITS, FILE, QUBITS, SECONDS, as_json, set_parameters
from tnplan.cli.options.from_signature import options_of
from tnplan.cli.options.questions import (
    propagation_of,
    repetition_options,
    state_of,
    state_options,
    truncation_options,
)
from tnplan.cli.report import DeviceCounts
from tnplan.cli.terminal import say
from tnplan.jobs.job_options import ResumableKeywords
from tnplan.questions.circuit import Circuit
from tnplan.questions.options import QuestionOptions

OF_RUNS = [name for name in ResumableKeywords.__annotations__ if name != "threads"]
"""Options of questions that say how they run: an estimate runs nothing."""


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@set_parameters
@click.option("--amplitudes", type=BITS, help="Amplitudes of bit strings.")
@click.option("--open", "open_qubits", type=QUBITS, help="Amplitudes of all values of these qubits.")
@click.option("--sample", type=int, metavar="SHOTS", help="Outcomes.")
@options_of(
    Circuit.sample,
    shots=None,
    open_qubits=click.option(
        "--open-qubits", "n_open", type=int, default=0,
        help="By rejection, so many qubits of a candidate take all their values.",
    ),
)  # fmt: skip
@click.option("--expectation", multiple=True, metavar="SUM", help="Expectation values; several times.")
@click.option("--gradient", is_flag=True, help="With their derivatives by all parameters.")
@click.option("--probabilities", type=QUBITS, help="Probabilities of the values of some qubits.")
@click.option("--reduced-density-matrix", type=QUBITS, help="The density matrix of some qubits.")
@click.option("--overlap", type=FILE, metavar="OTHER", help="The overlap with another circuit.")
@click.option("--trace", nargs=2, metavar="A B", help="The trace of two operators.")
@options_of(Circuit.estimate, devices={"type": DeviceCounts(), "default": "1"}, search_time={"type": SECONDS})
@options_of(
    QuestionOptions,
    state=state_options,
    truncation=truncation_options,
    monte_carlo=repetition_options,
    **dict.fromkeys(("method", "seed", *OF_RUNS)),
)
@as_json
def command(circuit: Path, parameters: dict[str, str], as_json: bool, **options: Any) -> None:
    """Predict memory, time and error of a question for each method.

    The best one is named, and the one that auto takes.

    One of the questions is given. CIRCUIT is a qsim or OpenQASM file. Contraction and the state vector are
    predicted from the profile, Pauli propagation from a short pilot run: see
    docs/how-to/questions.md.
    """
    options["expectation"] = list(options["expectation"]) or None
    names = ("sampling", "n_open", "fidelity")
    sampling = dict(zip(("sampling", "open_qubits", "fidelity"), map(options.pop, names), strict=True))
    if options["sample"] is not None:
        options |= sampling
    elif sampling != {"sampling": "chain", "open_qubits": 0, "fidelity": 1.0}:
        raise click.UsageError("--sampling, --open-qubits and --fidelity are of --sample")
    options["state"] = state_of(options["state"], options.pop("stabilizers"))
    found = Circuit(circuit, parameters).estimate(
        **{name: value for name, value in propagation_of(options).items() if value is not None}
    )
    say(json.dumps(found.document, indent=1) if as_json else str(found))
