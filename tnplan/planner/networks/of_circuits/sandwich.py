"""<0| U^dagger A U |0> as a network open at A: expectation values and density matrices share it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import log10

import numpy as np

from tnplan.circuits.gates import kronecker
from tnplan.circuits.program import Channel
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.steps import Step, diagonal_qubits
from tnplan.planner.networks.of_circuits.wires import (
    BRA,
    KET,
    MATRICES,
    OpenNetwork,
    Support,
    Wires,
    leaves,
    light_cone,
    qubits_of,
)

# The folded network of <0| U^dagger A U |0> is real: an index of a wire numbers the Pauli matrices. The state
# is the vector of its values Tr(P rho), P being the words on the wires. A step, gate or channel, is a real
# matrix on it. The network has half of the tensors of one with a ket and a bra, and indices of extent 4. A
# product of real numbers takes a quarter of the operations of a complex one.
IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])
"""The identity, which closes a qubit that is traced out."""
ZERO_STATE = np.array([1.0, 0.0, 1.0, 0.0])
"""The values of I, X, Z and Y, the order of `wires.MATRICES`, in |0>."""
MOST_QUBITS = 3
"""Of a step that is folded: its matrix has 16 elements a qubit, not 4."""
RANK = 1e-13
"""The share of the largest singular value below which one is zero."""


def can_fold(steps: Sequence[Step]) -> bool:
    """Whether all steps are small enough."""
    return all(len(step.qubits) <= MOST_QUBITS for step in steps)


def folding_pays(steps: Sequence[Step]) -> bool:
    """Whether a folded network of some steps costs less than one with a ket and a bra, if they are few.

    It does for gates like random ones on two qubits. Steps that leave the value of a qubit as it is, such as
    controlled gates, put no index on its wire in the other network, and one of extent 4 here. Where a circuit
    is deep, the other network costs less: ket and bra are contracted apart.
    """
    return can_fold(steps) and not any(len(step.qubits) > 1 and any(diagonal_qubits(step)) for step in steps)


def folded_sandwich(steps: Sequence[Step], support: Support) -> OpenNetwork:
    """The network of an operator's expectation value, without the operator, from the steps of its light cone.

    The operator is closed over by a vector of four values for each qubit of its support (`folded_leaves`).
    Gates on two qubits whose matrix is a sum of fewer than 16 products are a tensor for each qubit.
    """
    qubits = sorted(qubits_of(steps) | set(support.qubits))
    sizes: dict[str, int] = {}

    def new_index(extent: int = 4) -> str:
        name = f"i{len(sizes)}"
        sizes[name] = extent
        return name

    # Invariant: wires[qubit] is the index that is open at the end of the qubit's wire so far, of extent 4: a
    # value for each of I, X, Z and Y.
    wires = {qubit: new_index() for qubit in qubits}
    terms: list[tuple[str, ...]] = [(wires[qubit],) for qubit in qubits]
    arrays = [ZERO_STATE] * len(qubits)
    for step in steps:
        before = [wires[qubit] for qubit in step.qubits]
        after = [new_index() for _ in step.qubits]
        wires.update(zip(step.qubits, after, strict=True))
        parts = transfer_parts(step)
        if len(parts) == 1:
            terms.append((*after, *before))
        else:
            link = new_index(parts[0].shape[-1])
            terms += [(after[0], before[0], link), (after[1], before[1], link)]
        arrays += parts
    traced = [qubit for qubit in qubits if qubit not in support.qubits]
    terms += [(wires[qubit],) for qubit in traced]
    arrays += [IDENTITY] * len(traced)
    leaf_terms = tuple((wires[qubit],) for qubit in support.qubits)
    opened = tuple(index for term in leaf_terms for index in term)
    present = {index: sizes[index] for term in (*terms, opened) for index in term}
    return OpenNetwork(Network(tuple(terms), opened, present), arrays, (), leaf_terms)


def folded_leaves(masks: Sequence[tuple[int, int]], support: Support) -> list[np.ndarray]:
    """For each qubit of the support the letters of some words on it, float64 [word, letter]."""
    letters = np.eye(len(MATRICES))
    return [letters[[(x >> qubit & 1) + 2 * (z >> qubit & 1) for x, z in masks]] for qubit in support.qubits]


def transfer_parts(step: Step) -> tuple[np.ndarray, ...]:
    """What a step does to the values of Pauli words, float64 with axes of extent 4.

    One array [after ..., before ...]; or two [after, before, k], of a sum of k products, where k is below 16.
    """
    operators = step.kraus if isinstance(step, Channel) else (step.matrix,)
    data = tuple(np.asarray(operator, np.complex128).tobytes() for operator in operators)
    return _transfer_parts(data, len(step.qubits))


@lru_cache(4096)
def _transfer_parts(data: tuple[bytes, ...], n_qubits: int) -> tuple[np.ndarray, ...]:
    side = 2**n_qubits
    kraus = np.array([np.frombuffer(operator, np.complex128).reshape(side, side) for operator in data])
    words = _words(n_qubits)
    # With rho = sum over b of v_b P_b / 2^n the new values are v'_a = sum over b of T_ab v_b, T_ab = sum over
    # Kraus operators K of Tr(P_a K P_b K^dagger) / 2^n, the Pauli transfer matrix, which is real.
    moved = np.einsum("kij,bjl,kml->bim", kraus, words, kraus.conj(), optimize=True)
    matrix = (words.transpose(0, 2, 1).reshape(len(words), -1) @ moved.reshape(len(words), -1).T).real / side
    whole = np.ascontiguousarray(matrix).reshape((4,) * (2 * n_qubits))
    if n_qubits != 2:
        return (whole,)
    # Operator Schmidt decomposition: with [after, before] of either qubit as rows and columns the rank is the
    # number of products that the gate is a sum of. Singular values are shared evenly between both parts.
    left, values, right = np.linalg.svd(whole.transpose(0, 2, 1, 3).reshape(16, 16))
    rank = max(1, int(np.count_nonzero(values > RANK * values[0])))
    if rank == len(values):
        return (whole,)
    roots = np.sqrt(values[:rank])
    return (left[:, :rank] * roots).reshape(4, 4, rank), (right[:rank].T * roots).reshape(4, 4, rank)


@lru_cache(MOST_QUBITS)
def _words(n_qubits: int) -> np.ndarray:
    """The matrices of all words on some qubits, [word, row, column]."""
    return np.array([kronecker(letters) for letters in product(MATRICES, repeat=n_qubits)])


class WordCone:
    """The light cone of words on a support, and its two networks: with a ket and a bra, and folded.

    Each comes with the further tensors that close it by some words; axis 0 of these is the word.

    - `steps`: The circuit.
    - `support`: That of all words.
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
    cone = [steps[number] for number in light_cone(steps, support.qubits, support.diagonal)]
    wires = _both_layers(cone, support.qubits)
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
    cone = [steps[number] for number in light_cone(steps, qubits)]
    wires = _both_layers(cone, qubits)
    wires.join(qubit for qubit in wires.wires[KET] if qubit not in qubits)
    return wires.network([wires.wires[side][qubit] for side in (KET, BRA) for qubit in qubits])


def marginal_network(steps: Sequence[Step], qubits: Sequence[int], closed: Sequence[int] = ()) -> OpenNetwork:
    """The network of the probabilities of some qubits in the Z basis, an axis each, all others traced out.

    `closed` are further qubits, which tensors of one index each close.
    """
    support = (*closed, *qubits)
    cone = [steps[number] for number in light_cone(steps, support, support)]
    wires = _both_layers(cone, support)
    wires.join(wires.wires[KET])
    terms = [(wires.wires[KET][qubit],) for qubit in closed]
    return wires.open_network(terms, [wires.wires[KET][qubit] for qubit in qubits])


def _both_layers(steps: Sequence[Step], qubits: Sequence[int]) -> Wires:
    """The state and its conjugate after some steps, on the qubits of these and on the ones named."""
    wires = Wires(qubits_of(steps) | set(qubits), 2)
    wires.close_start()
    wires.apply(steps)
    return wires
