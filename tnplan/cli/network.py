"""`tnplan network`: a circuit in, the tensor network of its amplitudes and its tensors out."""

from __future__ import annotations

from pathlib import Path

import click

from tnplan.cli.options import FILE, QUBITS


@click.command()
@click.argument("circuit", type=FILE, metavar="CIRCUIT")
@click.option("--amplitude", metavar="BITS", help="0, 1 or . (open) for each qubit. Default: all 0.")
@click.option("--open", "open_qubits", type=QUBITS, help="Leave these qubits open, close the others on 0.")
@click.option(
    "--dtype", type=click.Choice(["complex64", "complex128"]), default="complex64", show_default=True
)
@click.option("--no-simplify", is_flag=True, help="Keep one tensor a gate.")
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="Network file; its tensors go beside it. Default: CIRCUIT.json, here.",
)
def command(
    circuit: Path,
    amplitude: str | None,
    open_qubits: tuple[int, ...] | None,
    dtype: str,
    no_simplify: bool,
    output: Path | None,
) -> None:
    """Turn a circuit into a tensor network and its tensors.

    CIRCUIT is a qsim or OpenQASM file. The network is that of one amplitude <BITS| circuit |0...0>, or of all
    amplitudes of the open qubits, rank-simplified: tensors that cost nothing to contract are contracted.
    """
    from tnplan.planner.networks.circuits.amplitude_network import circuit_network
    from tnplan.planner.networks.circuits.load import load_circuit
    from tnplan.planner.networks.network_file import check_store, store_network, tensors_beside
    from tnplan.planner.networks.simplify import simplify

    target = output or Path(f"{circuit.stem}.json")
    check_store(target, circuit)
    read = load_circuit(circuit)
    network, arrays = circuit_network(read, amplitude, open_qubits)
    if not no_simplify:
        network, arrays = simplify(network, arrays)
    closed = (
        f"open qubits {', '.join(map(str, open_qubits))}" if open_qubits else amplitude or "0" * read.n_qubits
    )
    what = f"{circuit.name}, amplitude of {closed}{'' if no_simplify else ', rank-simplified'}"
    store_network(network, arrays, target, dtype=dtype, name=circuit.stem, meta={"what": what})
    click.echo(
        f"wrote {target} and {tensors_beside(target).name}: {read.n_qubits} qubits, {len(read.gates)} gates, "
        f"{len(network.inputs)} tensors, {len(network.size_dict)} indices"
    )
