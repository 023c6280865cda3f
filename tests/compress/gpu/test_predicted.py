"""The predictor's CUDA kernels against their numba twins, bit for bit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.compress_arrays import DTYPES, bits, parts
from tests.support.kernels.compress_streams import payloads_of, restored, stream_of, written
from tests.support.kernels.smooth_arrays import SHAPES, predictor_of, smooth_array
from tnplan.compress import StreamError, compress, decompress
from tnplan.compress.cpu.codec import flat_values
from tnplan.compress.cpu.predictor import HostTrials, SampledBoxes, candidates, sampled_boxes
from tnplan.compress.format.bit_tiling import NATURAL
from tnplan.compress.format.bounds import error_limit, extent, fine_quantizer, quantizer
from tnplan.compress.format.box import EARLY_PREDICTORS, LARGEST_FINE, Predictor, box_of_shape, turned
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.stream import PREDICTED_VERSION, VERSION, Header
from tnplan.compress.gpu import predicted
from tnplan.compress.gpu.survey import Survey
from tnplan.compress.gpu.trials import DeviceTrials


def header_of(
    array: np.ndarray, bound: float, predictor: Predictor, frame_log2: int = 22, mode: str = "range"
) -> tuple[Header, tuple[float, ...]]:
    """A header with this predictor, and the largest errors."""
    reaches = [extent(part, False) for part in parts(array)]
    real = np.dtype(parts(array)[0].dtype)
    rules = [quantizer(one, bound, mode, real) for one in reaches]
    fine = tuple(rule if predictor.is_lorenzo else fine_quantizer(rule, real) for rule in rules if rule)
    header = Header(
        array.dtype.name,
        array.shape,
        mode,
        bound,
        "small",
        "none",
        fine,
        NATURAL,
        frame_log2,
        predictor,
        PREDICTED_VERSION,
    )
    return header, tuple(error_limit(one, bound, mode) for one in reaches)


@pytest.mark.parametrize(
    "dtype", [DTYPES[0], *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in DTYPES[1:])]
)
def test_kernels_write_and_read_the_twins_bytes(
    device: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = 0
    for number, shape in enumerate(SHAPES if dtype != "float32" else SHAPES[1::2]):
        # Coarse passes end at other places, or are all.
        monkeypatch.setattr(predicted, "COARSE", (40, 1000, 1 << 13)[number % 3])
        predicted.box_passes.cache_clear()
        array = smooth_array(shape, dtype, number, wild=number % 2 == 1)
        mode = ("range", "absolute")[number % 2]
        predictor = predictor_of(shape, 7 * number + len(dtype))
        header, limits = header_of(array, 1e-3, predictor, (22, 13, 12)[number % 3], mode)
        wanted = stream_of(array, header, limits)
        assert written(device, array, header, limits) == wanted
        for given in (None, header):
            assert np.array_equal(bits(restored(device, wanted, array, given)), bits(decompress(wanted)))
        exact += sum(int.from_bytes(payload[8:16], "little") for payload in payloads_of(wanted))
    predicted.box_passes.cache_clear()
    assert exact > 40


@pytest.mark.parametrize("dtype", ["float32", pytest.param("complex64", marks=pytest.mark.slow)])
def test_lines_of_several_parts_are_the_twins(
    device: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, coarse = predicted.LINE, 1 << predicted.LINE_PASSES
    lengths = (part - 1, part + 1, part + 3 * coarse, 2 * part + 2 * coarse, 3 * part, 37, 2)
    for number, length in enumerate(lengths):
        monkeypatch.setattr(predicted, "COARSE", (300, 1 << 13)[number % 2])
        predicted.box_passes.cache_clear()
        array = smooth_array((1, length), dtype, number, wild=number % 3 == 0)
        header, limits = header_of(array, 1e-3, predictor_of((1, length), number), (22, 13)[number % 2])
        wanted = stream_of(array, header, limits)
        assert written(device, array, header, limits) == wanted
    predicted.box_passes.cache_clear()


@pytest.mark.parametrize("dtype", ["float32", pytest.param("complex128", marks=pytest.mark.slow)])
def test_the_largest_residuals_are_the_twins(device: Any, dtype: str) -> None:
    generator = np.random.default_rng(3)
    parts_of = generator.choice([-1.0, 0.0, 1.0], (2, 6000), p=[0.01, 0.98, 0.01])
    array = ((parts_of[0] + 1j * parts_of[1]) if "complex" in dtype else parts_of[0]).astype(dtype)
    header, _ = header_of(array, 1.0, EARLY_PREDICTORS[0], mode="absolute")
    array *= (LARGEST_FINE - 1) * header.quantizers[0].step
    header, limits = header_of(array, 1.0, EARLY_PREDICTORS[0], mode="absolute")
    wanted = stream_of(array, header, limits)
    assert payloads_of(wanted)[0][0] == 2  # coded
    assert written(device, array, header, limits) == wanted
    assert all(np.abs(part).max() <= 1 for part in parts(decompress(wanted) - array))


def test_frames_without_loss_are_read_back(device: Any) -> None:
    array = np.random.default_rng(1).normal(size=(60, 300)).astype(np.float32)
    array[30:] *= 1e30
    header, limits = header_of(array, 1e-4, EARLY_PREDICTORS[0], 12, "absolute")
    wanted = stream_of(array, header, limits)
    assert {payload[0] for payload in payloads_of(wanted)} == {0, 2}
    assert written(device, array, header, limits) == wanted
    assert np.array_equal(bits(restored(device, wanted, array, None)), bits(decompress(wanted)))


def test_a_mirrored_array_keeps_whole_rows(device: Any) -> None:
    half = smooth_array((41, 90), "float32", 5)
    array = np.concatenate([half, half[::-1, ::-1][1:]])
    array[40] = array[40] + array[40][::-1]
    header, limits = header_of(array, 1e-3, EARLY_PREDICTORS[1])
    header = replace(header, reflection="equal")
    assert header.stored == 41 * 90
    wanted = stream_of(array, header, limits)
    assert written(device, array, header, limits) == wanted
    assert np.array_equal(bits(restored(device, wanted, array, None)), bits(decompress(wanted)))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("complex128", marks=pytest.mark.slow)])
def test_a_survey_chooses_what_the_twin_chooses(device: Any, dtype: str) -> None:
    for shape, setting in (((9001,), "small"), ((30, 31, 32), "auto")):
        array = smooth_array(shape, dtype, 3)
        options = CodingOptions(1e-3, "range", setting, predict=True)
        values = device.upload(flat_values(array))
        header, _ = Survey(device, values, dtype, shape, options).header()
        wanted = compress(array, 1e-3, setting=setting).header
        assert (header.version, wanted.version) == (PREDICTED_VERSION, VERSION)
        assert replace(header, version=VERSION) == wanted
        assert header.predictor


class CountedDevice:
    """A device, and how often it was called in which way."""

    def __init__(self, device: Any) -> None:
        self.device, self.calls = device, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self.device, name)


def test_a_choice_waits_for_boxes_and_for_lattices(device: Any) -> None:
    for shape, n_waits in (((9001,), 3), ((96, 131), 3), ((30, 31, 32), 2), ((4, 9, 11, 16), 2)):
        array, counted = smooth_array(shape, "float32", 3), CountedDevice(device)
        options = CodingOptions(1e-1 if n_waits == 3 else 1e-4, "range", "small", predict=True)
        values = device.upload(flat_values(array))
        assert Survey(counted, values, "float32", shape, options).header()[0].predictor
        calls = counted.calls
        assert calls["download"] + calls["mailbox"] == n_waits
        assert (calls["upload"], calls["launch"] - calls["mailbox"]) == (n_waits - 1, 4 * n_waits - 3)


def test_damaged_streams_are_refused(device: Any) -> None:
    array = smooth_array((60, 90), "float32", 5)
    data = bytearray(stream_of(array, *header_of(array, 1e-3, Predictor("linear", (0, 1)))))
    for place in range(20, len(data), 400):
        data[place] ^= 4
        with pytest.raises(StreamError):
            restored(device, bytes(data), array, None)
        data[place] ^= 4


def boxes_of(array: np.ndarray, boxes: SampledBoxes) -> np.ndarray:
    """The values (boxes, points, components) of sampled boxes."""
    whole = box_of_shape(array.shape)
    points, taken = array.reshape(whole).transpose(turned(whole)), []
    for first in boxes.starts:
        lines = [at + s * np.arange(n) for at, s, n in zip(first, boxes.strides, boxes.counts, strict=True)]
        taken.append(flat_values(points[np.ix_(*lines)]))
    return np.array(taken).reshape(len(taken), boxes.size, -1)


@pytest.mark.parametrize(
    "dtype", [DTYPES[0], *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in DTYPES[1:])]
)
def test_a_device_counts_what_the_host_counts(device: Any, dtype: str) -> None:
    shapes = (
        (9001,), (96, 131), (17, 25, 33), (3, 4, 30, 40), (40, 41, 3), (5000, 2), (1 << 17,), (300, 310)
    )  # fmt: skip
    seen = set()
    for number, shape in enumerate(shapes):
        for wild in (False, True):
            array = smooth_array(shape, dtype, number, wild)
            steps = np.array([3e-4, 1e-2][: len(parts(array))]) * (1e-6 if wild else 1)
            there = DeviceTrials(device, device.upload(flat_values(array)), dtype, shape).begin(steps)
            flat = flat_values(array).reshape(array.size, -1)
            here = HostTrials(shape, flat.__getitem__, partial(boxes_of, array), steps)
            assert there.share_beyond() == here.share_beyond()
            assert there.plain() == here.plain()
            every = candidates(len(box_of_shape(shape)))
            for level in range(len(sampled_boxes(shape))):
                tried = [one for one in every if level == 0 or not one.is_lorenzo]
                assert there.predicted(level, tried) == here.predicted(level, tried)
                if level == 0:
                    interpolated = [one for one in tried if not one.is_lorenzo][::2]
                    assert there.whole(interpolated) == here.whole(interpolated)
                seen.add((level, here.predicted(level, tried)[-1] > 0, here.share_beyond() > 0))
    assert {(0, True, False), (1, True, False), (0, True, True)} <= seen
