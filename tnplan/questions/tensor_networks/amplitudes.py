"""Amplitudes by contraction: those of given bit strings, or all values of some open qubits.

Also probabilities and density matrices of some qubits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tnplan.circuits.circuit import GateSequence, check_qubits
from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.of_circuits.sandwich import density_network, marginal_network
from tnplan.planner.networks.of_circuits.steps import steps_of
from tnplan.planner.search.sparse_state import FIRST_SEARCH_S, distinct_strings
from tnplan.questions.tensor_networks.networks import (
    amplitudes_by_calls,
    contract_batch,
    contract_network,
    dtype_of,
)
from tnplan.questions.tensor_networks.sparse_state import SparseState, largest_batch, on_gpu

MOST_QUBITS = {"density matrix": 15, "probabilities": 30}
"""Qubits beyond which a result has more than 2^30 elements."""
CLEARLY = 0.5
"""Of the seconds of all strings by themselves: strings that take less together are contracted together."""


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


def amplitudes(circuit: GateSequence, bitstrings: Array, options: ContractionOptions | None = None) -> Array:
    """The amplitudes of given bit strings, in one contraction that shares what they have in common.

    On a CPU or on GPUs. Where each by itself is predicted to take less time they come one after the other
    along the path of one, and what does not depend on them is contracted once.

    Parameters
    ----------
    circuit : GateSequence
        On n qubits.
    bitstrings : array
        Integers 0 and 1, shape (k, n); column q is qubit q. A string may stand several times.
    options : ContractionOptions, optional
        How they are contracted; `precision` "fp64", the default, or "fp32", on GPUs also "tf32" or "fp16x3",
        which products of many pairs of small rows exceed. Several `devices` share the slices.

    Returns
    -------
    array
        Complex, shape (k,).

    Raises
    ------
    InputError
        For strings of another length or with other values, and where the memory is too small.
    """
    options = options or ContractionOptions()
    strings = np.asarray(bitstrings)
    if strings.ndim != 2 or strings.shape[1] != circuit.n_qubits:
        raise InputError(
            "bit strings", f"have shape {strings.shape}", f"give k rows of {circuit.n_qubits} values"
        )
    wrong = np.argwhere((strings != 0) & (strings != 1))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise InputError(f"bit string {row}", f"has {strings[row, column]} for qubit {column}", "give 0 or 1")
    # Equal strings have equal amplitudes: each is contracted once, and sorted neighbours share the
    # most.
    distinct, inverse = distinct_strings(strings.astype(np.uint8))
    values = np.empty(len(distinct), dtype_of(options))
    at_once = largest_batch(options)
    for first in range(0, len(distinct), at_once):
        batch = distinct[first : first + at_once]
        values[first : first + len(batch)] = _distinct(circuit, batch, options)
    return values[inverse]


def _distinct(circuit: GateSequence, bitstrings: Array, options: ContractionOptions) -> Array:
    """Together, or one after the other where that is predicted to take less time; always one alone on a GPU,
    and over several devices that are no stated GPUs."""
    count = len(bitstrings)
    if (count == 1 and on_gpu(options)) or (options.devices > 1 and not on_gpu(options)):
        return amplitudes_by_calls(circuit, bitstrings, options)
    # Sparse-state contraction (Pan, Chen and Zhang, PRL 129, 090502, 2022) shares work between
    # strings. Along the path of one string it takes no more operations than all by themselves; a search goes
    # on as long as it saves more than it takes.
    state = SparseState(circuit, bitstrings, options, FIRST_SEARCH_S, along_one=True)
    if state.is_short:
        return state.amplitudes()
    state.search_longer()
    # Only the plan of the calls says what these take, which takes its time too.
    if state.predicted_s > CLEARLY * count * state.alone_s:
        if count == 1:
            return contract_network(state.network, state.arrays, state.options).reshape(1)
        calls = state.plan_calls()
        if calls.predicted_s < state.predicted_s:
            return calls()
    return state.amplitudes()


def open_amplitudes(
    circuit: GateSequence,
    fixed: Mapping[int, int],
    open_qubits: Sequence[int],
    options: ContractionOptions | None = None,
) -> Array:
    """The amplitudes of all values of some open qubits, the others being fixed.

    Parameters
    ----------
    circuit : GateSequence
        The circuit.
    fixed : mapping of int to int
        The value, 0 or 1, of every qubit that is not open.
    open_qubits : sequence of int
        The m open qubits, in the order of the result's axes.
    options : ContractionOptions, optional
        How they are contracted; `precision` "fp64", the default, or "fp32".

    Returns
    -------
    array
        Complex, shape (2,) * m.

    Raises
    ------
    InputError
        For qubits that are not there, stand twice or are missing, and values other than 0 and 1.
    """
    n_qubits = circuit.n_qubits
    check_qubits([*open_qubits, *fixed], n_qubits, "amplitudes")
    missing = sorted(set(range(n_qubits)) - {*open_qubits, *fixed})
    if missing:
        raise InputError(
            "amplitudes", f"have no value for qubit {missing[0]}", "give the value of this qubit, or open it"
        )
    for qubit, bit in fixed.items():
        if bit not in (0, 1):
            raise InputError("amplitudes", f"fix qubit {qubit} on {bit!r}", "give 0 or 1")
    text = "".join("." if qubit in open_qubits else "01"[fixed[qubit]] for qubit in range(n_qubits))
    network, arrays = circuit_network(circuit, text)
    tensor = contract_network(network, arrays, options or ContractionOptions())
    # The axes of the network's result are the open qubits in rising order; the user's order may be
    # another.
    rising = sorted(open_qubits)
    return tensor.transpose([rising.index(qubit) for qubit in open_qubits])
