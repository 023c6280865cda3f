"""`network`: a circuit becomes the tensor network of its amplitudes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tnplan.circuits.load import load_circuit
from tnplan.common.checks import check_choice
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.simplify import simplify as simplified
from tnplan.planner.networks.tensors import TensorNetwork, check_store

TOPIC = "files of networks and schedules"

COMPLEX = ("complex64", "complex128")


def network(
    circuit: Any,
    *,
    parameters: Mapping[str, Any] | None = None,
    amplitude: str | None = None,
    open_qubits: Sequence[int] | None = None,
    dtype: str = "complex64",
    simplify: bool = True,
    output: str | Path | None = None,
) -> TensorNetwork:
    """Turn a circuit into a tensor network and its tensors.

    The network is that of one amplitude <bits| circuit |0...0>, or of all amplitudes of the open qubits.

    Parameters
    ----------
    circuit : GateSequence, path or object
        A circuit, a qsim or OpenQASM file, or what else `load_circuit` reads.
    parameters : mapping, optional
        Values of the parameters of a file or of another library's circuit, by their names.
    amplitude : str, optional
        0, 1 or . (open) for each qubit. Default: all 0.
    open_qubits : sequence of int, optional
        Leave these qubits open, and set the others to 0. The result's axes are in this order.
    dtype : {"complex64", "complex128"}
        The dtype in which the network is to be contracted.
    simplify : bool
        Contract tensors that cost nothing to contract (rank simplification).
    output : path, optional
        A network file to write; its tensors go beside it, as .npz.

    Returns
    -------
    TensorNetwork
        The network, and the values of its tensors in complex128.

    Raises
    ------
    InputError
        For what cannot be read, used or written.

    Examples
    --------
    >>> import numpy as np
    >>> hadamard = tnplan.Gate("h", (0,), np.array([[1, 1], [1, -1]]) / np.sqrt(2) + 0j)
    >>> tnplan.network(tnplan.GateSequence(1, (hadamard,)), simplify=False)
    TensorNetwork(circuit: 3 tensors, 2 indices, complex64)
    """
    check_choice("--dtype", dtype, COMPLEX)
    source = Path(circuit) if isinstance(circuit, str | Path) else None
    if output is not None:
        check_store(output, source)
    read = load_circuit(circuit, parameters)
    structure, arrays = circuit_network(read, amplitude, open_qubits)
    # Rank simplification: tensors that are contracted into a neighbour without making a larger one.
    if simplify:
        structure, arrays = simplified(structure, arrays)
    closed = (
        f"open qubits {', '.join(map(str, open_qubits))}" if open_qubits else amplitude or "0" * read.n_qubits
    )
    name = "circuit" if source is None else source.name
    description = f"{name}, amplitude of {closed}{', rank-simplified' if simplify else ''}"
    stem = name if source is None else source.stem
    counts = f"{read.n_qubits} qubits, {len(read.gates)} gates"
    result = TensorNetwork(structure, arrays, dtype, stem, {"what": description}, (counts,))
    if output is not None:
        result.save(output)
    return result
