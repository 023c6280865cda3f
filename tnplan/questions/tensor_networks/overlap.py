"""Overlaps of two circuits' states, and traces of operators in the Heisenberg picture, by contraction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.compose import pauli_word_gates
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.of_circuits.amplitude_network import overlap_network, trace_network
from tnplan.planner.networks.of_circuits.steps import is_unitary
from tnplan.planner.networks.of_circuits.wires import by_support, leaves
from tnplan.questions.tensor_networks.networks import contract_batch, contract_network


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
