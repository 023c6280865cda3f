"""Exact values and the verdict on a device: put by a launch of their own, and every wrong frame is seen."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.compress_arrays import bits, make_array
from tests.support.kernels.compress_streams import CODERS, payloads_of, restored, sealed
from tests.support.slow import slow_unless
from tnplan.compress import Compressed, StreamError, compress, decompress
from tnplan.compress.cpu.frame import CODED, CODED_HEAD, filled
from tnplan.compress.format.stream import frame_seed, pack_frame, pack_header
from tnplan.compress.gpu import frames
from tnplan.compress.gpu.decode import cached_plan

FRAME = 4096
SIZE = 5 * FRAME + 100


@pytest.fixture(autouse=True)
def small_launches(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three frames a launch at most, so that these streams need three."""
    monkeypatch.setattr(frames, "MOST_FRAMES", 3)
    cached_plan.cache_clear()
    yield
    cached_plan.cache_clear()


def with_exact(dtype: str, numbers: tuple[int, ...], coder: str) -> tuple[np.ndarray, Compressed]:
    """An array that is infinite at some places, which are stored exactly, and its stream."""
    array = make_array("sparse", SIZE, dtype, 3)
    array[list(numbers)] = np.inf
    packed = compress(array, 1e-2, setting=coder, frame_log2=12)
    return array, packed


def exact_at(payload: bytes) -> tuple[int, int]:
    """How many exact values a payload has, and where their places are."""
    kind, exact, coded = CODED_HEAD.unpack_from(payload)
    assert kind == CODED
    return exact, CODED_HEAD.size + filled(coded)


def launched(device: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are launched from now on."""
    entries: list[str] = []
    launch = device.launch

    def noted(which: Any, *arguments: Any) -> None:
        entries.append(which.entry)
        launch(which, *arguments)

    monkeypatch.setattr(device, "launch", noted, raising=False)
    return entries


@pytest.mark.parametrize(
    ("coder", "dtype"), slow_unless(lambda k, j: k % 2 == j, [*CODERS], ["float32", "complex128"])
)
def test_exact_values_of_several_launches(
    device: Any, coder: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = ["small_index", "small_decode"] if coder == "small" else ["fast_decode"]
    entries = launched(device, monkeypatch)
    for numbers in ((), (0, 5, FRAME - 1, 4 * FRAME + 7, SIZE - 1), (SIZE - 2,), (3 * FRAME,)):
        array, packed = with_exact(dtype, numbers, coder)
        counts = [exact_at(payload)[0] for payload in payloads_of(packed.data)]
        assert sum(counts) == len(numbers)
        for header in (packed.header, None):
            entries.clear()
            values = restored(device, packed.data, array, header)
            assert np.array_equal(bits(values), bits(decompress(packed)))
            putting = ["put_exact_values"] * 3 if numbers else []
            assert entries == [*["send_header"] * (header is None), *decoding * 3, *putting]


def test_exact_values_of_a_mirrored_array_are_mirrored(device: Any) -> None:
    array = make_array("mirrored", SIZE, "float32", 3)
    array[[2, SIZE - 3]] = np.inf
    packed = compress(array, 1e-3, setting="fast", frame_log2=12)
    assert packed.header.reflection != "none"
    assert sum(exact_at(payload)[0] for payload in payloads_of(packed.data)) == 1
    values = restored(device, packed.data, array, packed.header)
    assert np.array_equal(bits(values), bits(decompress(packed)))


@pytest.mark.parametrize("coder", CODERS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_exact_values_at_places_that_make_no_sense_are_refused(device: Any, coder: str, dtype: str) -> None:
    numbers = (FRAME + 1, FRAME + 2, 5 * FRAME + 3, 5 * FRAME + 4)
    array, packed = with_exact(dtype, numbers, coder)
    payloads = payloads_of(packed.data)
    for frame, change in (
        (1, lambda places: places[::-1]), (1, lambda places: [places[0]] * len(places)),
        (1, lambda places: [*places[:-1], 2 * FRAME]), (1, lambda places: [*places[:-1], 0xFFFFFFFF]),
        (5, lambda places: [*places[:-1], 100 if dtype == "float32" else FRAME + 100]),
    ):  # fmt: skip
        crafted = list(payloads)
        crafted[frame] = with_places(payloads[frame], change)
        data = sealed(packed.header, crafted)
        for read in (decompress, lambda one: restored(device, one, array, packed.header)):
            with pytest.raises(StreamError, match=f"frame {frame}: is damaged"):
                read(data)


def with_places(payload: bytes, change: Any) -> bytes:
    count, at = exact_at(payload)
    places = list(struct.unpack_from(f"<{count}I", payload, at))
    return payload[:at] + struct.pack(f"<{count}I", *change(places)) + payload[at + 4 * count :]


@pytest.mark.parametrize("coder", CODERS)
def test_the_first_of_several_wrong_frames_is_named(device: Any, coder: str) -> None:
    array, packed = with_exact("float32", (FRAME + 1, FRAME + 2), coder)
    seed, payloads = frame_seed(packed.header), payloads_of(packed.data)
    sound = [pack_frame(payload, number, seed) for number, payload in enumerate(payloads)]
    spoilt = [frame[:-1] + bytes([frame[-1] ^ 1]) for frame in sound]
    disordered = pack_frame(with_places(payloads[1], lambda places: places[::-1]), 1, seed)
    for wrong in ({2: spoilt[2], 4: spoilt[4]}, {5: spoilt[5]}, {3: spoilt[3], 1: disordered},
                  {0: spoilt[0], 1: disordered}, {n: spoilt[n] for n in range(6)}):  # fmt: skip
        frames = [wrong.get(number, frame) for number, frame in enumerate(sound)]
        data = pack_header(packed.header) + b"".join(frames)
        for header in (packed.header, None):
            with pytest.raises(StreamError, match=f"frame {min(wrong)}: is damaged"):
                restored(device, data, array, header)
