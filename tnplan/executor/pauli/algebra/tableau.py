"""Moves all Clifford gates of a circuit to its end, so that only rotations are left. Exact; touches no term.

With U = C R, a Clifford C after everything else, C first meets the observable once; a rotation about P that
had the Cliffords B before it becomes one about B^dagger P B. B is kept as a tableau: the images
B^dagger X_q B and B^dagger Z_q B of every qubit, as masks (Python integers) and a power of i.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, n_words, pack, pauli_sum
from tnplan.common.arrays import Array
from tnplan.executor.pauli.algebra.gates import (
    Clifford,
    PauliStep,
    Rotation,
    acted_mask,
    quarter_turns,
    set_bits,
    word_masks,
)

Word = tuple[int, int, int]
"""x mask, z mask, e: i^e times all X of the word and then all Z; the Hermitian word has e = |x & z|."""
Masks = tuple[int, int, int]
"""x mask, z mask, and a sign: of the Hermitian word."""
Change = tuple[int, int, int, tuple[tuple[int, int], ...]]
"""The image of X_q (0, q) or Z_q (1, q): i to a power, times factors in order, which are named alike."""


def product(a: Word, b: Word) -> Word:
    """The product of two words."""
    # i^e1 X^x1 Z^z1 i^e2 X^x2 Z^z2: each Z of the first that passes an X of the second gives a minus.
    return a[0] ^ b[0], a[1] ^ b[1], a[2] + b[2] + 2 * (a[1] & b[0]).bit_count()


def signed(word: Word) -> Masks:
    """A word whose power of i is that of the Hermitian one, or two more."""
    x, z, e = word
    return x, z, 1 - (e - (x & z).bit_count()) % 4


class Tableau:
    """The tableau of the Cliffords so far; `images[0]` are those of X_q, `images[1]` those of Z_q."""

    def __init__(self, n_qubits: int) -> None:
        self.images: tuple[list[Word], list[Word]] = (
            [(1 << q, 0, 0) for q in range(n_qubits)], [(0, 1 << q, 0) for q in range(n_qubits)]
        )  # fmt: skip
        self.is_identity = True
        self._qubits: Sequence[int] = range(n_qubits)

    def image(self, x: int, z: int) -> Masks:
        """B^dagger P B."""
        if self.is_identity:
            return x, z, 1
        return signed(self._product((x & z).bit_count(), _factors(x, z), self._qubits))

    def append(self, step: Clifford | Rotation) -> None:
        """Let another Clifford act after those so far; a rotation must be by a multiple of pi/2."""
        # With B = C_k ... C_1 in the order in which they act, B^dagger P B is the product of the old images
        # of the factors of C_k^dagger P C_k. All new images are computed before any old one is replaced.
        qubits = self._qubits if isinstance(step, Rotation) else step.qubits
        changes = (
            _changes(step) if isinstance(step, Rotation)
            else _clifford_changes(step.images.tobytes(), step.signs.tobytes())
        )  # fmt: skip
        self.is_identity = self.is_identity and not changes
        words = [self._product(power, factors, qubits) for _, _, power, factors in changes]
        for (letter, q, _, _), word in zip(changes, words, strict=True):
            self.images[letter][qubits[q]] = word

    def _product(self, e: int, factors: Sequence[tuple[int, int]], qubits: Sequence[int]) -> Word:
        """i^e times the images of factors, whose qubits are positions in `qubits`."""
        x = z = 0
        for letter, q in factors:
            a, b, power = self.images[letter][qubits[q]]
            e += power + 2 * (z & a).bit_count()
            x ^= a
            z ^= b
        return x, z, e & 3


@lru_cache(maxsize=4096)
def _factors(x: int, z: int) -> tuple[tuple[int, int], ...]:
    """The factors of a word, all X before all Z."""
    return tuple((letter, q) for letter, mask in enumerate((x, z)) for q in set_bits(mask))


@lru_cache(maxsize=4096)
def _clifford_changes(images: bytes, signs: bytes) -> tuple[Change, ...]:
    """The changes by a Clifford on qubits 0, 1, ..., which is the same wherever it acts."""
    arrays = np.frombuffer(images, np.int64), np.frombuffer(signs, np.int64)
    n_qubits = (len(arrays[0]).bit_length() - 1) // 2
    return _changes(Clifford(tuple(range(n_qubits)), *arrays))


@lru_cache(maxsize=4096)
def _changes(step: Clifford | Rotation) -> tuple[Change, ...]:
    """What a Clifford makes of X and Z on its qubits, where it changes them."""
    changes: list[Change] = []
    for q in set_bits(acted_mask(step)):
        for letter, word in enumerate(((1 << q, 0), (0, 1 << q))):
            x, z, sign = (
                rotation_image(step, *word) if isinstance(step, Rotation) else clifford_image(step, *word)
            )
            if (x, z, sign) != (*word, 1):
                changes.append((letter, q, (x & z).bit_count() + 1 - sign, _factors(x, z)))
    return tuple(changes)


def clifford_image(step: Clifford, x: int, z: int) -> tuple[int, int, int]:
    """What a Clifford makes of a word: masks and sign."""
    local = sum(((x >> q & 1) + 2 * (z >> q & 1)) << 2 * j for j, q in enumerate(step.qubits))
    keep = ~sum(1 << q for q in step.qubits)
    new_x, new_z = word_masks(step.qubits, int(step.images[local]))
    return x & keep | new_x, z & keep | new_z, int(step.signs[local])


def rotation_image(step: Rotation, x: int, z: int) -> tuple[int, int, int]:
    """What a rotation by a multiple of pi/2 makes of a word: masks and sign."""
    quarters = quarter_turns(step.angle)
    assert quarters is not None
    if not ((x & step.z).bit_count() + (z & step.x).bit_count()) & 1 or quarters == 0:
        return x, z, 1
    if quarters == 2:
        return x, z, -1
    other = product((step.x, step.z, (step.x & step.z).bit_count() + 1), (x, z, (x & z).bit_count()))
    x, z, sign = signed(other)
    return x, z, sign if quarters == 1 else -sign


class CliffordLayer(NamedTuple):
    """Cliffords as one map of packed words: P becomes the product of the images of its factors.

    `images` is uint64 [128 W, 2 W]: row b is the image of the word that has bit b alone; `powers` int32
    [128 W]: of i, to be multiplied with it. Only factors X and Z of qubits in `touched`, uint64 [W], change.
    """

    images: Array
    powers: Array
    touched: Array


@lru_cache(maxsize=64)
def clifford_layer(gates: tuple[Clifford, ...], n_qubits: int) -> CliffordLayer:
    """The map that applies `gates` one after another, each P to U^dagger P U."""
    tableau, words = Tableau(n_qubits), n_words(n_qubits)
    for gate in reversed(gates):
        tableau.append(gate)
    images, powers = np.zeros((128 * words, 2 * words), np.uint64), np.zeros(128 * words, np.int32)
    qubits = {qubit for gate in gates for qubit in gate.qubits}
    for qubit in qubits:
        for letter in (0, 1):
            x, z, sign = signed(tableau.images[letter][qubit])
            row = 64 * words * letter + qubit
            images[row], powers[row] = pack(x, z, n_qubits), 1 - sign
    return CliffordLayer(images, powers, pack(sum(1 << qubit for qubit in qubits), 0, n_qubits)[:words])


@dataclass(frozen=True)
class Absorbed:
    """Rotations and an observable that give the expectation values of a circuit without any Clifford.

    Rotation k comes from step `origins[k]`, its angle multiplied by `signs[k]`, 1 or -1. The final words are
    those of the circuit itself, since the Cliffords act on the observable first. Word k of the observable
    became `term_signs`[k], 1 or -1, times word `term_indices`[k] of this one; both int64 [term].
    """

    rotations: tuple[Rotation, ...]
    observable: PauliSum
    origins: tuple[int, ...]
    signs: tuple[int, ...]
    term_indices: Array
    term_signs: Array


def absorb(
    steps: Sequence[PauliStep], observable: PauliSum, excluded: AbstractSet[int] = frozenset()
) -> Absorbed:
    """Absorb all Cliffords, and rotations by multiples of pi/2 but those of the numbers `excluded`.

    All steps must be Cliffords or rotations.
    """
    # A circuit R_k(t_k) after Cliffords B: B^dagger exp(-i t G / 2) B = exp(-i t (B^dagger G B) /
    # 2). So each rotation gets the image of its generator under the Cliffords before it, and the
    # observable that under all.
    tableau = Tableau(observable.n_qubits)
    rotations, origins, signs = [], [], []
    for number, step in enumerate(steps):
        if isinstance(step, Rotation) and (number in excluded or quarter_turns(step.angle) is None):
            x, z, sign = tableau.image(step.x, step.z)
            rotations.append(step if tableau.is_identity else Rotation(x, z, sign * step.angle))
            origins.append(number)
            signs.append(sign)
        else:
            tableau.append(step)  # type: ignore[arg-type]
    images = [tableau.image(x, z) for x, z, _ in observable.masks()]
    start = pauli_sum(
        [(x, z, sign * c) for (x, z, sign), (_, _, c) in zip(images, observable.masks(), strict=True)],
        observable.n_qubits,
    )
    number_of = {(x, z): k for k, (x, z, _) in enumerate(start.masks())}
    term_indices = np.array([number_of[x, z] for x, z, _ in images], np.int64)
    term_signs = np.array([sign for _, _, sign in images], np.int64)
    return Absorbed(tuple(rotations), start, tuple(origins), tuple(signs), term_indices, term_signs)
