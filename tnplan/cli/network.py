"""`tnplan network`: a circuit in, the tensor network of its amplitudes and its tensors out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tnplan.calls.network import network
from tnplan.cli.from_signature import options_of
from tnplan.cli.option_types import QUBITS
from tnplan.cli.terminal import say


@click.command()
@options_of(
    network,
    amplitude={"metavar": "BITS"},
    open_qubits={
        "flags": ["--open"], "type": QUBITS, "help": "Leave these qubits open, close the others on 0."
    },
    simplify={
        "flags": ["--no-simplify"], "flag_value": False, "show_default": False,
        "help": "Keep one tensor a gate.",
    },
    output="Network file; its tensors go beside it. Default: CIRCUIT.json, here.",
)  # fmt: skip
def command(circuit: Path, output: Path | None, **options: Any) -> None:
    """Turn a circuit into a tensor network and its tensors.

    CIRCUIT is a qsim or OpenQASM file. The network is that of one amplitude <BITS| circuit |0...0>, or of all
    amplitudes of the open qubits, rank-simplified: tensors that cost nothing to contract are contracted.
    """
    from tnplan.planner.networks.tensor_network import tensors_beside

    target = output or Path(f"{circuit.stem}.json")
    result = network(circuit, output=target, **options)
    counts = ", ".join([*result.notes, result.network.sizes])
    say(f"wrote {target} and {tensors_beside(target).name}: {counts}")
