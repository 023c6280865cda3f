"""Reduced density matrices and probabilities of some qubits by contraction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.circuits.circuit import GateSequence, check_qubits
from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.of_circuits.sandwich import density_network, marginal_network
from tnplan.planner.networks.of_circuits.steps import steps_of
from tnplan.questions.tensor_networks.networks import contract_batch, contract_network

MOST_QUBITS = {"density matrix": 15, "probabilities": 30}
"""Qubits from which on a result has more than 2^30 elements."""


def reduced_density_matrix(
    circuit: GateSequence | CircuitProgram, qubits: Sequence[int], options: ContractionOptions | None = None
) -> Array:
    """The density matrix of some qubits, all others traced out.

    Parameters
    ----------
    circuit : GateSequence or CircuitProgram
        Gates, channels, resets and measurements whose bits nothing depends on.
    qubits : sequence of int
        The m qubits; the first is the most significant bit of a row and of a column.
    options : ContractionOptions, optional
        How it is contracted; `precision` "fp64", the default, or "fp32".

    Returns
    -------
    array
        Complex, shape (2^m, 2^m).

    Raises
    ------
    InputError
        For qubits that are not there or stand twice, and for more than 15.
    """
    steps = steps_of(circuit, "circuit")
    _check(qubits, circuit.n_qubits, "density matrix")
    network, arrays = density_network(steps, qubits)
    matrix = contract_network(network, arrays, options or ContractionOptions())
    return matrix.reshape(2 ** len(qubits), 2 ** len(qubits))


def probabilities(
    circuit: GateSequence | CircuitProgram, qubits: Sequence[int], options: ContractionOptions | None = None
) -> Array:
    """The probabilities of the values of some qubits, all others traced out.

    Parameters
    ----------
    circuit : GateSequence or CircuitProgram
        Gates, channels, resets and measurements whose bits nothing depends on.
    qubits : sequence of int
        The m qubits, in the order of the result's axes.
    options : ContractionOptions, optional
        How they are contracted; `precision` "fp64", the default, or "fp32".

    Returns
    -------
    array
        Real, shape (2,) * m.

    Raises
    ------
    InputError
        For qubits that are not there or stand twice, and for more than 30.
    """
    steps = steps_of(circuit, "circuit")
    _check(qubits, circuit.n_qubits, "probabilities")
    opened = marginal_network(steps, qubits)
    return np.ascontiguousarray(contract_batch(opened, [], options or ContractionOptions())[0].real)


def _check(qubits: Sequence[int], n_qubits: int, place: str) -> None:
    check_qubits(qubits, n_qubits, place)
    if not 1 <= len(qubits) <= MOST_QUBITS[place]:
        raise InputError(place, f"is asked for {len(qubits)} qubits", f"name 1 to {MOST_QUBITS[place]}")
