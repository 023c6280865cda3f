"""A frame as a box of points, and the passes in which a predictor fills it, from coarse to fine.

The first point is stored as it is. Level by level, with spacings s of falling powers of two, the points
between those that are known, 2 s apart, are filled along one axis after the other: each pass has points
at odd multiples of s along its axis, at multiples of s along the axes of the level's passes before it,
and of 2 s along the others. Residuals stand in the order of passes, those of a pass in C order.

Interpolation by levels: Zhao et al., ICDE 2021 (SZ3). Knows no values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Whether an array equals its own reversal bit for bit, as it is or with all signs flipped.
#
# Intermediates of MaxCut-QAOA do: flipping every spin changes no cut, and flips the sign of one Z. It is
# detected, never assumed.


REFLECTIONS = ("none", "equal", "negated")
"""T[i] against T[n - 1 - i]: nothing known, the same bits, the same bits but for the sign."""

FIRST_LOOK = 1 << 10
PART = 1 << 20


def reflection_of(values: NDArray[np.floating], components: int) -> str:
    """Which of `REFLECTIONS` flat real numbers are, components interleaved; 'none' for one element."""
    return next((kind for kind in REFLECTIONS[1:] if _is_reflected(values, components, kind)), REFLECTIONS[0])


def fill_reflected(values: NDArray[np.floating], components: int, stored: int, kind: str) -> None:
    """Fill the elements from number `stored` on from those before them."""
    words = _words(values, components)
    words[stored:] = words[: words.shape[0] - stored][::-1]
    if kind == "negated":
        words[stored:] ^= _sign(words)


def reflected(values: NDArray[np.floating], components: int, kind: str) -> NDArray[np.floating]:
    """A copy of flat real numbers in reverse order of elements, as a mirrored array repeats them."""
    copied = values.copy()
    words = _words(copied, components)
    words[:] = words[::-1].copy()
    if kind == "negated":
        words ^= _sign(words)
    return copied


def _is_reflected(values: NDArray[np.floating], components: int, kind: str) -> bool:
    words = _words(values, components)
    half = words.shape[0] // 2
    if not half:
        return False
    behind = words[::-1]
    start, length = 0, FIRST_LOOK
    while start < half:
        stop = min(half, start + length)
        other = behind[start:stop]
        if not np.array_equal(words[start:stop], other if kind == "equal" else other ^ _sign(words)):
            return False
        start, length = stop, PART
    return True


def _words(values: NDArray[np.floating], components: int) -> NDArray[Any]:
    return values.view(np.uint32 if values.itemsize == 4 else np.uint64).reshape(-1, components)


def _sign(words: NDArray[Any]) -> np.unsignedinteger[Any]:
    sign: np.unsignedinteger[Any] = words.dtype.type(1 << (8 * words.itemsize - 1))
    return sign


SHIFT = 7
"""A predictor takes the bound in so many halves: 2^SHIFT + 1 fine units are two bounds, and residuals
leave out 2^SHIFT of them. What the last unit rounds is within the bound too."""
LARGEST_FINE = 1 << 26
"""The largest fine number, and the largest prediction."""
LEAST_EXTENT = 8
"""Arrays with an axis from this extent on may have a predictor."""

Box = tuple[int, int, int]
ORDERS: tuple[Box, Box] = ((2, 1, 0), (0, 1, 2))
"""In which order the axes of a level are taken."""


@dataclass(frozen=True)
class Predictor:
    """How points are predicted: by cubic or linear interpolation, and the order of axes (number in
    ORDERS)."""

    cubic: bool
    order: int

    @property
    def code(self) -> int:
        """A number from 1 to 4."""
        return 1 + self.cubic + 2 * self.order


PREDICTORS = tuple(Predictor(bool(code & 1), code >> 1) for code in range(2 * len(ORDERS)))
"""By their code less 1."""


@dataclass(frozen=True)
class PointPass:
    """Points of a box along one axis: their first coordinates, steps and counts, the spacing s, and how many
    residuals stand before theirs."""

    axis: int
    spacing: int
    starts: Box
    steps: Box
    counts: Box
    first: int

    @property
    def size(self) -> int:
        """How many points it fills."""
        return prod(self.counts)

    @property
    def lattice(self) -> tuple[int, ...]:
        """Axis, spacing, starts, steps, counts and first residual, as kernels take them."""
        return (self.axis, self.spacing, *self.starts, *self.steps, *self.counts, self.first)


def may_be_smooth(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape has axes along which points can be predicted."""
    return max(shape, default=0) >= LEAST_EXTENT


def box_of_shape(shape: tuple[int, ...]) -> Box:
    """The last two axes that are longer than 1, and before them all others as one."""
    long = [n for n in shape if n > 1]
    last = [1, 1, *long][-2:]
    return prod(long[:-2]), last[0], last[1]


def frame_elements(shape: tuple[int, ...], frame_log2: int) -> int:
    """The elements of a frame that has a predictor: as many whole planes, or else rows, as 2^frame_log2
    hold."""
    most, (_, n1, n2) = 1 << frame_log2, box_of_shape(shape)
    unit = (n1 * n2 if n1 * n2 <= most else n2 if n2 <= most else 1) or 1
    return most // unit * unit


def frame_box(shape: tuple[int, ...], n_elements: int) -> Box:
    """The box of a frame of so many elements: whole planes, whole rows, or a line."""
    _, n1, n2 = box_of_shape(shape)
    if n_elements % (n1 * n2) == 0:
        return n_elements // (n1 * n2), n1, n2
    if n_elements % n2 == 0:
        return 1, n_elements // n2, n2
    return 1, 1, n_elements


@lru_cache(256)
def passes(box: Box, order: int) -> tuple[PointPass, ...]:
    """All passes of a box, the axes of a level in the order of this number; those without points are left
    out, and so is the first point."""
    point_passes, first = [], 1
    for level in range(max(max(box) - 1, 0).bit_length() - 1, -1, -1):
        spacing, done = 1 << level, set[int]()
        for axis in ORDERS[order]:
            starts = [spacing if k == axis else 0 for k in range(3)]
            steps = [spacing if k in done else 2 * spacing for k in range(3)]
            counts = [max(0, -(-(box[k] - starts[k]) // steps[k])) for k in range(3)]
            done.add(axis)
            if prod(counts):
                point_passes.append(PointPass(axis, spacing, _box(starts), _box(steps), _box(counts), first))
                first += prod(counts)
    return tuple(point_passes)


@lru_cache(256)
def lattices(box: Box, order: int) -> NDArray[np.uint64]:
    """The lattices of all passes (passes, 12)."""
    return np.array([point_pass.lattice for point_pass in passes(box, order)], np.uint64).reshape(-1, 12)


def _box(numbers: list[int]) -> Box:
    return numbers[0], numbers[1], numbers[2]
