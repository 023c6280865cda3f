"""<0| U^dagger A U |0> as a network with room for A: expectation values and density matrices share it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

import numpy as np

from tnplan.circuits.program import Channel
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.folded import (
    can_fold,
    folded_leaves,
    folded_sandwich,
    folding_pays,
)
from tnplan.planner.networks.of_circuits.light_cone import light_cone, qubits_of
from tnplan.planner.networks.of_circuits.pauli_leaves import Support, leaves
from tnplan.planner.networks.of_circuits.steps import Step
from tnplan.planner.networks.of_circuits.wires import BRA, KET, OpenNetwork, Wires


class WordCone:
    """The light cone of words on a support, and its two networks: with a ket and a bra, and folded.

    Each comes with the further tensors that close it by some words; axis 0 of these is the word.

    Parameters
    ----------
    steps : sequence of step
        The circuit.
    support : Support
        That of all words.
    """

    def __init__(self, steps: Sequence[Step], support: Support) -> None:
        self.steps = [steps[number] for number in light_cone(steps, support.qubits, support.diagonal)]
        self.support = support

    @property
    def is_noisy(self) -> bool:
        """Whether channels link the ket with the bra."""
        return any(isinstance(step, Channel) for step in self.steps)

    @property
    def can_fold(self) -> bool:
        """Whether there is a folded network."""
        return can_fold(self.steps)

    @property
    def is_dense(self) -> bool:
        """Whether the folded network costs less, if ket and bra are not contracted apart."""
        return folding_pays(self.steps)

    @property
    def log10_apart(self) -> float:
        """log10 of the multiply-adds of two state vectors, the ket and the bra."""
        n_qubits = len(qubits_of(self.steps) | set(self.support.qubits))
        return n_qubits * log10(2) + log10(2 * max(1, sum(2 ** len(step.qubits) for step in self.steps)))

    def folded(self, masks: Sequence[tuple[int, int]]) -> tuple[OpenNetwork, list[np.ndarray]]:
        """The folded network, and the letters of some words."""
        return folded_sandwich(self.steps, self.support), folded_leaves(masks, self.support)

    def unfolded(self, masks: Sequence[tuple[int, int]]) -> tuple[OpenNetwork, list[np.ndarray]]:
        """The network with a ket and a bra, and the matrices of some words."""
        return sandwich(self.steps, self.support), leaves(masks, self.support)


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
