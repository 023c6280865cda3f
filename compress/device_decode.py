"""Streams read where they are: the kernels of compress/kernels in the order of `compress.codec.decode`.

The host reads the header, which the device tells it first, while the device looks for frames, and is told
what the kernels found of these, checksums included, when all is done. Knows no CuPy; the device is given
(`compress.device_codec.Device`).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from compress import entropy, launches, stream
from compress.device_codec import (
    FRAME_WORDS,
    WORD_BYTES,
    Device,
    DeviceArray,
    Group,
    block_count,
    frame_count,
    groups,
)
from compress.errors import CodecError, HostOnlyError, StreamError
from compress.stream import Header, damaged_unless
from compress.tiles import tile_count

MOST_HEADER_BYTES = stream.header_size_bytes(stream.LARGEST_NDIM, 2)
PARTS = (256, 128)
"""Parts of a table of one and of two components, of which kernels know the first token."""
EXACT_BLOCKS = 16
VERDICT_WORDS = 3
"""What `judge_frames` of frames.cu tells."""
TILE_WORDS = 2
"""`Tile` of fast_decode.cu."""


def read_header(device: Device, data: DeviceArray) -> Header:
    """The header of a stream of bytes on the device."""
    return stream.read_header(io.BytesIO(device.download(data[:MOST_HEADER_BYTES]).tobytes()))


def decode(device: Device, data: DeviceArray, values: DeviceArray) -> Header:
    """Fill `values`, the flat real numbers of an array, from a stream of bytes on the device, which start at
    a multiple of 8.

    Raises StreamError for what is no whole, undamaged stream (some of `values` may be filled then),
    CodecError where `values` do not suit it, and HostOnlyError for frames that a CPU stored without loss:
    these have no kernel. Streams that a device wrote have none, so that the executor, whose ranks write and
    read on devices of one kind, never meets them; `device_arrays` decodes them on the host.
    """
    if values.dtype.name not in ("float32", "float64"):
        raise CodecError("values", f"are of {values.dtype}", "give real numbers")
    # The device looks for frames while the host reads the header; no frame is smaller than a tile.
    room = tile_count(values.size) or 1
    frames = device.empty(room * FRAME_WORDS, "uint64")
    box, told = device.mailbox(launches.MOST_HEADER_WORDS)
    device.launch(
        launches.frames("find_frames", 1), values.dtype.name, data, np.uint64(data.size), np.uint64(room),
        frames, box,
    )  # fmt: skip
    head = told().tobytes()[: data.size // WORD_BYTES * WORD_BYTES]
    header = stream.read_header(io.BytesIO(head), checked=False)
    if values.size != header.size * header.components or values.dtype != header.real_dtype:
        stream.check_header(head)
        raise CodecError("values", f"are {values.size} of {values.dtype}", f"give those of {header.shape}")
    count = frame_count(header)
    if not count:
        stream.check_header(head)
        _check_end(stream.header_size_bytes(len(header.shape), header.components), data)
        return header
    index = _small if header.coder == "small" else _fast
    for group in groups(header, 1 << 31):
        table = group.frames_of(frames)
        decode_tiles = index(device, header, data, group, table)
        # The host goes on while the device looks at the tiles.
        own = group.values_of(values, header)
        decode_tiles(launches.rules(header, (0.0,) * header.components), own)
        device.launch(
            launches.frames("put_exact", EXACT_BLOCKS, group.count), header.dtype, data, table,
            *group.arguments, own,
        )  # fmt: skip
    if header.mirror != "none":
        device.launch(
            launches.survey("fill_mirrored", block_count(header.size)), header.dtype, values,
            np.uint64(header.size), np.uint64(header.stored), np.uint32(header.mirror == "negated"),
        )  # fmt: skip
    box, told = device.mailbox(VERDICT_WORDS)
    device.launch(
        launches.frames("judge_frames", 1), header.dtype, frames, np.uint64(count),
        np.uint64(stream.seed_of(head)), box,
    )  # fmt: skip
    try:
        # The host checks the header while the kernels run, which write to the mailbox whatever it finds.
        stream.check_header(head)
    finally:
        verdict = told().tolist()
    _check_frames(verdict, count, data)
    return header


def _check_frames(verdict: list[int], count: int, data: DeviceArray) -> None:
    wrong, by_cpu, end = verdict
    if wrong < count:
        damaged_unless(bool(by_cpu), f"frame {wrong}")
        raise HostOnlyError("stream", "was stored without loss by a CPU", "decompress it there")
    _check_end(end, data)


def _check_end(end: int, data: DeviceArray) -> None:
    if end != data.size:
        raise StreamError("stream", "goes on after its last frame", "give one stream, whole and alone")


def _fast(
    device: Device, header: Header, data: DeviceArray, group: Group, frames: DeviceArray
) -> Callable[[Any, DeviceArray], None]:
    """Look at the tiles of a group; what is returned decodes them, given the rules and where values go."""
    tiles = device.empty(group.count * group.n_tiles * TILE_WORDS + launches.THREADS, "uint64")
    device.launch(
        launches.fast_index(group.count), header.dtype, data, frames, *group.arguments[1:], tiles
    )  # fmt: skip

    def decode_tiles(rules: Any, own: DeviceArray) -> None:
        device.launch(
            launches.fast_decode(group.count, group.n_tiles), header.dtype, data, frames, tiles,
            *group.arguments, rules, own,
        )  # fmt: skip

    return decode_tiles


def _small(
    device: Device, header: Header, data: DeviceArray, group: Group, frames: DeviceArray
) -> Callable[[Any, DeviceArray], None]:
    """As `_fast`."""
    n_tables, n_tokens = entropy.count_shape(header.components)
    starts = device.empty(group.count * n_tables * (n_tokens + 1), "uint16")
    coarse = device.empty(group.count * n_tables * PARTS[header.components - 1], "uint8")
    plans = device.empty(group.count * launches.PLAN_WORDS, "uint32")
    segments = device.empty(group.count * group.n_tiles, "uint64")
    device.launch(
        launches.small_index(group.count), header.dtype, data, frames, np.uint32(group.n_tiles), starts,
        coarse, plans, segments,
    )  # fmt: skip

    def decode_tiles(rules: Any, own: DeviceArray) -> None:
        device.launch(
            launches.small_decode(group.count, group.n_tiles), header.dtype, data, frames, starts, coarse,
            plans, segments, *group.arguments, rules, own,
        )  # fmt: skip

    return decode_tiles
