"""Decoding with the header given: the same values, and streams with another header or damage are refused."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.compress_arrays import bits, make_array
from tests.support.kernels.compress_streams import mutated, restored
from tnplan.common.errors import InputError
from tnplan.compress import CodecError, Compressed, StreamError, compress, decompress
from tnplan.compress.format.stream import header_size_bytes
from tnplan.compress.gpu import frames

CASES = (
    ("sparse", 9000, "complex64", 1e-2, "range", 12), ("normal", 3 << 13, "float32", 1e-3, "range", 14),
    ("mirrored", 8193, "float64", 1e-3, "range", 12), ("one large", 4500, "complex64", 1e-2, "absolute", 12),
    ("product", 70_000, "float32", 1e-3, "pointwise", 13),
)  # fmt: skip
MUTATIONS = 60


@pytest.mark.parametrize("coder", ["fast", "small"])
def test_the_same_values_with_the_header_and_without(device: Any, coder: str) -> None:
    for number, (kind, size, dtype, bound, mode, frame_log2) in enumerate(CASES):
        array = make_array(kind, size, dtype, number)
        packed = compress(array, bound, mode=mode, setting=coder, frame_log2=frame_log2)
        wanted = decompress(packed.data)
        for header in (packed.header, None):
            assert np.array_equal(bits(restored(device, packed.data, array, header)), bits(wanted))
        assert np.array_equal(bits(decompress(packed)), bits(wanted))
        assert np.array_equal(bits(device.download(decompress(packed, device=device))), bits(wanted))


@pytest.mark.parametrize("coder", ["fast", "small"])
def test_frames_are_found_over_several_launches(
    device: Any, coder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MOST_FRAMES", 3)
    array = make_array("sparse", 8 * 4096 + 100, "float32", 3)
    packed = compress(array, 1e-2, setting=coder, frame_log2=12)
    assert np.array_equal(bits(restored(device, packed.data, array, packed.header)), bits(decompress(packed)))
    # A frame that makes no sense ends the search in all launches.
    damaged = bytearray(packed.data)
    damaged[header_size_bytes(1, 1)] ^= 1
    with pytest.raises(StreamError, match="frame 0: is damaged"):
        restored(device, bytes(damaged), array, packed.header)


def test_streams_with_another_header_are_refused(device: Any) -> None:
    array = make_array("sparse", 9000, "complex64", 1)
    packed = compress(array, 1e-2, setting="fast", frame_log2=12)
    others = (
        replace(packed.header, bound=2e-2), replace(packed.header, shape=(90, 100)),
        replace(packed.header, axes=packed.header.axes[::-1]), replace(packed.header, coder="small"),
        replace(packed.header, coder="lossless"), replace(packed.header, frame_log2=13),
    )  # fmt: skip
    line = "stream: begins with another header than the one given; give its own header, or leave it out"
    for header in others:
        with pytest.raises(StreamError, match=line):
            restored(device, packed.data, array, header)
        with pytest.raises(StreamError, match=line):
            decompress(Compressed(packed.data, header))
        with pytest.raises(StreamError, match=line):
            decompress(Compressed(packed.data, header), device=device)
    with pytest.raises(StreamError, match=line):
        restored(device, packed.data[:40], array, packed.header)


def test_headers_that_no_stream_can_have_are_refused(device: Any) -> None:
    array = make_array("sparse", 5000, "float32", 1)
    packed = compress(array, 1e-2, setting="fast", frame_log2=12)
    for wrong in (
        {"axes": tuple(range(2, 14))}, {"axes": (0,) * 12}, {"axes": (-1, *range(11))}, {"axes": ()},
        {"frame_log2": 31}, {"frame_log2": 3}, {"quantizers": ()}, {"coder": "none"}, {"reflection": "half"},
        {"dtype": "int8"}, {"shape": (-1, -5000)}, {"shape": None}, {"mode": "loose"},
    ):  # fmt: skip
        with pytest.raises(CodecError, match="header: cannot be the header of any stream; give the header"):
            restored(device, packed.data, array, replace(packed.header, **wrong))
        with pytest.raises(CodecError, match="header: cannot be the header of any stream"):
            decompress(Compressed(packed.data, replace(packed.header, **wrong)))


def test_an_array_without_elements(device: Any) -> None:
    for shape in ((0,), (3, 0)):
        packed = compress(np.zeros(shape), 1e-2)
        assert decompress(packed, device=device).shape == shape
        with pytest.raises(StreamError, match="begins with another header"):
            decompress(Compressed(packed.data, replace(packed.header, bound=1.0)), device=device)


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_too_little_memory_of_a_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy.cuda.memory import OutOfMemoryError

    from tnplan.executor.device.cuda import codec as cupy_stream_codec

    def none_left(*arguments: Any) -> None:
        raise OutOfMemoryError(1, 2)

    monkeypatch.setattr(cupy_stream_codec.decode, "decode", none_left)
    codec = cupy_stream_codec.CupyStreamCodec(nullcontext())
    line = "^GPU: has too little memory beside its arena for the codec of 72 B; plan with a smaller"
    with pytest.raises(InputError, match=line):
        codec.decode(np.zeros(9, np.uint8), np.zeros(9))


@pytest.mark.parametrize("coder", ["fast", "small"])
def test_damaged_streams_are_refused_with_the_header_known(device: Any, coder: str) -> None:
    chance = random.Random(7)
    array = make_array("one large" if coder == "fast" else "sparse", 9000, "complex64", 2)
    mode = "absolute" if coder == "fast" else "range"
    packed = compress(array, 1e-2, mode=mode, setting=coder, frame_log2=12)
    start = header_size_bytes(1, 2)
    for _ in range(MUTATIONS):
        data = packed.data[:start] + mutated(packed.data[start:], chance)
        if data == packed.data:
            continue
        with pytest.raises(StreamError):
            restored(device, data, array, packed.header)
