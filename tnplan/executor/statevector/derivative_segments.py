"""Where the derivatives by the angles of a circuit are taken: after which gates, about which Pauli words.

A derivative is an inner product right after its gate, about the words of its generator. It may be taken later
or earlier, as far as the gates between take each of these words to one word. So each has an interval of
positions. As few positions as possible are chosen, with one in every interval: many derivatives share a
sweep over both states, and gates share passes. Knows gates and words, no state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.generators import SAME, generators, pauli_words, word_matrix
from tnplan.common.arrays import Array

Word = tuple[int, int, complex]
"""The masks x and z over all qubits, bit q for qubit q, and the coefficient."""


@dataclass(frozen=True)
class Parameter:
    """Angle `number` of gate `gate`; its derivative is 2 Re of the sum over `words` of the coefficient times
    <lambda| word |psi>."""

    gate: int
    number: int
    words: tuple[Word, ...]


def parameter_words(gate: Gate, number: int) -> list[Parameter]:
    """The angles of gate `number` of a circuit, with their words right after the gate.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    if not gate.params:
        return []
    if gate not in _words_of_gates:
        matrices = generators(gate, f"gate {number} ({gate.name})")
        _words_of_gates[gate] = [tuple(_on_qubits(matrix, gate.qubits)) for matrix in matrices]
    return [Parameter(number, angle, words) for angle, words in enumerate(_words_of_gates[gate])]


_words_of_gates: WeakKeyDictionary[Gate, list[tuple[Word, ...]]] = WeakKeyDictionary()
"""The words of each angle of a gate, as long as it is there: a check and an answer ask for them."""


def _on_qubits(generator: Array, qubits: tuple[int, ...]) -> list[Word]:
    """The words of a generator on all qubits. The identity adds an imaginary number times a real one."""
    return [
        (spread(x, qubits), spread(z, qubits), coefficient)
        for x, z, coefficient in pauli_words(generator)
        if x or z
    ]


def spread(mask: int, qubits: tuple[int, ...]) -> int:
    """The mask over all qubits of one over those of a gate."""
    if len(qubits) == 1:
        return (mask & 1) << qubits[0]
    return sum(1 << qubit for k, qubit in enumerate(qubits) if mask >> k & 1)


# Pauli words behind and before gates, where they are single words. Knows gates and words, no state.


COMMUTES = 1e-14
"""How far products in two orders may be from each other by rounding."""
MOST_QUBITS = 2
"""Largest gates whose images of all words are computed together."""
AT_ONCE = 1024
"""Gates that are taken together."""

Images = dict[tuple[int, int], Word]
"""By the masks x and z on the qubits of a gate; what is missing is no single word."""


class WordImages:
    """The images of words by the gates of a circuit.

    - `gates`: The circuit.
    """

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._keys = [gate.matrix.tobytes() for gate in gates]
        small: dict[int, dict[bytes, Array]] = {}
        for key, gate in zip(self._keys, gates, strict=True):
            if len(gate.qubits) <= MOST_QUBITS:
                small.setdefault(len(gate.qubits), {})[key] = gate.matrix
        self._small: dict[bytes, tuple[Images, Images]] = {}
        """Of each matrix those behind the gate, and those before it."""
        for n_qubits, matrices in small.items():
            keys, values = list(matrices), list(matrices.values())
            for first in range(0, len(keys), AT_ONCE):
                images = _all_images(np.array(values[first : first + AT_ONCE], np.complex128), n_qubits)
                self._small.update(zip(keys[first : first + AT_ONCE], images, strict=True))
        self._large: dict[tuple[bytes, bool, int, int], Word | None] = {}

    def __call__(self, number: int, word: Word, back: bool) -> Word | None:
        """A word behind gate `number`, U P U^dagger, or before it, U^dagger P U.

        None where that is no single word.
        """
        qubits, (x, z, coefficient) = self._gates[number].qubits, word
        own_x = own_z = 0
        for k, qubit in enumerate(qubits):
            own_x |= (x >> qubit & 1) << k
            own_z |= (z >> qubit & 1) << k
        image = self._image(number, own_x, own_z, back)
        if image is None:
            return None
        image_x, image_z, factor = image
        if (image_x, image_z) == (own_x, own_z):
            return x, z, coefficient * factor
        clear = ~spread((1 << len(qubits)) - 1, qubits)
        return x & clear | spread(image_x, qubits), z & clear | spread(image_z, qubits), coefficient * factor

    def _image(self, number: int, x: int, z: int, back: bool) -> Word | None:
        """The same for masks over the qubits of the gate."""
        gate, key = self._gates[number], self._keys[number]
        if key in self._small:
            return self._small[key][back].get((x, z))
        if (key, back, x, z) not in self._large:
            matrix = gate.matrix.conj().T if back else gate.matrix
            self._large[key, back, x, z] = _image(matrix, len(gate.qubits), x, z)
        return self._large[key, back, x, z]


