"""The numba kernels of the predictor: fine whole numbers to residuals and back, pass by pass (`format.box`).

A residual leaves out the SHIFT low bits of what a prediction misses: an error of at most 2^(SHIFT - 1),
which the next passes see as a decoder will. Predictions are clipped, so that sums stay below 2^31.
Imported lazily.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.compress.cpu.numba_cache import cached_njit
from tnplan.compress.format.box import LARGEST_FINE, SHIFT

jit = cached_njit(nogil=True, error_model="numpy")
inline = cached_njit(nogil=True, error_model="numpy", inline="always")
int32: Any = np.int32

BLOCK = 4096
COPY, EDGE, MIDDLE, LEFT, RIGHT, CUBIC = range(6)


@jit
def fill_fine(part: Any, inverse: Any, fine: Any) -> None:
    """Fine numbers of a component's values, in units of which `inverse` make 1; 0 for what is too large,
    or is no number."""
    largest, zero = part.dtype.type(LARGEST_FINE), part.dtype.type(0)
    for i in range(part.size):
        scaled = np.rint(part[i] * inverse)
        fine[i] = int32(scaled if np.abs(scaled) <= largest else zero)


@jit
def find_missing(part: Any, fine: Any, step: Any, limit: Any, places: Any, found: Any) -> Any:
    """Append to `places` the elements that miss their bound; returns how many there are then, also where they
    are more than fit."""
    for start in range(0, part.size, BLOCK):
        values, numbers = part[start : start + BLOCK], fine[start : start + BLOCK]
        good = int32(0)
        for i in range(values.size):
            good += int32(np.abs(values[i] - part.dtype.type(numbers[i]) * step) < limit)
        if good == values.size:
            continue
        for i in range(values.size):
            if not np.abs(values[i] - part.dtype.type(numbers[i]) * step) < limit:
                if found < places.size:
                    places[found] = start + i
                found += 1
    return found


@jit
def fill_values(fine: Any, step: Any, part: Any) -> None:
    """The values of fine numbers."""
    for i in range(fine.size):
        part[i] = part.dtype.type(fine[i]) * step


@inline
def clipped(number: Any) -> Any:
    """The number, within the range of predictions."""
    return min(max(number, int32(-LARGEST_FINE)), int32(LARGEST_FINE))


@inline
def cubic_of(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Between b and c, with a and d beyond them."""
    return clipped((int32(9) * (b + c) - (a + d) + int32(8)) >> int32(4))


@inline
def middle_of(b: Any, c: Any) -> Any:
    """Half way between b and c."""
    return (b + c + int32(1)) >> int32(1)


@inline
def side_of(a: Any, b: Any, c: Any) -> Any:
    """Between b and c, with a beyond b."""
    return clipped((int32(6) * b + int32(3) * c - a + int32(4)) >> int32(3))


@inline
def edge_of(a: Any, b: Any) -> Any:
    """Beyond b, with a on its other side, twice as far."""
    return clipped((int32(3) * b - a + int32(1)) >> int32(1))


@jit
def kind_of(at: Any, n: Any, spacing: Any, cubic: Any) -> Any:
    """Which neighbours coordinate `at` of a line of n points has."""
    if at + spacing >= n:
        return EDGE if at >= 3 * spacing else COPY
    if not cubic:
        return MIDDLE
    if at + 3 * spacing < n:
        return CUBIC if at >= 3 * spacing else RIGHT
    return LEFT if at >= 3 * spacing else MIDDLE


@jit
def predict_row(fine: Any, first: Any, step: Any, count: Any, d: Any, kind: Any, line: Any) -> None:
    """line[k]: the prediction of point first + k step by neighbours d and 3 d away in the flat box."""
    if kind == CUBIC:
        for k in range(count):
            i = first + k * step
            line[k] = cubic_of(fine[i - 3 * d], fine[i - d], fine[i + d], fine[i + 3 * d])
    elif kind == MIDDLE:
        for k in range(count):
            i = first + k * step
            line[k] = middle_of(fine[i - d], fine[i + d])
    elif kind == LEFT:
        for k in range(count):
            i = first + k * step
            line[k] = side_of(fine[i - 3 * d], fine[i - d], fine[i + d])
    elif kind == RIGHT:
        for k in range(count):
            i = first + k * step
            line[k] = side_of(fine[i + 3 * d], fine[i + d], fine[i - d])
    elif kind == EDGE:
        for k in range(count):
            i = first + k * step
            line[k] = edge_of(fine[i - 3 * d], fine[i - d])
    else:
        for k in range(count):
            line[k] = fine[first + k * step - d]


