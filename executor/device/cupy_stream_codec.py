"""The codec of a GPU: compress's kernels on views of its arena, on the device's stream.

Its workspace is CuPy's memory pool. The host waits for every stream that is written or read.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from compress import device_codec, device_decode
from compress.codec import worst_size_bytes
from compress.errors import CodecError
from compress.stream import FRAME_LOG2, real_dtype
from executor.device.codec import NoRoomError, Packed, sample_stride
from executor.device.cupy_codec import CupyCodec
from planner.hardware.compression import Lossy

WORD_BYTES = 8


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
        with self._stream:
            reals = values.view(real_dtype(dtype))
            header, limits = device_codec.survey(
                self._device, reals, dtype, (len(values),), lossy.bound, "range", setting, FRAME_LOG2
            )
            try:
                size_bytes = device_codec.encode(self._device, reals, header, limits, out)
            except CodecError as error:
                if error.place != "out":
                    raise
                raise NoRoomError(f"the stream is longer than {len(out)} bytes") from None
            square = len(values) * sum(limit * limit for limit in limits)
            return Packed(size_bytes, square, device_codec.norm_square(self._device, reals, dtype))

    def decode(self, data: Any, values: Any) -> None:
        """Fill the values."""
        with self._stream:
            device_decode.decode(self._device, data, values.view(real_dtype(values.dtype.name)))

    def sample(self, values: Any) -> NDArray[Any]:
        """A copy of some values on the host."""
        with self._stream:
            taken: NDArray[Any] = values[:: sample_stride(len(values))].get()
            return taken
