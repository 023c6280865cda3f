"""Circuits whose expectation values are asked: kicked Ising models, echoes, ansatz circuits."""

from __future__ import annotations

from math import pi
from pathlib import Path

from tnplan.calls.workload.target import target_of
from tnplan.common.checks import check_choice
from tnplan.planner.networks.tensor_network import TensorNetwork
from tnplan.planner.workloads.dynamics import kicked_ising, qaoa_ansatz, vqe_ansatz
from tnplan.planner.workloads.dynamics import loschmidt as loschmidt_circuit
from tnplan.planner.workloads.qaoa import maxcut_graph, random_angles

LATTICES = ("heavy-hex", "line")


def ising(
    steps: int,
    *,
    lattice: str = "heavy-hex",
    qubits: int = 127,
    field: float = 0.7,
    coupling: float = -pi / 2,
    amplitude: str | None = None,
    dtype: str = "complex64",
    qsim: str | Path | None = None,
    output: str | Path | None = None,
) -> TensorNetwork:
    """A kicked Ising model: rx on all qubits, then rzz on all edges, as many times as there are steps.

    With the default coupling on 127 qubits it is the circuit of Kim et al., Nature 618, 500 (2023).

    Parameters
    ----------
    steps : int
        Floquet steps.
    lattice : {"heavy-hex", "line"}
        The coupling map, which is generated.
    qubits : int
        127 or 156 for heavy-hex, any number for a line.
    field, coupling : float
        The angles of rx and rzz in radians.
    amplitude, dtype, qsim, output
        As in `sycamore`. `tnplan pauli` reads the qsim file.

    Returns
    -------
    TensorNetwork
        The rank-simplified network of an amplitude.

    Raises
    ------
    InputError
        For values that cannot be, or files that cannot be written.

    Examples
    --------
    >>> tnplan.workload.ising(1, lattice="line", qubits=5).name
    'ising_line_n5_s1'
    """
    check_choice("--lattice", lattice, LATTICES)
    target = target_of(f"ising_{lattice}_n{qubits}_s{steps}", output, qsim=qsim)
    circuit = kicked_ising(lattice, qubits, steps, field, coupling)
    what = f"kicked Ising on {lattice} of {qubits}, {steps} steps, field {field:g}, coupling {coupling:g}"
    return target.store_circuit(circuit, amplitude, dtype, what)


def loschmidt(
    steps: int,
    *,
    lattice: str = "line",
    qubits: int = 51,
    angle: float = 0.5,
    perturbation: float = 0.3,
    amplitude: str | None = None,
    dtype: str = "complex64",
    qsim: str | Path | None = None,
    output: str | Path | None = None,
) -> TensorNetwork:
    """A Loschmidt echo: a circuit, rz by a perturbation on every second qubit, and the circuit undone.

    With the observable as overlap, `tnplan pauli` gives the operator Loschmidt echo of its qsim file.

    Parameters
    ----------
    steps : int
        How often every edge has a cz, on the way there.
    lattice : {"heavy-hex", "line"}
        The coupling map, which is generated.
    qubits : int
        127 or 156 for heavy-hex, any number for a line.
    angle, perturbation : float
        The angle of rx before every cz, and that of the perturbation, in radians.
    amplitude, dtype, qsim, output
        As in `sycamore`.

    Returns
    -------
    TensorNetwork
        The rank-simplified network of an amplitude.

    Raises
    ------
    InputError
        For values that cannot be, or files that cannot be written.

    Examples
    --------
    >>> tnplan.workload.loschmidt(1, qubits=4).name
    'loschmidt_line_n4_s1'
    """
    check_choice("--lattice", lattice, LATTICES)
    target = target_of(f"loschmidt_{lattice}_n{qubits}_s{steps}", output, qsim=qsim)
    circuit = loschmidt_circuit(lattice, qubits, steps, angle, perturbation)
    what = f"Loschmidt echo on {lattice} of {qubits}, {steps} steps, perturbation {perturbation:g}"
    return target.store_circuit(circuit, amplitude, dtype, what)


def ansatz(
    layers: int,
    *,
    kind: str = "vqe",
    qubits: int = 20,
    degree: int = 3,
    seed: int = 0,
    amplitude: str | None = None,
    dtype: str = "complex64",
    qsim: str | Path | None = None,
    output: str | Path | None = None,
) -> TensorNetwork:
    """An ansatz circuit: hardware-efficient on a line (vqe), or MaxCut on a random regular graph (qaoa).

    Parameters
    ----------
    layers : int
        Layers of the ansatz.
    kind : {"vqe", "qaoa"}
        ry, rz and cz; or h, rzz on the edges of the graph and rx.
    qubits : int
        How many; of a graph its vertices.
    degree : int
        Edges of a vertex, for qaoa.
    seed : int
        Of the angles and the graph, as in `qaoa`.
    amplitude, dtype, qsim, output
        As in `sycamore`.

    Returns
    -------
    TensorNetwork
        The rank-simplified network of an amplitude.

    Raises
    ------
    InputError
        For values that cannot be, or files that cannot be written.

    Examples
    --------
    >>> tnplan.workload.ansatz(2, qubits=4).name
    'vqe_n4_p2'
    """
    check_choice("--kind", kind, ("vqe", "qaoa"))
    target = target_of(f"{kind}_n{qubits}_p{layers}", output, qsim=qsim)
    if kind == "vqe":
        circuit = vqe_ansatz("line", qubits, layers, seed)
    else:
        circuit = qaoa_ansatz(qubits, maxcut_graph(qubits, degree, seed), *random_angles(layers, seed))
    return target.store_circuit(circuit, amplitude, dtype, f"{kind} ansatz, {layers} layers, seed {seed}")
