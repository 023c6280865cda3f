"""`tnplan estimate`: a circuit and a question in, what each method would need out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE, PROFILE, QUBITS, SECONDS, set_parameters
from tnplan.cli.options.questions import (
    propagation_of,
    repetition_options,
    sampling_of,
    sampling_options,
    state_of,
    state_options,
    truncation_options,
)
from tnplan.cli.report import DeviceCounts
from tnplan.cli.terminal import say


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@set_parameters
@click.option("--amplitudes", metavar="BITS,...", help="Amplitudes of bit strings.")
@click.option("--open", "open_qubits", type=QUBITS, help="Amplitudes of all values of these qubits.")
@click.option("--sample", type=int, metavar="SHOTS", help="Outcomes.")
@sampling_options
@click.option("--expectation", multiple=True, metavar="SUM", help="Expectation values; several times.")
@click.option("--gradient", is_flag=True, help="With their derivatives by all parameters.")
@click.option("--probabilities", type=QUBITS, help="Probabilities of the values of some qubits.")
@click.option("--reduced-density-matrix", type=QUBITS, help="The density matrix of some qubits.")
@click.option("--overlap", type=FILE, metavar="OTHER", help="The overlap with another circuit.")
@click.option("--trace", nargs=2, metavar="A B", help="The trace of two operators.")
@click.option("--devices", type=DeviceCounts(), default="1", help="Numbers of devices, as 1,2,4,...,1024.")
@click.option("--hardware", type=PROFILE, default="cpu", help="A shipped profile or a TOML file.")
@click.option(
    "--search-time",
    type=SECONDS,
    default=2.0,
    help="Seconds of search for each contraction path, and at most of a pilot run.",
)
@click.option("--depolarizing", type=float, default=0.0, help="Probability of an error after each gate.")
@click.option("--trajectories", type=int, help="Runs of a circuit that is noisy, for the state vector.")
@click.option("--precision", type=click.Choice(["fp64", "fp32"]), default="fp64")
@click.option("--threads", type=click.IntRange(1), help="Threads of a CPU [default: the host's cores].")
@state_options
@truncation_options
@repetition_options
@click.option("--json", "as_json", is_flag=True, help="Print the estimate as JSON.")
def command(circuit: Path, parameters: dict[str, str], as_json: bool, **options: Any) -> None:
    """Predict memory, time and error of a question for each method.

    The best one is named, and the one that auto takes.

    One of the questions is given. CIRCUIT is a qsim or OpenQASM file. Contraction and the state vector are
    predicted from the profile, Pauli propagation from a short pilot run: see
    docs/how-to/questions.md.
    """
    from tnplan.questions.circuit import Circuit

    if options["amplitudes"] is not None:
        options["amplitudes"] = options["amplitudes"].split(",")
    options["expectation"] = list(options["expectation"]) or None
    sampling = sampling_of(options)
    if options["sample"] is not None:
        options |= sampling
    elif sampling != sampling_of({}):
        raise click.UsageError("--sampling, --open-qubits and --fidelity are of --sample")
    options["state"] = state_of(options["state"], options.pop("stabilizers"))
    found = Circuit(circuit, parameters).estimate(
        **{name: value for name, value in propagation_of(options).items() if value is not None}
    )
    say(json.dumps(found.document, indent=1) if as_json else str(found))
