"""The codec of a GPU: compress's kernels on views of its arena, on the device's stream.

Its workspace is CuPy's memory pool. The host waits until a stream is written, or is known to be sound; the
last values that are restored, and samples, may come later, in the order of the device's stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import Array, addressof, c_uint64
from functools import cache
from threading import Lock
from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.api import driver
from numpy.typing import NDArray

from tnplan.common.arrays import CACHE_LINE_BYTES, round_up
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.compress.cpu.codec import worst_size_bytes
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import FRAME_LOG2, Header, real_dtype
from tnplan.compress.gpu import decode, survey
from tnplan.compress.gpu.arrays import register
from tnplan.compress.gpu.launches import FOLDER, KernelLaunch, defines
from tnplan.compress.gpu.survey import write
from tnplan.executor.device.cuda.runtime.kernel_cache import cached_per_device, load_kernel
from tnplan.executor.device.protocols.codec import Packed, StreamTooLongError, measured, sample_stride
from tnplan.planner.hardware.compression_options import Lossy

WORD_BYTES = 8


@contextmanager
def _enough_memory(values: Any) -> Iterator[None]:
    """InputError where the GPU has too little memory for the workspace of a codec."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError:
        raise InputError(
            "GPU", f"has too little memory beside its arena for the codec of {size_text(values.nbytes)}",
            "plan with a smaller --memory, or without --compress",
            topic="compressed exchanges",
        ) from None  # fmt: skip


