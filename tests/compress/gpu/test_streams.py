"""Whole streams written and read on a device: the CPU's bytes, and the CPU's values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.kernels.compress_arrays import bits, make_array, product_tensor
from tests.support.kernels.compress_devices import EmulatedDevice
from tests.support.kernels.gpus import needs_gpus
from tests.support.kernels.smooth_arrays import smooth_array
from tnplan.compress import CodecError, StreamError, compress, decompress, worst_size_bytes
from tnplan.compress.cpu.codec import flat_values
from tnplan.compress.format.bit_tiling import NATURAL
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.errors import HostOnlyError
from tnplan.compress.format.stream import pack_header
from tnplan.compress.gpu.decode import decode
from tnplan.compress.gpu.encode import encode
from tnplan.compress.gpu.survey import Survey

FRAME_LOG2 = 12


def encoded(device: Any, array: np.ndarray, bound: float, mode: str, coder: str) -> bytes:
    """The stream that the device writes."""
    values = device.upload(flat_values(array))
    header, limits = Survey(
        device,
        values,
        array.dtype.name,
        array.shape,
        CodingOptions(bound, mode, coder, frame_log2=FRAME_LOG2),
    ).header()
    room = worst_size_bytes(array.shape, array.dtype.name, FRAME_LOG2)
    out = device.zeros(room + -room % 8, "uint8")
    used = encode(device, values, header, limits, out)
    data: bytes = device.download(out[:used]).tobytes()
    return data


def decoded(device: Any, data: bytes, like: np.ndarray) -> np.ndarray:
    """The array that the device reads."""
    values = device.zeros(flat_values(like).size, like.real.dtype.name)
    decode(device, device.upload(np.frombuffer(data, np.uint8)), values)
    return device.download(values).view(like.dtype).reshape(like.shape)  # type: ignore[no-any-return]


@pytest.mark.parametrize("coder", ["fast", "small"])
def test_streams_are_those_of_the_cpu(device: Any, coder: str) -> None:
    for number, (kind, size, dtype, bound, mode) in enumerate(
        [
            ("sparse", 9000, "complex64", 1e-2, "range"), ("mirrored", 8193, "float64", 1e-3, "range"),
            ("nonfinite", 4000, "float64", 1e-2, "pointwise"),
            ("one large", 4500, "complex64", 1e-2, "absolute"),
        ]
    ):  # fmt: skip
        array = make_array(kind, size, dtype, number)
        if kind == "nonfinite":
            array[size // 20 :] = 0.5
        if kind == "mirrored":
            array[(size + 1) // 2 :] *= -1
        wanted = compress(array, bound, mode=mode, setting=coder, frame_log2=FRAME_LOG2)
        assert encoded(device, array, bound, mode, coder) == wanted.data
        again = decoded(device, wanted.data, array)
        assert np.array_equal(bits(again), bits(decompress(wanted.data)))


def test_axes_are_chosen_as_on_the_cpu(device: Any) -> None:
    array = product_tensor(16, (9, 13, 15), 4)
    wanted = compress(array, 1e-2, setting="fast", frame_log2=16)
    assert wanted.header.axes != NATURAL
    values = device.upload(flat_values(array))
    header, limits = Survey(
        device, values, "complex64", array.shape, CodingOptions(1e-2, "range", "fast", frame_log2=16)
    ).header()
    assert header == wanted.header
    out = device.zeros(array.nbytes, "uint8")
    used = encode(device, values, header, limits, out)
    assert device.download(out[:used]).tobytes() == wanted.data
    assert np.array_equal(decoded(device, wanted.data, array), decompress(wanted.data))


@pytest.mark.parametrize("setting", ["fast", "small", "auto"])
def test_arrays_on_a_device_go_through_the_same_interface(device: Any, setting: str) -> None:
    for number, kind in enumerate(("sparse", "normal")):
        array = make_array(kind, 3 * 4096, "complex64", number).reshape(3, 64, 64)
        there = device.upload(array)
        for one, other in ((there, array), (there[:, ::2], array[:, ::2])):
            packed = compress(one, 1e-2, setting=setting, frame_log2=13, device=device)
            wanted = compress(other, 1e-2, setting=setting, frame_log2=13)
            assert device.download(packed.data).tobytes() == wanted.data
            assert (packed.header, packed.ratio) == (wanted.header, wanted.ratio)
            again = decompress(packed.data, device=device)
            assert np.array_equal(device.download(again), decompress(wanted.data))
    with pytest.raises(CodecError, match="array: has dtype int32"):
        compress(there.real.astype("int32"), 1e-2, device=device)
    with pytest.raises(CodecError, match="array: holds NaN or infinities"):
        compress(device.upload(np.full(9, np.inf)), 1e-2, nonfinite="refuse", device=device)
    whole = compress(there, 1e-2, setting=setting, device=device).data
    for wrong in (whole.view("uint64"), whole.reshape(2, -1)):
        with pytest.raises(CodecError, match=r"data: is uint\d+ of shape .*; give a 1-D array of bytes"):
            decompress(wrong, device=device)
    empty = compress(device.upload(np.zeros((0, 3))), 1e-2, setting=setting, device=device)
    assert decompress(empty.data, device=device).shape == (0, 3)


@needs_gpus(1)
def test_cupy_arrays_need_no_device() -> None:
    import cupy

    tnplan.gpu_codec()

    array = make_array("sparse", 9000, "float64", 1)
    packed = compress(cupy.asarray(array), 1e-3)
    assert isinstance(packed.data, cupy.ndarray)
    assert packed.data.get().tobytes() == compress(array, 1e-3).data
    assert np.array_equal(decompress(packed.data).get(), decompress(packed.data.get()))
    lossless = compress(np.ones(9000), 0.0).data
    again = decompress(cupy.asarray(np.frombuffer(lossless, np.uint8)))
    assert isinstance(again, cupy.ndarray)
    assert np.array_equal(again.get(), np.ones(9000))


def test_frames_without_loss_are_raw(device: Any) -> None:
    array = make_array("normal", 5000, "complex64", 1)
    for bound in (0.0, 1e-12):
        data = encoded(device, array, bound, "range", "fast")
        assert np.array_equal(bits(decompress(data)), bits(array))
        assert np.array_equal(bits(decoded(device, data, array)), bits(array))
    with pytest.raises(HostOnlyError, match="has frames that only a CPU reads; decompress it there"):
        decoded(device, compress(np.ones(5000), 0.0).data, np.ones(5000))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_frames_that_only_a_cpu_reads_are_decoded_by_the_host(device: Any, dtype: str) -> None:
    mixed = np.zeros(3 * 4096, dtype)
    # Too many steps: the second frame has too many exact values to be coded, but few different bytes.
    mixed[4096:8192] = np.random.default_rng(3).choice([0.5, 1.0], 4096)
    cases = (
        (np.ones((50, 100), dtype), 0.0, "auto"), (np.ones(7000, dtype)[::-1], 0.0, "fast"),
        (mixed, 1e-7 if dtype == "float32" else 1e-10, "small"),
        # Residuals that are nearly all 0, in the coder that a CPU has for them.
        (smooth_array((60, 150), dtype, 3), 0.1, "small"),
    )  # fmt: skip
    for array, bound, setting in cases:
        packed = compress(array, bound, setting=setting, frame_log2=FRAME_LOG2)
        wanted = decompress(packed.data)
        with pytest.raises(HostOnlyError):
            decoded(device, packed.data, array)
        there = device.upload(np.frombuffer(packed.data, np.uint8))
        for data in (there, packed.data, bytearray(packed.data)):
            again = decompress(data, device=device)
            assert type(again) is type(there)
            assert (again.shape, again.dtype) == (array.shape, array.dtype)
            assert np.array_equal(bits(device.download(again)), bits(wanted))
        spoilt = bytearray(packed.data)
        spoilt[-1] ^= 1
        with pytest.raises(StreamError, match="is damaged"):
            decompress(device.upload(np.frombuffer(spoilt, np.uint8)), device=device)
        # And the other way: what a device wrote, on the host.
        data = compress(
            device.upload(array), bound, setting=setting, frame_log2=FRAME_LOG2, device=device
        ).data
        assert np.array_equal(bits(decompress(device.download(data))), bits(wanted))


def test_arrays_of_the_host_go_to_the_device_that_is_given(device: Any) -> None:
    array = make_array("sparse", 9000, "complex64", 4)
    packed = compress(array, 1e-2, device=device)
    assert type(packed.data) is type(device.zeros(1, "uint8"))
    assert device.download(packed.data).tobytes() == compress(array, 1e-2).data
    with pytest.raises(CodecError, match="array: has dtype >f8"):
        compress(np.ones(4, ">f8"), 1e-2, device=device)
    with pytest.raises(CodecError, match=r"array: is of type list; give a NumPy array"):
        compress([1.0], 1e-2, device=device)  # type: ignore[arg-type]
    with pytest.raises(CodecError, match=r"data: is of type list; give the bytes of a stream"):
        decompress([1], device=device)  # type: ignore[arg-type]
    with pytest.raises(StreamError, match="ends inside its header"):
        decompress(b"", device=device)


def test_what_is_no_device_is_refused() -> None:
    for wrong in ("gpu", 0, np, EmulatedDevice):
        with pytest.raises(CodecError, match=r"^device: is .*; give a device, such as tnplan.gpu_codec"):
            compress(np.ones(4), 1e-2, device=wrong)
        with pytest.raises(CodecError, match=r"^device: is "):
            decompress(compress(np.ones(4), 1e-2).data, device=wrong)


def test_too_little_memory_beside_an_array_is_one_line(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = device.upload(make_array("sparse", 9000, "complex64", 4))

    def none_left(size: int, dtype: str) -> Any:
        raise MemoryError

    monkeypatch.setattr(device, "zeros", none_left, raising=False)
    with pytest.raises(CodecError, match="array: needs more additional memory than is free; free some"):
        compress(there, 1e-2, device=device)


def test_damaged_streams_are_refused(device: Any) -> None:
    array = make_array("sparse", 5000, "complex64", 2)
    data = encoded(device, array, 1e-2, "range", "small")
    for place in (3, 60, 200, len(data) - 9):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(StreamError):
            decoded(device, bytes(damaged), array)
    for other in (data[:-8], data + bytes(8), data[:150]):
        with pytest.raises(StreamError):
            decoded(device, other, array)
    with pytest.raises(CodecError, match="values: are 20 of float32"):
        decoded(device, data, np.zeros(10, np.complex64))


def test_more_than_the_memory_of_a_device_is_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(np.ones(5000), 1e-3)
    head = pack_header(replace(packed.header, shape=(1 << 40, 1 << 20)))
    with pytest.raises(StreamError, match="too short for its"):
        decompress(device.upload(np.frombuffer(head, np.uint8)), device=device)

    def none_left(size: int, dtype: str) -> Any:
        raise MemoryError

    monkeypatch.setattr(device, "empty", none_left, raising=False)
    with pytest.raises(CodecError, match="stream: holds 40000 bytes, more than the memory"):
        decompress(device.upload(np.frombuffer(packed.data, np.uint8)), device=device)


def test_a_buffer_that_is_too_small_is_refused(device: Any) -> None:
    array = make_array("normal", 5000, "complex64", 1)
    values = device.upload(flat_values(array))
    header, limits = Survey(
        device, values, "complex64", (5000,), CodingOptions(1e-3, "range", "fast", frame_log2=FRAME_LOG2)
    ).header()
    with pytest.raises(CodecError, match="out: has 1000 bytes, too few"):
        encode(device, values, header, limits, device.zeros(1000, "uint8"))
