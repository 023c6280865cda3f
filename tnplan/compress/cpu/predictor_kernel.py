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
from tnplan.compress.format.box import LARGEST_FINE, MOST_AXES, SHIFT, STRIP

jit = kernel(keeps_subnormals=True, nogil=True, error_model="numpy")
compact = kernel(keeps_subnormals=True, unrolls=False, nogil=True, error_model="numpy")
inline = kernel(keeps_subnormals=True, nogil=True, error_model="numpy", forceinline=True)
unowned: Any = Late(unowned_views)
int32: Any = np.int32
int64: Any = np.int64
uint64: Any = np.uint64

ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)
"""Places are numbers without sign, so that compiled code need not look whether they count from the end."""
BLOCK = 4096
WEIGHTS = np.array([0, *(round(2**32 / n) for n in range(1, MOST_AXES + 1))], np.int64)
"""Of a mean of so many predictions, in units of 2^-32: their sum times this is rounded to nearest."""
COPY, EDGE, MIDDLE, LEFT, RIGHT, CUBIC = range(6)


@jit
def fill_fine(component: Any, inverse: Any, most: Any, fine: Any) -> None:
    """Fine numbers of a component's values, in units of which `inverse` make 1; 0 for what is larger than
    `most`, or is no number."""
    largest, zero = component.dtype.type(most), component.dtype.type(0)
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
# Invariant: sums fit 32 bits. Each is cast, as numba adds in 64 bits, and vectors would have half as many.
@jit
def clipped(number: Any) -> Any:
    """The number, within the range of predictions."""
    least, most, own = int32(-LARGEST_FINE), int32(LARGEST_FINE), int32(number)
    above = own if own > least else least
    return above if above < most else most


