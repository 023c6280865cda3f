"""A frame as a box of points, and the passes in which a predictor fills it, from coarse to fine.

The first point is stored as it is. Level by level, with spacings s of falling powers of two, the points
between those that are known, 2 s apart, are filled along one axis after the other: each pass has points
at odd multiples of s along its axis, at multiples of s along the axes of the level's passes before it,
and of 2 s along the others. Axes that are not predicted are batches: the points whose other coordinates are 0
are filled first, by passes along the batches, and all further passes have every point along these.

Residuals stand in the order of passes, those of a pass in strips of STRIP points along the last axis, each
strip in C order: neighbours along the last axis but one are then neighbours in the coder's contexts. A
Lorenzo predictor has one pass, of all points.

Interpolation by levels: Zhao et al., ICDE 2021 (SZ3). Lorenzo: Ibarria et al., Eurographics 2003, of rounded
numbers as in cuSZ (Tian et al., PACT 2020). Knows no values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
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
LARGEST_WHOLE = 1 << 18
"""The largest number under a Lorenzo predictor: sums of 2^MOST_AXES of them are exact in single precision."""
LEAST_EXTENT = 8
"""Arrays with an axis from this extent on may have a predictor."""
MOST_AXES = 6
STRIP = 32
WHOLE_ROWS = 1 << 31
"""The strips of streams of version 2."""

Box = tuple[int, ...]
KINDS = ("linear", "cubic", "linear mean", "cubic mean", "lorenzo")
"""Interpolation along one axis, or the mean of that along all axes on which a point lies between others; sums
of neighbours' corners."""


@dataclass(frozen=True)
class Predictor:
    """How points are predicted (of `KINDS`), and along which axes of the box, in which order, which is
    ascending but for interpolation along one; `early`: as in version 2, whose boxes have three axes."""

    kind: str
    axes: tuple[int, ...]
    early: bool = False

    @property
    def code(self) -> int:
        """The header's byte: 1 to 4 in version 2, 5 to 9 since."""
        if self.early:
            return EARLY_PREDICTORS.index(self) + 1
        return 1 + len(EARLY_PREDICTORS) + KINDS.index(self.kind)

    @property
    def strip(self) -> int:
        """How many points along the last axis stand together."""
        return WHOLE_ROWS if self.early else STRIP

    @property
    def is_lorenzo(self) -> bool:
        """Whether it takes differences of rounded numbers, without fine ones."""
        return self.kind == "lorenzo"

    @property
    def is_cubic(self) -> bool:
        """Whether four neighbours on a line are used instead of two."""
        return self.kind.startswith("cubic")

    @property
    def is_mean(self) -> bool:
        """Whether points are predicted along all axes that their neighbours allow."""
        return self.kind.endswith("mean")

    @property
    def largest(self) -> int:
        """The largest number that it takes."""
        return LARGEST_WHOLE if self.is_lorenzo else LARGEST_FINE

    def pack_axes(self) -> int:
        """The axes in 32 bits: 1 more than each, in three bits, the first one lowest; 0 in version 2."""
        return 0 if self.early else sum(axis + 1 << 3 * k for k, axis in enumerate(self.axes))


EARLY_PREDICTORS = tuple(
    Predictor(kind, axes, early=True) for axes in ((2, 1, 0), (0, 1, 2)) for kind in ("linear", "cubic")
)
"""Those of version 2, by their code less 1."""


def unpack_predictor(code: int, packed_axes: int, shape: tuple[int, ...]) -> Predictor | None:
    """The reverse of `code` and `pack_axes`; ValueError for what is none of an array of this shape."""
    if code > len(EARLY_PREDICTORS) + len(KINDS):
        raise ValueError
    if code <= len(EARLY_PREDICTORS):
        predictor = EARLY_PREDICTORS[code - 1] if code else None
        good = packed_axes == 0
    else:
        digits = [packed_axes >> 3 * k & 7 for k in range(MOST_AXES)]
        axes = tuple(digit - 1 for digit in digits if digit)
        predictor = Predictor(KINDS[code - len(EARLY_PREDICTORS) - 1], axes)
        good = predictor.pack_axes() == packed_axes and is_predictor(predictor, shape)
    if not good:
        raise ValueError
    return predictor