@jit
def predict_line(fine: Any, row: Any, n: Any, spacing: Any, cubic: Any, known: Any, line: Any) -> None:
    """The same of the points between those known along a row of n points, whose copies go to `known`."""
    count = (n - 1) // (2 * spacing) + 1
    if spacing == 1:
        for k in range(count):
            known[k] = fine[row + 2 * k]
    else:
        for k in range(count):
            known[k] = fine[row + 2 * spacing * k]
    between = (n - 1 - spacing) // (2 * spacing) + 1
    if cubic:
        for k in range(1, count - 2):
            line[k] = cubic_of(known[k - 1], known[k], known[k + 1], known[k + 2])
    else:
        for k in range(count - 1):
            line[k] = middle_of(known[k], known[k + 1])
    if cubic and count > 2:
        line[0] = side_of(known[2], known[1], known[0])
        line[count - 2] = side_of(known[count - 3], known[count - 2], known[count - 1])
    elif cubic and count == 2:
        line[0] = middle_of(known[0], known[1])
    if between == count:
        line[count - 1] = edge_of(known[count - 2], known[count - 1]) if count > 1 else known[0]


@jit
def _predict(fine: Any, box: Any, lattice: Any, cubic: Any, z: Any, y: Any, known: Any, line: Any) -> Any:
    """Predict the points of row (z, y) of a pass; the place of the first."""
    n1, n2 = box[1], box[2]
    axis, spacing, step = lattice[0], lattice[1], lattice[7]
    first = (z * n1 + y) * n2 + lattice[4]
    if axis == 2:
        predict_line(fine, (z * n1 + y) * n2, n2, spacing, cubic, known, line)
        return first
    at, n, d = (z, box[0], spacing * n1 * n2) if axis == 0 else (y, n1, spacing * n2)
    predict_row(fine, first, step, lattice[10], d, kind_of(at, n, spacing, cubic), line)
    return first


@jit
def split_pass(fine: Any, box: Any, lattice: Any, cubic: Any, residuals: Any, known: Any, line: Any) -> None:
    """Residuals of a pass; known and line (longest axis + 1) are for work."""
    half, low, count, step = int32(1 << (SHIFT - 1)), int32(SHIFT), lattice[10], lattice[7]
    at = 0
    for j in range(lattice[8]):
        z = lattice[2] + j * lattice[5]
        for k in range(lattice[9]):
            y = lattice[3] + k * lattice[6]
            first = _predict(fine, box, lattice, cubic, z, y, known, line)
            own = residuals[at : at + count]
            if step == 1:
                for i in range(count):
                    residual = (fine[first + i] - line[i] + half) >> low
                    own[i] = residual
                    fine[first + i] = line[i] + (residual << low)
            elif step == 2:
                for i in range(count):
                    residual = (fine[first + 2 * i] - line[i] + half) >> low
                    own[i] = residual
                    fine[first + 2 * i] = line[i] + (residual << low)
            else:
                for i in range(count):
                    residual = (fine[first + i * step] - line[i] + half) >> low
                    own[i] = residual
                    fine[first + i * step] = line[i] + (residual << low)
            at += count


@jit
def join_pass(fine: Any, box: Any, lattice: Any, cubic: Any, residuals: Any, known: Any, line: Any) -> None:
    """Points of a pass from their residuals; known and line (longest axis + 1) are for work."""
    low, count, step = int32(SHIFT), lattice[10], lattice[7]
    at = 0
    for j in range(lattice[8]):
        z = lattice[2] + j * lattice[5]
        for k in range(lattice[9]):
            y = lattice[3] + k * lattice[6]
            first = _predict(fine, box, lattice, cubic, z, y, known, line)
            own = residuals[at : at + count]
            if step == 1:
                for i in range(count):
                    fine[first + i] = line[i] + (own[i] << low)
            elif step == 2:
                for i in range(count):
                    fine[first + 2 * i] = line[i] + (own[i] << low)
            else:
                for i in range(count):
                    fine[first + i * step] = line[i] + (own[i] << low)
            at += count


@jit
def split(fine: Any, box: Any, lattices: Any, cubic: Any, residuals: Any) -> None:
    """Residuals of a box of fine numbers (flat), which become what a decoder will know.

    lattices (passes, 12): axis, spacing, starts, steps and counts along the three axes, residuals before
    these.
    """
    known, line = np.empty(box[2] + 1, np.int32), np.empty(box[2] + 1, np.int32)
    residuals[0] = (fine[0] + int32(1 << (SHIFT - 1))) >> int32(SHIFT)
    fine[0] = residuals[0] << int32(SHIFT)
    for number in range(lattices.shape[0]):
        lattice = lattices[number]
        split_pass(fine, box, lattice, cubic, residuals[lattice[11] :], known, line)


@jit
def join(fine: Any, box: Any, lattices: Any, cubic: Any, residuals: Any) -> None:
    """A box of fine numbers from residuals."""
    known, line = np.empty(box[2] + 1, np.int32), np.empty(box[2] + 1, np.int32)
    fine[0] = residuals[0] << int32(SHIFT)
    for number in range(lattices.shape[0]):
        lattice = lattices[number]
        join_pass(fine, box, lattice, cubic, residuals[lattice[11] :], known, line)
