"""The numba kernels of the predictor: fine whole numbers to residuals and back, pass by pass (`format.box`).

A residual leaves out the SHIFT low bits of what a prediction misses: an error of at most 2^(SHIFT - 1),
which the next passes see as a decoder will. Predictions are clipped, so that sums stay below 2^31.
Imported lazily.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import Late, kernel
from tnplan.common.kernels.vector_operations import unowned_views
from tnplan.compress.format.box import LARGEST_FINE, SHIFT

jit = kernel(keeps_subnormals=True, nogil=True, error_model="numpy")
inline = kernel(keeps_subnormals=True, nogil=True, error_model="numpy", inline="always")
unowned: Any = Late(unowned_views)
int32: Any = np.int32
uint64: Any = np.uint64

ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)
"""Places are numbers without sign, so that compiled code need not look whether they count from the end."""
BLOCK = 4096
COPY, EDGE, MIDDLE, LEFT, RIGHT, CUBIC = range(6)


@jit
def fill_fine(component: Any, inverse: Any, fine: Any) -> None:
    """Fine numbers of a component's values, in units of which `inverse` make 1; 0 for what is too large,
    or is no number."""
    largest, zero = component.dtype.type(LARGEST_FINE), component.dtype.type(0)
    for i in range(component.size):
        scaled = np.rint(component[i] * inverse)
        fine[i] = int32(scaled if np.abs(scaled) <= largest else zero)


@jit
def find_missing(component: Any, fine: Any, step: Any, limit: Any, places: Any, n_missed: Any) -> Any:
    """Append to `places` the elements that miss their bound; returns how many there are then, also where they
    are more than fit."""
    for start in range(0, component.size, BLOCK):
        values, numbers = component[start : start + BLOCK], fine[start : start + BLOCK]
        good = int32(0)
        for i in range(values.size):
            good += int32(np.abs(values[i] - component.dtype.type(numbers[i]) * step) < limit)
        if good == values.size:
            continue
        for i in range(values.size):
            if not np.abs(values[i] - component.dtype.type(numbers[i]) * step) < limit:
                if n_missed < places.size:
                    places[n_missed] = start + i
                n_missed += 1
    return n_missed


@jit
def fill_values(fine: Any, step: Any, component: Any) -> None:
    """The values of fine numbers."""
    for i in range(fine.size):
        component[i] = component.dtype.type(fine[i]) * step


# Predictions are in whole numbers, so that encoder and decoder agree to the bit on any processor.
# Weights are those of Lagrange's polynomials through neighbours at odd distances (SZ3: Zhao et al.,
# ICDE 2021), times a power of two, with half of it added before the shift, which rounds to nearest.
@jit
def clipped(number: Any) -> Any:
    """The number, within the range of predictions."""
    return min(max(number, int32(-LARGEST_FINE)), int32(LARGEST_FINE))


@jit
def cubic_of(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Between b and c, with a and d beyond them."""
    # From -3, -1, 1, 3: (-a + 9 b + 9 c - d) / 16.
    return clipped((int32(9) * (b + c) - (a + d) + int32(8)) >> int32(4))


@jit
def middle_of(b: Any, c: Any) -> Any:
    """Half way between b and c."""
    # From -1, 1: (b + c) / 2. No larger than its neighbours, so that it needs no clipping.
    return (b + c + int32(1)) >> int32(1)


@jit
def side_of(a: Any, b: Any, c: Any) -> Any:
    """Between b and c, with a beyond b."""
    # From -3, -1, 1: (-a + 6 b + 3 c) / 8.
    return clipped((int32(6) * b + int32(3) * c - a + int32(4)) >> int32(3))


@jit
def edge_of(a: Any, b: Any) -> Any:
    """Beyond b, with a on its other side, twice as far."""
    # From -3, -1 alone, at the end of a line: (3 b - a) / 2.
    return clipped((int32(3) * b - a + int32(1)) >> int32(1))


