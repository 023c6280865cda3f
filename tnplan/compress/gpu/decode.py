"""Streams read where they are: the kernels of compress/kernels in the order of `codec.decode`.

The host knows the header, or the device tells it first; what the kernels found of the stream, checksums and
the header's bytes included, the device tells when all is done. Knows no CuPy; the device is given
(`tnplan.compress.gpu.device.KernelDevice`).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu import rans
from tnplan.compress.format import stream
from tnplan.compress.format.box import Predictor
from tnplan.compress.format.errors import CodecError, HostOnlyError, StreamError
from tnplan.compress.format.stream import Header, damaged_unless
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.device import WORD_BYTES, DeviceArray, KernelDevice, block_count
from tnplan.compress.gpu.frames import FRAME_WORDS, FrameGroup, frame_count, groups
from tnplan.compress.gpu.launches import KernelLaunch
from tnplan.compress.gpu.predicted import PredictedGroup, residual_rules

MOST_HEADER_BYTES = stream.header_size_bytes(stream.LARGEST_NDIM, 2)
PARTS = (256, 128)
"""Parts of a table of one and of two components, of which kernels know the first token."""
VERDICT_WORDS = 4
"""What kernels tell (verdict.cuh), before the header."""

Told = Callable[[], NDArray[np.uint64]]
"""Waits for the words of a mailbox."""


@dataclass(frozen=True)
class DecodeBatch:
    """Frames of equal size, which a launch decodes: where the launch's words begin in the workspace."""

    group: FrameGroup
    own_at: int
    decoding: KernelLaunch
    putting: KernelLaunch

    @property
    def end(self) -> int:
        """Where the launch's words end: one a tile, and those of `fast_decode`'s threads."""
        return self.own_at + self.group.count * self.group.n_tiles + launches.THREADS


@dataclass(frozen=True)
class DecodePlan:
    """What is the same for all streams of a shape that are cut into the same frames and tiles: their real
    numbers, the bytes of the header, and how many frames there are."""

    header: Header
    n_reals: int
    real_dtype: np.dtype[np.floating]
    start: int
    n_frames: int

    @cached_property
    def parts(self) -> tuple[DecodeBatch, ...]:
        """All frames; only for headers of arrays that there are."""
        launch = launches.small_decode if self.header.coder == "small" else launches.fast_decode
        own_at, made = self.n_frames * (FRAME_WORDS + 2) + 2, []
        for group in groups(self.header, self.n_frames):
            decoding = launch(group.count, group.n_tiles)
            made.append(DecodeBatch(group, own_at, decoding, launches.put_exact_values(group.count)))
            own_at = made[-1].end
        return tuple(made)

    @cached_property
    def work_words(self) -> int:
        """The words of the workspace."""
        return self.parts[-1].end

    @cached_property
    def decoding_blocks(self) -> int:
        """The blocks of all launches that decode."""
        return sum(part.decoding.blocks for part in self.parts)

    @cached_property
    def putting_blocks(self) -> int:
        """The blocks of all launches that put exact values."""
        return sum(part.putting.blocks for part in self.parts)


def _plan_of(header: Header) -> DecodePlan:
    return cached_plan(
        header.dtype,
        tuple(header.shape),
        header.coder,
        header.reflection,
        tuple(header.axes),
        header.frame_log2,
        header.predictor,
    )


@lru_cache(64)
def cached_plan(
    dtype: str, shape: tuple[int, ...], coder: str, reflection: str, axes: tuple[int, ...], frame_log2: int,
    predictor: Predictor | None,
) -> DecodePlan:  # fmt: skip
    bare = Header(dtype, shape, "lossless", 0.0, coder, reflection, (), axes, frame_log2, predictor)
    start = stream.header_size_bytes(len(shape), bare.components)
    return DecodePlan(bare, bare.size * bare.components, bare.real_dtype, start, frame_count(bare))


