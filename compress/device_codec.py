"""Streams written where the array is: the kernels of compress/kernels in the order of `codec.encode`.

A device is given (`Device`): it holds flat arrays, launches kernels, and copies to and from the host. Streams
are those of the CPU, byte for byte, but for frames without loss, which are stored raw here. The host waits
for the device once, for the stream's size; what it must know of an array before, `device_survey` finds out.
Nothing is allocated but workspace of a batch of frames; the output buffer is the caller's. Knows no CuPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from compress import entropy, launches, stream
from compress.errors import CodecError
from compress.frame import RAW, filled
from compress.launches import FRAME, Launch
from compress.stream import Header
from compress.tiles import TILE, tile_count, usable_axes

BATCH_BYTES = 7 << 27
"""Workspace for the coded tiles of the frames that are coded at once; one frame may need more."""
MOST_FRAMES = 1 << 15
"""Frames of a launch that has them along y."""
MOST_BLOCKS = 1 << 11
"""Blocks that look at an array together, and at the bytes of frames."""
FILL_BLOCKS = 32
"""The least blocks a frame that fill in what coders leave out."""
WORD_BYTES = 8
FRAME_WORDS = FRAME.itemsize // WORD_BYTES

DeviceArray = Any
"""A flat array on the device, sliced and assigned like NumPy's."""


