"""NumPy arrays to streams and back, into buffers, or piece by piece.

One pass over the array finds ranges and symmetry, a sample the order of the axes and the coder, and then each
frame is coded by itself; memory beside the array and the stream is that of one frame. The array is only read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.frame import bit_rule, decode_frame, encode_frame, linear_rule, most_payload_bytes
from tnplan.compress.cpu.predictor import HostTrials, SampledBoxes, chosen_predictor, sampled_boxes
from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import CLASSES, NATURAL, sampled
from tnplan.compress.format.bounds import extent, widened
from tnplan.compress.format.box import (
    box_of_shape,
    fill_reflected,
    frame_elements,
    may_be_smooth,
    reflected,
    reflection_of,
    turned,
)
from tnplan.compress.format.choice import ArrayFacts, CodingOptions, Limits, chosen_header, trial_pieces
from tnplan.compress.format.errors import CodecError, StreamError
from tnplan.compress.format.stream import FRAME_LOG2, VERSION, Header

Values = NDArray[np.floating]
MOST_ADAPTIVE = 1 << 24
"""Larger arrays under a predictor are left to the coder that a GPU reads too."""
WHOLE = 1 << 21
"""In arrays of so many elements or fewer all are classified, in larger ones those of a sample."""


def count_classes(
    values: Values, header: Header, limits: tuple[float, ...], n_axes: int
) -> NDArray[np.int64]:
    """How often pairs of classes occur (axes, classes, classes) in an array's flat real numbers."""
    from tnplan.compress.cpu import quantize_kernel as kernel

    n = header.components
    elements = sampled(header.stored >> n_axes << n_axes)
    counts = np.zeros((n_axes, CLASSES * CLASSES), np.int64)
    if header.stored <= WHOLE:
        kernel.count_neighbours(classes_of(values[: n * header.stored], header, limits), elements, counts)
        return counts.reshape(-1, CLASSES, CLASSES)
    sample = np.empty(n * elements.size, values.dtype)
    kernel.gather(values, n, elements, 0, sample)
    own = classes_of(sample, header, limits)
    for axis in range(n_axes):
        kernel.gather(values, n, elements, 1 << axis, sample)
        kernel.count_pairs(own, classes_of(sample, header, limits), counts[axis])
    return counts.reshape(-1, CLASSES, CLASSES)


def classes_of(values: Values, header: Header, limits: tuple[float, ...]) -> NDArray[np.uint8]:
    """The class of each element of flat real numbers."""
    from tnplan.compress.cpu import quantize_kernel as kernel

    n = header.components
    sums = np.zeros(values.size // n, values.dtype)
    for c, rule in enumerate(header.quantizers):
        if rule.bits_step:
            bits = values.view(f"u{values.itemsize}")
            kernel.add_pointwise(bits, n, c, bit_rule(rule, values.dtype.type), sums)
        elif rule.step:
            kernel.add_linear(values, n, c, linear_rule(rule, limits[c], values.dtype), sums)
    classes = np.empty(sums.size, np.uint8)
    kernel.fill_classes(sums, classes)
    return classes


MOST_FILLING_BYTES = 15
"""What a payload has beyond its values at most: its kind, and filling."""

Array = NDArray[Any]
Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]


@dataclass(frozen=True)
class Compressed:
    """A stream in memory and what its header says.

    Parameters
    ----------
    data : bytes or array
        The stream; an array of bytes on a device.
    header : Header
        Shape, dtype, bound and coder.

    Examples
    --------
    >>> tnplan.compress.compress(np.zeros((64, 64)), 1e-3).header.shape
    (64, 64)
    """

    data: Any
    header: Header

    def __repr__(self) -> str:
        return f"Compressed({self.header.dtype} {self.header.shape}, {len(self.data)} bytes)"

    @property
    def ratio(self) -> float:
        """Bytes of the array over bytes of the stream."""
        return self.header.size * np.dtype(self.header.dtype).itemsize / len(self.data)


