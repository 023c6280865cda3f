"""Samples drawn gate by gate: each string goes through the circuit, and needs amplitudes alone.

Bravyi, Gosset and Liu, PRL 128, 220503 (2022), arXiv 2112.08499.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.progress import Progress
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.of_circuits.blocks import Block, blocks_of
from tnplan.planner.networks.of_circuits.sandwich import marginal_network
from tnplan.planner.networks.of_circuits.steps import Step, is_unitary
from tnplan.planner.networks.of_circuits.wires import OpenNetwork
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import greedy_or_orders
from tnplan.planner.sparse_state.rows import distinct_strings
from tnplan.questions.tensor_networks.networks import closed_by_leaves, contract_batch

MOST_CHANGED = 8
"""Qubits of a block: with more there are fewer contractions, and a value of the bits in 2^n is drawn."""
ROWS_AT_ONCE = 1 << 14
"""Strings of the other bits that are contracted at once."""
GROUP = 6
"""Qubits that are drawn together in a chain."""
MOST_LOOKS = 8
"""Networks of a way to draw that are looked at; of more, some stand for all."""
CHAIN_UP_TO = 1e9
"""Multiply-adds up to which a chain is taken: a second."""


def why_not_by_gates(steps: Sequence[Step]) -> str | None:
    """What keeps a circuit from being sampled gate by gate."""
    if not all(isinstance(step, Gate) for step in steps):
        return "has noise, measurements or resets"
    return None if all(map(is_unitary, steps)) else "has a gate that is not unitary"  # type: ignore[arg-type]


def draw_by_gates(
    gates: Sequence[Gate], n_qubits: int, shots: int, generator: np.random.Generator,
    options: ContractionOptions,
) -> tuple[Array, Array]:  # fmt: skip
    """Independent strings, uint8 [shot, qubit], with their probabilities."""
    drawn = np.zeros((shots, n_qubits), np.uint8)
    # The probability of the bits of some qubits, of sets that no gate links so far.
    chances: dict[frozenset[int], Array] = {}
    blocks = blocks_of(gates, n_qubits, MOST_CHANGED)
    for number, block in enumerate(blocks):
        for gate in block.moves:
            _move(drawn, gate)
        if not block.qubits:
            continue
        # Gates that change the bits A alone leave the distribution of all other bits as it was. A string of
        # the state before becomes one of the state after when A is drawn from p(x_A | x_others) there, which
        # is |amplitude|^2 but for a factor.
        opened, given = block.network(n_qubits)
        before, inverse = distinct_strings(drawn[:, given])
        weights = np.empty((len(before), 2 ** len(block.qubits)))
        for first in range(0, len(before), ROWS_AT_ONCE):
            rows = before[first : first + ROWS_AT_ONCE]
            leaves = [np.eye(2)[rows[:, column]] for column in range(len(given))]
            found = contract_batch(opened, leaves, options).reshape(len(rows), -1)
            weights[first : first + len(rows)] = np.abs(found) ** 2
        chosen = draw_rows(weights, inverse, generator)
        write_bits(drawn, block.qubits, chosen)
        seen = frozenset((*block.qubits, *given))
        chances = {qubits: value for qubits, value in chances.items() if qubits.isdisjoint(seen)}
        chances[seen] = weights[inverse, chosen]
        if options.progress is not None:
            options.progress(Progress(number + 1, len(blocks), f"block {number + 1} of {len(blocks)}"))
    return drawn, np.prod([np.ones(shots), *chances.values()], axis=0)


def draw_rows(weights: Array, inverse: Array, generator: np.random.Generator) -> Array:
    """A column for each entry of `inverse`, which names its row, with a probability in proportion."""
    total = weights.sum(axis=1, keepdims=True)
    if not np.all(total > 0):
        raise InputError("circuit", "ends in a state of norm 0", "give gates that keep the norm")
    # Inverse of the cumulative distribution. Its last entry may be below 1 by rounding, which the minimum
    # catches.
    below = np.cumsum(weights / total, axis=1)
    chosen = np.empty(len(inverse), np.int64)
    randoms, last = generator.random(len(inverse)), weights.shape[1] - 1
    step = max(1, (1 << 22) // weights.shape[1])
    for first in range(0, len(inverse), step):
        part = slice(first, first + step)
        chosen[part] = (randoms[part, None] >= below[inverse[part]]).sum(axis=1)
    return np.minimum(chosen, last)


def write_bits(drawn: Array, qubits: Sequence[int], values: Array) -> None:
    """Bits from numbers; the first qubit is the most significant bit."""
    for place, qubit in enumerate(qubits):
        drawn[:, qubit] = values >> (len(qubits) - 1 - place) & 1


def _move(drawn: Array, gate: Gate) -> None:
    """Bits through a gate that maps bit strings to bit strings, but for phases."""
    target = np.abs(gate.matrix).argmax(axis=0)
    weights = 1 << np.arange(len(gate.qubits) - 1, -1, -1)
    write_bits(drawn, gate.qubits, target[drawn[:, gate.qubits] @ weights])


# What drawing takes: the networks of a chain of marginals, and those of all blocks.


Maker = Callable[[], tuple[OpenNetwork, int]]
"""Makes a network and says how many values of its further tensors there are at most."""


def chain_groups(n_qubits: int) -> list[range]:
    """The qubits that a chain draws together, in turn."""
    return [range(first, min(first + GROUP, n_qubits)) for first in range(0, n_qubits, GROUP)]


def networks_of_chain(steps: Sequence[Step], n_qubits: int, shots: int) -> list[Maker]:
    """The networks of a chain: a group of qubits given all before it."""

    def make(group: range) -> tuple[OpenNetwork, int]:
        return marginal_network(steps, group, range(group[0])), min(shots, 2 ** group[0])

    return [partial(make, group) for group in chain_groups(n_qubits)]


def networks_by_gates(gates: Sequence[Gate], n_qubits: int, shots: int) -> list[Maker]:
    """The networks of all blocks."""

    def make(block: Block) -> tuple[OpenNetwork, int]:
        opened, given = block.network(n_qubits)
        return opened, min(shots, 2 ** len(given))

    return [partial(make, block) for block in blocks_of(gates, n_qubits, MOST_CHANGED) if block.qubits]


def cheaper_way(steps: Sequence[Step], n_qubits: int, shots: int) -> str:
    """ "chain" or "gates": which takes fewer multiply-adds, by greedy paths of some of the networks."""
    if why_not_by_gates(steps) is not None:
        return "chain"
    of_chain = _products(networks_of_chain(steps, n_qubits, shots))
    if of_chain <= CHAIN_UP_TO:
        return "chain"
    by_gates = _products(networks_by_gates(steps, n_qubits, shots))  # type: ignore[arg-type]
    return "gates" if by_gates < of_chain else "chain"


def _products(makers: Sequence[Maker]) -> float:
    """Multiply-adds of some networks, times what they stand for."""
    step = -(-len(makers) // MOST_LOOKS) if makers else 1
    chosen, total = makers[step // 2 :: step], 0.0
    for make in chosen:
        opened, count = make()
        network = closed_by_leaves(simplify(opened.network, opened.arrays)[0], opened)
        if len(network.inputs) > 1:
            path = ContractionPath(network, greedy_or_orders(network, "complex128"), (), "complex128")
            log10_products = path_cost(path).log10_mnk_all_slices
            total += count * 10.0**log10_products if log10_products < 300 else inf
    return total * len(makers) / max(1, len(chosen))