def block_count(size: int) -> int:
    """The blocks that look at so many elements or words, some thousands each."""
    return max(1, min(MOST_BLOCKS, size // TILE))


@runtime_checkable
class Device(Protocol):
    """What the codec asks of a device. Arrays are flat; launches and copies happen in order."""

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """A copy on the device."""

    def download(self, array: DeviceArray) -> NDArray[Any]:
        """A copy on the host."""

    def mailbox(self, n_words: int) -> tuple[Any, Callable[[], NDArray[np.uint64]]]:
        """What a kernel is given to tell the host so many words of 8 bytes, behind which it writes a 1, and
        what returns them: it waits for the 1, at most until all that was asked for before is done."""

    def zeros(self, size: int, dtype: str) -> DeviceArray:
        """A new array of zeros."""

    def empty(self, size: int, dtype: str) -> DeviceArray:
        """A new array of anything."""

    def launch(self, launch: Launch, dtype: str, *arguments: Any) -> None:
        """Run a kernel that is compiled for arrays of `dtype`; arguments are device arrays, NumPy scalars,
        structures as ctypes arrays of bytes, and what `mailbox` gave."""


@dataclass(frozen=True)
class Group:
    """Frames of equal size that are coded at once: number of the first, how many, their elements and tiles,
    and the arguments of kernels that say where elements are."""

    first: int
    count: int
    elements: int
    n_tiles: int
    arguments: tuple[Any, ...]

    def values_of(self, values: DeviceArray, header: Header) -> DeviceArray:
        """The group's part of the array's flat real numbers."""
        begin = (self.first << header.frame_log2) * header.components
        end = begin + self.count * self.elements * header.components
        return values if end - begin == values.size else values[begin:end]

    def frames_of(self, frames: DeviceArray) -> DeviceArray:
        """The group's part of the table of frames."""
        return frames[FRAME_WORDS * self.first :] if self.first else frames


def groups(header: Header, most: int) -> tuple[Group, ...]:
    """The frames of a stream in groups of at most `most`, and at most `MOST_FRAMES`, nearly equal ones."""
    return _groups(header.stored, header.frame_log2, header.axes, min(most, MOST_FRAMES))


@lru_cache(256)
def _groups(stored: int, frame_log2: int, axes: tuple[int, ...], most: int) -> tuple[Group, ...]:
    whole, rest = divmod(stored, 1 << frame_log2)
    step = max(1, most)
    step = -(-whole // max(1, -(-whole // step))) or 1
    made = [
        _group(axes, first, min(step, whole - first), 1 << frame_log2) for first in range(0, whole, step)
    ]
    return (*made, _group(axes, whole, 1, rest)) if rest else tuple(made)


def _group(axes: tuple[int, ...], first: int, count: int, elements: int) -> Group:
    n_tiles = tile_count(elements)
    order = launches.order(usable_axes(axes, elements))
    return Group(first, count, elements, n_tiles, (np.uint64(elements), order, np.uint32(n_tiles)))


def frame_count(header: Header) -> int:
    """The frames of a stream."""
    return -(-header.stored >> header.frame_log2)


def checked_parts(data: DeviceArray, frames: DeviceArray, count: int) -> Iterator[tuple[int, Any, int, int]]:
    """How the words of `count` frames are summed: in each launch the first frame and the table from it on,
    blocks a frame, frames."""
    for first in range(0, count, MOST_FRAMES):
        part = min(MOST_FRAMES, count - first)
        blocks = max(1, min(MOST_BLOCKS // part, data.size // (WORD_BYTES * TILE)))
        yield first, frames[FRAME_WORDS * first :], blocks, part


def encode(
    device: Device, values: DeviceArray, header: Header, limits: tuple[float, ...], out: DeviceArray
) -> int:
    """Write the stream of flat real numbers to `out` (bytes, from a multiple of 8 on): how many were written.

    `worst_size_bytes` are always enough. The device may still be writing the stream, in the order of what it
    was asked for. Raises CodecError where `out` is too small.
    """
    start, count = stream.header_size_bytes(len(header.shape), header.components), frame_count(header)
    _check_room(out, start)
    if not count:
        out[:start] = device.upload(np.frombuffer(stream.pack_header(header), np.uint8))
        return start
    writer = _Writer(device, header, limits, values, out, start, count)
    frame_tiles = tile_count(min(header.stored, 1 << header.frame_log2))
    slots_bytes = frame_tiles * (launches.FAST_SLOT_BYTES + 4 * TILE * header.components)
    for group in groups(header, BATCH_BYTES // slots_bytes):
        writer.put(group)
    frames, head = writer.frames, stream.pack_header(header)
    words, seed = launches.header(head), np.uint64(stream.seed_of(head))
    for first, table, blocks, part in checked_parts(out, frames, count):
        device.launch(
            launches.frames("seal_frames", blocks, part), header.dtype, words, np.uint32(start // WORD_BYTES),
            table, np.uint64(first), seed, out,
        )  # fmt: skip
    used = int(writer.mailbox[1]()[0])
    _check_room(out, used)
    return used


def _check_room(out: DeviceArray, size: int) -> None:
    if size > out.size:
        raise CodecError("out", f"has {out.size} bytes, too few", "give worst_size_bytes(...)")


class _Writer:
    """A stream under way in an output buffer."""

    def __init__(
        self, device: Device, header: Header, limits: tuple[float, ...], values: DeviceArray,
        out: DeviceArray, start: int, count: int,
    ) -> None:  # fmt: skip
        self.device, self.header, self.values, self.out, self.start = device, header, values, out, start
        self.count, self.rules = count, launches.rules(header, limits)

    @cached_property
    def frames(self) -> DeviceArray:
        """The table of frames, and behind it where the stream ends; made once the first tiles are on their
        way."""
        return self.device.empty(self.count * FRAME_WORDS + 1, "uint64")

    @cached_property
    def mailbox(self) -> tuple[Any, Callable[[], NDArray[np.uint64]]]:
        """Where the device tells at which byte the stream ends, and what waits for it."""
        return self.device.mailbox(1)

    @property
    def end(self) -> DeviceArray:
        """Where the stream ends so far."""
        return self.frames[self.count * FRAME_WORDS :]

    def put(self, group: Group) -> None:
        """Append a group of frames to what ends at `end`, which moves on; their headers stay out. The host is
        told where the last group ends."""
        device, dtype, parts = self.device, self.header.dtype, group.count * group.n_tiles
        values, last = group.values_of(self.values, self.header), parts * (1 + self.header.components)
        words = device.empty(last + group.count, "uint32")
        sizes, exact, heads = words[:parts], words[parts:last], words[last:]
        pack = None
        if self.header.coder != "lossless":
            code = self._fast if self.header.coder == "fast" else self._small
            pack = code(group, values, exact, sizes, heads)
        frames, end = group.frames_of(self.frames), self.end
        if not pack:
            self._as_raw(group, frames)
        exact_starts, starts = device.empty(exact.size, "uint64"), device.empty(parts, "uint64")
        if pack:
            device.launch(
                launches.frames("frame_sizes", group.count), dtype, sizes, heads, exact,
                np.uint32(group.n_tiles), np.uint64(group.elements), starts, exact_starts, frames,
            )  # fmt: skip
        device.launch(
            launches.frames("place_frames", 1), dtype, frames, np.uint32(group.count),
            np.uint64(self.out.size), np.uint64(0 if group.first else self.start), end,
            np.uint32(group.first + group.count == self.count), self.mailbox[0],
        )  # fmt: skip
        if pack:
            pack(starts, frames)
        blocks = min(group.n_tiles, max(FILL_BLOCKS, MOST_BLOCKS // group.count))
        device.launch(
            launches.frames("fill_frames", blocks, group.count), dtype, values, *group.arguments,
            self.rules, exact, exact_starts, frames, self.out,
        )  # fmt: skip

    def _as_raw(self, group: Group, frames: DeviceArray) -> None:
        made = np.zeros(group.count, FRAME)
        values_bytes = group.elements * self.header.components * self.header.real_dtype.itemsize
        made["kind"], made["size"] = RAW, filled(WORD_BYTES + values_bytes)
        frames[: group.count * FRAME_WORDS] = self.device.upload(made.view(np.uint64))

    def _fast(
        self, group: Group, values: DeviceArray, exact: DeviceArray, sizes: DeviceArray, heads: DeviceArray
    ) -> Any:
        """Code tiles; what is returned packs them, once frames have their places."""
        device, dtype, n_tiles = self.device, self.header.dtype, np.uint32(group.n_tiles)
        slot_bytes = launches.FAST_SLOT_BYTES + 4 * TILE * self.header.components
        slots = device.empty(group.count * group.n_tiles * slot_bytes // 4, "uint32")
        device.launch(
            launches.fast_encode(group.count, group.n_tiles), dtype, values, *group.arguments, self.rules,
            slots, sizes, heads, exact,
        )  # fmt: skip

        def pack(starts: DeviceArray, frames: DeviceArray) -> None:
            device.launch(
                launches.fast_pack(group.count, group.n_tiles), dtype, slots, sizes, starts, n_tiles, frames,
                self.out,
            )  # fmt: skip

        return pack

    def _small(
        self, group: Group, values: DeviceArray, exact: DeviceArray, sizes: DeviceArray, heads: DeviceArray
    ) -> Any:
        """As `_fast`."""
        device, dtype, n = self.device, self.header.dtype, self.header.components
        n_tables, n_tokens = entropy.count_shape(n)
        n_tiles, parts = np.uint32(group.n_tiles), group.count * group.n_tiles
        counts = device.zeros(group.count * n_tables * n_tokens, "uint32")
        raw = device.zeros(group.count, "uint64")
        device.launch(
            launches.small_count(group.count, group.n_tiles), dtype, values, *group.arguments, self.rules,
            counts, raw, exact,
        )  # fmt: skip
        starts = device.empty(group.count * n_tables * (n_tokens + 1), "uint16")
        plans = device.empty(group.count * launches.PLAN_WORDS, "uint32")
        tables = device.empty(group.count * entropy.tables_room_bytes(n) // 4, "uint32")
        device.launch(
            launches.small_plan(group.count), dtype, counts, raw, n_tiles, starts, plans, heads, tables
        )
        slot_bytes = launches.SMALL_SLOT_BYTES + 4 * TILE * n
        slots, words = device.empty(parts * slot_bytes // 2, "uint16"), device.empty(parts, "uint32")
        device.launch(
            launches.small_encode(group.count, group.n_tiles), dtype, values, *group.arguments, self.rules,
            starts, plans, slots, words, sizes,
        )  # fmt: skip

        def pack(segment_starts: DeviceArray, frames: DeviceArray) -> None:
            device.launch(
                launches.small_pack(group.count, group.n_tiles), dtype, slots, words, segment_starts, n_tiles,
                plans, tables, frames, self.out,
            )  # fmt: skip

        return pack
