"""Amplitudes by contraction: those of given bit strings, or all values of some open qubits.

Also probabilities and density matrices of some qubits, overlaps of two circuits' states, and traces of
operators in the Heisenberg picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from tnplan.circuits.circuit import GateSequence, check_qubits
from tnplan.circuits.compose import pauli_word_gates
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.of_circuits.amplitude_network import (
    circuit_network,
    overlap_network,
    trace_network,
)
from tnplan.planner.networks.of_circuits.sandwich import density_network, marginal_network
from tnplan.planner.networks.of_circuits.steps import is_unitary, steps_of
from tnplan.planner.networks.of_circuits.wires import by_support, leaves
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


def overlap(circuit: GateSequence, other: GateSequence, options: ContractionOptions | None = None) -> complex:
    """The overlap <other|circuit> of the states of two circuits. Gates that both end with cancel.

    Parameters
    ----------
    circuit, other : GateSequence
        On the same number of qubits.
    options : ContractionOptions, optional
        How it is contracted; `precision` "fp64", the default, or "fp32".

    Returns
    -------
    complex
        The sum over bit strings of conj(<s|other>) <s|circuit>.

    Raises
    ------
    InputError
        For circuits on different numbers of qubits.
    """
    if other.n_qubits != circuit.n_qubits:
        raise InputError(
            "other circuit", f"has {other.n_qubits} qubits", f"give a circuit on {circuit.n_qubits} qubits"
        )
    network, arrays = overlap_network(circuit.gates, other.gates, circuit.n_qubits)
    return complex(contract_network(network, arrays, options or ContractionOptions()))


def trace(
    circuit: GateSequence, a: PauliSum, b: PauliSum, options: ContractionOptions | None = None
) -> complex:
    """The normalised trace Tr(A U^dagger B U) / 2^n, U being the circuit on n qubits.

    Operator Loschmidt echoes and out-of-time-order correlators averaged over all inputs are such traces.

    Parameters
    ----------
    circuit : GateSequence
        Of unitary gates.
    a, b : PauliSum
        The operators.
    options : ContractionOptions, optional
        How it is contracted; `precision` "fp64", the default, or "fp32".

    Returns
    -------
    complex
        The trace.

    Raises
    ------
    InputError
        For operators on another number of qubits, and for gates that are not unitary.
    """
    options = options or ContractionOptions()
    for name, operator in (("a", a), ("b", b)):
        if operator.n_qubits != circuit.n_qubits:
            raise InputError(
                f"operator {name}", f"is on {operator.n_qubits} qubits",
                f"give an operator on the {circuit.n_qubits} qubits of the circuit",
            )  # fmt: skip
    for number, gate in enumerate(circuit.gates):
        if not is_unitary(gate):
            raise InputError(f"gate {number} ({gate.name})", "is not unitary", "use unitary gates in a trace")
    total = 0j
    # Tr(A U^dagger B U) is linear in both: words on the same qubits share a network, and pairs of
    # words are its batch.
    for (left, words), (right, others) in product(
        by_support(a.masks()).items(), by_support(b.masks()).items()
    ):
        opened, n_qubits = trace_network(circuit.gates, left, right)
        pairs = list(product(words, others))
        tensors = [
            *leaves([word for word, _ in pairs], left), *leaves([other for _, other in pairs], right),
        ]  # fmt: skip
        # Identities on both sides: Tr(U^dagger U) / 2^n = 1.
        if not tensors:
            total += sum(words.values()) * sum(others.values())
            continue
        # The network has the qubits of both light cones alone; each other qubit would give a trace
        # of 2 over 2.
        values = contract_batch(opened, tensors, options).astype(np.complex128) / 2**n_qubits
        weights = np.array([words[word] * others[other] for word, other in pairs])
        total += complex(values @ weights)
    return total


def pairs_of_trace(
    circuit: GateSequence, a: PauliSum, b: PauliSum, start: GateSequence
) -> Iterator[tuple[complex, GateSequence, GateSequence]]:
    """<s|A U^dagger B U|s> as a weighted sum of overlaps <bra|ket>: a weight, a ket and a bra each.

    For the words P of A and Q of B they are of Q U|s> with U P|s>; the gates of `start` make |s>.
    """
    n = circuit.n_qubits
    for (x, z, coefficient), (u, v, other) in product(a.masks(), b.masks()):
        ket = GateSequence(n, (*start.gates, *circuit.gates, *pauli_word_gates(u, v)))
        bra = GateSequence(n, (*start.gates, *pauli_word_gates(x, z), *circuit.gates))
        yield coefficient * other, ket, bra
