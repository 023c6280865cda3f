"""Where the derivatives by the angles of a circuit are taken: after which gates, about which Pauli words.

A derivative is an inner product right after its gate, about the words of its generator. It may be taken later
or earlier, as far as the gates between take each of these words to one word. So each has an interval of
places, and as few places as can be have one in every interval: many derivatives share a sweep over both
states, and gates share passes. Knows gates and words, no state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tnplan.circuits.circuit import Gate
from tnplan.executor.statevector.adjoint.word_images import WordImages
from tnplan.executor.statevector.adjoint.words import Parameter, Word, parameter_words


@dataclass(frozen=True)
class DerivativeSegment:
    """The parameters that are taken at `place`, after so many gates."""

    place: int
    parameters: tuple[Parameter, ...]


def derivative_segments(gates: Sequence[Gate]) -> list[DerivativeSegment]:
    """The places where derivatives are taken, the last one first.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    walks = _Walks(gates)
    waiting: list[tuple[int, int, Parameter]] = []
    for number, gate in enumerate(gates):
        for parameter in parameter_words(gate, number):
            first, last = walks.interval(number, parameter.words)
            waiting.append((first, last, parameter))
    waiting.sort(key=lambda one: one[0])
    found: list[DerivativeSegment] = []
    while waiting:
        at = waiting[-1][0]
        here = [one for _, last, one in waiting if last >= at]
        waiting = [one for one in waiting if one[1] < at]
        found.append(DerivativeSegment(at, tuple(walks.moved(one, at) for one in here)))
    return found


class _Walks:
    """Words that go along a circuit, forward and back, from gate to gate on their qubits.

    Place k is between gates k - 1 and k.
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
        """The first and the last place where the words of gate `number`, right after it, are words."""
        first, last = 0, len(self._gates)
        for word in words:
            last = min(last, self._walk(word, number + 1, last)[1])
            if first > number or self._image(number, word, back=True) != word:
                first = number + 1
            else:
                first = max(first, self._walk(word, number, first)[1])
        return first, last

    def moved(self, parameter: Parameter, place: int) -> Parameter:
        """The parameter with its words at a place of its interval."""
        start = parameter.gate + (place > parameter.gate)
        words = tuple(self._walk(word, start, place)[0] for word in parameter.words)
        return Parameter(parameter.gate, parameter.number, words)

    def _walk(self, word: Word, place: int, end: int) -> tuple[Word, int]:
        """A word taken from a place towards another as long as it is one word; and where it is then."""
        back = end < place
        while True:
            number = self._next(word, place, back)
            if number is None or (number < end if back else number >= end):
                return word, end
            image = self._image(number, word, back)
            if image is None:
                return word, number + 1 if back else number
            word, place = image, number if back else number + 1

    def _next(self, word: Word, place: int, back: bool) -> int | None:
        """The first gate from a place on, forward or back, on the qubits of a word."""
        support, found = word[0] | word[1], None
        while support:
            qubit = (support & -support).bit_length() - 1
            support &= support - 1
            numbers = self._on.get(qubit, [])
            at = bisect_left(numbers, place)
            if back and at:
                found = numbers[at - 1] if found is None else max(found, numbers[at - 1])
            elif not back and at < len(numbers):
                found = numbers[at] if found is None else min(found, numbers[at])
        return found
