"""Damaged, truncated, foreign and crafted streams: refused in one line, never a crash or wrong data."""

from __future__ import annotations

import io
import random
import struct
from dataclasses import replace

import numpy as np
import pytest

from tests.support.kernels.compress_arrays import bits, make_array
from tests.support.kernels.compress_streams import mutated
from tests.support.kernels.smooth_arrays import smooth_array
from tnplan.compress import CodecError, StreamError, compress, decompress
from tnplan.compress.format import stream as stream_module
from tnplan.compress.format.stream import (
    MAGIC,
    VERSION,
    Quantizer,
    check_ended,
    checksum,
    frame_seed,
    header_size_bytes,
    pack_frame,
    pack_header,
    read_frame,
    read_header,
    seed_of,
)

MUTATIONS = 10_000
CRAFTED = 2_000


def streams() -> list[bytes]:
    """Small streams of every coder, kind of frame and mode, some of several frames."""
    made = []
    for number, (kind, size, bound, mode, setting) in enumerate(
        [
            ("sparse", 9000, 1e-2, "range", "small"), ("sparse", 9000, 1e-2, "range", "fast"),
            ("mirrored", 9001, 1e-1, "absolute", "small"), ("nonfinite", 700, 1e-2, "pointwise", "small"),
            ("one large", 4500, 1e-2, "absolute", "fast"), ("constant", 5000, 0.0, "range", "fast"),
            ("normal", 50, 1e-9, "range", "small"), ("normal", 0, 1e-3, "range", "small"),
        ]
    ):  # fmt: skip
        array = make_array(kind, size, ("complex64", "float64", "float32")[number % 3], number)
        made.append(compress(array, bound, mode=mode, setting=setting, frame_log2=12).data)
    made.append(compress(smooth_array((90, 100), "float32", 1), 1e-3, setting="small").data)
    made.append(compress(np.tile(make_array("normal", 100, "float32", 1), 50), 0.0).data)
    return made


def test_mutated_streams_are_refused_or_unchanged() -> None:
    chance = random.Random(3)
    originals = streams()
    refused = 0
    for _ in range(MUTATIONS):
        data = chance.choice(originals)
        other = mutated(data, chance)
        if other == data:
            continue
        with pytest.raises(StreamError):
            decompress(other)
        refused += 1
    assert refused > 0.9 * MUTATIONS


def test_crafted_payloads_with_right_checksums_do_no_harm() -> None:
    chance = random.Random(4)
    originals = streams()
    refused = 0
    for _ in range(CRAFTED):
        source = io.BytesIO(chance.choice(originals))
        header = read_header(source)
        payloads = [
            read_frame(source, number, frame_seed(header), 1 << 30)
            for number, _ in enumerate(header.frames())
        ]
        check_ended(source)
        if chance.random() < 0.2:
            rules = (Quantizer(1e30, 0, chance.getrandbits(31), chance.getrandbits(31)),)
            coder = chance.choice(("fast", "small"))
            header = replace(header, quantizers=rules * header.components, coder=coder)
        if payloads:
            place = chance.randrange(len(payloads))
            payloads[place] = mutated(payloads[place], chance)
        frames = [pack_frame(payload, n, frame_seed(header)) for n, payload in enumerate(payloads)]
        data = b"".join([pack_header(header), *frames])
        try:
            assert decompress(data).shape == header.shape
        except StreamError:
            refused += 1
    assert refused > CRAFTED / 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_that_no_header_can_have_are_refused(dtype: str) -> None:
    array = make_array("sparse", 5000, dtype, 1)
    for mode, setting in (("absolute", "small"), ("absolute", "fast"), ("pointwise", "fast")):
        packed = compress(array, 1e-2, mode=mode, setting=setting)
        source = io.BytesIO(packed.data)
        payload = read_frame(source, 0, frame_seed(read_header(source)), 1 << 30)
        width, beyond = 8 * array.itemsize, 1e39 if dtype == "float32" else np.nan
        for change in (
            {"bound": np.nan}, {"bound": -1.0}, {"bound": np.inf},
            *({"quantizers": (rule,)} for rule in (
                Quantizer(np.inf), Quantizer(-1.0), Quantizer(beyond),
                Quantizer(bits_step=1 << (width - 1)), Quantizer(base_bits=1 << (width - 1)),
            )),
        ):  # fmt: skip
            header = replace(packed.header, **change)
            with pytest.raises(StreamError, match="stream: header: is damaged"):
                decompress(pack_header(header) + pack_frame(payload, 0, frame_seed(header)))


def test_every_truncation_of_a_stream_is_refused() -> None:
    data = compress(make_array("sparse", 300, "float32", 1), 1e-2).data
    for length in range(len(data)):
        with pytest.raises(StreamError, match=r"stream: ends inside|too short"):
            decompress(data[:length])
    with pytest.raises(StreamError, match="continues after its last frame"):
        decompress(data + b"\0")