def compress_into(array: Array, out: NDArray[np.uint8], bound: float, **options: Any) -> int:
    """Compress as `compress` does, into bytes that are there.

    Parameters
    ----------
    array : array
        A NumPy array.
    out : array
        Uint8 (bytes,), which shares no memory with `array`; `worst_size_bytes` are always enough.
    bound : float
        The largest error.
    **options
        Those of `compress` but `device`.

    Returns
    -------
    int
        How many bytes were written.

    Raises
    ------
    CodecError
        For what cannot be done, or where `out` is too short.

    Examples
    --------
    >>> array = np.zeros((64, 64))
    >>> out = np.empty(tnplan.compress.worst_size_bytes(array.shape, "float64"), np.uint8)
    >>> tnplan.compress.compress_into(array, out, 1e-3) < out.size
    True
    """
    if not isinstance(out, np.ndarray) or out.dtype != np.uint8 or out.ndim != 1 or not out.flags.writeable:
        raise CodecError("out", "is not an array of bytes to write to", "give a 1-D NumPy array of uint8")
    # Pieces are written while later frames are still read: memory that both share would change
    # them.
    if isinstance(array, np.ndarray) and np.may_share_memory(array, out):
        raise CodecError("out", "shares memory with the array", "give another array")
    at = 0
    for piece in encode(array, bound, **options)[1]:
        if at + len(piece) > out.size:
            raise CodecError("out", f"has {out.size} bytes, too few", "give worst_size_bytes(...)")
        out[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    return at


def worst_size_bytes(shape: tuple[int, ...], dtype: str, frame_log2: int = FRAME_LOG2) -> int:
    """The size that no stream of such an array exceeds.

    Parameters
    ----------
    shape : tuple of int
        That of the array.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the array.
    frame_log2 : int
        As in `compress`.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    CodecError
        For another dtype.

    Examples
    --------
    >>> tnplan.compress.worst_size_bytes((64, 64), "float64") > 64 * 64 * 8
    True
    """
    if dtype not in stream.DTYPES:
        raise CodecError("dtype", f"is {dtype!r}", f"choose from {', '.join(stream.DTYPES)}")
    header = Header(dtype, shape, "lossless", 0.0, "lossless", "none", (), NATURAL, frame_log2)
    # Those under a predictor, which may be smaller.
    least = frame_elements(shape, frame_log2) if may_be_smooth(shape) else 1 << frame_log2
    frames = -(-header.size // least) if header.size else 0
    values_bytes = header.size * header.components * header.real_dtype.itemsize
    head_bytes = stream.header_size_bytes(len(shape), header.components)
    return head_bytes + frames * stream.FRAME_HEADER_BYTES + values_bytes + frames * MOST_FILLING_BYTES


def encode(
    array: Array, bound: float, *, mode: str = "range", setting: str = "auto", nonfinite: str = "keep",
    frame_log2: int = FRAME_LOG2, predict: bool = True,
) -> tuple[Header, Iterator[bytes]]:  # fmt: skip
    """As `interface.compress`, the stream in pieces: header first, then frame by frame."""
    options = CodingOptions(bound, mode, setting, nonfinite, frame_log2, predict)
    with enough_memory():
        return _encode(widened(array, bound), options)


def _encode(array: Array, options: CodingOptions) -> tuple[Header, Iterator[bytes]]:
    if options.setting != "fast" and sampled_boxes(array.shape):
        from tnplan.compress.cpu.kernel_samples import compile_coders

        compile_coders()
    values, dtype = flat_values(array), array.dtype.name
    n = stream.components(dtype)
    reaches = [extent(values[c::n], options.mode == "pointwise") for c in range(n)]

    def trial_bytes(header: Header, limits: Limits) -> int:
        pieces = [values[n * start : n * (start + count)] for start, count in trial_pieces(header.stored)]
        return len(encode_frame(np.concatenate(pieces), header, limits))

    def take(boxes: SampledBoxes) -> NDArray[np.floating]:
        box = box_of_shape(array.shape)
        points = values.reshape(*box, n).transpose(*turned(box), len(box))
        values_of_boxes = np.empty((len(boxes.starts), *boxes.counts, n), values.dtype)
        for into, starts in zip(values_of_boxes, boxes.starts, strict=True):
            places = zip(starts, boxes.counts, boxes.strides, strict=True)
            into[:] = points[tuple(slice(first, first + s * (m - 1) + 1, s) for first, m, s in places)]
        return values_of_boxes.reshape(len(boxes.starts), boxes.size, n)

    def trials(steps: NDArray[np.float64]) -> HostTrials:
        return HostTrials(array.shape, lambda numbers: values.reshape(-1, n)[numbers], take, steps)

    facts = ArrayFacts(dtype, array.shape, reaches, reflection_of(values, n))
    header, limits = chosen_header(
        options, facts, trial_bytes,
        lambda header, limits, n_axes: count_classes(values, header, limits, n_axes),
        lambda header: chosen_predictor(header, trials),
    )  # fmt: skip
    if header.predictor and header.size <= MOST_ADAPTIVE:
        header = replace(header, version=VERSION)
    return header, _pieces(header, values, limits)


class _Bytes(io.RawIOBase):
    """Bytes to read from where they are; `io.BytesIO` would copy them all."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._unread = data.data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), len(self._unread))
        buffer[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count


def flat_bytes(data: Buffer) -> NDArray[np.uint8]:
    """The bytes of a buffer, not copied; CodecError where it is not one piece."""
    try:
        return np.frombuffer(data, np.uint8)
    except (ValueError, TypeError, BufferError):
        raise CodecError("data", "is not one piece of memory", "give bytes or a C array of them") from None


def decode_bytes(data: Buffer, allocate: Callable[[Header], Array], expected: Header | None = None) -> Array:
    """As `decode`, of a stream in memory, which is not copied; CodecError where `data` is not one piece, and
    StreamError where it begins with another header than the one that is `expected`."""
    flat = flat_bytes(data)

    def checked(header: Header) -> Array:
        if expected is not None:
            stream.check_same(stream.pack_header(expected), stream.pack_header(header))
        return allocate(header)

    return decode(cast("BinaryIO", _Bytes(flat)), checked, flat.size)[1]


def allocate(header: Header) -> Array:
    """An array for what a stream holds; CodecError where there is no memory for it."""
    try:
        return np.empty(header.shape, header.dtype)
    except (MemoryError, ValueError):
        raise no_memory(header) from None


def no_memory(header: Header) -> CodecError:
    """What is raised where there is no memory for the array of a stream."""
    size = header.size * np.dtype(header.dtype).itemsize
    return CodecError("stream", f"holds {size} bytes, more than the memory", "use a machine with more memory")


@contextmanager
def enough_memory() -> Iterator[None]:
    """CodecError where there is no memory for a frame under way, or for a copy of an array."""
    try:
        yield
    except MemoryError:
        raise CodecError(
            "array", "needs more additional memory than is free",
            "free some memory; C arrays and small frames (frame_log2) need the least",
        ) from None  # fmt: skip


def decompress_into(data: Buffer, out: Array) -> None:
    """Decompress into an array that is there.

    Parameters
    ----------
    data : bytes
        A stream.
    out : array
        A C array of the same shape and dtype. Where the stream is damaged, some of it may be filled.

    Returns
    -------
    None

    Raises
    ------
    CodecError
        For another array, or a damaged stream.

    Examples
    --------
    >>> out = np.empty((64, 64))
    >>> tnplan.compress.decompress_into(tnplan.compress.compress(np.zeros((64, 64)), 1e-3).data, out)
    >>> out[0, 0]
    np.float64(0.0)
    """
    if not isinstance(out, np.ndarray) or not out.flags.writeable:
        raise CodecError("out", "is not an array to write to", "give a NumPy array that is not read-only")

    def checked(header: Header) -> Array:
        if out.shape != header.shape or out.dtype != header.dtype or not out.flags.c_contiguous:
            raise CodecError(
                "out", f"is {out.dtype} {out.shape}", f"give a C array, {header.dtype} {header.shape}"
            )
        return out

    decode_bytes(data, checked)


def decode(source: BinaryIO, allocate: Callable[[Header], Array], size_bytes: int) -> tuple[Header, Array]:
    """Read a stream of `size_bytes` frame by frame into the C array that `allocate` gives for its header."""
    header = stream.read_header(source)
    check_length(header, size_bytes)
    array = allocate(header)
    values = array.reshape(-1).view(header.real_dtype)
    n = header.components
    with enough_memory():
        _decode_frames(source, header, lambda first, count: values[n * first : n * (first + count)])
        if header.reflection != "none":
            fill_reflected(values, n, header.stored, header.reflection)
    return header, array


def decode_to_file(
    source: BinaryIO, target: BinaryIO, begin: Callable[[Header], object], size_bytes: int
) -> Header:
    """The same with the memory of one frame: the values, in C order, to a file behind what `begin` writes.

    `target` is open for writing and reading; a mirrored half is read again from what was written.
    """
    header = stream.read_header(source)
    check_length(header, size_bytes)
    n, item_bytes = header.components, header.components * header.real_dtype.itemsize
    most = min(header.stored, 1 << header.frame_log2)
    with enough_memory():
        buffer = np.empty(n * most, header.real_dtype)
        begin(header)
        start = target.tell()
        _decode_frames(
            source, header, lambda first, count: buffer[: n * count], lambda values: target.write(values.data)
        )
        first, end = header.stored, start + header.stored * item_bytes
        while first < header.size:
            count = min(most, header.size - first)
            target.seek(start + (header.size - first - count) * item_bytes)
            values = np.frombuffer(target.read(count * item_bytes), header.real_dtype)
            target.seek(end)
            target.write(reflected(values, n, header.reflection).data)
            first, end = first + count, end + count * item_bytes
    return header


def _decode_frames(
    source: BinaryIO, header: Header, values_of: Callable[[int, int], Array],
    done: Callable[[Array], object] = lambda values: None,
) -> None:  # fmt: skip
    """Decode each frame into the values of its first element and its count; refuse what follows the last."""
    seed = stream.frame_seed(header)
    for number, (first, count) in enumerate(header.frames()):
        payload = stream.read_frame(source, number, seed, most_payload_bytes(count, header))
        values = values_of(first, count)
        decode_frame(payload, header, values, f"frame {number}")
        done(values)
    stream.check_ended(source)


def check_length(header: Header, size_bytes: int) -> None:
    """Refuse a stream of so many bytes that its frames cannot fit, before there is memory for the array."""
    frames = -(-header.stored >> header.frame_log2)
    if frames * stream.FRAME_HEADER_BYTES > size_bytes:
        raise StreamError("stream", f"is too short for its {frames} frames", "give the whole stream")


def flat_values(array: Array) -> NDArray[np.floating]:
    """The real numbers of an array in C order; a view where it is contiguous."""
    if not isinstance(array, np.ndarray):
        kind = type(array)
        raise CodecError("array", f"is of type {kind.__module__}.{kind.__name__}", "give a NumPy array")
    if isinstance(array, np.ma.MaskedArray):
        raise CodecError("array", "has a mask, which would be lost", "give array.filled(...)")
    stream.check_dtype(array.dtype)
    return np.ascontiguousarray(array).reshape(-1).view(stream.real_dtype(array.dtype.name))


def _pieces(header: Header, values: NDArray[np.floating], limits: Limits) -> Iterator[bytes]:
    n = header.components
    seed = stream.frame_seed(header)
    yield stream.pack_header(header)
    for number, (first, count) in enumerate(header.frames()):
        with enough_memory():
            payload = encode_frame(values[n * first : n * (first + count)], header, limits)
            head = stream.pack_frame_header(len(payload), stream.checksum(payload), number, seed)
        yield head
        yield payload
