"""A network built step by step along the wires of a state and of its conjugate. Knows no question.

A wire is the index that stands for a qubit at the moment. A step that leaves the value of a qubit in the Z
basis as it is puts no new index on that qubit's wire.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.dual_number import VariedGate
from tnplan.circuits.gates import I2, X, Y, Z
from tnplan.circuits.program import Channel
from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.steps import Step, diagonal_qubits, keeps_diagonals, keeps_trace

ZERO, ONE = np.array([1, 0], np.complex128), np.array([0, 1], np.complex128)
"""|0> and |1>."""
MATRICES = (I2, X, Z, Y)
"""By x + 2 z of a letter."""
KET, BRA = 0, 1
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Support:
    """The qubits of a word, and those of them that carry Z, both rising."""

    qubits: tuple[int, ...]
    diagonal: tuple[int, ...]


def support_of(x: int, z: int) -> Support:
    """The support of the word with these masks."""
    both = x | z
    qubits = tuple(qubit for qubit in range(both.bit_length()) if both >> qubit & 1)
    return Support(qubits, tuple(qubit for qubit in qubits if not x >> qubit & 1))


def by_support(words: Iterable[tuple[int, int, complex]]) -> dict[Support, dict[tuple[int, int], complex]]:
    """The coefficients of words (x, z, coefficient) by their support, and there by their masks."""
    groups: dict[Support, dict[tuple[int, int], complex]] = {}
    for x, z, coefficient in words:
        groups.setdefault(support_of(x, z), {})[x, z] = coefficient
    return groups


def leaves(masks: Sequence[tuple[int, int]], support: Support) -> list[np.ndarray]:
    """For each qubit of the support the matrices of some words on it, complex128 [word, row, column].

    On a diagonal qubit the diagonals, [word, value].
    """
    tensors = []
    for qubit in support.qubits:
        letters = [MATRICES[(x >> qubit & 1) + 2 * (z >> qubit & 1)] for x, z in masks]
        matrices = np.array(letters, np.complex128)
        tensors.append(
            np.ascontiguousarray(matrices.diagonal(axis1=1, axis2=2))
            if qubit in support.diagonal
            else matrices
        )
    return tensors


def light_cone(steps: Sequence[Step], qubits: Collection[int], diagonal: Collection[int] = ()) -> list[int]:
    """The numbers of the steps that do not cancel around an operator on `qubits` after the last one, rising.

    In U^dagger A U a gate cancels where A, and what is left of U after the gate, act on none of its qubits.
    It cancels too where all of them leave the values of the qubits that they share as they are, in the Z
    basis; `diagonal` names the qubits on which A does so. The same holds for channels, which keep the trace.
    A gate that is not unitary never cancels.
    """
    region, plain = set(qubits), set(diagonal)
    cone: list[int] = []
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        seen = region.intersection(step.qubits)
        diagonal_on = dict(zip(step.qubits, diagonal_qubits(step), strict=True))
        if keeps_trace(step) and seen <= plain and all(diagonal_on[qubit] for qubit in seen):
            continue
        cone.append(number)
        permutes = seen <= plain and keeps_diagonals(step)
        for qubit, keeps in diagonal_on.items():
            if permutes or (keeps and (qubit in plain or qubit not in region)):
                plain.add(qubit)
            else:
                plain.discard(qubit)
        region.update(step.qubits)
    return cone[::-1]


def forward_cone(steps: Sequence[Step], qubits: Collection[int], diagonal: Collection[int] = ()) -> list[int]:
    """The numbers of the steps that do not cancel around an operator before the first: in U A U^dagger."""
    cone = light_cone(steps[::-1], qubits, diagonal)
    return [len(steps) - 1 - number for number in reversed(cone)]


def qubits_of(steps: Sequence[Step]) -> set[int]:
    """All qubits that some steps act on."""
    return {qubit for step in steps for qubit in step.qubits}


@dataclass(frozen=True)
class OpenNetwork:
    """A network whose open indices `output` are those of the result; further tensors close the others."""

    network: Network
    arrays: list[np.ndarray]
    output: tuple[str, ...]
    leaf_terms: tuple[tuple[str, ...], ...]
    """The indices of the further tensors."""
    tangents: Mapping[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    """The derivatives by parameters of the ket's tensors that have some, by the number of the tensor."""


