"""<0| U^dagger A U |0> as a network with room for A: expectation values and density matrices share it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.planner.networks.circuits.questions.folded import folded_leaves, folded_sandwich, folding_pays
from tnplan.planner.networks.circuits.questions.light_cone import light_cone, qubits_of
from tnplan.planner.networks.circuits.questions.pauli_leaves import Support, leaves
from tnplan.planner.networks.circuits.questions.steps import Step
from tnplan.planner.networks.circuits.questions.wires import BRA, KET, OpenNetwork, Wires
from tnplan.planner.networks.network import Network


def expectation_network(steps: Sequence[Step], support: Support) -> tuple[OpenNetwork, bool]:
    """The network of the expectation values of words on a support, and whether it is folded.

    `word_leaves` close it over by words.
    """
    kept = [steps[number] for number in light_cone(steps, support.qubits, support.diagonal)]
    if folding_pays(kept):
        return folded_sandwich(kept, support), True
    return sandwich(kept, support), False


def word_leaves(
    masks: Sequence[tuple[int, int]], support: Support, is_folded: bool
) -> list[np.ndarray]:  # fmt: skip
    """The further tensors of an expectation's network, for some words on its support; axis 0 is the word."""
    return folded_leaves(masks, support) if is_folded else leaves(masks, support)


def sandwich(steps: Sequence[Step], support: Support) -> OpenNetwork:
    """The network of an operator's expectation value, without the operator: only its light cone.

    The operator is closed over by a tensor for each qubit of its support: with indices (row, column), or with
    one index where the operator is diagonal there.
    """
    kept = [steps[number] for number in light_cone(steps, support.qubits, support.diagonal)]
    wires = _both_layers(kept, support.qubits)
    wires.join(qubit for qubit in wires.wires[KET] if qubit not in support.qubits)
    wires.join(support.diagonal)
    return wires.open_network(
        [
            (wires.wires[KET][qubit],)
            if qubit in support.diagonal
            else (wires.wires[BRA][qubit], wires.wires[KET][qubit])
            for qubit in support.qubits
        ]
    )


def density_network(steps: Sequence[Step], qubits: Sequence[int]) -> tuple[Network, list[np.ndarray]]:
    """The network of the density matrix of some qubits: axes are its row, a qubit each, then its column."""
    kept = [steps[number] for number in light_cone(steps, qubits)]
    wires = _both_layers(kept, qubits)
    wires.join(qubit for qubit in wires.wires[KET] if qubit not in qubits)
    return wires.network([wires.wires[side][qubit] for side in (KET, BRA) for qubit in qubits])


def marginal_network(steps: Sequence[Step], qubits: Sequence[int], given: Sequence[int] = ()) -> OpenNetwork:
    """The network of the probabilities of some qubits in the Z basis, an axis each, all others traced out.

    `given` are further qubits, which tensors of one index each close.
    """
    asked = (*given, *qubits)
    kept = [steps[number] for number in light_cone(steps, asked, asked)]
    wires = _both_layers(kept, asked)
    wires.join(wires.wires[KET])
    terms = [(wires.wires[KET][qubit],) for qubit in given]
    return wires.open_network(terms, [wires.wires[KET][qubit] for qubit in qubits])


def _both_layers(kept: Sequence[Step], qubits: Sequence[int]) -> Wires:
    """The state and its conjugate after some steps, on the qubits of these and on the ones named."""
    wires = Wires(qubits_of(kept) | set(qubits), 2)
    wires.close_start()
    wires.apply(kept)
    return wires
