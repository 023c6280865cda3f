"""What replay needs of a codec: flat views of a device compressed into bytes of the device, and restored.

Knows no schedule; `Device.codec` gives the one of a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, isnan, sqrt
from typing import Any, Protocol

from tnplan.compress.format.stream import Header
from tnplan.executor.device.protocols.copy import View
from tnplan.planner.hardware.compression_options import Lossy

HOST_FRAME_LOG2 = 18
"""Frames of a quarter of a million elements stay in the caches of a CPU and need little memory."""
LEAST_SAMPLE = 64
MOST_SAMPLE = 1 << 16
SAMPLED = 1023
LEAST_STRIDE = 8
"""One of so many values is compared, before and after, but that many at least and at most; the least holds
where there are so many times more values."""
SAFE_SQUARES = (1e-200, 1e300)
"""Sums of squares between these lost nothing to what double precision can hold."""
SUMMED = 1 << 20


class StreamTooLongError(ValueError):
    """The stream is longer than the bytes that there are for it."""


@dataclass(frozen=True)
class Packed:
    """A stream of `size_bytes`; the 2-norm of x - x' over its tensor is at most `error`, that of x is `norm`:
    no squares, which leave the range of double precision long before the values do.
    `header`: the stream's."""

    size_bytes: int
    error: float
    norm: float
    header: Header | None = None


def measured(
    size_bytes: int, count: int, limits: Sequence[float], square: float, reals: Any,
    header: Header | None = None,
) -> Packed:  # fmt: skip
    """What is known of a stream of `count` values whose parts err by `limits` at most. `square` is the sum of
    squares of their flat `reals`; these are looked at again where that is no safe sum."""
    error = sqrt(count) * hypot(*limits)
    safe = SAFE_SQUARES[0] <= square <= SAFE_SQUARES[1]
    return Packed(size_bytes, error, sqrt(square) if safe or not error else _norm(square, reals), header)


def _norm(square: float, reals: Any) -> float:
    """The 2-norm of flat real numbers of any array library, scaled by the greatest magnitude."""
    if isnan(square):
        return square
    starts = range(0, len(reals), SUMMED)
    top = max(float(abs(reals[first : first + SUMMED]).max()) for first in starts)
    if not 0 < top < inf:
        return top
    return top * hypot(*(sqrt(float(((reals[first : first + SUMMED] / top) ** 2).sum())) for first in starts))


class SampledOverlaps(Protocol):
    """Sums over sampled values x and what they became, x'. They stay on the device until they are read."""

    def add(self, sample: View, values: View) -> None:
        """Add those of a tensor.

        - `sample`: Every `sample_stride`-th of its values as they were.
        - `values`: All of them as they are now.
        """

    def read(self) -> tuple[complex, float, float]:
        """The sums of conj(x) x', |x|^2 and |x'|^2; waits for the device."""


class Codec(Protocol):
    """Compresses and restores flat views; memory that it needs besides it allocates itself.

    Examples
    --------
    >>> import numpy as np
    >>> from tnplan.executor.device.cpu.codec import NumpyCodec
    >>> codec, values = NumpyCodec(), np.linspace(0, 1, 4096)
    >>> out = np.empty(codec.worst_bytes(4096, "float64"), np.uint8)
    >>> packed = codec.encode(values, Lossy(1e-3, 4.0), "fast", out)
    >>> restored = np.empty_like(values)
    >>> codec.decode(out[: packed.size_bytes], restored)
    >>> bool(np.abs(restored - values).max() <= 1e-3)
    True
    """

    def worst_bytes(self, count: int, dtype: str) -> int:
        """Bytes that are enough for the stream of any `count` elements of a type."""

    def encode(self, values: View, lossy: Lossy, setting: str, out: View) -> Packed:
        """Compress values.

        - `values`: A flat view.
        - `lossy`: The bound of the error of a value, as a part of the range of all, and the ratio counted on.
        - `setting`: 'fast' or 'small'.
        - `out`: Bytes for the stream, from the first on.
        - returns: The size of the stream, and a bound of the error of all values.
        - raises StreamTooLongError: where the stream is longer than `out`.
        - raises CodecError: where the values cannot be compressed.
        """

    def decode(self, data: View, values: View, header: Header | None = None) -> None:
        """Restore values.

        - `data`: The bytes of a stream, no more and no less.
        - `values`: A flat view, which the stream fills.
        - `header`: The stream's; where it is known the work begins sooner.
        - raises StreamError: where the stream is damaged.
        """

    def sample(self, values: View, out: View | None = None) -> View:
        """Every `sample_stride`-th of the values, in `out` or in new memory."""

    def overlaps(self) -> SampledOverlaps:
        """Sums over nothing yet."""


def sample_stride(count: int) -> int:
    """The distance of sampled values of a tensor of `count`: odd, so that no binary mode is left out."""
    return max(LEAST_STRIDE, min(SAMPLED, count // LEAST_SAMPLE), -(-count // MOST_SAMPLE)) | 1


def sample_count(count: int) -> int:
    """How many values of a tensor of `count` are sampled."""
    return len(range(0, count, sample_stride(count)))


def most_sampled(count: int) -> int:
    """No tensor of `count` values or fewer has more samples."""
    return min(count, 1 + count // LEAST_STRIDE, 2 * LEAST_SAMPLE + count // SAMPLED, MOST_SAMPLE)
