"""Bit strings one after the other: a contraction that is called with the ends of each, on CPUs and GPUs."""

from __future__ import annotations

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.common.arrays import Array
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.of_circuits.wires import OpenNetwork
from tnplan.questions.tensor_networks.networks import contract_batch


def varied_ends(bitstrings: Array) -> tuple[Array, str]:
    """The qubits on which some strings differ, and what closes each qubit: `.` leaves it open."""
    varied = np.flatnonzero((bitstrings != bitstrings[:1]).any(axis=0))
    ends = ["." if qubit in varied else "01"[bit] for qubit, bit in enumerate(bitstrings[0].tolist())]
    return varied, "".join(ends)


def amplitudes_by_calls(circuit: GateSequence, bitstrings: Array, options: ContractionOptions) -> Array:
    """The amplitudes of strings, uint8 [string, qubit]; what does not depend on them is contracted once."""
    varied, ends = varied_ends(bitstrings)
    network, arrays = circuit_network(circuit, ends)
    opened = OpenNetwork(network, arrays, (), tuple((index,) for index in network.output))
    basis = np.eye(2, dtype=np.complex128)
    return contract_batch(opened, [basis[bitstrings[:, qubit]] for qubit in varied], options)
