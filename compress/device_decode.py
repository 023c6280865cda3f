"""Streams read where they are: the kernels of compress/kernels in the order of `compress.codec.decode`.

The host knows the header, or the device tells it first; what the kernels found of the stream, checksums and
the header's bytes included, the device tells when all is done. Knows no CuPy; the device is given
(`compress.device.Device`).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress import entropy, launches, stream
from compress.device import WORD_BYTES, Device, DeviceArray, block_count
from compress.device_frames import FRAME_WORDS, Group, frame_count, groups
from compress.errors import CodecError, HostOnlyError, StreamError
from compress.stream import Header, damaged_unless

MOST_HEADER_BYTES = stream.header_size_bytes(stream.LARGEST_NDIM, 2)
PARTS = (256, 128)
"""Parts of a table of one and of two components, of which kernels know the first token."""
VERDICT_WORDS = 3
"""What `finish_frames` of frames_read.cu tells, before the header."""


def read_header(device: Device, data: DeviceArray) -> Header:
    """The header of a stream of bytes on the device."""
    return stream.read_header(io.BytesIO(device.download(data[:MOST_HEADER_BYTES]).tobytes()))


def decode(device: Device, data: DeviceArray, values: DeviceArray, header: Header | None = None) -> Header:
    """Fill `values`, the flat real numbers of an array, from a stream of bytes on the device, which start at
    a multiple of 8. Where the `header` that the stream begins with is given, the host need not wait for it.

    The device may still be filling the second half of a mirrored array, in the order of what it was asked
    for. Raises StreamError for what is no whole, undamaged stream, or has another header (some of `values`
    may be filled then), CodecError where `values` do not suit it, and HostOnlyError for frames that a CPU
    stored without loss: these have no kernel. Streams that a device wrote have none, so that the executor,
    whose ranks write and read on devices of one kind, never meets them; `device_arrays` decodes them on the
    host.
    """
    told = b""
    if header is not None:
        stream.check_given(header)
    if header is None or not frame_count(header):
        told = _told_header(device, data)
        given, header = header, stream.read_header(io.BytesIO(told), checked=False)
        if given is not None:
            stream.check_same(stream.pack_header(given), told)
    if values.size != header.size * header.components or values.dtype != header.real_dtype:
        if told:
            stream.check_header(told)
        wanted = f"give the {header.real_dtype} of {header.dtype} {header.shape}"
        raise CodecError("values", f"are {values.size} of {values.dtype}", wanted)
    start, count = stream.header_size_bytes(len(header.shape), header.components), frame_count(header)
    if not count:
        stream.check_header(told)
        _check_end(start, data)
        return header
    ended, head = _decode(device, header, data, values, told)
    try:
        # The host checks the header while the kernels run, which write to its memory whatever it finds.
        if told:
            stream.check_header(told)
    finally:
        words = ended()
    stream.check_same(head, words[VERDICT_WORDS:].tobytes())
    wrong, by_cpu, end = words[:VERDICT_WORDS].tolist()
    if wrong < count:
        damaged_unless(bool(by_cpu), f"frame {wrong}")
        raise HostOnlyError("stream", "was stored without loss by a CPU", "decompress it there")
    _check_end(end, data)
    return header


def _told_header(device: Device, data: DeviceArray) -> bytes:
    """The words of a stream that its header may have."""
    box, told = device.mailbox(launches.MOST_HEADER_WORDS)
    n_words = np.uint32(launches.MOST_HEADER_WORDS)
    device.launch(launches.tell_header(), "float32", data, np.uint64(data.size), n_words, box)
    return told().tobytes()[: data.size // WORD_BYTES * WORD_BYTES]


def _decode(
    device: Device, header: Header, data: DeviceArray, values: DeviceArray, head: bytes
) -> tuple[Callable[[], NDArray[np.uint64]], bytes]:
    """Have all frames decoded: what waits for the words of `finish_frames`, and the bytes that the stream
    begins with. `head`: these, where they have been told."""
    start, count = stream.header_size_bytes(len(header.shape), header.components), frame_count(header)
    made = groups(header, count)
    own_at = count * (FRAME_WORDS + 2) + 2
    rows = [group.count * group.n_tiles + launches.THREADS for group in made]
    work = device.zeros(own_at + sum(rows), "uint64")
    rules, coded = launches.rules(header, (0.0,) * header.components), header.coder != "lossless"
    code = _small if header.coder == "small" else _fast
    box = None
    for group, words in zip(made, rows, strict=True):
        span = launches.span(data.size, start, count, group.first, own_at, coded)
        own = group.values_of(values, header)
        code(device, header, data, group, work, span, rules, own)
        # The host goes on while the device decodes.
        head = head or stream.pack_header(header)
        if box is None:
            box, ended = device.mailbox(VERDICT_WORDS + start // WORD_BYTES)
        device.launch(
            launches.finish_frames(group.count), header.dtype, data, work, span, *group.arguments, own,
            np.uint64(stream.seed_of(head)), box,
        )  # fmt: skip
        own_at += words
    if header.mirror != "none":
        device.launch(
            launches.survey("fill_mirrored", block_count(header.size)), header.dtype, values,
            np.uint64(header.size), np.uint64(header.stored), np.uint32(header.mirror == "negated"),
        )  # fmt: skip
    return ended, head


def _check_end(end: int, data: DeviceArray) -> None:
    if end != data.size:
        raise StreamError("stream", "goes on after its last frame", "give one stream, whole and alone")


def _fast(
    device: Device, header: Header, data: DeviceArray, group: Group, work: DeviceArray, span: Any, rules: Any,
    own: DeviceArray,
) -> None:  # fmt: skip
    """Have the tiles of a group decoded."""
    device.launch(
        launches.fast_decode(group.count, group.n_tiles), header.dtype, data, work, span, *group.arguments,
        rules, own,
    )  # fmt: skip


def _small(
    device: Device, header: Header, data: DeviceArray, group: Group, work: DeviceArray, span: Any, rules: Any,
    own: DeviceArray,
) -> None:  # fmt: skip
    """As `_fast`."""
    n_tables, n_tokens = entropy.count_shape(header.components)
    elements, _, n_tiles = group.arguments
    starts = device.empty(group.count * n_tables * (n_tokens + 1), "uint16")
    coarse = device.empty(group.count * n_tables * PARTS[header.components - 1], "uint8")
    plans = device.empty(group.count * launches.SMALL_PLAN_WORDS, "uint32")
    segments = device.empty(group.count * group.n_tiles, "uint64")
    claims = device.zeros(launches.CLAIM_WORDS, "uint64")
    device.launch(
        launches.small_index(group.count), header.dtype, data, work, span, elements, n_tiles, starts, coarse,
        plans, segments, claims,
    )  # fmt: skip
    device.launch(
        launches.small_decode(group.count, group.n_tiles), header.dtype, data, group.frames_of(work), starts,
        coarse, plans, segments, *group.arguments, np.uint32(group.count), rules, own, claims,
    )  # fmt: skip
