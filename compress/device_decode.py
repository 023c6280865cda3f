"""Streams read where they are: the kernels of compress/kernels in the order of `compress.codec.decode`.

The host reads the header while the device looks for frames, and looks once at what the kernels found of
these, checksums included, when all is done. Knows no CuPy; the device is given
(`compress.device_codec.Device`).
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from compress import entropy, launches, stream
from compress.device_codec import (
    FRAME_WORDS,
    Device,
    DeviceArray,
    Group,
    checked_parts,
    frame_count,
    groups,
    survey_blocks,
)
from compress.errors import CodecError, StreamError
from compress.frame import PLANES
from compress.launches import FRAME
from compress.stream import Header, damaged_unless
from compress.tiles import tile_count

MOST_HEADER_BYTES = stream.header_size_bytes(stream.LARGEST_NDIM, 2)
PARTS = (256, 128)
"""Parts of a table of one and of two components, of which kernels know the first token."""
EXACT_BLOCKS = 16
TILE_WORDS = 2
"""`Tile` of fast_decode.cu."""


def read_header(device: Device, data: DeviceArray) -> Header:
    """The header of a stream of bytes on the device."""
    return stream.read_header(io.BytesIO(device.fetch(data[:MOST_HEADER_BYTES])().tobytes()))


def decode(device: Device, data: DeviceArray, values: DeviceArray) -> Header:
    """Fill `values`, the flat real numbers of an array, from a stream of bytes on the device, which start at
    a multiple of 8.

    Raises StreamError for what is no whole, undamaged stream (some of `values` may be filled then), and
    CodecError where `values` do not suit it and for frames that were stored without loss on a CPU.
    """
    if values.dtype.name not in ("float32", "float64"):
        raise CodecError("values", f"are of {values.dtype}", "give real numbers")
    arriving = device.fetch(data[:MOST_HEADER_BYTES])
    # The device looks for frames while the host reads the header; no frame is smaller than a tile.
    room = tile_count(values.size) or 1
    frames = device.empty(room * FRAME_WORDS, "uint64")
    device.launch(
        launches.frames("find_frames", 1), values.dtype.name, data, np.uint64(data.size), np.uint64(room),
        frames,
    )  # fmt: skip
    head = arriving().tobytes()
    header = stream.read_header(io.BytesIO(head), checked=False)
    if values.size != header.size * header.components or values.dtype != header.real_dtype:
        stream.check_header(head)
        raise CodecError("values", f"are {values.size} of {values.dtype}", f"give those of {header.shape}")
    count = frame_count(header)
    if not count:
        stream.check_header(head)
        _check_end(stream.header_size_bytes(len(header.shape), header.components), data)
        return header
    rules = launches.rules(header, (0.0,) * header.components)
    decoder = _small if header.coder == "small" else _fast
    for group in groups(header, 1 << 31):
        own, table = group.values_of(values, header), group.frames_of(frames)
        decoder(device, header, data, group, table, rules, own)
        device.launch(
            launches.frames("put_exact", EXACT_BLOCKS, group.count), header.dtype, data, table,
            *group.arguments, own,
        )  # fmt: skip
    if header.coder == "small":
        for _, table, blocks, part in checked_parts(data, frames, count):
            device.launch(launches.frames("checksums", blocks, part), header.dtype, data, table)
    if header.mirror != "none":
        device.launch(
            launches.survey("fill_mirrored", survey_blocks(header.size)), header.dtype, values,
            np.uint64(header.size), np.uint64(header.stored), np.uint32(header.mirror == "negated"),
        )  # fmt: skip
    # The host checks the header while the kernels run.
    stream.check_header(head)
    seed = np.uint64(stream.frame_seed(header))
    _check_frames(device.fetch(frames[: count * FRAME_WORDS])().view(FRAME), seed, data)
    return header


def _check_frames(frames: np.ndarray[Any, Any], seed: np.uint64, data: DeviceArray) -> None:
    planes = frames["kind"] == PLANES
    wrong = planes | (frames["damaged"] != 0) | (frames["sum"] + seed != frames["stated"])
    if wrong.any():
        number = int(wrong.argmax())
        damaged_unless(bool(planes[number]), f"frame {number}")
        raise CodecError("stream", "was stored without loss by a CPU", "decompress it there")
    _check_end(int(frames[-1]["start"] + frames[-1]["size"]), data)


def _check_end(end: int, data: DeviceArray) -> None:
    if end != data.size:
        raise StreamError("stream", "goes on after its last frame", "give one stream, whole and alone")


def _fast(
    device: Device, header: Header, data: DeviceArray, group: Group, frames: DeviceArray, rules: Any,
    own: DeviceArray,
) -> None:  # fmt: skip
    tiles = device.empty(group.count * group.n_tiles * TILE_WORDS + launches.THREADS, "uint64")
    device.launch(
        launches.fast_index(group.count), header.dtype, data, frames, *group.arguments[1:], tiles
    )  # fmt: skip
    device.launch(
        launches.fast_decode(group.count, group.n_tiles), header.dtype, data, frames, tiles,
        *group.arguments, rules, own,
    )  # fmt: skip


def _small(
    device: Device, header: Header, data: DeviceArray, group: Group, frames: DeviceArray, rules: Any,
    own: DeviceArray,
) -> None:  # fmt: skip
    n_tables, n_tokens = entropy.count_shape(header.components)
    starts = device.empty(group.count * n_tables * (n_tokens + 1), "uint16")
    coarse = device.empty(group.count * n_tables * PARTS[header.components - 1], "uint8")
    plans = device.empty(group.count * launches.PLAN_WORDS, "uint32")
    segments = device.empty(group.count * group.n_tiles, "uint64")
    device.launch(
        launches.small_index(group.count), header.dtype, data, frames, np.uint32(group.n_tiles), starts,
        coarse, plans, segments,
    )  # fmt: skip
    device.launch(
        launches.small_decode(group.count, group.n_tiles), header.dtype, data, frames, starts, coarse, plans,
        segments, *group.arguments, rules, own,
    )  # fmt: skip
