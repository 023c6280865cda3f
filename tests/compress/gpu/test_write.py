"""Arrays coded while the host is told what a survey has found: the bytes of the CPU, whatever is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.kernels.compress_arrays import DTYPES, make_array
from tests.support.slow import slow_but
from tnplan.compress import CodecError, compress, worst_size_bytes
from tnplan.compress.cpu.codec import flat_values
from tnplan.compress.format import choice
from tnplan.compress.format.bit_tiling import LOGS, SAMPLE, ranked_axes
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.gpu import encode as gpu_encode
from tnplan.compress.gpu import fixed_length
from tnplan.compress.gpu.survey import write

CASES = (
    # kind, log2 of the elements, of frames, mode, bound, whether it is coded ahead
    ("normal", 17, 22, "range", 1e-3, True), ("product", 17, 14, "range", 1e-2, True),
    ("sparse", 17, 16, "absolute", 1e-2, True), ("mirrored", 17, 22, "range", 5e-3, True),
    ("mirrored", 18, 16, "range", 1e-3, True), ("one large", 17, 15, "absolute", 1e-2, True),
    ("nonfinite", 17, 16, "range", 1e-2, True), ("huge range", 17, 22, "range", 1e-2, True),
    ("denormal", 17, 22, "range", 1e-3, False), ("constant", 17, 22, "range", 1e-2, False),
    ("zero", 17, 16, "range", 1e-2, False), ("normal", 17, 22, "absolute", 1e-300, False),
    ("product", 17, 22, "pointwise", 1e-3, None), ("normal", 16, 22, "range", 1e-3, None),
)  # fmt: skip
"""None: not even tried."""


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every array whether what was coded ahead was of use, where that was tried."""
    found: list[bool] = []
    suits = fixed_length.Ahead.suits

    def watched(self: Any, *arguments: Any) -> bool:
        found.append(suits(self, *arguments))
        return found[-1]

    monkeypatch.setattr(fixed_length.Ahead, "suits", watched)
    return found


def written(
    device: Any, array: np.ndarray, bound: float, mode: str, frame_log2: int, out_bytes: int | None = None,
    nonfinite: str = "keep",
) -> bytes:  # fmt: skip
    """The stream that the device writes."""
    room = worst_size_bytes(array.shape, array.dtype.name, frame_log2) if out_bytes is None else out_bytes
    out, values = device.empty(room + -room % 8, "uint8"), device.upload(flat_values(array))
    options = CodingOptions(bound, mode, "fast", nonfinite, frame_log2)
    used = write(device, values, array.dtype.name, array.shape, options, out)[2]
    data: bytes = device.download(out[:used]).tobytes()
    return data


def as_on_the_cpu(array: np.ndarray, bound: float, mode: str, frame_log2: int) -> bytes:
    packed = compress(array, bound, mode=mode, setting="fast", frame_log2=frame_log2)
    assert packed.header.coder == "fast"
    return bytes(packed.data)


@pytest.mark.parametrize("dtype", slow_but(("float32", "complex128"), DTYPES))
def test_streams_are_those_of_the_cpu(device: Any, tried: list[bool], dtype: str) -> None:
    for number, (kind, log2, frame_log2, mode, bound, ahead) in enumerate(CASES):
        array = make_array(kind, 1 << log2, dtype, number)
        header = compress(array, bound, mode=mode, setting="fast", frame_log2=frame_log2).header
        data = written(device, array, bound, mode, frame_log2)
        if header.coder == "fast":
            assert data == as_on_the_cpu(array, bound, mode, frame_log2), (kind, frame_log2)
        steps = all(one.step for one in header.quantizers)
        assert tried == ([] if ahead is None else [steps]), (kind, mode)
        assert ahead is not True or steps or np.iscomplexobj(array)
        tried.clear()


@pytest.mark.parametrize("batch", [None, 400_000])
def test_arrays_of_many_frames_are_coded_ahead(
    device: Any, tried: list[bool], batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames of all kinds behind one another: coded, raw, with exact values, without any number. And where
    there is workspace for the first ones alone."""
    if batch:
        for one in (fixed_length, gpu_encode):
            monkeypatch.setattr(one, "BATCH_BYTES", batch)
    array = make_array("normal", (3 << 17) + 99, "float32", 1)
    generator = np.random.default_rng(2)
    array[: 1 << 16] *= generator.random(1 << 16) < 0.001
    array[1 << 16 : 1 << 17] = generator.normal(size=1 << 16) * 1e7
    array[(1 << 17) + 5000] = np.nan
    array[3 << 16 : 1 << 18] = 0
    data = written(device, array, 1e-3, "absolute", 12)
    packed = compress(array, 1e-3, mode="absolute", setting="fast", frame_log2=12)
    assert data == bytes(packed.data)
    assert tried == [True]


@pytest.mark.parametrize("size", [(1 << 17) + 5000, (1 << 17) + 4099, (1 << 18) + 4096])
def test_mirrored_arrays_with_a_rest_are_coded_ahead(device: Any, tried: list[bool], size: int) -> None:
    array = make_array("mirrored", size, "complex64", 4)
    assert written(device, array, 1e-3, "range", 13) == as_on_the_cpu(array, 1e-3, "range", 13)
    assert tried == [True]


def test_a_plan_that_is_not_the_host_s_is_not_used(
    device: Any, tried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = make_array("product", 1 << 17, "float32", 3)
    monkeypatch.setattr(choice, "ranked_axes", lambda counts: ranked_axes(counts)[::-1])
    assert written(device, array, 1e-3, "range", 14) == as_on_the_cpu(array, 1e-3, "range", 14)
    assert tried == [False]


def test_too_little_room_and_refused_values_are_errors(device: Any) -> None:
    array = make_array("normal", 1 << 17, "float32", 3)
    whole = written(device, array, 1e-3, "range", 14)
    for room in (8, 104, 4096, len(whole) // 2 // 8 * 8, len(whole) - 8):
        with pytest.raises(CodecError, match="out: has"):
            written(device, array, 1e-3, "range", 14, room)
    assert written(device, array, 1e-3, "range", 14, len(whole)) == whole
    array[77] = np.inf
    with pytest.raises(CodecError, match="holds NaN or infinities"):
        written(device, array, 1e-3, "range", 14, nonfinite="refuse")


def test_logarithms_are_right_to_a_millionth() -> None:
    numbers = np.arange(1, SAMPLE + 1)
    assert LOGS[0] == 0
    assert np.abs(LOGS[1:] / numbers / 2**20 - np.log2(numbers)).max() < 1e-6