@dataclass(slots=True)
class UnderWay:
    """A stream that kernels read: its bytes, the array's real numbers, and the workspace."""

    device: KernelDevice
    reading: DecodePlan
    data: DeviceArray
    values: DeviceArray
    work: DeviceArray

    def span(self, part: DecodeBatch, n_blocks: int) -> Any:
        """The struct `Span` of a launch."""
        reading = self.reading
        return launches.span(
            self.data.size, reading.start, reading.n_frames, part.group.first, part.own_at,
            reading.header.coder != "lossless", n_blocks,
        )  # fmt: skip

    def mailbox(self) -> tuple[Any, Told]:
        """Where kernels tell a verdict, and what waits for its words."""
        return self.device.mailbox(VERDICT_WORDS + self.reading.start // WORD_BYTES)


def read_header(device: KernelDevice, data: DeviceArray) -> Header:
    """The header of a stream of bytes on the device."""
    return stream.read_header(io.BytesIO(device.download(data[:MOST_HEADER_BYTES]).tobytes()))


def decode(
    device: KernelDevice, data: DeviceArray, values: DeviceArray, header: Header | None = None
) -> Header:
    """Fill `values`, the flat real numbers of an array, from a stream of bytes on the device, which start at
    a multiple of 8. Where the `header` that the stream begins with is given, the host need not wait for it.

    The device may still be filling values, in the order of what it was asked for: the host goes on when it
    is known that all of them will be right. Raises StreamError for what is no whole, undamaged stream, or has
    another header (some of `values` may be filled then), CodecError where `values` do not suit it, and
    HostOnlyError for frames that a CPU stored without loss: these have no kernel. Streams that a device wrote
    have none, so that the executor, whose ranks write and read on devices of one kind, never meets them;
    `gpu.arrays` decodes them on the host.
    """
    # A header that the caller knows saves a wait for the device before the first launch.
    told = b""
    if header is not None:
        stream.check_given(header)
    if header is None or 0 in header.shape:
        told = _told_header(device, data)
        given, header = header, stream.read_header(io.BytesIO(told), checked=False)
        if given is not None:
            stream.check_same(stream.pack_header(given), told)
    reading = _plan_of(header)
    if values.size != reading.n_reals or values.dtype != reading.real_dtype:
        if told:
            stream.check_header(told)
        wanted = f"give the {header.real_dtype} of {header.dtype} {header.shape}"
        raise CodecError("values", f"are {values.size} of {values.dtype}", wanted)
    if not reading.n_frames:
        stream.check_header(told)
        _check_end(reading.start, data)
        return header
    under_way = UnderWay(device, reading, data, values, device.zeros(reading.work_words, "uint64"))
    ended = _decode(under_way, launches.rules(header))
    try:
        # The host looks at the header while the kernels run, which write to its memory whatever it finds.
        head = told or stream.pack_header(header)
        if told:
            stream.check_header(told)
    finally:
        words = ended()
    # Invariant: the values are decoded by the header that the stream has. One that was given and
    # differs is refused here, after the kernels have ended.
    stream.check_same(head, words[VERDICT_WORDS:].tobytes())
    # Exact values are put in place by a second round, only where the verdict says that there are
    # some.
    if words[VERDICT_WORDS - 1]:
        words = _put_exact(under_way)()
    wrong, by_cpu, end = words[: VERDICT_WORDS - 1].tolist()
    if wrong < reading.n_frames:
        damaged_unless(bool(by_cpu), f"frame {wrong}")
        raise HostOnlyError("stream", "was stored without loss by a CPU", "decompress it there")
    _check_end(end, data)
    return header


def _told_header(device: KernelDevice, data: DeviceArray) -> bytes:
    """The words of a stream that its header may have."""
    box, told = device.mailbox(launches.MOST_HEADER_WORDS)
    n_words = np.uint32(launches.MOST_HEADER_WORDS)
    device.launch(launches.tell_header(), "float32", data, np.uint64(data.size), n_words, box)
    return told().tobytes()[: data.size // WORD_BYTES * WORD_BYTES]


def _decode(under_way: UnderWay, rules: Any) -> Told:
    """Have all frames decoded, but for exact values: what waits for the verdict."""
    reading = under_way.reading
    code = _small if reading.header.coder == "small" else _fast
    box, ended = under_way.mailbox()
    for part in reading.parts:
        span = under_way.span(part, reading.decoding_blocks)
        own = part.group.values_of(under_way.values, reading.header)
        if reading.header.predictor:
            made = PredictedGroup(under_way.device, reading.header, part.group)
            code(under_way, part, span, residual_rules(reading.header), made.residuals, box)
            # Residuals are decoded like values with the step 1; `join` adds what the predictor
            # says.
            made.join(under_way.work, span, rules, own)
        else:
            code(under_way, part, span, rules, own, box)
    _fill_reflected(under_way)
    return ended


def _put_exact(under_way: UnderWay) -> Told:
    """Have the exact values put, and what is mirrored filled again: what waits for the second verdict."""
    reading = under_way.reading
    box, ended = under_way.mailbox()
    for part in reading.parts:
        under_way.device.launch(
            part.putting, reading.header.dtype, under_way.data, under_way.work,
            under_way.span(part, reading.putting_blocks), *part.group.arguments,
            part.group.values_of(under_way.values, reading.header), box,
        )  # fmt: skip
    _fill_reflected(under_way)
    return ended


def _fill_reflected(under_way: UnderWay) -> None:
    header = under_way.reading.header
    if header.reflection != "none":
        under_way.device.launch(
            launches.survey("fill_reflected", block_count(header.size)), header.dtype, under_way.values,
            np.uint64(header.size), np.uint64(header.stored), np.uint32(header.reflection == "negated"),
        )  # fmt: skip


def _check_end(end: int, data: DeviceArray) -> None:
    if end != data.size:
        raise StreamError("stream", "goes on after its last frame", "give one stream, whole and alone")


def _fast(under_way: UnderWay, part: DecodeBatch, span: Any, rules: Any, own: DeviceArray, box: Any) -> None:
    """Have the tiles of a part decoded, whose values are its `own`."""
    under_way.device.launch(
        part.decoding, under_way.reading.header.dtype, under_way.data, under_way.work, span,
        *part.group.arguments, rules, own, box,
    )  # fmt: skip


def _small(under_way: UnderWay, part: DecodeBatch, span: Any, rules: Any, own: DeviceArray, box: Any) -> None:
    """As `_fast`."""
    device, dtype, group = under_way.device, under_way.reading.header.dtype, part.group
    data, work, (elements, _, n_tiles) = under_way.data, under_way.work, group.arguments
    ends = _found_ends(group.count, under_way.reading.header.components)
    room = device.empty(ends[-1] + group.count * group.n_tiles, "uint64")
    found = (room, *(room[end:] for end in ends))
    device.launch(launches.small_index(group.count), dtype, data, work, span, elements, n_tiles, *found, box)
    device.launch(
        part.decoding, dtype, data, work, span, *found, *group.arguments, np.uint32(group.count), rules, own,
        box,
    )  # fmt: skip


@lru_cache(64)
def _found_ends(count: int, n_components: int) -> tuple[int, ...]:
    """Where what `small_index` finds of so many frames ends, in words: the tables, twice, and the plans;
    behind them it has a word a tile. Kernels know the types."""
    n_tables, n_tokens = rans.count_shape(n_components)
    sizes = (2 * n_tables * (n_tokens + 1), n_tables * PARTS[n_components - 1], 4 * launches.SMALL_PLAN_WORDS)
    return tuple(accumulate(-(-count * size // WORD_BYTES) for size in sizes))
