"""Streams read where they are: the kernels of compress/kernels in the order of `codec.decode`.

The host knows the header, or the device sends it first; a verdict on the stream, with its checksums and the
header's bytes, comes when all is done. Knows no CuPy but `tnplan.compress.gpu.launches.KernelDevice`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu import rans
from tnplan.compress.format import stream
from tnplan.compress.format.errors import CodecError, HostOnlyError, StreamError
from tnplan.compress.format.stream import Header, damaged_unless
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.frames import FRAME_WORDS, FrameGroup, frame_count, groups
from tnplan.compress.gpu.launches import WORD_BYTES, DeviceArray, KernelDevice, KernelLaunch, block_count
from tnplan.compress.gpu.predicted import PredictedGroup, residual_rules

MOST_HEADER_BYTES = stream.header_size_bytes(stream.LARGEST_NDIM, 2)
TABLE_PARTS = (256, 128)
"""Parts of a table, for one and two components, of which kernels know the first token."""
VERDICT_WORDS = 4
"""Words of a verdict (verdict.cuh), before the header."""

Wait = Callable[[], NDArray[np.uint64]]
"""Waits for the words of a mailbox."""


@dataclass(frozen=True)
class DecodeBatch:
    """Frames of equal size, which a launch decodes: where the launch's words begin in the workspace."""

    group: FrameGroup
    own_at: int
    decoding: KernelLaunch
    exact: KernelLaunch

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
    def batches(self) -> tuple[DecodeBatch, ...]:
        """All frames; only for headers of arrays that there are."""
        launch = launches.small_decode if self.header.coder == "small" else launches.fast_decode
        own_at, batches = self.n_frames * (FRAME_WORDS + 2) + 2, []
        for group in groups(self.header, self.n_frames):
            decoding = launch(group.count, group.n_tiles)
            batches.append(DecodeBatch(group, own_at, decoding, launches.put_exact_values(group.count)))
            own_at = batches[-1].end
        return tuple(batches)

    @cached_property
    def work_words(self) -> int:
        """The words of the workspace."""
        return self.batches[-1].end

    @cached_property
    def decoding_blocks(self) -> int:
        """The blocks of all launches that decode."""
        return sum(batch.decoding.blocks for batch in self.batches)

    @cached_property
    def exact_blocks(self) -> int:
        """The blocks of all launches that write exact values."""
        return sum(batch.exact.blocks for batch in self.batches)


def _plan_of(header: Header) -> DecodePlan:
    bare = replace(
        header, shape=tuple(header.shape), axes=tuple(header.axes), mode="lossless", bound=0.0,
        quantizers=(), version=stream.FIRST_VERSION,
    )  # fmt: skip
    return cached_plan(bare)


@lru_cache(64)
def cached_plan(header: Header) -> DecodePlan:
    """The plan of a header of which bound and quantizers are left out."""
    start = stream.header_size_bytes(len(header.shape), header.components)
    return DecodePlan(header, header.size * header.components, header.real_dtype, start, frame_count(header))