@jit
def cubic_of(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Between b and c, with a and d beyond them."""
    # From -3, -1, 1, 3: (-a + 9 b + 9 c - d) / 16.
    return clipped(int32(int32(int32(9) * int32(b + c)) - int32(a + d) + int32(8)) >> int32(4))


@jit
def middle_of(b: Any, c: Any) -> Any:
    """Half way between b and c."""
    # From -1, 1: (b + c) / 2. No larger than its neighbours, so that it needs no clipping.
    return int32(int32(b + c + int32(1)) >> int32(1))


@jit
def side_of(a: Any, b: Any, c: Any) -> Any:
    """Between b and c, with a beyond b."""
    # From -3, -1, 1: (-a + 6 b + 3 c) / 8.
    return clipped(int32(int32(6) * b + int32(3) * c - a + int32(4)) >> int32(3))


@jit
def edge_of(a: Any, b: Any) -> Any:
    """Beyond b, with a on its other side, twice as far."""
    # From -3, -1 alone, at the end of a line: (3 b - a) / 2.
    return clipped(int32(int32(3) * b - a + int32(1)) >> int32(1))


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


@jit
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


@jit
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
        for k in range(ONE, count - TWO if count > THREE else ONE):
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
def place_row(box: Any, strides: Any, lattice: Any, place: Any) -> Any:
    """The number of a row's point at 0 of the last axis."""
    n, row = uint64(box.size), uint64(0)
    for k in range(n - ONE):
        row += (lattice[TWO + k] + place[k] * lattice[TWO + n + k]) * strides[k]
    return row


@inline
def next_row(n: Any, lattice: Any, place: Any) -> None:
    """Go on to the next row of a pass, in C order."""
    k = n - ONE
    while k > 0:
        k -= ONE
        place[k] += ONE
        if place[k] < lattice[TWO + TWO * n + k]:
            break
        place[k] = 0


@inline
def predict(fine: Any, box: Any, strides: Any, lattice: Any, cubic: Any, place: Any, work: Any) -> Any:
    """Predict the points of a row of a pass, in the second part of `work`; the place of the first."""
    n, (coarse, line, other) = uint64(box.size), work
    spacing, step, count = lattice[1], lattice[ONE + TWO * n], lattice[ONE + THREE * n]
    row = place_row(box, strides, lattice, place)
    first, directions = row + lattice[ONE + n], 0
    for axis in range(n):
        if not (lattice[0] >> axis) & ONE:
            continue
        into = line if directions == 0 else other
        if axis == n - ONE:
            predict_line(fine, row, box[axis], spacing, cubic, coarse, into)
        else:
            at = lattice[TWO + axis] + place[axis] * lattice[TWO + n + axis]
            kind = kind_of(at, box[axis], spacing, cubic)
            predict_row(fine, first, step, count, spacing * strides[axis], kind, into)
        if directions:
            for k in range(count):
                line[k] = int32(line[k] + other[k])
        directions += 1
    if directions == 2:
        for k in range(count):
            line[k] = int32(line[k] + int32(1)) >> int32(1)
    elif directions > 2:
        weight = int64(WEIGHTS[directions])
        for k in range(count):
            line[k] = int32((int64(line[k]) * weight + int64(1 << 31)) >> int64(32))
    return first


@jit
def finish_row(fine: Any, first: Any, step: Any, count: Any, line: Any, own: Any, back: Any) -> None:
    """Residuals of a row of points, in place of the predictions; points become what a decoder will know. Or
    `back`: points from their residuals `own`."""
    # residual = round(miss / 2^SHIFT). What a decoder will know replaces the number, so that errors
    # do not add up over levels. Invariant: |numbers| and |predictions| are at most LARGEST_FINE =
    # 2^26, so that sums fit 32 bits.
    half, low = int32(1 << (SHIFT - 1)), int32(SHIFT)
    if back:
        for i in range(count):
            fine[first + i * step] = line[i] + (own[i] << low)
        return
    for i in range(count):
        prediction, at = line[i], first + i * step
        residual = int32(fine[at] - prediction + half) >> low
        line[i] = residual
        fine[at] = prediction + (residual << low)


@jit
def finish_pairs(fine: Any, first: Any, count: Any, line: Any, own: Any, back: Any) -> None:
    """The same of every second point. Those between are written as they are, so that stores leave out nothing
    and become vector instructions."""
    half, low, last = int32(1 << (SHIFT - 1)), int32(SHIFT), count - ONE
    if back:
        for i in range(last):
            at = first + TWO * i
            beside = fine[at + ONE]
            fine[at] = int32(line[i] + (own[i] << low))
            fine[at + ONE] = beside
    else:
        for i in range(last):
            at = first + TWO * i
            beside, prediction = fine[at + ONE], line[i]
            residual = int32(fine[at] - prediction + half) >> low
            line[i] = residual
            fine[at] = int32(prediction + (residual << low))
            fine[at + ONE] = beside
    finish_row(fine, first + TWO * last, ONE, ONE, line[last:], own[last:], back)


@jit
def move_strips(
    row: Any, count: Any, residuals: Any, at: Any, number: Any, n_rows: Any, strip: Any, back: Any
) -> None:
    """Bring row `number` of a pass's rows to its place in each strip, or `back`."""
    done = uint64(0)
    while done < count:
        width = strip if strip < count - done else count - done
        beside = at + done * n_rows + number * width
        if width == STRIP and back:
            for i in range(STRIP):
                row[done + uint64(i)] = residuals[beside + uint64(i)]
        elif width == STRIP:
            for i in range(STRIP):
                residuals[beside + uint64(i)] = row[done + uint64(i)]
        elif back:
            for i in range(width):
                row[done + i] = residuals[beside + i]
        else:
            for i in range(width):
                residuals[beside + i] = row[done + i]
        done += width


@jit
def rows_of_layer(lattice: Any, n: Any, layer: Any) -> Any:
    """The first row of a pass in a layer of the first axis, how many there are there, and in all."""
    n_rows = uint64(1)
    if n == ONE:
        return uint64(0), n_rows, n_rows
    for k in range(ONE, n - ONE):
        n_rows *= lattice[TWO + TWO * n + k]
    # Steps are powers of two.
    start, step, count = lattice[TWO], lattice[TWO + n], lattice[TWO + TWO * n]
    if layer < start or (layer - start) & (step - ONE) or layer - start >= step * count:
        return uint64(0), uint64(0), n_rows * count
    return (layer - start) // step * n_rows, n_rows, n_rows * count


@jit
def fill_box(
    fine: Any, shape: Any, lattices: Any, cubic: Any, strip: Any, residuals: Any, work: Any, back: Any
) -> None:
    """Residuals of a box of fine numbers (flat), which become what a decoder will know; or `back`.

    `shape` (2, axes): the extents of the box, and how far neighbours along each axis are apart. lattices
    (passes, 6 + 3 axes): axis, spacing, starts, steps and counts along the axes, residuals before these, and
    three numbers of the turn. Residuals of a pass stand in strips so wide. `work`: lines (3, last extent + 1;
    int32) and a place (axes). All others are uint64.
    """
    # Views without owners: else each call in the loops would count references.
    lines, place = work
    box, strides, n = unowned(shape[0]), unowned(shape[1]), uint64(place.size)
    coarse, line, other = unowned(lines[0]), unowned(lines[1]), unowned(lines[2])
    rows = coarse, line, other
    numbers, beside = unowned(fine), unowned(residuals)
    if not back:
        residuals[0] = (fine[0] + int32(1 << (SHIFT - 1))) >> int32(SHIFT)
    fine[0] = residuals[0] << int32(SHIFT)
    # Passes that are not along the first axis read nothing beyond their own layer of it. Invariant: points of
    # later passes are no neighbours of an earlier one. So passes up to the next one along the first axis take
    # turns, layer by layer, while a layer is in the cache. The numbers of a turn: that of the pass behind it,
    # and its layers are at multiples of the second below the third.
    begin, stop, own = uint64(0), uint64(0), THREE + THREE * n
    while stop < uint64(lattices.shape[0]):
        begin, stop = stop, lattices[stop, own]
        for layer in range(uint64(0), lattices[begin, own + TWO], lattices[begin, own + ONE]):
            for number in range(begin, stop):
                lattice = unowned(lattices[number])
                first_row, n_rows, all_rows = rows_of_layer(lattice, n, layer)
                if not n_rows:
                    continue
                step, count, at = lattice[ONE + TWO * n], lattice[ONE + THREE * n], lattice[TWO + THREE * n]
                for k in range(n):
                    place[k] = 0
                if n > ONE:
                    place[0] = first_row // n_rows
                for row in range(first_row, first_row + n_rows):
                    first = predict(numbers, box, strides, lattice, cubic, place, rows)
                    if back:
                        move_strips(other, count, beside, at, row, all_rows, strip, True)
                    if step == ONE:
                        finish_row(numbers, first, ONE, count, line, other, back)
                    elif step == TWO:
                        finish_pairs(numbers, first, count, line, other, back)
                    else:
                        finish_row(numbers, first, step, count, line, other, back)
                    if not back:
                        move_strips(line, count, beside, at, row, all_rows, strip, False)
                    next_row(n, lattice, place)


@compact
def fill_passes(
    fine: Any, shape: Any, lattices: Any, cubic: Any, strip: Any, residuals: Any, work: Any, back: Any
) -> None:
    """The same of several boxes (boxes, points)."""
    for k in range(fine.shape[0]):
        fill_box(fine[k], shape, lattices, cubic, strip, residuals[k], work, back)


# Lorenzo: the residual is the difference along one axis after the other, in whole numbers that go round
# beyond 32 bits, and sums along them bring the numbers back.
@jit
def subtract_along(numbers: Any, extent: Any, stride: Any) -> None:
    """Differences along an axis of this extent and stride, in place."""
    for start in range(0, numbers.size, extent * stride):
        for at in range(start + (extent - 1) * stride, start, -stride):
            own, before = numbers[at : at + stride], numbers[at - stride : at]
            for i in range(stride):
                own[i] -= before[i]


@jit
def add_along(numbers: Any, extent: Any, stride: Any) -> None:
    """The reverse."""
    for start in range(0, numbers.size, extent * stride):
        for at in range(start + stride, start + extent * stride, stride):
            own, before = numbers[at : at + stride], numbers[at - stride : at]
            for i in range(stride):
                own[i] += before[i]


@jit
def split_differences(numbers: Any, row: Any, along: Any, residuals: Any, line: Any) -> None:
    """Rows of so many numbers to strips; `along`: their differences. `line` (a row) is for work."""
    n_rows, into = numbers.size // row, unowned(residuals)
    for number in range(n_rows):
        own = numbers[number * row : (number + 1) * row]
        for i in range(row):
            line[i] = own[i]
        if along:
            for i in range(1, row):
                line[i] -= own[i - 1]
        move_strips(line, uint64(row), into, uint64(0), uint64(number), uint64(n_rows), uint64(STRIP), False)


@jit
def join_differences(numbers: Any, row: Any, along: Any, residuals: Any) -> None:
    """The reverse."""
    n_rows = numbers.size // row
    values = unowned(residuals)
    for number in range(n_rows):
        own = numbers[number * row : (number + 1) * row]
        move_strips(own, uint64(row), values, uint64(0), uint64(number), uint64(n_rows), uint64(STRIP), True)
        if along:
            total = int32(0)
            for i in range(row):
                total = int32(total + own[i])
                own[i] = total
