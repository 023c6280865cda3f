"""Permutations of qubits that leave a circuit and a state as they are, such as the translations of a ring.

Let a permutation g leave each layer of a circuit and the state as they are. Then <V^dagger P V> is the same
for the words P and g P g^-1, whatever layers V are left. So after a layer all words that a group of such
permutations takes to each other may become one of them, and their coefficients add up (arXiv:2512.12094).
Values stay, and words are fewer by up to the number of permutations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence, GlobalPhase
from tnplan.circuits.pauli_sum import PauliSum, merge, pack_all
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.gates import set_bits
from tnplan.executor.pauli.algebra.states import OverlapWith, ProductState, StabilizerState, State

MOST_ELEMENTS = 4096
"""Permutations of a group, at most."""
MOST_SHARED = 6
"""Qubits of two gates of which it is found out whether they commute; those on more are taken not to."""
COMMUTATOR_ROUNDING = 1e-12
"""How large an element of a commutator may be that is 0 but for rounding."""


@dataclass(frozen=True, eq=False)
class QubitSymmetry:
    """A group of permutations of qubits; element g takes qubit q to `images[g, q]`, int64 [element, qubit].

    `given` are those that it was made of: what they leave as it is, the group does.
    """

    images: Array
    given: tuple[tuple[int, ...], ...]

    def merged(self, keys: Array, coefficients: Array) -> tuple[Array, Array]:
        """Of the words that the group takes to each other the least, with the sum of their coefficients."""
        from tnplan.executor.pauli.terms.clifford_kernel import least_images

        least = np.empty_like(keys)
        least_images(keys, self.images, np.empty((2, keys.shape[1]), np.uint64), least)
        least, total = merge(least, coefficients)
        return least[total != 0], total[total != 0]


def given_symmetry(permutations: Any, n_qubits: int) -> QubitSymmetry:
    """The group that permutations make, each a list of the qubits to which qubits 0, 1, ... go."""
    identity = tuple(range(n_qubits))
    try:
        given = tuple(tuple(map(index, each)) for each in permutations)
    except (TypeError, ValueError):
        given = ((),)
    for number, each in enumerate(given):
        if sorted(each) != [*identity]:
            remedy = f"give a list of permutations, each with 0 to {n_qubits - 1} once"
            raise InputError("--symmetry", f"has no permutation at position {number}", remedy)
    elements = dict.fromkeys((identity, *given))
    queue = [*elements]
    # Products with those that were given reach the whole group, for it is finite.
    for element in queue:
        products = {tuple(each[image] for image in element) for each in given} - elements.keys()
        elements |= dict.fromkeys(products)
        queue += products
        if len(elements) > MOST_ELEMENTS:
            problem = f"generates a group of more than {MOST_ELEMENTS} permutations"
            raise InputError("--symmetry", problem, "leave permutations out")
    return QubitSymmetry(np.array([*elements], np.int64).reshape(-1, n_qubits), given)


def check_symmetric(symmetry: QubitSymmetry, state: str | State | None) -> None:
    """Refuse a state, or the sum of an overlap, that a permutation changes."""
    for number, each in enumerate(symmetry.given):
        if isinstance(state, OverlapWith):
            sums = state.other, _moved(state.other, each)
            own, moved = (merge(terms.keys, terms.coefficients) for terms in sums)
            is_same = np.array_equal(own[0], moved[0]) and np.array_equal(own[1], moved[1])
        elif isinstance(state, StabilizerState):
            # A group that has the generators of another with as many elements is that group.
            words = PauliSum(len(each), state.keys, state.signs)
            is_same = np.array_equal(state.values(_moved(words, each)), state.signs)
        elif isinstance(state, ProductState):
            is_same = np.array_equal(state.bloch[[*each]], state.bloch)
        else:
            assert state is None or isinstance(state, str)
            is_same = not state or [state[image] for image in each] == [*state]
        if not is_same:
            raise InputError(
                "--symmetry", f"has permutation {number}, which changes the state", "leave it out"
            )


def _moved(terms: PauliSum, permutation: Sequence[int]) -> PauliSum:
    """The words that a permutation takes words to."""

    def moved(mask: int) -> int:
        return sum(1 << permutation[qubit] for qubit in set_bits(mask))

    keys = pack_all([(moved(x), moved(z)) for x, z, _ in terms.masks()], terms.n_qubits)
    return PauliSum(terms.n_qubits, keys, terms.coefficients)


def invariant_layers(circuit: GateSequence, symmetry: QubitSymmetry, is_noisy: bool) -> list[list[int]]:
    """The numbers of the gates by layers that make the circuit; refuses one that a permutation changes.

    A gate is in the first layer after all earlier gates that it does not commute with, but for rounding. With
    noise after them, gates are taken to commute where they have no qubit in common.
    """
    layers: list[list[int]] = []
    earlier: list[list[list[int]]] = [[] for _ in range(circuit.n_qubits)]
    known: dict[Hashable, bool] = {}
    for number, gate in enumerate(circuit.gates):
        if isinstance(gate, GlobalPhase):
            continue
        layer = 0
        for of_qubit in (earlier[qubit] for qubit in gate.qubits):
            for before in range(len(of_qubit) - 1, layer - 1, -1):
                others = (circuit.gates[other] for other in of_qubit[before])
                if any(is_noisy or not _commute(other, gate, known) for other in others):
                    layer = before + 1
                    break
        for of_any in (layers, *(earlier[qubit] for qubit in gate.qubits)):
            of_any += [[] for _ in range(len(of_any), layer + 1)]
            of_any[layer].append(number)
    for numbers in layers:
        gates = [circuit.gates[number] for number in numbers]
        contents = Counter(_content(gate, range(circuit.n_qubits)) for gate in gates)
        for number, permutation in enumerate(symmetry.given):
            moved = [_content(gate, permutation) for gate in gates]
            missing = Counter(moved) - contents
            if missing:
                first = next(k for k, content in zip(numbers, moved, strict=True) if content in missing)
                raise InputError(
                    f"gate {first} ({circuit.gates[first].name})",
                    f"becomes a gate that is not in its layer, by permutation {number} of --symmetry",
                    "give a symmetry of every layer, or order the circuit in layers of gates that commute",
                )  # fmt: skip
    return layers


def _content(gate: Gate, permutation: Sequence[int]) -> Hashable:
    """The qubits to which a permutation takes those of a gate, in rising order, and its matrix on them."""
    qubits = [permutation[qubit] for qubit in gate.qubits]
    return tuple(sorted(qubits)), (_on(gate, qubits, sorted(qubits)) + 0.0).tobytes()


def _commute(first: Gate, second: Gate, known: dict[Hashable, bool]) -> bool:
    """Whether two gates commute; `known` has what was found of others with the same matrices."""
    union = sorted({*first.qubits, *second.qubits})
    if len(union) > MOST_SHARED:
        return False
    places = [tuple(map(union.index, gate.qubits)) for gate in (first, second)]
    key = id(first.matrix), id(second.matrix), *places
    if key not in known:
        a, b = (_on(gate, gate.qubits, union) for gate in (first, second))
        known[key] = bool(np.abs(a @ b - b @ a).max() <= COMMUTATOR_ROUNDING)
    return known[key]


def _on(gate: Gate, qubits: Sequence[int], union: Iterable[int]) -> Array:
    """The matrix of a gate on `qubits` and others, the first of the `union` most significant."""
    union = [*union]
    order = [*qubits, *(qubit for qubit in union if qubit not in qubits)]
    n, axes = len(union), [order.index(qubit) for qubit in union]
    matrix = np.kron(gate.matrix, np.eye(2 ** (n - len(qubits)))).reshape([2] * (2 * n))
    return matrix.transpose(*axes, *(n + axis for axis in axes)).reshape(2**n, 2**n)
