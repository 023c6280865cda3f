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
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.blocks import Block, blocks_of
from tnplan.planner.networks.of_circuits.sandwich import marginal_network
from tnplan.planner.networks.of_circuits.steps import Step, is_unitary
from tnplan.planner.networks.of_circuits.wires import OpenNetwork
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import greedy_or_orders
from tnplan.planner.search.sparse_state import distinct_strings
from tnplan.questions.tensor_networks.networks import (
    NetworkWork,
    WorkOfShots,
    closed_by_leaves,
    plan_batch,
    predicted_work,
)

WAYS = ("chain", "gates")
"""To draw exactly."""
MOST_CHANGED = 10
"""Qubits of a block. With more of them there are fewer contractions, whose results are larger."""
ROWS_AT_ONCE = 1 << 12
"""Strings of the other bits that are contracted at once."""
COMPARED = 1 << 22
"""Elements of cumulative distributions that are compared at once."""
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
    work = WorkOfShots(options, lambda: work_of(networks_by_gates(gates, n_qubits, shots)), shots)
    work.say(0, 0, len(blocks), "block")
    for number, block in enumerate(blocks):
        for gate in block.moves:
            _move(drawn, gate)
        if not block.qubits:
            continue
        # Gates that change the bits A alone leave the distribution of all other bits as it was. A string of
        # the state before becomes one of the state after when A is drawn from p(x_A | x_others) there, which
        # is |amplitude|^2 but for a factor.
        opened, conditions = block.network(n_qubits)
        before, inverse = distinct_strings(drawn[:, conditions])
        randoms, chance = generator.random(shots), np.empty(shots)
        run = plan_batch(opened, [np.eye(2)[column] for column in before.T], options)
        for first in range(0, len(before), ROWS_AT_ONCE):
            amplitudes = run(slice(first, first + ROWS_AT_ONCE))
            weights = np.abs(amplitudes.reshape(len(amplitudes), -1)) ** 2
            here = np.flatnonzero(inverse // ROWS_AT_ONCE == first // ROWS_AT_ONCE)
            chosen = draw_rows(weights, inverse[here] - first, randoms[here])
            chance[here] = weights[inverse[here] - first, chosen]
            for qubit, bits in zip(block.qubits, bits_of(chosen, len(block.qubits)), strict=True):
                drawn[here, qubit] = bits
        seen = frozenset((*block.qubits, *conditions))
        chances = {qubits: value for qubits, value in chances.items() if qubits.isdisjoint(seen)}
        chances[seen] = chance
        work.say(len(before), number + 1, len(blocks), "block")
    return drawn, np.prod([np.ones(shots), *chances.values()], axis=0)


def draw_rows(weights: Array, rows: Array, randoms: Array) -> Array:
    """A column for each number of a row and each random number, with a probability in proportion."""
    total = weights.sum(axis=1, keepdims=True, dtype=np.float64)
    if not np.all(total > 0):
        raise InputError("circuit", "ends in a state of norm 0", "give gates that keep the norm")
    # Inverse of the cumulative distribution. Its last entry may be below 1 by rounding, which the minimum
    # catches.
    below = np.cumsum(weights / total, axis=1)
    at_once = max(1, COMPARED // weights.shape[1])
    parts = [slice(first, first + at_once) for first in range(0, len(rows), at_once)]
    chosen = [(randoms[shots, None] >= below[rows[shots]]).sum(axis=1) for shots in parts]
    return np.minimum(np.concatenate(chosen), weights.shape[1] - 1)


def bits_of(values: Array, count: int) -> Array:
    """The bits of numbers, uint8 [bit, number]; the first is the most significant."""
    return (values >> np.arange(count - 1, -1, -1)[:, None] & 1).astype(np.uint8)


def _move(drawn: Array, gate: Gate) -> None:
    """Bits through a gate that maps bit strings to bit strings, but for phases."""
    target, count = np.abs(gate.matrix).argmax(axis=0), len(gate.qubits)
    values = drawn[:, gate.qubits] @ (1 << np.arange(count - 1, -1, -1))
    drawn[:, gate.qubits] = bits_of(target[values], count).T


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
        opened, conditions = block.network(n_qubits)
        return opened, min(shots, 2 ** len(conditions))

    return [partial(make, block) for block in blocks_of(gates, n_qubits, MOST_CHANGED) if block.qubits]


def work_of(makers: Sequence[Maker]) -> list[NetworkWork]:
    """The work of networks of samples, each of which is larger than those before."""

    def look(number: int) -> tuple[Network, int]:
        opened, _ = makers[number]()
        network = simplify(opened.network, opened.arrays)[0]
        return closed_by_leaves(network, opened), len(opened.arrays)

    return predicted_work(range(len(makers)), look)


def cheaper_way(steps: Sequence[Step], n_qubits: int, shots: int, n_drawn: int | None = None) -> str:
    """ "chain" or "gates": which takes fewer multiply-adds, by greedy paths of some of the networks.

    A chain draws the first `n_drawn` qubits alone, where these are not all.
    """
    if why_not_by_gates(steps) is not None:
        return "chain"
    of_chain = _products(networks_of_chain(steps, n_drawn or n_qubits, shots))
    if of_chain <= CHAIN_UP_TO:
        return "chain"
    by_gates = _products(networks_by_gates(steps, n_qubits, shots), of_chain)  # type: ignore[arg-type]
    return "gates" if by_gates < of_chain else "chain"


def _products(makers: Sequence[Maker], enough: float = inf) -> float:
    """Multiply-adds of some networks, times what they stand for; counted until they are `enough`.

    Later networks are larger: the last comes first, and no other where the rest is below 1 % of the sum.
    """
    step = -(-len(makers) // MOST_LOOKS) if makers else 1
    chosen, total = makers[step // 2 :: step], 0.0
    share = len(makers) / max(1, len(chosen))
    for n_left, make in reversed([*enumerate(chosen)]):
        opened, count = make()
        network = closed_by_leaves(simplify(opened.network, opened.arrays)[0], opened)
        products = 0.0
        if len(network.inputs) > 1:
            path = ContractionPath(network, greedy_or_orders(network, "complex128"), (), "complex128")
            log10_products = path_cost(path).log10_mnk_all_slices
            products = count * 10.0**log10_products if log10_products < 300 else inf
        total += products
        if share * total >= enough or n_left * products < 0.01 * total:
            break
    return share * total
