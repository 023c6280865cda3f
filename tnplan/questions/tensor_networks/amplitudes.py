"""Amplitudes by contraction: those of given bit strings, or all values of some open qubits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from tnplan.circuits.circuit import GateSequence, check_qubits
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.select import gpu_profile, sees_gpu
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.sparse_state import FIRST_SEARCH_S, LONGEST_SEARCH_S, SHORTEST_SEARCH_S, distinct_strings
from tnplan.questions.tensor_networks.networks import (
    amplitudes_by_calls,
    contract_network,
    dtype_of,
    plan_calls,
)
from tnplan.questions.tensor_networks.sparse_state import SparseState, products_per_s

LARGEST_BATCH = 1 << 17
"""Strings of one contraction."""
CALLS_FROM_S = 1.0
"""Predicted seconds of all strings together from which on it is asked what they take one after the other."""
FEW_STRINGS = 256
"""Strings up to which separate contractions are planned to see what they take."""
CLEARLY = 4.0
"""Of more strings that is done where their operations take less than so many times the time together."""
WORTH_SEARCHING = 0.1
"""Of the seconds of separate contractions, the share in which a better path for all strings is searched."""


def amplitudes(circuit: GateSequence, bitstrings: Array, options: ContractionOptions | None = None) -> Array:
    """The amplitudes of given bit strings, in one contraction that shares what they have in common.

    Where strings have so little in common that each by itself takes fewer operations, and on GPUs, they come
    one after the other, and what does not depend on them is contracted once.

    Parameters
    ----------
    circuit : GateSequence
        On n qubits.
    bitstrings : array
        Integers 0 and 1, shape (k, n); column q is qubit q. A string may stand several times.
    options : ContractionOptions, optional
        How they are contracted; `precision` "fp64", the default, or "fp32".

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
    found = np.empty(len(distinct), dtype_of(options))
    for first in range(0, len(distinct), LARGEST_BATCH):
        part = distinct[first : first + LARGEST_BATCH]
        found[first : first + len(part)] = _distinct(circuit, part, options)
    return found[inverse]


def _distinct(circuit: GateSequence, bitstrings: Array, options: ContractionOptions) -> Array:
    """Together, or one after the other where that takes fewer operations, or GPUs, which do no other."""
    if options.device == "gpu" or options.gpu is not None or options.devices > 1:
        return amplitudes_by_calls(circuit, bitstrings, options)
    # Sparse-state contraction (Pan, Chen and Zhang, PRL 129, 090502, 2022) shares work between
    # strings, and runs on a CPU; for few strings of a large circuit separate contractions may take
    # less, or run on a GPU. A short search comes first, and a longer one in proportion to the other way.
    state = SparseState(circuit, bitstrings, options, FIRST_SEARCH_S)
    if state.predicted_s > CALLS_FROM_S:
        calls_s, longest_s, count = inf, LONGEST_SEARCH_S, len(bitstrings)
        if count <= FEW_STRINGS or _singly_s(state, options) < CLEARLY * state.predicted_s:
            calls = plan_calls(circuit, bitstrings, options)
            calls_s, longest_s = calls.predicted_s, WORTH_SEARCHING * calls.predicted_s
            if count == 1 or (longest_s < SHORTEST_SEARCH_S and calls_s < state.predicted_s):
                return calls()
        state.search_longer(longest_s)
        if calls_s < state.predicted_s:
            return calls()
    return state.amplitudes()


def _singly_s(state: SparseState, options: ContractionOptions) -> float:
    """Seconds of the operations of all strings, each by itself."""
    rate = state.products_per_s
    if options.device == "auto" and sees_gpu():
        rate = products_per_s(load_profile(gpu_profile(0)), state.dtype)
    return len(state.bitstrings) * state.alone() / rate


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
        raise InputError("amplitudes", f"do not say what qubit {missing[0]} is", "give its value, or open it")
    for qubit, bit in fixed.items():
        if bit not in (0, 1):
            raise InputError("amplitudes", f"fix qubit {qubit} on {bit!r}", "give 0 or 1")
    text = "".join("." if qubit in open_qubits else "01"[fixed[qubit]] for qubit in range(n_qubits))
    network, arrays = circuit_network(circuit, text)
    found = contract_network(network, arrays, options or ContractionOptions())
    # The axes of the network's result are the open qubits in rising order; the user's order may be
    # another.
    rising = sorted(open_qubits)
    return found.transpose([rising.index(qubit) for qubit in open_qubits])
