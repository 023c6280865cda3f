"""Pauli words behind and before gates, where they are single words. Knows gates and words, no state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.generators import SAME, pauli_words, word_matrix
from tnplan.common.arrays import Array
from tnplan.executor.statevector.adjoint.words import Word, spread

COMMUTES = 1e-14
"""How far products in two orders may be from each other by rounding."""
MOST_QUBITS = 2
"""Of gates of which the images of all words are found together."""
AT_ONCE = 1024
"""Gates that are taken together."""

Images = dict[tuple[int, int], Word]
"""By the masks x and z on the qubits of a gate; what is missing is no single word."""


class WordImages:
    """The images of words by the gates of a circuit.

    Parameters
    ----------
    gates : sequence of Gate
        The circuit.
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
                found = _all_images(np.array(values[first : first + AT_ONCE], np.complex128), n_qubits)
                self._small.update(zip(keys[first : first + AT_ONCE], found, strict=True))
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
        there_x, there_z, factor = image
        if (there_x, there_z) == (own_x, own_z):
            return x, z, coefficient * factor
        clear = ~spread((1 << len(qubits)) - 1, qubits)
        return x & clear | spread(there_x, qubits), z & clear | spread(there_z, qubits), coefficient * factor

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
    parts = np.einsum("iab,mjba->mij", words, moved).real / (1 << n_qubits)
    parts[np.abs(parts - 1) <= COMMUTES * len(masks)] = 1
    found = []
    for part in (parts, parts.swapaxes(1, 2)):
        present = np.abs(part) > SAME
        images: list[Images] = [{} for _ in matrices]
        for at, word in np.argwhere(present.sum(axis=1) == 1).tolist():
            image = int(np.argmax(present[at, :, word]))
            images[at][masks[word]] = (*masks[image], float(part[at, image, word]))
        found.append(images)
    return list(zip(*found, strict=True))


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
    found = pauli_words(moved @ matrix.conj().T)
    return found[0] if len(found) == 1 else None