@jit
def kind_of(at: Any, n: Any, spacing: Any, cubic: Any) -> Any:
    """Which neighbours coordinate `at` of a line of n points has."""
    # Invariant: points at even multiples of the spacing are known, so the neighbours are at 1 and 3
    # spacings.
    far, farther = at >= THREE * spacing, at + THREE * spacing < n
    if at + spacing >= n:
        return EDGE if far else COPY
    if not cubic:
        return MIDDLE
    if farther:
        return CUBIC if far else RIGHT
    return LEFT if far else MIDDLE


@jit
def predict_cubic(fine: Any, first: Any, step: Any, count: Any, d: Any, line: Any) -> None:
    """line[k]: point first + k step from neighbours d and 3 d away on both sides."""
    for k in range(count):
        i = first + k * step
        line[k] = cubic_of(fine[i - THREE * d], fine[i - d], fine[i + d], fine[i + THREE * d])


@jit
def predict_middle(fine: Any, first: Any, step: Any, count: Any, d: Any, line: Any) -> None:
    """The same from neighbours d away on both sides."""
    for k in range(count):
        i = first + k * step
        line[k] = middle_of(fine[i - d], fine[i + d])


@jit
def predict_side(fine: Any, first: Any, step: Any, count: Any, places: Any, line: Any) -> None:
    """The same of neighbours at three distances: the far one, the near one beside it, the other near one."""
    a, b, c = places
    for k in range(count):
        i = first + k * step
        line[k] = side_of(fine[i + a], fine[i + b], fine[i + c])


@inline
def predict_row(fine: Any, first: Any, step: Any, count: Any, d: Any, kind: Any, line: Any) -> None:
    """line[k]: the prediction of point first + k step by neighbours d and 3 d away in the flat box. Steps of
    1 and 2 have loops of their own, so that they become vector instructions."""
    none = uint64(0)
    if kind == CUBIC:
        if step == ONE:
            predict_cubic(fine, first, ONE, count, d, line)
        elif step == TWO:
            predict_cubic(fine, first, TWO, count, d, line)
        else:
            predict_cubic(fine, first, step, count, d, line)
    elif kind == MIDDLE:
        if step == ONE:
            predict_middle(fine, first, ONE, count, d, line)
        elif step == TWO:
            predict_middle(fine, first, TWO, count, d, line)
        else:
            predict_middle(fine, first, step, count, d, line)
    elif kind == LEFT:
        predict_side(fine, first, step, count, (none - THREE * d, none - d, d), line)
    elif kind == RIGHT:
        predict_side(fine, first, step, count, (THREE * d, d, none - d), line)
    elif kind == EDGE:
        for k in range(count):
            i = first + k * step
            line[k] = edge_of(fine[i - THREE * d], fine[i - d])
    else:
        for k in range(count):
            line[k] = fine[first + k * step - d]


@inline
def predict_line(fine: Any, row: Any, n: Any, spacing: Any, cubic: Any, coarse: Any, line: Any) -> None:
    """The same of the points between those known along a row of n points, whose copies go to `coarse`."""
    # Along the fastest axis neighbours are gathered once into `coarse`: afterwards all loops run
    # over neighbours in memory.
    count = (n - ONE) // (TWO * spacing) + ONE
    if spacing == ONE:
        for k in range(count):
            coarse[k] = fine[row + TWO * k]
    else:
        for k in range(count):
            coarse[k] = fine[row + TWO * spacing * k]
    # Points between; as many as known ones, or one less, where the line ends with a known one.
    between = (n - ONE - spacing) // (TWO * spacing) + ONE
    if cubic:
        for k in range(ONE, max(count, THREE) - TWO):
            line[k] = cubic_of(coarse[k - ONE], coarse[k], coarse[k + ONE], coarse[k + TWO])
    else:
        for k in range(count - ONE):
            line[k] = middle_of(coarse[k], coarse[k + ONE])
    if cubic and count > TWO:
        line[0] = side_of(coarse[2], coarse[1], coarse[0])
        line[count - TWO] = side_of(coarse[count - THREE], coarse[count - TWO], coarse[count - ONE])
    elif cubic and count == TWO:
        line[0] = middle_of(coarse[0], coarse[1])
    # The last point has no right neighbour.
    if between == count:
        last = edge_of(coarse[count - TWO], coarse[count - ONE]) if count > ONE else coarse[0]
        line[count - ONE] = last


