"""Streams written where the array is: the kernels of compress/kernels in the order of `codec.encode`.

A device is given (`Device`): it holds flat arrays, launches kernels, and copies to and from the host. Streams
are those of the CPU, byte for byte, but for frames without loss, which are stored raw here. Nothing is
allocated but workspace of one batch of frames; the output buffer is the caller's. Knows no CuPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compress import entropy, launches, stream
from compress.bounds import Extent, check_bound, error_limit, quantizer
from compress.codec import sampled_neighbours, with_axes
from compress.errors import CodecError
from compress.frame import CODED, CODED_HEAD, MOST_EXACT, PLACE_BYTES, RAW, filled
from compress.launches import Launch
from compress.mirror import MIRRORS
from compress.stream import FRAME_HEADER_BYTES, Header, Quantizer
from compress.tiles import NATURAL, TILE, local_offsets, tile_offsets, usable_axes

BATCH = 16
"""Frames that one launch codes; their workspace is as large as they are."""
MOST_SURVEY_BLOCKS = 1024
WORD_BYTES = 8

DeviceArray = Any
"""A flat array on the device, sliced and assigned like NumPy's."""


def survey_blocks(size: int) -> int:
    """The blocks that look at so many elements or words, some thousands each."""
    return max(1, min(MOST_SURVEY_BLOCKS, size // TILE))


class Device(Protocol):
    """What the codec asks of a device. Arrays are flat; launches and copies happen in order."""

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """A copy on the device."""

    def download(self, array: DeviceArray) -> NDArray[Any]:
        """A copy on the host."""

    def zeros(self, size: int, dtype: str) -> DeviceArray:
        """A new array of zeros."""

    def launch(self, launch: Launch, dtype: str, *arguments: Any) -> None:
        """Run a kernel that is compiled for arrays of `dtype`; arguments are device arrays and NumPy scalars,
        and of structures NumPy arrays on the host."""


def survey(
    device: Device, values: DeviceArray, dtype: str, shape: tuple[int, ...], bound: float, mode: str,
    coder: str, frame_log2: int,
) -> tuple[Header, tuple[float, ...]]:  # fmt: skip
    """The header of an array's stream, and the largest errors of its parts."""
    check_bound(bound, mode)
    n, size = stream.components(dtype), np.uint64(prod(shape))
    blocks = survey_blocks(prod(shape))
    real = stream.real_dtype(dtype)
    reaches = device.zeros(blocks * n * 4, real.name)
    device.launch(launches.survey("extents", blocks), dtype, values, size, reaches)
    found = device.download(reaches).reshape(blocks, n, 4)
    differs = device.zeros(2, "uint32")
    device.launch(launches.survey("mirror", blocks), dtype, values, size, differs)
    same = 1 - device.download(differs)
    kind = MIRRORS[1] if same[0] else MIRRORS[2] if same[1] else MIRRORS[0]
    extents = [_extent(found[:, c]) for c in range(n)]
    mirror = kind if size > 1 else MIRRORS[0]
    header = Header(
        dtype, shape, "lossless", bound, "lossless", mirror, (Quantizer(),) * n, NATURAL, frame_log2
    )
    made = [quantizer(one, bound, mode, real) for one in extents] if bound else [None]
    lossy = tuple(one for one in made if one is not None)
    if len(lossy) < len(made):
        return header, (0.0,) * n
    limits = tuple(0.0 if mode == "pointwise" else error_limit(one, bound, mode) for one in extents)
    header = Header(dtype, shape, mode, bound, coder, mirror, lossy, NATURAL, frame_log2)
    beside = sampled_neighbours(header)
    if not beside.size:
        return header, limits
    sample = values.reshape(-1, n)[device.upload(beside.reshape(-1))]
    return with_axes(header, beside, device.download(sample).reshape(-1), limits), limits


def _extent(found: NDArray[Any]) -> Extent:
    least, greatest, normal, odd = found[:, 0].min(), found[:, 1].max(), found[:, 2].min(), found[:, 3].max()
    return Extent(float(least), float(greatest), float(normal), bool(least <= greatest), bool(odd))


def encode(
    device: Device, values: DeviceArray, header: Header, limits: tuple[float, ...], out: DeviceArray
) -> int:
    """Write the stream of flat real numbers to `out` (bytes, a multiple of 8 of them): how many were written.

    `worst_size_bytes` are always enough. Raises CodecError where `out` is too small.
    """
    writer = _Writer(device, header, limits, out)
    writer.put(stream.pack_header(header))
    for first, count, elements in _batches(header):
        writer.batch(values, first, count, elements)
    return writer.at


def _batches(header: Header) -> Iterator[tuple[int, int, int]]:
    """Number of the first frame, how many frames of equal size, and their elements."""
    whole, rest = divmod(header.stored, 1 << header.frame_log2)
    for first in range(0, whole, BATCH):
        yield first, min(BATCH, whole - first), 1 << header.frame_log2
    if rest:
        yield whole, 1, rest


class Tables:
    """The order of elements in frames of one size, on the device."""

    def __init__(self, device: Device, header: Header, elements: int) -> None:
        axes = usable_axes(header.axes, elements)
        tiles = tile_offsets(axes, elements).astype(np.uint32)
        self.n_tiles = tiles.size
        self.arguments = (
            np.uint64(elements), device.upload(local_offsets(axes).astype(np.uint32)), device.upload(tiles),
            np.uint32(tiles.size),
        )  # fmt: skip


class _Writer:
    """A stream under way in an output buffer."""

    def __init__(self, device: Device, header: Header, limits: tuple[float, ...], out: DeviceArray) -> None:
        self.device, self.header, self.out, self.at = device, header, out, 0
        self.rules = launches.rules(header, limits)
        self.seed = stream.frame_seed(header)

    def put(self, part: bytes | DeviceArray) -> None:
        """Append bytes from the host or the device, filled up to 8."""
        data = self.device.upload(np.frombuffer(part, np.uint8)) if isinstance(part, bytes) else part
        end = self.at + filled(data.size)
        if end > self.out.size:
            raise CodecError("out", f"has {self.out.size} bytes, too few", "give worst_size_bytes(...)")
        if data.size:
            self.out[max(self.at, end - WORD_BYTES) : end] = 0
            self.out[self.at : self.at + data.size] = data
        self.at = end

    def batch(self, values: DeviceArray, first: int, count: int, elements: int) -> None:
        """Append frames `first` to `first` + `count` - 1, of so many elements each."""
        n = self.header.components * elements
        begin = values_before(self.header, first)
        part = values[begin : begin + n * count]
        tables = Tables(self.device, self.header, elements)
        coder = {"fast": self._fast, "small": self._small}.get(self.header.coder)
        coded = coder(part, tables, count, n) if coder else [None] * count
        marks = []
        for frame, body in enumerate(coded):
            start = self.at
            self.put(bytes(FRAME_HEADER_BYTES))
            own = part[n * frame : n * (frame + 1)]
            if body is None:
                self.put(RAW.to_bytes(WORD_BYTES, "little"))
                self.put(own.view(np.uint8))
            else:
                self._coded(own, tables, *body)
            marks.append((start, self.at))
        self._seal(first, marks)

    def _fast(self, part: DeviceArray, tables: Tables, count: int, n: int) -> list[Any]:
        device, dtype = self.device, self.header.dtype
        room = n * part.itemsize
        out, sizes = device.zeros(count * room, "uint8"), device.zeros(count, "uint64")
        status, ticket = device.zeros(count * tables.n_tiles, "uint64"), device.zeros(1, "uint32")
        exact = device.zeros(count * self.header.components * tables.n_tiles, "uint32")
        device.launch(
            launches.fast_encode(count, tables.n_tiles), dtype, part, *tables.arguments, self.rules, out,
            np.uint64(room), status, ticket, sizes, exact,
        )  # fmt: skip
        counts = device.download(exact).reshape(count, -1)
        bodies: list[Any] = []
        for frame, size in enumerate(device.download(sizes).tolist()):
            good = size <= self._most(counts[frame], n, part.itemsize)
            bodies.append((out[frame * room : frame * room + size], counts[frame]) if good else None)
        return bodies

    def _small(self, part: DeviceArray, tables: Tables, count: int, n: int) -> list[Any]:
        return [self._small_frame(part[n * f : n * (f + 1)], tables) for f in range(count)]

    def _small_frame(self, part: DeviceArray, tables: Tables) -> Any:
        device, dtype, n = self.device, self.header.dtype, self.header.components
        shape = entropy.count_shape(n)
        counts, raw = device.zeros(prod(shape), "uint32"), device.zeros(1, "uint64")
        exact = device.zeros(n * tables.n_tiles, "uint32")
        device.launch(
            launches.small_count(1, tables.n_tiles),
            dtype,
            part,
            *tables.arguments,
            self.rules,
            counts,
            raw,
            exact,
        )
        found = device.download(counts).reshape(shape).astype(np.int64)
        missing = device.download(exact)
        most = self._most(missing, part.size, part.itemsize)
        planned = entropy.plan(found, int(device.download(raw)[0]), tables.n_tiles)
        if planned.size_bytes > most:
            return None
        room = entropy.most_words(tables.n_tiles, planned.tiles_log2, n)
        n_segments = -(-tables.n_tiles >> planned.tiles_log2)
        words, states = device.zeros(n_segments * room, "uint16"), device.zeros(n_segments * 32, "uint32")
        n_words = device.zeros(n_segments, "uint32")
        starts = device.upload(entropy.cumulative(planned.frequencies).astype(np.uint16).reshape(-1))
        device.launch(
            launches.small_encode(1, n_segments), dtype, part, *tables.arguments, self.rules, starts,
            np.uint32(planned.tiles_log2), np.uint32(n_segments), words, np.uint32(room), n_words, states,
        )  # fmt: skip
        written = device.download(n_words)
        if int(written.max()) > room:
            return None
        head = entropy.pack_head(planned, written)
        offsets, size = entropy.segment_offsets(len(head), written)
        if size > most:
            return None
        coded = device.zeros(size, "uint8")
        coded[: len(head)] = device.upload(np.frombuffer(head, np.uint8))
        device.launch(
            launches.small_pack(n_segments), dtype, words, np.uint32(room), n_words, states,
            device.upload(offsets.astype(np.uint64)), coded,
        )  # fmt: skip
        return coded, missing

    def _most(self, exact: NDArray[Any], n_values: int, itemsize: int) -> int:
        """The most bytes that a frame's coder may take, below 0 where too many values are exact."""
        count = int(exact.sum())
        if count > n_values // MOST_EXACT + 1:
            return -1
        exact_bytes = filled(count * PLACE_BYTES) + filled(count * itemsize)
        return n_values * itemsize - exact_bytes - CODED_HEAD.size - WORD_BYTES

    def _coded(self, own: DeviceArray, tables: Tables, body: DeviceArray, exact: NDArray[Any]) -> None:
        count = int(exact.sum())
        self.put(CODED_HEAD.pack(CODED, count, body.size))
        self.put(body)
        if not count:
            return
        starts = np.cumsum(exact, dtype=np.uint64) - exact.astype(np.uint64)
        places = self.device.zeros(count, "uint32")
        bits = self.device.zeros(count, f"uint{8 * own.itemsize}")
        self.device.launch(
            launches.gather_exact(tables.n_tiles), self.header.dtype, own, *tables.arguments, self.rules,
            self.device.upload(starts), places, bits,
        )  # fmt: skip
        self.put(places.view(np.uint8))
        self.put(bits.view(np.uint8))

    def _seal(self, first: int, marks: list[tuple[int, int]]) -> None:
        """Fill in the headers of frames whose bytes in `out` are given."""
        bodies = [(start + FRAME_HEADER_BYTES, end) for start, end in marks]
        sums = checksums(self.device, self.header.dtype, self.out, bodies)
        for number, ((start, _), (body, end), total) in enumerate(
            zip(marks, bodies, sums, strict=True), first
        ):
            head = stream.pack_frame_header(end - body, total, number, self.seed)
            self.out[start:body] = self.device.upload(np.frombuffer(head, np.uint8))


def values_before(header: Header, frame: int) -> int:
    """The real numbers of the array before a frame."""
    return (frame << header.frame_log2) * header.components


def checksums(device: Device, dtype: str, data: DeviceArray, ranges: list[tuple[int, int]]) -> list[int]:
    """`stream.checksum` of ranges of bytes; they start and end at multiples of 8."""
    starts = np.array([start // WORD_BYTES for start, _ in ranges], np.uint64)
    counts = np.array([(end - start) // WORD_BYTES for start, end in ranges], np.uint64)
    sums = device.zeros(len(ranges), "uint64")
    device.launch(
        launches.survey("checksums", survey_blocks(int(counts.max())), len(ranges)), dtype,
        data.view(np.uint64), device.upload(starts), device.upload(counts), sums,
    )  # fmt: skip
    totals = device.download(sums).tolist()
    return [(total + end - start) % (1 << 64) for total, (start, end) in zip(totals, ranges, strict=True)]
