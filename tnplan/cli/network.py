"""`tnplan network`: a circuit in, the tensor network of its amplitudes and its tensors out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.cli.options.common import FILE, QUBITS, set_parameters
from tnplan.cli.terminal import say


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@set_parameters
@click.option("--amplitude", metavar="BITS", help="0, 1 or . (open) for each qubit. Default: all 0.")
@click.option("--open", "open_qubits", type=QUBITS, help="Leave these qubits open, close the others on 0.")
@click.option("--dtype", type=click.Choice(["complex64", "complex128"]), default="complex64")
@click.option(
    "--no-simplify",
    "simplify",
    flag_value=False,
    default=True,
    show_default=False,
    help="Keep one tensor a gate.",
)
@click.option(
    "-o", "--output", type=FILE, help="Network file; its tensors go beside it. Default: CIRCUIT.json, here."
)
def command(circuit: Path, output: Path | None, **options: Any) -> None:
    """Turn a circuit into a tensor network and its tensors.

    CIRCUIT is a qsim or OpenQASM file. The network is that of one amplitude <BITS| circuit |0...0>, or of all
    amplitudes of the open qubits, rank-simplified: tensors that cost nothing to contract are contracted.
    """
    from tnplan.calls.network import network
    from tnplan.planner.networks.network_file import tensors_beside

    target = output or Path(f"{circuit.stem}.json")
    result = network(circuit, output=target, **options)
    counts = ", ".join([*result.notes, result.network.sizes])
    say(f"wrote {target} and {tensors_beside(target).name}: {counts}")
