"""The codec of a CPU: tnplan.compress.cpu.codec on NumPy views, frame by frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.codec import decompress_into, flat_values, worst_size_bytes
from tnplan.compress.cpu.codec import encode as encode_stream
from tnplan.compress.format.bounds import error_limit, extent
from tnplan.compress.format.stream import Header
from tnplan.executor.device.protocols.codec import (
    HOST_FRAME_LOG2,
    SUMMED,
    Packed,
    StreamTooLongError,
    measured,
    sample_stride,
)
from tnplan.planner.hardware.compression_options import Lossy

Array = NDArray[np.generic]


class NumpyCodec:
    """See `Codec`; views are NumPy arrays."""

    def worst_bytes(self, count: int, dtype: str) -> int:
        """Bytes that are enough for the stream of any `count` elements."""
        return worst_size_bytes((count,), dtype, HOST_FRAME_LOG2)

    def encode(self, values: Array, lossy: Lossy, setting: str, out: NDArray[np.uint8]) -> Packed:
        """Write the stream, piece by piece."""
        header, pieces = encode_stream(
            values, lossy.bound, setting=setting, frame_log2=HOST_FRAME_LOG2, predict=False
        )
        at = 0
        for piece in pieces:
            if at + len(piece) > len(out):
                raise StreamTooLongError(f"the stream is longer than {len(out)} bytes")
            out[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        reals, n = flat_values(values), header.components
        limits = [0.0]
        if header.mode != "lossless":
            reaches = (extent(reals[component::n], normals=False) for component in range(n))
            limits = [error_limit(reach, lossy.bound, header.mode) for reach in reaches]
        return measured(at, len(values), limits, _norm_square(reals), reals, header)

    def decode(self, data: NDArray[np.uint8], values: Array, header: Header | None = None) -> None:
        """Fill the values."""
        decompress_into(data, values)

    def sample(self, values: Array, out: Array | None = None) -> Array:
        """A copy of some values."""
        taken = values[:: sample_stride(len(values))]
        if out is None:
            return taken.copy()
        np.copyto(out, taken)
        return out

    def overlaps(self) -> NumpyOverlaps:
        """Sums over nothing yet."""
        return NumpyOverlaps()


@dataclass
class NumpyOverlaps:
    """See `SampledOverlaps`."""

    overlap: complex = 0.0
    before: float = 0.0
    after: float = 0.0

    def add(self, sample: Array, values: Array) -> None:
        """Add the sums over a sample."""
        x, y = (sampled.astype(complex) for sampled in (sample, values[:: sample_stride(len(values))]))
        # Sums that overflow are not finite, and no fidelity comes of them.
        with np.errstate(over="ignore", invalid="ignore"):
            self.overlap += complex(np.vdot(x, y))
            self.before += float(np.vdot(x, x).real)
            self.after += float(np.vdot(y, y).real)

    def read(self) -> tuple[complex, float, float]:
        """The sums so far."""
        return self.overlap, self.before, self.after


def _norm_square(reals: NDArray[np.floating]) -> float:
    """The sum of squares in double precision; infinite where it overflows."""
    chunks = (reals[first : first + SUMMED].astype(np.float64) for first in range(0, len(reals), SUMMED))
    with np.errstate(over="ignore"):
        return float(sum(np.dot(chunk, chunk) for chunk in chunks))
