"""Streams read where they are: the kernels of compress/kernels in the order of `compress.codec.decode`.

Headers of frames are looked at on the host; all checksums are formed on the device before anything is
decoded. Knows no CuPy; the device is given (`compress.device_codec.Device`).
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from compress import entropy, launches, stream
from compress.device_codec import (
    WORD_BYTES,
    Device,
    DeviceArray,
    Tables,
    checksums,
    survey_blocks,
)
from compress.errors import CodecError, StreamError
from compress.frame import (
    CODED,
    CODED_HEAD,
    PLACE_BYTES,
    PLANES,
    RAW,
    element_indices,
    filled,
    most_payload_bytes,
)
from compress.stream import FRAME_HEADER_BYTES, Header, damaged_unless
from compress.tiles import TILE

MOST_HEADER_BYTES = stream.header_size_bytes(stream.LARGEST_NDIM, 2)


@dataclass(frozen=True)
class _Frame:
    """Where a frame's payload is (bytes), its checksum, kind, numbers of exact values and coded bytes."""

    number: int
    start: int
    end: int
    checksum: int
    kind: int
    exact: int
    coded_bytes: int

    @property
    def coded(self) -> int:
        """The start of the coded bytes."""
        return self.start + CODED_HEAD.size

    @property
    def name(self) -> str:
        """As errors name it."""
        return f"frame {self.number}"


def read_header(device: Device, data: DeviceArray) -> Header:
    """The header of a stream of bytes on the device."""
    return stream.read_header(io.BytesIO(device.download(data[:MOST_HEADER_BYTES]).tobytes()))


def decode(device: Device, data: DeviceArray, values: DeviceArray) -> Header:
    """Fill `values`, the flat real numbers of an array, from a stream of bytes on the device.

    Raises StreamError for what is no whole, undamaged stream, CodecError where `values` do not suit it and
    for frames that were stored without loss on a CPU.
    """
    header = read_header(device, data)
    if values.size != header.size * header.components or values.dtype != header.real_dtype:
        raise CodecError("values", f"are {values.size} of {values.dtype}", f"give those of {header.shape}")
    frames = _frames(device, data, header)
    sums = (
        checksums(device, header.dtype, data, [(frame.start, frame.end) for frame in frames])
        if frames
        else []
    )
    for frame, total in zip(frames, sums, strict=True):
        damaged_unless(total == frame.checksum, frame.name)
    rules = launches.rules(header, (0.0,) * header.components)
    damaged = device.zeros(1, "uint32")
    tables: dict[int, Tables] = {}
    for frame, (first, count) in zip(frames, header.frames(), strict=True):
        own = values[header.components * first : header.components * (first + count)]
        if frame.kind == RAW:
            damaged_unless(frame.end - frame.start == filled(WORD_BYTES + own.nbytes), frame.name)
            own.view(np.uint8)[:] = data[frame.start + WORD_BYTES : frame.start + WORD_BYTES + own.nbytes]
            continue
        if count not in tables:
            tables[count] = Tables(device, header, count)
        order = tables[count]
        decoder = {"fast": _fast, "small": _small}[header.coder]
        decoder(device, data, header, frame, order, rules, own, damaged)
        if frame.exact:
            _put_exact(device, data, header, frame, own, order.n_tiles)
    damaged_unless(not device.download(damaged)[0], "a frame")
    if header.mirror != "none":
        device.launch(
            launches.survey("fill_mirrored", survey_blocks(header.size)), header.dtype, values,
            np.uint64(header.size), np.uint64(header.stored), np.uint32(header.mirror == "negated"),
        )  # fmt: skip
    return header