class Wires:
    """Tensors and the wires of a ket, and of a bra where there is one.

    - `qubits`: The qubits that have wires.
    - `sides`: 1 for a ket alone, 2 for a ket and a bra.
    """

    def __init__(self, qubits: Iterable[int], sides: int) -> None:
        self.terms: list[tuple[str, ...]] = []
        self.arrays: list[np.ndarray] = []
        self.sizes: dict[str, int] = {}
        self.tangents: dict[int, dict[str, np.ndarray]] = {}
        self.wires = [{qubit: self.new_index() for qubit in sorted(qubits)} for _ in range(sides)]
        self._same: dict[str, str] = {}

    def new_index(self, extent: int = 2) -> str:
        """An index that no tensor has yet."""
        name = f"i{len(self.sizes)}"
        self.sizes[name] = extent
        return name

    def add(self, term: Sequence[str], array: np.ndarray) -> None:
        """One tensor more."""
        self.terms.append(tuple(term))
        self.arrays.append(array)

    def close_start(self) -> None:
        """Begin all wires so far in |0...0>."""
        for wires in self.wires:
            for wire in wires.values():
                self.add((wire,), ZERO)

    def apply(self, steps: Iterable[Step]) -> None:
        """Lead the wires of all sides through some steps, the bra's through their conjugates."""
        for step in steps:
            if isinstance(step, Channel):
                self._apply_channel(step)
                continue
            for side in range(len(self.wires)):
                self.apply_gate(step, side)

    def apply_gate(self, gate: Gate, side: int) -> None:
        """Lead the wires of one side through a gate; those of a bra through its conjugate."""
        array, unchanged = gate.matrix.conj() if side == BRA else gate.matrix, diagonal_qubits(gate)
        if side == KET and isinstance(gate, VariedGate):
            self.tangents[len(self.terms)] = {
                name: _compressed(tangent[None], len(gate.qubits), unchanged)[0]
                for name, tangent in gate.tangents.items()
            }
        self._lead(side, gate.qubits, array[None], unchanged, ())

    def join(self, qubits: Iterable[int]) -> None:
        """Make the wires of ket and bra one: the qubits are traced out, or measured in the Z basis."""
        for qubit in qubits:
            ket, bra = self.wires[KET][qubit], self.wires[BRA][qubit]
            self._same[bra] = ket
            self.wires[BRA][qubit] = ket

    def identify(self, first: str, second: str) -> None:
        """Make two indices one."""
        first, second = self._name(first), self._name(second)
        if first != second:
            self._same[second] = first

    def project(self, qubit: int, bit: int, side: int = KET) -> None:
        """Close a wire on a value."""
        self.add((self.wires[side][qubit],), ONE if bit else ZERO)

    def network(self, output: Sequence[str]) -> tuple[Network, list[np.ndarray]]:
        """All tensors so far, with these indices open, each once."""
        if not self.terms:
            self.add((), np.ones((), np.complex128))
        terms = tuple(self._names(term) for term in self.terms)
        opened = tuple(dict.fromkeys(self._names(output)))
        sizes = {index: self.sizes[index] for term in terms for index in term}
        return Network(terms, opened, sizes), list(self.arrays)

    def open_network(self, leaf_terms: Sequence[tuple[str, ...]], output: Sequence[str] = ()) -> OpenNetwork:
        """All tensors so far, open at these indices of further ones."""
        terms = tuple(self._names(term) for term in leaf_terms)
        opened = [*output, *(index for term in terms for index in term)]
        return OpenNetwork(*self.network(opened), self._names(output), terms, self.tangents)

    def _names(self, term: Iterable[str]) -> tuple[str, ...]:
        return tuple(self._name(index) for index in term)

    def _name(self, index: str) -> str:
        while index in self._same:
            index = self._same[index]
        return index

    def _apply_channel(self, channel: Channel) -> None:
        if len(self.wires) < 2:
            raise InputError("circuit", "is noisy, and a single state is asked for", "leave out the noise")
        kraus = np.array(channel.kraus, np.complex128)
        which = (self.new_index(len(kraus)),) if len(kraus) > 1 else ()
        unchanged = diagonal_qubits(channel)
        for side, operators in enumerate((kraus, kraus.conj())):
            self._lead(side, channel.qubits, operators, unchanged, which)

    def _lead(
        self, side: int, qubits: Sequence[int], operators: np.ndarray, unchanged: Sequence[bool],
        which: tuple[str, ...],
    ) -> None:  # fmt: skip
        """One tensor of operators [k, out, in], k being the index `which` where there are several."""
        wires = self.wires[side]
        array = _compressed(operators, len(qubits), unchanged)
        before = [wires[qubit] for qubit, keeps in zip(qubits, unchanged, strict=True) if not keeps]
        for qubit, keeps in zip(qubits, unchanged, strict=True):
            if not keeps:
                wires[qubit] = self.new_index()
        after = [wires[qubit] for qubit in qubits]
        self.add((*which, *after, *before), array.copy() if which else array[0].copy())


def _compressed(operators: np.ndarray, q: int, unchanged: Sequence[bool]) -> np.ndarray:
    """Operators [k, out, in] on q qubits as [k, out ..., in ...], without the incoming axes of qubits whose
    values they keep."""
    outgoing, incoming = LETTERS[1 : q + 1], LETTERS[q + 1 : 2 * q + 1]
    source = "a" + outgoing + incoming
    target = "a" + outgoing
    for position, keeps in enumerate(unchanged):
        if keeps:
            source = source.replace(incoming[position], outgoing[position])
        else:
            target += incoming[position]
    return np.asarray(np.einsum(f"{source}->{target}", operators.reshape(-1, *(2,) * (2 * q))))
