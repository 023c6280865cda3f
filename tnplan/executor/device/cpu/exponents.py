"""Exponents of two on the CPU: every call is done when it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import frexp, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.device import ZERO, Call, nothing

Array = NDArray[Any]

LARGEST_FACTOR_BITS = {4: 125, 8: 1000}
"""By the bytes of a number: 2 to this power, and to its negative, is within the range."""
PIECE = 1 << 15
"""Numbers that are copied at once."""


class NumpyExponents:
    """Slots in an array; see `Exponents`."""

    def __init__(self, count: int) -> None:
        self._slots = np.full(count, ZERO, np.int64)

    def bind_normalize(self, views: Sequence[Array], slots: Sequence[int], tolerated_bits: int = 0) -> Call:
        """Scale one tensor after the other."""
        stored, pairs = self._slots, list(zip(map(_reals, views), slots, strict=True))

        def run() -> None:
            for reals, slot in pairs:
                power = _power(reals)
                if power != ZERO and abs(power) <= tolerated_bits:
                    power = 0
                stored[slot] = power
                if power != ZERO:
                    _scale(reals, -power, reals)

        return run

    def bind_clear(self, slot: int) -> Call:
        """Write ZERO."""
        stored = self._slots

        def run() -> None:
            stored[slot] = ZERO

        return run

    def bind_accumulate(self, target: Array, source: Array, slot: int, terms: Sequence[int]) -> Call:
        """Scale the target, and copies of pieces of the source, which are added."""
        into, added, numbers = _reals(target), _reals(source), np.array(terms, np.int64)
        scaled = np.empty(min(added.size, PIECE), added.dtype)

        def run() -> None:
            own = _power(added)
            down, up = self._align(slot, numbers, own)
            if own == ZERO:
                return
            _scale(into, down, into)
            for first in range(0, added.size, PIECE):
                piece, sums = added[first : first + PIECE], into[first : first + PIECE]
                _scale(piece, up - own, scaled[: piece.size])
                np.add(sums, scaled[: piece.size], out=sums)

        return run

    def bind_aligned(self, target: Array, factor: Array, slot: int, terms: Sequence[int], call: Call) -> Call:
        """Scale the target and the factor, and give the factor its values back."""
        into, reals, numbers = _reals(target), _reals(factor), np.array(terms, np.int64)
        saved = np.empty_like(reals)

        def run() -> None:
            down, up = self._align(slot, numbers, 0)
            _scale(into, down, into)
            np.copyto(saved, reals)
            _scale(reals, up, reals)
            call()
            np.copyto(reals, saved)

        return run

    def _align(self, slot: int, terms: Array, own: int) -> tuple[int, int]:
        """The powers by which a sum and a normalized term are to be multiplied; sets the slot of the sum."""
        added, present = int(self._slots[terms].sum()) + own, int(self._slots[slot])
        if added <= ZERO // 2:
            return 0, 0
        # Both are brought to the larger of the two powers: then neither leaves the range, and only what is
        # far below the larger one is lost.
        level = added if present <= ZERO // 2 else max(added, present)
        self._slots[slot] = level
        return (0 if present <= ZERO // 2 else present - level), added - level

    def bind_total(self, slots: Sequence[int]) -> tuple[Call, Callable[[], int]]:
        """The slots are on the host already."""
        stored, numbers = self._slots, np.array(slots, np.int64)

        def total() -> int:
            exponent = int(stored[numbers].sum())
            return 0 if exponent <= ZERO // 2 else exponent

        return nothing, total


def _reals(view: Array) -> Array:
    """The real and imaginary parts of a view."""
    return view.view(view.real.dtype)


def _power(reals: Array) -> int:
    """The p of 2^(p-1) <= x < 2^p for the largest absolute value x: ZERO for 0, 0 where x is not finite."""
    largest = max(float(reals.max()), -float(reals.min())) if reals.size else 0.0
    if largest == 0.0:
        return ZERO
    return frexp(largest)[1] if isfinite(largest) else 0


def _scale(reals: Array, power: int, into: Array) -> None:
    """Write values times 2^power; twice half of it, since the factor itself may be beyond the range."""
    if power == 0:
        if into is not reals:
            np.copyto(into, reals)
        return
    most = 2 * LARGEST_FACTOR_BITS[reals.itemsize]
    power = max(-most, min(power, most))
    np.multiply(reals, reals.dtype.type(2.0 ** (power // 2)), out=into)
    np.multiply(into, reals.dtype.type(2.0 ** (power - power // 2)), out=into)