def _frames(device: Device, data: DeviceArray, header: Header) -> list[_Frame]:
    at = stream.header_size_bytes(len(header.shape), header.components)
    seed = stream.frame_seed(header)
    found = []
    for number, (_, count) in enumerate(header.frames()):
        body = at + FRAME_HEADER_BYTES
        head = device.download(data[at : body + CODED_HEAD.size]).tobytes()
        damaged_unless(len(head) >= FRAME_HEADER_BYTES + WORD_BYTES, f"frame {number}")
        most = most_payload_bytes(count, header)
        size, total = stream.unpack_frame_header(head[:FRAME_HEADER_BYTES], number, seed, most)
        damaged_unless(size % WORD_BYTES == 0 and WORD_BYTES <= size <= data.size - body, f"frame {number}")
        kind, exact, coded = int.from_bytes(head[FRAME_HEADER_BYTES:][:WORD_BYTES], "little"), 0, 0
        if kind == PLANES:
            raise CodecError("stream", "was stored without loss by a CPU", "decompress it there")
        if kind == CODED:
            damaged_unless(size >= CODED_HEAD.size and header.coder != "lossless", f"frame {number}")
            _, exact, coded = CODED_HEAD.unpack(head[FRAME_HEADER_BYTES:])
            values_bytes = filled(exact * PLACE_BYTES) + filled(exact * header.real_dtype.itemsize)
            damaged_unless(size == CODED_HEAD.size + filled(coded) + values_bytes, f"frame {number}")
        damaged_unless(kind in (RAW, CODED), f"frame {number}")
        found.append(_Frame(number, body, body + size, total, kind, exact, coded))
        at = body + size
    if at != data.size:
        raise StreamError("stream", "goes on after its last frame", "give one stream, whole and alone")
    return found


def _fast(
    device: Device, data: DeviceArray, header: Header, frame: _Frame, order: Tables, rules: Any,
    own: DeviceArray, damaged: DeviceArray,
) -> None:  # fmt: skip
    damaged_unless(frame.coded_bytes >= 4 * order.n_tiles, frame.name)
    starts, sizes = (device.upload(np.array([x], np.uint64)) for x in (frame.coded, frame.coded_bytes))
    device.launch(
        launches.fast_decode(1, order.n_tiles), header.dtype, data, starts, sizes, *order.arguments, rules,
        own, damaged,
    )  # fmt: skip


def _small(
    device: Device, data: DeviceArray, header: Header, frame: _Frame, order: Tables, rules: Any,
    own: DeviceArray, damaged: DeviceArray,
) -> None:  # fmt: skip
    most = min(frame.coded_bytes, entropy.most_head_bytes(order.n_tiles, header.components))
    head = device.download(data[frame.coded : frame.coded + most])
    tiles_log2, frequencies, words, at = entropy.unpack_head(
        head, order.n_tiles, header.components, frame.name
    )
    offsets, end = entropy.segment_offsets(at, words)
    damaged_unless(end == frame.coded_bytes, frame.name)
    starts = entropy.cumulative(frequencies).astype(np.uint16).reshape(-1)
    device.launch(
        launches.small_decode(1, words.size), header.dtype, data,
        device.upload((frame.coded + offsets).astype(np.uint64)), device.upload(words.astype(np.uint32)),
        *order.arguments, rules, device.upload(starts), np.uint32(tiles_log2), np.uint32(words.size),
        own, damaged,
    )  # fmt: skip


def _put_exact(
    device: Device, data: DeviceArray, header: Header, frame: _Frame, own: DeviceArray, n_tiles: int
) -> None:
    start = frame.coded + filled(frame.coded_bytes)
    middle = start + filled(frame.exact * PLACE_BYTES)
    places = device.download(data[start : start + frame.exact * PLACE_BYTES].view(np.uint32)).astype(np.int64)
    inside = bool((np.diff(places) > 0).all()) and int(places[-1]) < header.components * n_tiles * TILE
    damaged_unless(inside, frame.name)
    targets = element_indices(places, header, own.size, n_tiles * TILE)
    damaged_unless(bool((targets < own.size).all()), frame.name)
    own.view(np.uint8).reshape(-1, own.itemsize)[device.upload(targets)] = data[
        middle : middle + frame.exact * own.itemsize
    ].reshape(-1, own.itemsize)
