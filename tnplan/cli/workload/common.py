"""What the commands of `tnplan workload` share: options, and how a network is written and said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tnplan.cli.options import FILE

if TYPE_CHECKING:
    import numpy as np

    from tnplan.planner.networks.circuits.circuit import Circuit
    from tnplan.planner.networks.network import Network

OUTPUT = click.option(
    "-o",
    "--output",
    type=FILE,
    help="Network file; its tensors go beside it. Default: NAME.json.",
)
SEED = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of everything random."
)
COMPLEX = click.option(
    "--dtype", type=click.Choice(["complex64", "complex128"]), default="complex64", show_default=True
)
AMPLITUDE = click.option(
    "--amplitude", metavar="BITS", help="0, 1 or . (open) for each qubit. Default: all 0."
)
QSIM = click.option("--qsim", type=FILE, help="Also write the circuit in qsim's format.")


def target_of(output: Path | None, name: str, *inputs: Path) -> Path:
    """The network file to write, refused at once if it or its tensors could not be, or are an input."""
    from tnplan.planner.networks.network_file import check_store

    target = output or Path(f"{name}.json")
    check_store(target, *inputs)
    return target


def write(
    network: Network, arrays: Sequence[np.ndarray], target: Path, dtype: str, name: str, **meta: Any
) -> None:
    """Write a network with its tensors, and say so."""
    from tnplan.planner.networks.network_file import store_network

    store_network(network, arrays, target, dtype=dtype, name=name, meta=meta)
    click.echo(f"wrote {target}: {len(network.inputs)} tensors, {len(network.size_dict)} indices")


def write_circuit(
    circuit: Circuit, amplitude: str | None, target: Path, dtype: str, name: str, what: str
) -> None:
    """Write the simplified network of an amplitude of a circuit."""
    from tnplan.planner.networks.circuits.amplitude_network import circuit_network
    from tnplan.planner.networks.simplify import simplify

    network, arrays = simplify(*circuit_network(circuit, amplitude))
    bits = amplitude or "0" * circuit.n_qubits
    write(network, arrays, target, dtype, name, what=f"{what}, amplitude {bits}, rank-simplified")