def test_exchanged_frames_and_frames_of_other_streams_are_refused() -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 64, (2, 8192), np.uint64).view(np.float64)
    first, second = (compress(row, 0.0, frame_log2=12).data for row in noise)
    start = header_size_bytes(1, 1)
    middle = start + (len(first) - start) // 2
    assert len(first) == len(second)
    with pytest.raises(StreamError, match="frame 0: is damaged"):
        decompress(second[:start] + second[middle:] + second[start:middle])
    with pytest.raises(StreamError, match="frame 1: is damaged"):
        decompress(second[:middle] + second[start:middle])
    # Headers that differ in the bound only.
    other = compress(noise[0], 1e-300, mode="absolute", frame_log2=12).data
    with pytest.raises(StreamError, match="frame 0: is damaged"):
        decompress(other[:start] + first[start:])


def test_foreign_bytes_are_refused() -> None:
    for data in (b"\x93NUMPY\x01\x00" + bytes(200), b"PK" + bytes(200), bytes(200)):
        with pytest.raises(StreamError, match="is not a compressed array of tnplan"):
            decompress(data)
    with pytest.raises(StreamError, match="ends inside its header"):
        decompress(b"")


@pytest.mark.parametrize("version", [0, VERSION + 1, 77, 2**32 - 1])
def test_other_versions_are_refused_by_number(version: int) -> None:
    data = bytearray(compress(np.ones(4), 1e-3).data)
    data[8:12] = struct.pack("<I", version)
    with pytest.raises(
        StreamError, match=f"is version {version} of tnplan.compressed; this tnplan reads 1 to {VERSION}"
    ):
        decompress(bytes(data))


def test_the_version_is_that_of_the_changelog() -> None:
    smooth = np.arange(9000.0) ** 2
    for array, bound, version in ((np.ones(4), 1e-3, 1), (np.ones(4), 0.0, 2), (smooth, 1e-3, VERSION)):
        assert compress(array, bound).data.startswith(MAGIC + struct.pack("<I", version))
        assert f"\n{version} (" in (stream_module.__doc__ or "")


def test_more_than_memory_is_refused() -> None:
    array = np.zeros(0, np.complex128)
    header = read_header(io.BytesIO(compress(array, 1e-3).data))
    # An axis of length 0 keeps the stream whole; NumPy cannot make the shape.
    head = pack_header(replace(header, shape=(0, 1 << 62, 1 << 62)))
    with pytest.raises(CodecError, match="more than the memory"):
        decompress(head)
    with pytest.raises(StreamError, match="too short for its"):
        decompress(pack_header(replace(header, shape=(1 << 40, 1 << 20))))


def test_checksums_see_every_bit_and_place() -> None:
    data = bytearray(np.random.default_rng(1).bytes(203))
    whole = checksum(bytes(data))
    others = (data + b"\0", data[:-1], data[8:] + data[:8])
    seen = {whole, *(checksum(bytes(other)) for other in others)}
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            seen.add(checksum(bytes(data)))
            data[place] ^= 1 << bit
    assert len(seen) == 4 + 8 * len(data)


def checksum_by_words(data: bytes) -> int:
    """The checksum as its docstring says, word by word."""
    mask = (1 << 64) - 1
    total = len(data)
    padded = data + bytes(-len(data) % 8)
    for i in range(len(padded) // 8):
        word = int.from_bytes(padded[8 * i : 8 * i + 8], "little") ^ ((i + 1) * 0x9E3779B97F4A7C15 & mask)
        word = word * 0xBF58476D1CE4E5B9 & mask
        word = (word ^ word >> 32) * 0x9E3779B97F4A7C15 & mask
        total += word ^ word >> 29
    return total & mask


def test_checksums_in_parts_are_those_of_the_definition() -> None:
    for size in (0, 1, 7, 8, 9, 100, 8 * (1 << 15), 8 * (1 << 15) + 3):
        data = np.random.default_rng(size).bytes(size)
        assert checksum(data) == checksum_by_words(data)
        assert checksum(bits(np.frombuffer(data, np.uint8))) == checksum_by_words(data)


def test_frames_are_tied_to_all_bytes_of_their_header() -> None:
    for data in streams():
        header = read_header(io.BytesIO(data))
        head = pack_header(header)
        assert seed_of(data) == frame_seed(header) == checksum_by_words(head)
        # What fills the axes up is 0, even where the checksum is right.
        filled = bytearray(head[:-8])
        filled[-8 * len(header.shape) - 1] = 1
        with pytest.raises(StreamError, match="header: is damaged"):
            read_header(io.BytesIO(bytes(filled) + struct.pack("<Q", checksum(bytes(filled)))))