class CupyStreamCodec:
    """See `Codec`; views are flat CuPy arrays of the current GPU."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._device = CupyCodec()

    def worst_bytes(self, count: int, dtype: str) -> int:
        """Bytes that are enough for the stream of any `count` elements."""
        return -(-worst_size_bytes((count,), dtype, FRAME_LOG2) // WORD_BYTES) * WORD_BYTES

    def encode(self, values: Any, lossy: Lossy, setting: str, out: Any) -> Packed:
        """Write the stream where the values are."""
        dtype = values.dtype.name
        with self._stream, _enough_memory(values):
            reals = values.view(real_dtype(dtype))
            norms = survey.squares(self._device, reals, dtype)
            try:
                options = CodingOptions(lossy.bound, "range", setting)
                header, limits, size_bytes = write(self._device, reals, dtype, (len(values),), options, out)
            except CodecError as error:
                if error.place != "out":
                    raise
                raise StreamTooLongError(f"the stream is longer than {len(out)} bytes") from None
            square = float(self._device.download(norms).sum())
            return measured(size_bytes, len(values), limits, square, reals, header)

    def decode(self, data: Any, values: Any, header: Header | None = None) -> None:
        """Fill the values."""
        with self._stream, _enough_memory(values):
            decode.decode(self._device, data, values.view(real_dtype(values.dtype.name)), header)

    def sample(self, values: Any, out: Any = None) -> Any:
        """A copy of some values on the GPU."""
        with self._stream:
            taken = values[:: sample_stride(len(values))]
            if out is None:
                return taken.copy()
            cupy.copyto(out, taken)
            return out

    def overlaps(self) -> CupyOverlaps:
        """Sums over nothing yet."""
        with self._stream:
            return CupyOverlaps(self._stream, self._device)


class CupyOverlaps:
    """See `SampledOverlaps`; the sums are on the GPU."""

    def __init__(self, stream: Any, device: CupyCodec) -> None:
        self._stream = stream
        self._device = device
        self._sums = device.zeros(survey.OVERLAP_SUMS, "float64")

    def add(self, sample: Any, values: Any) -> None:
        """Add the sums over a sample."""
        with self._stream:
            survey.add_overlaps(
                self._device, values.dtype.name, sample, values, sample_stride(len(values)), self._sums
            )

    def read(self) -> tuple[complex, float, float]:
        """The sums so far; waits for the stream."""
        with self._stream:
            real, imaginary, before, after = survey.overlap_sums(self._device, self._sums)
        return complex(real, imaginary), before, after


PINNED_BYTES = 1 << 13
"""Of pinned memory in which kernels write numbers for the host: more than the header of a stream, and than
the numbers of a survey along 30 axes."""
LOOKS = 256
"""So often the host looks for the numbers, some 20 us, before it queries the stream in between, in which time
other threads go on."""
SLAB_BYTES = 1 << 22
"""Small arrays of zeros are cut from one that is filled at once: filling takes the host 10 us."""
LARGEST_CUT = SLAB_BYTES // 8


class _PinnedBuffer:
    """Pinned memory that is used again, for one copy or mailbox at a time."""

    def __init__(self) -> None:
        self.bytes: NDArray[np.uint8] = np.frombuffer(
            cupy.cuda.alloc_pinned_memory(PINNED_BYTES), np.uint8, PINNED_BYTES
        )
        self.words = self.bytes.view(np.uint64)
        self.address = int(self.bytes.ctypes.data)
        self.place = np.uint64(self.address)


_PINNED: list[_PinnedBuffer] = []
_SLABS: dict[tuple[int, int], tuple[Any, int]] = {}
"""Of each device and stream zeros, and how many bytes of them are taken; changed by one thread at a time."""
_CUTTING = Lock()


def _take_pinned() -> _PinnedBuffer:
    try:
        return _PINNED.pop()
    except IndexError:
        return _PinnedBuffer()


class CupyCodec:
    """A `tnplan.compress.gpu.launches.KernelDevice` on the current GPU and its current stream."""

    def upload(self, array: NDArray[Any]) -> Any:
        """A copy on the GPU."""
        return cupy.asarray(array)

    def download(self, array: Any) -> NDArray[Any]:
        """A copy on the host."""
        if not 0 < array.nbytes <= PINNED_BYTES or array.ndim != 1 or not array.flags.c_contiguous:
            host: NDArray[Any] = array.get()
            return host
        pinned, stream, runtime = _take_pinned(), cupy.cuda.get_current_stream(), cupy.cuda.runtime
        runtime.memcpyAsync(
            pinned.address, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost, stream.ptr
        )  # fmt: skip
        stream.synchronize()
        copied: NDArray[Any] = pinned.bytes[: array.nbytes].view(array.dtype).copy()
        _PINNED.append(pinned)
        return copied

    def mailbox(self, n_words: int) -> tuple[np.uint64, Callable[[], NDArray[np.uint64]]]:
        """The address where a kernel writes so many words for the host, and the call that waits for them."""
        pinned, stream = _take_pinned(), cupy.cuda.get_current_stream()
        words = pinned.words
        words[n_words] = 0

        def wait() -> NDArray[np.uint64]:
            for _ in range(LOOKS):
                if words[n_words]:
                    break
            else:
                # Not until the stream is done: work that was given to it since may take long.
                while not words[n_words] and not stream.done:
                    pass
            copied = words[:n_words].copy()
            _PINNED.append(pinned)
            return copied

        return pinned.place, wait

    def zeros(self, size: int, dtype: str) -> Any:
        """A new array of zeros."""
        size_bytes = size * np.dtype(dtype).itemsize
        if size_bytes > LARGEST_CUT:
            return cupy.zeros(size, dtype)
        stream = (cupy.cuda.runtime.getDevice(), cupy.cuda.get_current_stream().ptr)
        with _CUTTING:
            slab, used = _SLABS.get(stream, (None, SLAB_BYTES))
            if used + size_bytes > SLAB_BYTES:
                slab, used = cupy.zeros(SLAB_BYTES, np.uint8), 0
            _SLABS[stream] = slab, used + round_up(size_bytes, CACHE_LINE_BYTES)
        return cupy.ndarray(size, dtype, slab.data + used)

    def empty(self, size: int, dtype: str) -> Any:
        """A new array of anything."""
        return cupy.empty(size, dtype)

    def launch(self, launch: KernelLaunch, dtype: str, *arguments: Any) -> None:
        """Run a kernel that is compiled for arrays of `dtype`; structures go as ctypes arrays."""
        kernel = _kernel(launch.file, launch.entry, dtype)
        words, pointers = _words(len(arguments))(), _words(len(arguments))()
        first = addressof(words)
        for number, argument in enumerate(arguments):
            if isinstance(argument, Array):
                pointers[number] = addressof(argument)
            else:
                words[number] = int(argument) if isinstance(argument, np.generic) else argument.data.ptr
                pointers[number] = first + WORD_BYTES * number
        # The driver has copied all arguments when it returns.
        driver.launchKernel(
            kernel, *launch.grid, 1, launch.threads, 1, 1, 0, cupy.cuda.get_current_stream().ptr,
            addressof(pointers), 0,
        )  # fmt: skip


@cached_per_device
def _kernel(file: str, entry: str, dtype: str) -> int:
    """A kernel of the current device."""
    return int(load_kernel(FOLDER / file, entry, defines(dtype)).kernel.ptr)


@cache
def _words(count: int) -> Any:
    """So many words of 8 bytes."""
    return c_uint64 * count


register("cupy", CupyCodec)
