"""The predictor on the CPU: its bound, its arithmetic, where it is chosen, and what older streams are."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernels.compress_arrays import (
    DTYPES,
    bits,
    holds_bound,
    make_array,
    overflows,
    product_tensor,
)
from tests.support.kernels.first_streams import PREDICTED, SMALL, WITH_STRIPS, WITHOUT_LOSS
from tests.support.kernels.hostile_arrays import hostile_array
from tests.support.kernels.smooth_arrays import SHAPES, predictor_of, smooth_array
from tests.support.slow import slow_after
from tnplan.compress import CodecError, StreamError, compress, decompress, worst_size_bytes
from tnplan.compress.cpu import predictor as cpu
from tnplan.compress.cpu.codec import decode_to_file
from tnplan.compress.cpu.predictor import MOST_POINTS, probes, sampled_boxes
from tnplan.compress.format.bit_tiling import NATURAL
from tnplan.compress.format.box import (
    EARLY_PREDICTORS,
    KINDS,
    LARGEST_FINE,
    SHIFT,
    Box,
    Predictor,
    box_of_shape,
    frame_box,
    passes,
    turned,
)
from tnplan.compress.format.stream import (
    Header,
    Quantizer,
    frame_seed,
    pack_frame,
    pack_header,
    read_frame,
    read_header,
)

BOUNDS = (0.3, 1e-2, 1e-3, 1e-5)


def axis_prediction(
    known: dict[tuple[int, ...], int], point: tuple[int, ...], axis: int, s: int, cubic: bool
) -> int:
    """The prediction of a point along an axis, from a table of known points: weights over a power of two."""

    def at(distance: int) -> int | None:
        return known.get(tuple(x + distance * (k == axis) for k, x in enumerate(point)))

    far, before, behind, farther = (at(k * s) for k in (-3, -1, 1, 3))
    assert before is not None
    if behind is None:
        terms, log2 = ([(3, before), (-1, far)], 1) if far is not None else ([(1, before)], 0)
    elif not cubic or (far is None and farther is None):
        terms, log2 = [(1, before), (1, behind)], 1
    elif far is None:
        terms, log2 = [(3, before), (6, behind), (-1, farther)], 3
    elif farther is None:
        terms, log2 = [(-1, far), (6, before), (3, behind)], 3
    else:
        terms, log2 = [(-1, far), (9, before), (9, behind), (-1, farther)], 4
    total = sum(weight * number for weight, number in terms if number is not None)
    rounded = (total + (1 << log2 >> 1)) >> log2
    return max(-LARGEST_FINE, min(LARGEST_FINE, rounded))


def lines(box: Box, axes: tuple[int, ...], spacing: int, along: set[int], done: set[int]) -> list[range]:
    """Coordinates along each axis of the points of a pass over `axes`, from 0 along the others."""
    return [
        range(n) if k not in axes else range(spacing, n, 2 * spacing) if k in along
        else range(0, n, spacing if k in done else 2 * spacing)
        for k, n in enumerate(box)
    ]  # fmt: skip


def in_strips(points: list[tuple[int, ...]], strip: int) -> list[tuple[int, ...]]:
    """Points of a pass in the order of their residuals."""
    last = sorted({point[-1] for point in points})
    return sorted(points, key=lambda point: (last.index(point[-1]) // strip, point))


def residuals_by_points(fine: np.ndarray, box: Box, predictor: Predictor) -> list[int]:
    """Residuals of a box, point by point, only points that are known being looked at."""
    known, found, numbers = dict[tuple[int, ...], int](), list[int](), fine.reshape(box)
    if predictor.is_lorenzo:
        for axis in predictor.axes:
            numbers = np.diff(numbers, axis=axis, prepend=0)
        return [int(numbers[point]) for point in in_strips(list(np.ndindex(*box)), predictor.strip)]

    def tell(point: tuple[int, ...], prediction: int) -> None:
        residual = (int(numbers[point]) - prediction + (1 << SHIFT >> 1)) >> SHIFT
        known[point] = prediction + (residual << SHIFT)
        found.append(residual)

    tell((0,) * len(box), 0)
    batches = tuple(axis for axis in range(len(box)) if axis not in predictor.axes)
    for axes, mean in ((batches, False), (predictor.axes, predictor.is_mean)):
        level_box = box if axes is not batches else tuple(n if k in axes else 1 for k, n in enumerate(box))
        s = 1 << max((box[axis] for axis in axes), default=1).bit_length()
        while s > 1:
            s //= 2
            done = set[int]()
            most = len(axes) if mean else min(len(axes), 1)
            for along in (one for n in range(1, most + 1) for one in combinations(axes, n)):
                points = list(product(*lines(level_box, axes, s, set(along), set() if mean else done)))
                points = in_strips(points, predictor.strip)
                # All points of a pass are foretold before any of them is known.
                told = [
                    [axis_prediction(known, point, axis, s, predictor.is_cubic) for axis in along]
                    for point in points
                ]
                for point, predictions in zip(points, told, strict=True):
                    weight = round(2**32 / len(predictions))
                    tell(point, (sum(predictions) * weight + 2**31) >> 32)
                done.update(along)
    return found


@given(st.lists(st.integers(1, 9), max_size=3), st.integers(1, 40), st.integers(0, 2**32), st.data())
def test_residuals_are_those_of_the_definition(
    leading: list[int], last: int, seed: int, data: st.DataObject
) -> None:
    box = (*leading, last)
    # Extents of 1 stay in a frame's box.
    number = data.draw(st.integers(4, 15)) + 16 * (seed % 64)
    predictor = predictor_of(tuple(max(n, 2) for n in box), number)
    if len(box) == 3 and seed % 3 == 0:
        predictor = EARLY_PREDICTORS[seed % 4]
    largest = data.draw(st.sampled_from((200, 1 << 16, LARGEST_FINE)))
    fine = np.random.default_rng(seed).integers(-largest, largest + 1, box).astype(np.int32).reshape(-1)
    split, residuals, wanted = fine.copy(), np.zeros(fine.size, np.int32), fine
    cpu.split(split, box, predictor, residuals)
    assert residuals.tolist() == residuals_by_points(fine, box, predictor)
    if not predictor.is_lorenzo:
        assert np.abs(split.astype(np.int64) - fine).max() <= 1 << (SHIFT - 1)
        wanted = split
    again = np.empty_like(fine)
    cpu.join(residuals, box, predictor, again)
    assert np.array_equal(again, wanted)


def test_every_point_is_in_one_pass() -> None:
    boxes = (1, 1, 1), (1, 1, 37), (5, 1, 8), (7, 9, 16), (2, 2, 2), (3, 4, 2, 5, 3, 2)
    for number, box in enumerate(boxes):
        for kind in range(10):
            predictor = predictor_of(tuple(max(n, 2) for n in box), 16 * (10 * number + kind) + 4 + kind)
            counts = np.zeros(box, int)
            counts[(0,) * len(box)] = first = 1
            for one in passes(box, predictor):
                assert one.first == first
                first += one.size
                ends = zip(one.starts, one.steps, one.counts, strict=True)
                counts[np.ix_(*(start + step * np.arange(count) for start, step, count in ends))] += 1
            assert (counts == 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_holds_and_a_predictor_is_chosen(dtype: str) -> None:
    chosen = 0
    for number, shape in enumerate(SHAPES):
        for wild in (False, True):
            array = smooth_array(shape, dtype, number, wild)
            mode = "absolute" if wild else "range"
            for bound in BOUNDS:
                packed = compress(
                    array, bound, mode=mode, setting=("small", "auto")[number % 2], frame_log2=12 + number
                )
                assert len(packed.data) <= worst_size_bytes(shape, dtype, 12 + number)
                holds_bound(array, decompress(packed.data), bound, mode)
                chosen += packed.header.predictor is not None
    assert chosen > 20


@pytest.mark.parametrize("code", range(9))
@pytest.mark.parametrize("bound", [1e-2, 1e-6])
def test_values_that_a_predictor_cannot_hold_are_exact(code: int, bound: float) -> None:
    array = smooth_array((50, 200), "float32", 1)
    predictor = (*EARLY_PREDICTORS, *(Predictor(kind, (0, 1)) for kind in KINDS))[code]
    header = replace(compress(array, 1e-2, setting="small").header, predictor=predictor)
    array[10] = np.nan
    array[20:22, ::7] = (np.inf, -1e30, 3e38)[code % 3]
    limits = (bound * float(np.nanmax(np.abs(array[:10]))),)
    step = limits[0] / (0.51 if predictor.is_lorenzo else 66)
    header = replace(header, quantizers=(replace(header.quantizers[0], step=step),))
    from tnplan.compress.cpu.frame import decode_frame, encode_frame

    payload = encode_frame(array.reshape(-1), header, limits)
    again = np.empty(array.size, np.float32)
    decode_frame(payload, header, again, "frame 0")
    holds_bound(array, again.reshape(array.shape), limits[0], "absolute")


def test_smooth_arrays_take_much_less_than_numbers_as_they_are() -> None:
    for shape, least in (((1 << 16,), 60), ((256, 256), 60), ((40, 40, 40), 25)):
        assert compress(smooth_array(shape, "float32", 2), 1e-3, setting="small").ratio > least
        assert compress(smooth_array(shape, "float64", 2), 1e-3).ratio > 2 * least


def test_tensors_and_noise_get_no_predictor() -> None:
    for array in (
        make_array("normal", 1 << 17, "float32", 1), make_array("sparse", 1 << 17, "complex64", 2),
        product_tensor(17, (9, 13, 16), 4), smooth_array((2,) * 16, "float32", 3),
        make_array("mirrored", 1 << 17, "float64", 4),
    ):  # fmt: skip
        header = compress(array, 1e-3, setting="small").header
        assert header.predictor is None
        assert header.version == 1


def test_point_wise_bounds_and_fine_ones_have_no_predictor() -> None:
    array = smooth_array((200, 200), "float64", 1)
    for bound, mode in ((1e-3, "pointwise"), (1e-9, "range")):
        packed = compress(array, bound, mode=mode, setting="small")
        assert packed.header.predictor is None
        holds_bound(array, decompress(packed.data), bound, mode)


def test_frames_are_whole_planes_or_rows() -> None:
    for shape, frame_log2, wanted in (
        ((10, 20, 30), 12, [(6, 20, 30), (4, 20, 30)]), ((5, 100, 90), 12, [(1, 45, 90)] * 11 + [(1, 5, 90)]),
        ((2, 9000), 12, [(1, 4096)] * 4 + [(1, 1616)]),
        ((3, 1, 4, 25, 30), 13, [(2, 4, 25, 30), (1, 4, 25, 30)]),
        ((3, 1, 4, 25, 30), 14, [(3, 4, 25, 30)]),
    ):  # fmt: skip
        array = smooth_array(shape, "float32", 1)
        header = compress(array, 1e-3, setting="small", frame_log2=22).header
        cut = replace(header, predictor=Predictor("linear", (0,)), frame_log2=frame_log2)
        assert [frame_box(shape, count) for _, count in cut.frames()] == wanted


def test_a_file_is_written_frame_by_frame() -> None:
    array = smooth_array((60, 70, 20), "complex64", 1)
    data = compress(array, 1e-3, setting="small", frame_log2=14).data
    target = io.BytesIO()
    header = decode_to_file(io.BytesIO(data), target, lambda _: None, len(data))
    assert header.predictor
    assert target.getvalue() == decompress(data).tobytes()


def test_damaged_residuals_are_refused_or_harmless() -> None:
    packed = compress(smooth_array((90, 100), "float32", 1), 1e-3, setting="small")
    seed = frame_seed(packed.header)
    source = io.BytesIO(packed.data)
    read_header(source)
    payload = bytearray(read_frame(source, 0, seed, 1 << 30))
    refused = 0
    for place in range(0, len(payload), 3):
        payload[place] ^= 16
        try:
            decompress(pack_header(packed.header) + pack_frame(bytes(payload), 0, seed))
        except StreamError:
            refused += 1
        payload[place] ^= 16
    assert refused > 50


def test_headers_that_no_predictor_can_have_are_refused() -> None:
    packed = compress(smooth_array((90, 100), "float32", 1), 1e-3, setting="small")
    for change in ({"version": 1}, {"coder": "fast"}, {"shape": (2,) * 13}, {"axes": tuple(range(1, 13))}):
        with pytest.raises(StreamError, match="header: is damaged"):
            decompress(pack_header(replace(packed.header, **change)))


def test_streams_of_version_1_are_read() -> None:
    found = decompress(base64.b64decode(WITHOUT_LOSS))
    assert np.array_equal(found, (np.arange(90) // 3).astype(np.float32))
    wanted = np.where(np.arange(150) % 7 == 0, np.arange(150) - 75, 0) * (1 + 0.5j)
    holds_bound(wanted.astype(np.complex64), decompress(base64.b64decode(SMALL)), 1e-2, "range")
    # What has neither a predictor nor bit planes is written as it was.
    assert compress(wanted.astype(np.complex64), 1e-2, setting="small").data == base64.b64decode(SMALL)


def test_predictors_of_version_2_are_read() -> None:
    wanted = np.add.outer(np.arange(130) ** 2 / 50, np.arange(70) * 3.0).astype(np.float32)
    data = base64.b64decode(PREDICTED)
    header = read_header(io.BytesIO(data))
    assert (header.version, header.predictor) == (2, EARLY_PREDICTORS[2])
    holds_bound(wanted.reshape(2, 65, 70), decompress(data), 2e-2, "range")


def test_predictors_of_version_3_are_read() -> None:
    waves = (np.sin(np.arange(12) / 5)[:, np.newaxis] * np.cos(np.arange(40) / 9)).astype(np.float32)
    data = base64.b64decode(WITH_STRIPS)
    header = read_header(io.BytesIO(data))
    assert (header.version, header.predictor) == (3, Predictor("cubic", (1, 2)))
    holds_bound(np.stack([waves, 2 * waves]), decompress(data), 1e-3, "range")


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeated_values_without_loss_are_found_again(dtype: str) -> None:
    for size in (1, 7, 8, 4097, 70_001):
        period = (size // 50 + 8) // 8 * 8
        array = np.tile(make_array("normal", period, dtype, 1), 50)[:size]
        packed = compress(array, 0.0)
        assert np.array_equal(bits(decompress(packed.data)), bits(array))
        assert size < 4000 or packed.ratio > 10


def test_damaged_bit_planes_are_refused_or_harmless() -> None:
    packed = compress(np.tile(make_array("normal", 100, "float32", 1), 50), 0.0)
    seed, source = frame_seed(packed.header), io.BytesIO(packed.data)
    read_header(source)
    payload = bytearray(read_frame(source, 0, seed, 1 << 30))
    assert payload[0] == 4
    refused = 0
    for place in range(8, len(payload)):
        payload[place] ^= 255
        try:
            decompress(pack_header(packed.header) + pack_frame(bytes(payload), 0, seed))
        except StreamError:
            refused += 1
        payload[place] ^= 255
    assert refused > 20


@given(st.lists(st.one_of(st.integers(1, 70), st.integers(1, 9000)), min_size=1, max_size=4))
def test_sampled_boxes_are_in_the_array_and_of_few_points(shape: list[int]) -> None:
    box = box_of_shape(tuple(shape))
    whole = [box[axis] for axis in turned(box)]
    for level in sampled_boxes(tuple(shape)):
        assert 64 <= level.size < MOST_POINTS
        for first in level.starts:
            ends = (at + s * (n - 1) for at, s, n in zip(first, level.strides, level.counts, strict=True))
            assert all(0 <= end < n for end, n in zip(ends, whole, strict=True))
    if sampled_boxes(tuple(shape)):
        assert probes(tuple(shape))[1].max() < np.prod(box)


def survives(seed: int) -> bool:
    """Check the bound of a hostile array; whether it had a predictor."""
    hostile = hostile_array(seed)
    if overflows(hostile.plain) and hostile.options["mode"] == "range" and hostile.bound:
        with pytest.raises(CodecError, match="overflows"):
            compress(hostile.array, hostile.bound, **hostile.options)
        return False
    packed = compress(hostile.array, hostile.bound, **hostile.options)
    most = worst_size_bytes(hostile.plain.shape, hostile.plain.dtype.name, hostile.options["frame_log2"])
    assert len(packed.data) <= most
    holds_bound(hostile.plain, decompress(packed.data), hostile.bound, hostile.options["mode"])
    return packed.header.predictor is not None


class AnyTrials:
    """Trials of which anything comes; what was asked for."""

    def __init__(self, seed: int) -> None:
        self.generator, self.asked = np.random.default_rng(seed), set[Predictor]()
        self.most = 10.0 ** self.generator.uniform(4, 11)

    def share_beyond(self) -> float:
        return 0.0

    def plain(self) -> int:
        return 3 * int(self.most)

    def predicted(self, level: int, predictors: Sequence[Predictor]) -> list[int]:
        self.asked |= set(predictors)
        assert level == 0 or not any(one.is_lorenzo for one in predictors)
        return [int(self.most * x) for x in self.generator.random(len(predictors))]

    def whole(self, predictors: Sequence[Predictor]) -> list[int]:
        return [int(self.most * x) for x in self.generator.random(len(predictors))]


@pytest.mark.parametrize(
    "shape", [(5000,), (70, 80), (30, 9, 40), (8, 9, 10, 3), (9,) * 5, (8, 2, 9, 8, 3, 8)]
)
def test_a_choice_asks_for_candidates_and_for_all(shape: tuple[int, ...]) -> None:
    header = Header(
        "float32", shape, "range", 1e-3, "small", "none", (Quantizer(step=1.0),), NATURAL, 22
    )  # fmt: skip
    wanted, asked = set(cpu.candidates(len(shape))), set[Predictor]()
    for seed in range(400 * len(shape)):
        trials = AnyTrials(seed)
        best, _ = cpu.chosen_predictor(header, lambda steps, trials=trials: trials)
        assert best is None or best in trials.asked
        asked |= trials.asked
    assert asked == wanted


@pytest.mark.parametrize("first", slow_after(1, range(0, 10_000, 250)))
def test_hostile_arrays_keep_their_bound(first: int) -> None:
    assert sum(survives(seed) for seed in range(first, first + 250)) > 8
