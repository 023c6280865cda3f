"""How large the bonds of a matrix product state may become, from the gates alone; and a good order of qubits.

A gate multiplies the bonds that it crosses by its operator Schmidt rank at most: 2 for cz, cnot and rotations
about a word, 4 for any other gate on two qubits. A bond with k qubits on its smaller side is at most 2^k.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import log2

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.common.arrays import Array

FEW = 5.0
"""Bits of a bond up to which no other order of the qubits is looked for."""
RANK_TOLERANCE = 1e-12


def log2_bonds(gates: GateSequence, order: Sequence[int]) -> Array:
    """A bound of the logarithm of each of the n - 1 bonds, with qubit order[k] at site k.

    Examples
    --------
    >>> from tnplan.circuits.gates import gate
    >>> ghz = tnplan.GateSequence(3, (gate("h", (0,)), gate("cnot", (0, 1)), gate("cnot", (1, 2))))
    >>> log2_bonds(ghz, (0, 1, 2))
    array([1., 1.])
    """
    return _summed(_blocks(gates), gates.n_qubits, order)


def log2_cuts(gates: GateSequence, order: Sequence[int]) -> Array:
    """The logarithm of what joins both sides of each bond in the network of the gates: the product of the
    Schmidt ranks of those that cross it. A state needs fewer, a contraction from end to end does not."""
    return _crossing(_blocks(gates), gates.n_qubits, order)


def chain_order(gates: GateSequence) -> list[int]:
    """The qubits in the order of a chain: as they are numbered, or by their neighbours where that is
    better."""
    order, blocks = [*range(gates.n_qubits)], _blocks(gates)
    largest = max(_summed(blocks, gates.n_qubits, order), default=0.0)
    if largest <= FEW:
        return order
    other = _cuthill_mckee(blocks, gates.n_qubits)
    return other if max(_summed(blocks, gates.n_qubits, other)) < largest else order


def _cuthill_mckee(blocks: Sequence[tuple[tuple[int, ...], float]], n_qubits: int) -> list[int]:
    """The qubits breadth first from one with few neighbours (Cuthill and McKee, Proc. ACM 24, 157 (1969))."""
    near: list[set[int]] = [set() for _ in range(n_qubits)]
    for qubits, _ in blocks:
        for qubit in qubits:
            near[qubit] |= {*qubits} - {qubit}
    order: list[int] = []
    unvisited = dict.fromkeys(sorted(range(n_qubits), key=lambda qubit: len(near[qubit])))
    while unvisited:
        queue = deque([next(iter(unvisited))])
        del unvisited[queue[0]]
        while queue:
            order.append(queue.popleft())
            neighbours = sorted(
                (qubit for qubit in near[order[-1]] if qubit in unvisited), key=lambda q: len(near[q])
            )
            queue += neighbours
            for qubit in neighbours:
                del unvisited[qubit]
    return order


def _blocks(gates: GateSequence) -> list[tuple[tuple[int, ...], float]]:
    """The qubits of each block of gates, and the logarithm of its operator Schmidt rank.

    Gates on two qubits that follow each other there are one block, whose rank is at most 4.
    """
    two = [gate for gate in gates.gates if len(gate.qubits) == 2]
    ranks = iter(_schmidt_ranks([gate.matrix for gate in two]))
    blocks: list[tuple[tuple[int, ...], float]] = []
    last: dict[int, int] = {}
    for gate in gates.gates:
        qubits = gate.qubits
        if len(qubits) == 1:
            continue
        bits = 2.0 * (len(qubits) // 2) if len(qubits) > 2 else log2(next(ranks))
        if not bits:
            continue
        before = {last.get(qubit) for qubit in qubits}
        number = before.pop()
        if not before and number is not None and set(blocks[number][0]) == set(qubits):
            blocks[number] = qubits, min(2.0 * (len(qubits) // 2), blocks[number][1] + bits)
            continue
        last |= dict.fromkeys(qubits, len(blocks))
        blocks.append((qubits, bits))
    return blocks


def _schmidt_ranks(matrices: Sequence[Array]) -> list[int]:
    """The operator Schmidt rank of each gate on two qubits: that of [a c, b d] for its matrix [a b, c d]."""
    if not matrices:
        return []
    split = np.array(matrices).reshape(-1, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 4, 4)
    values = np.linalg.svd(split, compute_uv=False)
    return [*(values > RANK_TOLERANCE * values[:, :1]).sum(axis=1).tolist()]


def _summed(blocks: Sequence[tuple[tuple[int, ...], float]], n_qubits: int, order: Sequence[int]) -> Array:
    """The bound of each bond: the blocks that cross it, and the qubits on its smaller side."""
    size = np.arange(1, n_qubits)
    return np.minimum(_crossing(blocks, n_qubits, order), np.minimum(size, n_qubits - size))


def _crossing(blocks: Sequence[tuple[tuple[int, ...], float]], n_qubits: int, order: Sequence[int]) -> Array:
    """The logarithms of the ranks of the blocks that cross each bond, summed."""
    position = np.argsort(order)
    steps = np.zeros(n_qubits + 1)
    for qubits, bits in blocks:
        sites = [position[qubit] for qubit in qubits]
        steps[min(sites)] += bits
        steps[max(sites)] -= bits
    return np.cumsum(steps)[: n_qubits - 1]