@inline
def predict(fine: Any, box: Any, lattice: Any, cubic: Any, z: Any, y: Any, coarse: Any, line: Any) -> Any:
    """Predict the points of row (z, y) of a pass; the place of the first."""
    n1, n2 = box[1], box[2]
    axis, spacing = lattice[0], lattice[1]
    row = (z * n1 + y) * n2
    if axis == TWO:
        predict_line(fine, row, n2, spacing, cubic, coarse, line)
    else:
        at, n, d = (z, box[0], spacing * n1 * n2) if axis == 0 else (y, n1, spacing * n2)
        kind = kind_of(at, n, spacing, cubic)
        predict_row(fine, row + lattice[4], lattice[7], lattice[10], d, kind, line)
    return row + lattice[4]


@jit
def split_row(fine: Any, first: Any, step: Any, count: Any, line: Any, residuals: Any, at: Any) -> None:
    """Residuals of a row of points, which become what a decoder will know."""
    # residual = round(miss / 2^SHIFT). What a decoder will know replaces the number, so that errors
    # do not add up over levels. Invariant: |numbers| and |predictions| are at most LARGEST_FINE =
    # 2^26, so that sums fit 32 bits.
    half, low = int32(1 << (SHIFT - 1)), int32(SHIFT)
    for i in range(count):
        residual = int32(fine[first + i * step] - line[i] + half) >> low
        residuals[at + i] = residual
        line[i] = line[i] + (residual << low)
    for i in range(count):
        fine[first + i * step] = line[i]


@jit
def join_row(fine: Any, first: Any, step: Any, count: Any, line: Any, residuals: Any, at: Any) -> None:
    """A row of points from their residuals."""
    for i in range(count):
        fine[first + i * step] = line[i] + (residuals[at + i] << int32(SHIFT))


@jit
def split(fine: Any, box: Any, lattices: Any, cubic: Any, residuals: Any, work: Any) -> None:
    """Residuals of a box of fine numbers (flat), which become what a decoder will know.

    lattices (passes, 12; uint64): axis, spacing, starts, steps and counts along the three axes, residuals
    before these. work (2, points of a row + 1; int32).
    """
    # Views without owners: else each call in the loops would count references.
    coarse, line, numbers, into = unowned(work[0]), unowned(work[1]), unowned(fine), unowned(residuals)
    residuals[0] = (fine[0] + int32(1 << (SHIFT - 1))) >> int32(SHIFT)
    fine[0] = residuals[0] << int32(SHIFT)
    for number in range(lattices.shape[0]):
        lattice = unowned(lattices[number])
        step, count, at = lattice[7], lattice[10], lattice[11]
        for j in range(lattice[8]):
            z = lattice[2] + j * lattice[5]
            for k in range(lattice[9]):
                y = lattice[3] + k * lattice[6]
                first = predict(numbers, box, lattice, cubic, z, y, coarse, line)
                if step == ONE:
                    split_row(numbers, first, ONE, count, line, into, at)
                elif step == TWO:
                    split_row(numbers, first, TWO, count, line, into, at)
                else:
                    split_row(numbers, first, step, count, line, into, at)
                at += count


@jit
def join(fine: Any, box: Any, lattices: Any, cubic: Any, residuals: Any, work: Any) -> None:
    """A box of fine numbers from residuals; `work` as in `split`."""
    coarse, line, numbers = unowned(work[0]), unowned(work[1]), unowned(fine)
    residual_values = unowned(residuals)
    fine[0] = residuals[0] << int32(SHIFT)
    for number in range(lattices.shape[0]):
        lattice = unowned(lattices[number])
        step, count, at = lattice[7], lattice[10], lattice[11]
        for j in range(lattice[8]):
            z = lattice[2] + j * lattice[5]
            for k in range(lattice[9]):
                y = lattice[3] + k * lattice[6]
                first = predict(numbers, box, lattice, cubic, z, y, coarse, line)
                if step == ONE:
                    join_row(numbers, first, ONE, count, line, residual_values, at)
                elif step == TWO:
                    join_row(numbers, first, TWO, count, line, residual_values, at)
                else:
                    join_row(numbers, first, step, count, line, residual_values, at)
                at += count