def _all_images(matrices: Array, n_qubits: int) -> list[tuple[Images, Images]]:
    """The images of all words by matrices of one size, and by their inverses."""
    masks, words = _words(n_qubits)
    moved = matrices[:, None] @ words @ matrices.conj().swapaxes(1, 2)[:, None]
    # [matrix, image, word]: words are Hermitian, so that these are real and orthogonal.
    products = np.einsum("iab,mjba->mij", words, moved).real / (1 << n_qubits)
    products[np.abs(products - 1) <= COMMUTES * len(masks)] = 1
    both = []
    for elements in (products, products.swapaxes(1, 2)):
        present = np.abs(elements) > SAME
        images: list[Images] = [{} for _ in matrices]
        for number, column in np.argwhere(present.sum(axis=1) == 1).tolist():
            image = int(np.argmax(present[number, :, column]))
            images[number][masks[column]] = (*masks[image], float(elements[number, image, column]))
        both.append(images)
    return list(zip(*both, strict=True))


@cache
def _words(n_qubits: int) -> tuple[list[tuple[int, int]], Array]:
    """The masks x and z of all words on qubits, and their matrices."""
    masks = [(x, z) for x in range(1 << n_qubits) for z in range(1 << n_qubits)]
    return masks, np.array([word_matrix(x, z, n_qubits) for x, z in masks])


def _image(matrix: Array, n_qubits: int, x: int, z: int) -> Word | None:
    """U P U^dagger for a word on the qubits of a matrix; None where it is not one word."""
    word = word_matrix(x, z, n_qubits)
    moved = matrix @ word
    if np.abs(moved - word @ matrix).max() <= COMMUTES:
        return x, z, 1.0
    words = pauli_words(moved @ matrix.conj().T)
    return words[0] if len(words) == 1 else None


@dataclass(frozen=True)
class DerivativeSegment:
    """The parameters whose derivatives are taken at `position`, after so many gates."""

    position: int
    parameters: tuple[Parameter, ...]


def derivative_segments(gates: Sequence[Gate]) -> list[DerivativeSegment]:
    """The positions where derivatives are taken, the last first.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    walks = _Walks(gates)
    intervals: list[tuple[int, int, Parameter]] = []
    for number, gate in enumerate(gates):
        for parameter in parameter_words(gate, number):
            first, last = walks.interval(number, parameter.words)
            intervals.append((first, last, parameter))
    intervals.sort(key=lambda interval: interval[0])
    segments: list[DerivativeSegment] = []
    while intervals:
        position = intervals[-1][0]
        crossing = [parameter for _, last, parameter in intervals if last >= position]
        intervals = [interval for interval in intervals if interval[1] < position]
        parameters = tuple(walks.moved(parameter, position) for parameter in crossing)
        segments.append(DerivativeSegment(position, parameters))
    return segments


class _Walks:
    """Words that go along a circuit, forward and back, from gate to gate on their qubits.

    Position k is between gates k - 1 and k.
    """

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._on: dict[int, list[int]] = {}
        """The gates on each qubit."""
        for number, gate in enumerate(gates):
            for qubit in gate.qubits:
                self._on.setdefault(qubit, []).append(number)
        self._image = WordImages(gates)

    def interval(self, number: int, words: Sequence[Word]) -> tuple[int, int]:
        """The first and the last position where the words of gate `number`, right after it, are words."""
        first, last = 0, len(self._gates)
        for word in words:
            last = min(last, self._walk(word, number + 1, last)[1])
            if first > number or self._image(number, word, back=True) != word:
                first = number + 1
            else:
                first = max(first, self._walk(word, number, first)[1])
        return first, last

    def moved(self, parameter: Parameter, position: int) -> Parameter:
        """The parameter with its words at a position of its interval."""
        start = parameter.gate + (position > parameter.gate)
        words = tuple(self._walk(word, start, position)[0] for word in parameter.words)
        return Parameter(parameter.gate, parameter.number, words)

    def _walk(self, word: Word, position: int, end: int) -> tuple[Word, int]:
        """A word moved from a position towards another as long as it is one word; and where it is then."""
        back = end < position
        while True:
            number = self._next(word, position, back)
            if number is None or (number < end if back else number >= end):
                return word, end
            image = self._image(number, word, back)
            if image is None:
                return word, number + 1 if back else number
            word, position = image, number if back else number + 1

    def _next(self, word: Word, position: int, back: bool) -> int | None:
        """The first gate from a position on, forward or back, on the qubits of a word."""
        support, nearest = word[0] | word[1], None
        while support:
            qubit = (support & -support).bit_length() - 1
            support &= support - 1
            numbers = self._on.get(qubit, [])
            at = bisect_left(numbers, position)
            if back and at:
                nearest = numbers[at - 1] if nearest is None else max(nearest, numbers[at - 1])
            elif not back and at < len(numbers):
                nearest = numbers[at] if nearest is None else min(nearest, numbers[at])
        return nearest
