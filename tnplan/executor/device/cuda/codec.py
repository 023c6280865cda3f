"""The codec of a GPU: compress's kernels on views of its arena, on the device's stream.

Its workspace is CuPy's memory pool. The host waits until a stream is written, or is known to be sound; the
last values that are restored, and samples, may come later, in the order of the device's stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.compress.cpu.codec import worst_size_bytes
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import FRAME_LOG2, Header, real_dtype
from tnplan.compress.gpu import decode, survey
from tnplan.compress.gpu.survey import write
from tnplan.executor.device.cuda.array_codec import CupyCodec
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
