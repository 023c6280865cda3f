"""The blocks of a circuit that samples are drawn through, gate by gate. Knows no contraction order.

Bravyi, Gosset and Liu, PRL 128, 220503 (2022), arXiv 2112.08499: a string of the state before some gates
becomes one of the state after them when the bits that the gates change are drawn again, given all others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice, takewhile

from tnplan.circuits.circuit import Gate
from tnplan.planner.networks.of_circuits.steps import diagonal_qubits, keeps_diagonals
from tnplan.planner.networks.of_circuits.wires import KET, OpenNetwork, Wires, light_cone


@dataclass(frozen=True)
class Block:
    """Gates of a circuit after which some bits are drawn again.

    - `moves`: Gates before it that map bit strings to bit strings, but for phases.
    - `qubits`: Whose bits are drawn again, rising; empty where the moves are the circuit's last gates.
    - `order`: The gates of all blocks in turn.
    - `n_gates`: How many of these stand up to the block's end.
    """

    moves: tuple[Gate, ...]
    qubits: tuple[int, ...]
    order: Sequence[Gate]
    n_gates: int

    def network(self, n_qubits: int) -> tuple[OpenNetwork, tuple[int, ...]]:
        """The amplitudes of all values of the block's qubits, an axis each, in the state at its end.

        Tensors of one index each close further qubits, which come second. Qubits that no gate links with the
        block's are left out: their bits are independent, and their factor has norm 1.
        """
        steps = self.order[: self.n_gates]
        # Diagonal gates at the end are phases, which no probability has.
        steps = [steps[number] for number in light_cone(steps, range(n_qubits), range(n_qubits))]
        linked: dict[int, set[int]] = {}
        for step in steps:
            joined = set(step.qubits).union(*(linked.get(qubit, ()) for qubit in step.qubits))
            linked.update(dict.fromkeys(joined, joined))
        qubits = set(self.qubits).union(*(linked.get(qubit, ()) for qubit in self.qubits))
        wires = Wires(qubits, 1)
        wires.close_start()
        wires.apply(step for step in steps if step.qubits[0] in qubits)
        given, at_end = tuple(sorted(qubits.difference(self.qubits))), wires.wires[KET]
        output = [at_end[qubit] for qubit in self.qubits]
        return wires.open_network([(at_end[qubit],) for qubit in given], output), given


def blocks_of(gates: Sequence[Gate], n_qubits: int, most: int) -> list[Block]:
    """All gates in blocks that change `most` qubits at most, or those of one gate."""
    queue, order, blocks = _Queue(gates, n_qubits), list[Gate](), list[Block]()
    while True:
        moves = queue.take_moves()
        order += (gates[number] for number in moves)
        if queue.first is None:
            return [*blocks, Block(tuple(gates[number] for number in moves), (), order, len(order))]
        qubits = frozenset(queue.changed[queue.first])
        taken = queue.within(qubits)
        # The qubits that a next gate changes are added up to the most: each time those with which most gates
        # follow, for a qubit of the block.
        while larger := queue.with_next_gates(qubits, taken, most):
            sizes = {other: queue.within(other) for other in sorted(larger, key=sorted)}
            qubits = max(sizes, key=lambda other: len(sizes[other]) / len(other))
            taken = sizes[qubits]
        queue.remove(taken)
        order += (gates[number] for number in sorted(taken))
        moved = tuple(gates[number] for number in moves)
        blocks.append(Block(moved, tuple(sorted(qubits)), order, len(order)))


class _Queue:
    """The gates of a circuit that are in no block yet, by their numbers."""

    def __init__(self, gates: Sequence[Gate], n_qubits: int) -> None:
        self.gates = gates
        self.left = dict.fromkeys(range(len(gates)))
        self.waiting: list[list[int]] = [[] for _ in range(n_qubits)]
        """The gates on each qubit."""
        self.changed: list[frozenset[int]] = []
        """The qubits of each gate on which it is not diagonal."""
        for number, gate in enumerate(gates):
            pairs = zip(gate.qubits, diagonal_qubits(gate), strict=True)
            self.changed.append(frozenset(qubit for qubit, keeps in pairs if not keeps))
            for qubit in gate.qubits:
                self.waiting[qubit].append(number)

    @property
    def first(self) -> int | None:
        """The first gate."""
        return next(iter(self.left), None)

    def remove(self, numbers: Collection[int]) -> None:
        """Take gates out."""
        for number in numbers:
            del self.left[number]
        for qubit in {qubit for number in numbers for qubit in self.gates[number].qubits}:
            self.waiting[qubit] = [number for number in self.waiting[qubit] if number in self.left]

    def take_moves(self) -> list[int]:
        """Take out the gates that come next and map bit strings to bit strings."""
        taken: list[int] = []
        blocked: set[int] = set()
        for number in self.left:
            qubits = self.gates[number].qubits
            if blocked.isdisjoint(qubits) and keeps_diagonals(self.gates[number]):
                taken.append(number)
            else:
                blocked.update(qubits)
                if len(blocked) == len(self.waiting):
                    break
        self.remove(taken)
        return taken

    def within(self, qubits: frozenset[int]) -> set[int]:
        """The gates that can come next, one after the other, and change none but these qubits."""
        taken: set[int] = set()
        blocked: set[int] = set()
        for number in merge(*(self.waiting[qubit] for qubit in qubits)):
            if number in taken:
                continue
            if self.changed[number] <= qubits and not self._before(number, taken):
                taken.add(number)
            else:
                # A gate that waits holds back all later ones on the qubits that it changes.
                blocked |= self.changed[number]
                if blocked >= qubits:
                    break
        return taken

    def _before(self, number: int, taken: Collection[int]) -> list[int]:
        """The gates before one that it does not commute with, but for those taken.

        Gates commute that are diagonal on all qubits that they share.
        """
        return [
            other
            for qubit in self.gates[number].qubits
            for other in takewhile(number.__gt__, self.waiting[qubit])
            if other not in taken and (qubit in self.changed[number] or qubit in self.changed[other])
        ]

    def with_next_gates(
        self, qubits: frozenset[int], taken: Collection[int], most: int
    ) -> set[frozenset[int]]:  # fmt: skip
        """These qubits and those that a next gate on one of them changes, with all gates that go before.

        Sets of more than `most` qubits are left out.
        """
        sets = set()
        for qubit in qubits:
            following = (number for number in self.waiting[qubit] if number not in taken)
            stack = list(islice(following, 1))
            seen, needed = set(stack), qubits
            while stack and len(needed) <= most:
                number = stack.pop()
                needed |= self.changed[number]
                others = set(self._before(number, taken)) - seen
                seen |= others
                stack += others
            if len(needed) <= most:
                sets.add(needed)
        return sets - {qubits}