@dataclass(slots=True)
class StreamReader:
    """A stream that kernels read: its bytes, the array's real numbers, and the workspace."""

    device: KernelDevice
    plan: DecodePlan
    data: DeviceArray
    values: DeviceArray
    work: DeviceArray

    def span(self, batch: DecodeBatch, n_blocks: int) -> Any:
        """The struct `Span` of a launch."""
        plan = self.plan
        packed = launches.SPAN.pack(
            self.data.size, plan.start, plan.n_frames, batch.group.first, batch.own_at,
            plan.header.coder != "lossless", n_blocks,
        )  # fmt: skip
        return launches.structure(packed)

    def mailbox(self) -> tuple[Any, Wait]:
        """Where kernels write a verdict, and what waits for its words."""
        return self.device.mailbox(VERDICT_WORDS + self.plan.start // WORD_BYTES)


def read_header(device: KernelDevice, data: DeviceArray) -> Header:
    """The header of a stream of bytes on the device."""
    return stream.read_header(io.BytesIO(device.download(data[:MOST_HEADER_BYTES]).tobytes()))


def decode(
    device: KernelDevice, data: DeviceArray, values: DeviceArray, header: Header | None = None
) -> Header:
    """Fill `values`, the flat real numbers of an array, from a stream of bytes on the device, which start at
    a multiple of 8. Where the `header` that the stream begins with is given, the host need not wait for it.

    The device may still be filling values, in the order of its launches: the host goes on when it is known
    that all of them will be right. Raises StreamError for what is no whole, undamaged stream, or has
    another header (some of `values` may be filled then), CodecError where `values` do not suit it, and
    HostOnlyError for frames that only a CPU reads: those without loss, and residuals that are nearly all 0.
    Streams that a device wrote have none, so that the executor, whose ranks write and read on devices of one
    kind, never meets them; `gpu.arrays` decodes them on the host.
    """
    # A header that the caller knows saves a wait for the device before the first launch.
    header_bytes = b""
    if header is not None:
        stream.check_given(header)
    if header is None or 0 in header.shape:
        header_bytes = _header_words(device, data)
        expected, header = header, stream.read_header(io.BytesIO(header_bytes), checked=False)
        if expected is not None:
            stream.check_same(stream.pack_header(expected), header_bytes)
    plan = _plan_of(header)
    if values.size != plan.n_reals or values.dtype != plan.real_dtype:
        if header_bytes:
            stream.check_header(header_bytes)
        remedy = f"give the {header.real_dtype} of {header.dtype} {header.shape}"
        raise CodecError("values", f"are {values.size} of {values.dtype}", remedy)
    if not plan.n_frames:
        stream.check_header(header_bytes)
        _check_end(plan.start, data)
        return header
    reader = StreamReader(device, plan, data, values, device.zeros(plan.work_words, "uint64"))
    wait = _decode(reader, launches.rules(header))
    try:
        # The host looks at the header while the kernels run, which write to its memory whatever it finds.
        head = header_bytes or stream.pack_header(header)
        if header_bytes:
            stream.check_header(header_bytes)
    finally:
        words = wait()
    # Invariant: the values are decoded by the header that the stream has. Another one from the
    # caller is refused here, after the kernels have ended.
    stream.check_same(head, words[VERDICT_WORDS:].tobytes())
    # Exact values are written by a second round, only where the verdict says that there are some.
    if words[VERDICT_WORDS - 1]:
        words = _put_exact(reader)()
    wrong, by_cpu, end = words[: VERDICT_WORDS - 1].tolist()
    if wrong < plan.n_frames:
        damaged_unless(bool(by_cpu), f"frame {wrong}")
        raise HostOnlyError("stream", "has frames that only a CPU reads", "decompress it there")
    _check_end(end, data)
    return header


def _header_words(device: KernelDevice, data: DeviceArray) -> bytes:
    """The words of a stream that its header may have."""
    box, wait = device.mailbox(launches.MOST_HEADER_WORDS)
    n_words = np.uint32(launches.MOST_HEADER_WORDS)
    device.launch(launches.send_header(), "float32", data, np.uint64(data.size), n_words, box)
    return wait().tobytes()[: data.size // WORD_BYTES * WORD_BYTES]


def _decode(reader: StreamReader, rules: Any) -> Wait:
    """Decode all frames, but for exact values: what waits for the verdict."""
    plan = reader.plan
    code = _small if plan.header.coder == "small" else _fast
    box, wait = reader.mailbox()
    for batch in plan.batches:
        span = reader.span(batch, plan.decoding_blocks)
        own = batch.group.values_of(reader.values, plan.header)
        if plan.header.predictor:
            predicted = PredictedGroup(reader.device, plan.header, batch.group)
            code(reader, batch, span, residual_rules(plan.header), predicted.residuals, box)
            # Residuals are decoded like values with the step 1; `join` adds what the predictor says.
            predicted.join(reader.work, span, rules, own)
        else:
            code(reader, batch, span, rules, own, box)
    _fill_reflected(reader)
    return wait


def _put_exact(reader: StreamReader) -> Wait:
    """Write the exact values, and fill what is mirrored again: what waits for the second verdict."""
    plan = reader.plan
    box, wait = reader.mailbox()
    for batch in plan.batches:
        reader.device.launch(
            batch.exact, plan.header.dtype, reader.data, reader.work,
            reader.span(batch, plan.exact_blocks), *batch.group.arguments,
            batch.group.values_of(reader.values, plan.header), box,
        )  # fmt: skip
    _fill_reflected(reader)
    return wait


def _fill_reflected(reader: StreamReader) -> None:
    header = reader.plan.header
    if header.reflection != "none":
        reader.device.launch(
            launches.survey("fill_reflected", block_count(header.size)), header.dtype, reader.values,
            np.uint64(header.size), np.uint64(header.stored), np.uint32(header.reflection == "negated"),
        )  # fmt: skip


def _check_end(end: int, data: DeviceArray) -> None:
    if end != data.size:
        raise StreamError("stream", "continues after its last frame", "give exactly one whole stream")


def _fast(
    reader: StreamReader, batch: DecodeBatch, span: Any, rules: Any, own: DeviceArray, box: Any
) -> None:
    """Decode the tiles of a batch, whose values are its `own`."""
    reader.device.launch(
        batch.decoding, reader.plan.header.dtype, reader.data, reader.work, span,
        *batch.group.arguments, rules, own, box,
    )  # fmt: skip


def _small(
    reader: StreamReader, batch: DecodeBatch, span: Any, rules: Any, own: DeviceArray, box: Any
) -> None:
    """As `_fast`."""
    device, dtype, group = reader.device, reader.plan.header.dtype, batch.group
    data, work, (elements, _, n_tiles) = reader.data, reader.work, group.arguments
    ends = _index_ends(group.count, reader.plan.header.components)
    workspace = device.empty(ends[-1] + group.count * group.n_tiles, "uint64")
    index = (workspace, *(workspace[end:] for end in ends))
    device.launch(launches.small_index(group.count), dtype, data, work, span, elements, n_tiles, *index, box)
    device.launch(
        batch.decoding, dtype, data, work, span, *index, *group.arguments, np.uint32(group.count), rules, own,
        box,
    )  # fmt: skip


@lru_cache(64)
def _index_ends(count: int, n_components: int) -> tuple[int, ...]:
    """Where the arrays of `small_index` end for so many frames, in words: the tables, twice, and the plans;
    behind them it has a word a tile. Kernels know the types."""
    n_tables, n_tokens = rans.count_shape(n_components)
    n_parts = n_tables * TABLE_PARTS[n_components - 1]
    sizes = (2 * n_tables * (n_tokens + 1), n_parts, 4 * launches.SMALL_PLAN_WORDS)
    return tuple(accumulate(-(-count * size // WORD_BYTES) for size in sizes))