def is_predictor(predictor: Predictor, shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape can have it."""
    if predictor.early:
        return predictor in EARLY_PREDICTORS
    axes, n_axes = predictor.axes, len(box_of_shape(shape))
    return (
        predictor.kind in KINDS and 0 < len(axes) == len(set(axes))
        and (list(axes) == sorted(axes) or predictor.kind in KINDS[:2])
        and all(0 <= axis < n_axes for axis in axes)
    )  # fmt: skip


@dataclass(frozen=True)
class PointPass:
    """Points of a box that are predicted along some axes (bits of `along`): their first coordinates, steps
    and counts, the spacing s, and how many residuals stand before theirs."""

    along: int
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
        """Axes, spacing, starts, steps, counts and first residual, as kernels take them."""
        return (self.along, self.spacing, *self.starts, *self.steps, *self.counts, self.first)

    def widened(self, n_axes: int) -> PointPass:
        """The same in a box of so many axes, of which the first ones have extent 1."""
        more = n_axes - len(self.counts)
        zeros, ones = (0,) * more, (1,) * more
        return PointPass(
            self.along << more, self.spacing, zeros + self.starts, ones + self.steps, ones + self.counts,
            self.first,
        )  # fmt: skip


def may_be_smooth(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape has axes along which points can be predicted."""
    return max(shape, default=0) >= LEAST_EXTENT


def box_of_shape(shape: tuple[int, ...], early: bool = False) -> Box:
    """The axes that are longer than 1, at least one; where there are more than MOST_AXES, the first ones as
    one. In version 2 three, the first of which are 1 or all but the last two."""
    long = [n for n in shape if n > 1]
    most = 3 if early else MOST_AXES
    if early or not long:
        long = [*[1] * (most if early else 1), *long]
    first = max(len(long) - most + 1, 0)
    return (prod(long[:first]), *long[first:]) if first else tuple(long)


def frame_elements(shape: tuple[int, ...], frame_log2: int, early: bool = False) -> int:
    """The elements of a frame that has a predictor: as many as 2^frame_log2 hold of the largest whole part
    (all axes from one on) that they hold."""
    most, unit = 1 << frame_log2, 1
    for n in reversed(box_of_shape(shape, early)):
        if unit * n > most:
            break
        unit *= n
    return most // unit * unit


def frame_box(shape: tuple[int, ...], n_elements: int, early: bool = False) -> Box:
    """The box of a frame of so many elements, which are whole parts as above: axes before these are 1."""
    extents, unit = list(box_of_shape(shape, early)), 1
    for axis in reversed(range(len(extents))):
        if n_elements % (unit * extents[axis]):
            return (*[1] * axis, n_elements // unit, *extents[axis + 1 :])
        unit *= extents[axis]
    return tuple(extents)


@lru_cache(256)
def turned(box: Box, early: bool = False) -> tuple[int, ...]:
    """The axes of an array's box in the order in which predictors take them: short ones behind the last one
    of LEAST_EXTENT or more, such as components of a vector, go first."""
    last = max((axis for axis, n in enumerate(box) if n >= LEAST_EXTENT), default=len(box) - 1)
    last = len(box) - 1 if early else last
    return (*range(last + 1, len(box)), *range(last + 1))


def predicted_box(shape: tuple[int, ...], n_elements: int, early: bool = False) -> tuple[Box, int]:
    """The box of a frame as predictors take it, and how many points the axes have that go first there:
    element i stands at i % last * (n_elements // last) + i // last."""
    extents, turn = frame_box(shape, n_elements, early), turned(box_of_shape(shape, early), early)
    return tuple(extents[axis] for axis in turn), prod(extents[axis] for axis in turn if axis > turn[-1])


@lru_cache(256)
def passes(box: Box, predictor: Predictor) -> tuple[PointPass, ...]:
    """All passes of a box (as predictors take it) that interpolate; those without points are left out, and
    so is the first point."""
    point_passes, first = list[PointPass](), 1
    batches = tuple(axis for axis in range(len(box)) if axis not in predictor.axes)
    for own, beside in ((batches, (1,) * len(box)), (predictor.axes, box)):
        longest = max((box[axis] for axis in own), default=1)
        for level in range((longest - 1).bit_length() - 1, -1, -1):
            spacing, done = 1 << level, set[int]()
            for along in _directions(own, predictor.is_mean and own is predictor.axes):
                fine = set[int]() if predictor.is_mean and own is predictor.axes else done
                starts = [spacing if k in along else 0 for k in range(len(box))]
                steps = [(spacing if k in fine else 2 * spacing) if k in own else 1 for k in range(len(box))]
                counts = [
                    max(0, -(-(box[k] - starts[k]) // steps[k])) if k in own else beside[k]
                    for k in range(len(box))
                ]
                done.update(along)
                if prod(counts):
                    bits = sum(1 << axis for axis in along)
                    point_passes.append(
                        PointPass(bits, spacing, tuple(starts), tuple(steps), tuple(counts), first)
                    )
                    first += prod(counts)
    return tuple(point_passes)


def _directions(axes: tuple[int, ...], mean: bool) -> Iterator[tuple[int, ...]]:
    """The axes of each pass of a level: one, or for means all sets of them, the smallest first."""
    most = len(axes) if mean else 1
    return chain.from_iterable(combinations(axes, n) for n in range(1, most + 1))


@lru_cache(256)
def lattices(box: Box, predictor: Predictor) -> NDArray[np.uint64]:
    """The lattices of all passes (passes, 3 + 3 axes)."""
    rows = [point_pass.lattice for point_pass in passes(box, predictor)]
    return np.array(rows, np.uint64).reshape(-1, 3 + 3 * len(box))
