"""Moves all Clifford gates of a circuit to its end, so that only rotations are left. Exact; touches no term.

With U = C R, a Clifford C after everything else, C first meets the observable once; a rotation about P that
had the Cliffords B before it becomes one about B^dagger P B. B is kept as a tableau: the images
B^dagger X_q B and B^dagger Z_q B of every qubit, as masks (Python integers) and a power of i.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.pauli.steps import Clifford, Rotation, Step, quarter_turns, word_masks
from executor.pauli.words import PauliSum, n_words, pack, pauli_sum

Array = NDArray[Any]
Word = tuple[int, int, int]
"""x mask, z mask, and e: i^e times the Hermitian word."""
Masks = tuple[int, int, int]
"""x mask, z mask, and a sign."""


def product(a: Word, b: Word) -> Word:
    """The product of two words."""
    x, z = a[0] ^ b[0], a[1] ^ b[1]
    e = (a[0] & a[1]).bit_count() + (b[0] & b[1]).bit_count() + 2 * (a[1] & b[0]).bit_count()
    return x, z, (e - (x & z).bit_count() + a[2] + b[2]) % 4


class Frame:
    """The tableau of the Cliffords so far."""

    def __init__(self, n_qubits: int) -> None:
        self.x_images: list[Word] = [(1 << q, 0, 0) for q in range(n_qubits)]
        self.z_images: list[Word] = [(0, 1 << q, 0) for q in range(n_qubits)]

    def image(self, x: int, z: int) -> tuple[int, int, int]:
        """B^dagger P B: its masks, and its sign 1 or -1."""
        rest = x | z
        if not rest & rest - 1 and not x & z and rest:
            single = (self.x_images if x else self.z_images)[rest.bit_length() - 1]
            return single[0], single[1], 1 - single[2]
        result: Word = (0, 0, (x & z).bit_count())
        while rest:
            q = (rest & -rest).bit_length() - 1
            rest &= rest - 1
            if x >> q & 1:
                result = product(result, self.x_images[q])
            if z >> q & 1:
                result = product(result, self.z_images[q])
        return result[0], result[1], 1 - result[2]

    def append(self, step: Clifford | Rotation) -> None:
        """Let another Clifford act after those so far; a rotation must be by a multiple of pi/2."""
        changes = [(images, q, self._image(*word)) for images, q, word in self._changed(step)]
        for images, q, image in changes:
            images[q] = image

    def _changed(self, step: Clifford | Rotation) -> Iterator[tuple[list[Word], int, Masks]]:
        """The factors that a Clifford changes, by their images and qubit, and what it makes of them."""
        for q, x_word, z_word in _factors(step):
            if x_word != (1 << q, 0, 1):
                yield self.x_images, q, x_word
            if z_word != (0, 1 << q, 1):
                yield self.z_images, q, z_word

    def _image(self, x: int, z: int, sign: int) -> Word:
        image = self.image(x, z)
        return image[0], image[1], (1 - sign * image[2]) % 4


@lru_cache(maxsize=4096)
def _factors(step: Clifford | Rotation) -> tuple[tuple[int, Masks, Masks], ...]:
    """What a Clifford makes of X and Z on each of its qubits."""
    if isinstance(step, Clifford):
        return tuple((q, mapped(step, 1 << q, 0), mapped(step, 0, 1 << q)) for q in step.qubits)
    both = step.x | step.z
    qubits = [q for q in range(both.bit_length()) if both >> q & 1]
    return tuple((q, turned(step, 1 << q, 0), turned(step, 0, 1 << q)) for q in qubits)


def mapped(step: Clifford, x: int, z: int) -> tuple[int, int, int]:
    """What a Clifford makes of a word: masks and sign."""
    local = sum(((x >> q & 1) + 2 * (z >> q & 1)) << 2 * j for j, q in enumerate(step.qubits))
    keep = ~sum(1 << q for q in step.qubits)
    new_x, new_z = word_masks(step.qubits, int(step.images[local]))
    return x & keep | new_x, z & keep | new_z, int(step.signs[local])


def turned(step: Rotation, x: int, z: int) -> tuple[int, int, int]:
    """What a rotation by a multiple of pi/2 makes of a word: masks and sign."""
    turns = quarter_turns(step.angle)
    assert turns is not None
    if not ((x & step.z).bit_count() + (z & step.x).bit_count()) & 1 or turns == 0:
        return x, z, 1
    if turns == 2:
        return x, z, -1
    other = product((step.x, step.z, 0), (x, z, 0))
    sine = 1 if turns == 1 else -1
    return other[0], other[1], -sine * (2 - other[2])


@dataclass(frozen=True, eq=False)
class Layer:
    """Cliffords as one map of packed words: P becomes the product of the images of its factors.

    `images` is uint64 [128 W, 2 W]: row b is the image of the word that has bit b alone; `powers` int32
    [128 W]: of i, to be multiplied with it. Only factors X and Z of qubits in `touched`, uint64 [W], change.
    """

    images: Array
    powers: Array
    touched: Array


@lru_cache(maxsize=64)
def layer(gates: tuple[Clifford, ...], n_qubits: int) -> Layer:
    """The map that applies `gates` one after another, each P to U^dagger P U."""
    frame, words = Frame(n_qubits), n_words(n_qubits)
    for gate in reversed(gates):
        frame.append(gate)
    images, powers = np.zeros((128 * words, 2 * words), np.uint64), np.zeros(128 * words, np.int32)
    qubits = {qubit for gate in gates for qubit in gate.qubits}
    for qubit in qubits:
        for row, word in ((qubit, frame.x_images[qubit]), (64 * words + qubit, frame.z_images[qubit])):
            images[row], powers[row] = pack(word[0], word[1], n_qubits), word[2]
    return Layer(images, powers, pack(sum(1 << qubit for qubit in qubits), 0, n_qubits)[:words])


@dataclass(frozen=True)
class Absorbed:
    """Rotations and an observable that give the expectation values of a circuit without any Clifford.

    Rotation k comes from step `origins[k]`, its angle multiplied by `signs[k]`, 1 or -1. The final words are
    those of the circuit itself, since the Cliffords act on the observable first.
    """

    rotations: tuple[Rotation, ...]
    observable: PauliSum
    origins: tuple[int, ...]
    signs: tuple[int, ...]


def absorb(steps: Sequence[Step], observable: PauliSum, kept: AbstractSet[int] = frozenset()) -> Absorbed:
    """Absorb all Cliffords, and rotations by multiples of pi/2 but those of the numbers `kept`.

    All steps must be Cliffords or rotations.
    """
    frame = Frame(observable.n_qubits)
    rotations, origins, signs = [], [], []
    for number, step in enumerate(steps):
        if isinstance(step, Rotation) and (number in kept or quarter_turns(step.angle) is None):
            x, z, sign = frame.image(step.x, step.z)
            rotations.append(Rotation(x, z, sign * step.angle))
            origins.append(number)
            signs.append(sign)
        else:
            frame.append(step)  # type: ignore[arg-type]
    terms = []
    for x, z, coefficient in observable.masks():
        new_x, new_z, sign = frame.image(x, z)
        terms.append((new_x, new_z, sign * coefficient))
    start = pauli_sum(terms, observable.n_qubits)
    return Absorbed(tuple(rotations), start, tuple(origins), tuple(signs))
