"""The codec of a device without arrays: every stream has the size that the planner counts on."""

from __future__ import annotations

from math import ceil

from tests.support.null_device.view import NullView
from tnplan.compress.cpu.codec import worst_size_bytes
from tnplan.compress.format.stream import Header
from tnplan.executor.device.protocols.codec import HOST_FRAME_LOG2, Packed, sample_count
from tnplan.planner.hardware.compression_options import Lossy


class NullCodec:
    """See `Codec`."""

    def worst_bytes(self, count: int, dtype: str) -> int:
        """Those of a CPU."""
        return worst_size_bytes((count,), dtype, HOST_FRAME_LOG2)

    def encode(self, values: NullView, lossy: Lossy, setting: str, out: NullView) -> Packed:
        """A stream of the ratio that is counted on."""
        return Packed(min(ceil(values.nbytes / lossy.ratio), len(out)), 0.0, 0.0)

    def decode(self, data: NullView, values: NullView, header: Header | None = None) -> None:
        """Nothing to restore."""

    def sample(self, values: NullView, out: NullView | None = None) -> NullView:
        """As many values."""
        return NullView(sample_count(len(values)), values.dtype)

    def overlaps(self) -> NullOverlaps:
        """Sums over nothing."""
        return NullOverlaps()


class NullOverlaps:
    """Sums that stay 0; see `SampledOverlaps`."""

    def add(self, sample: NullView, values: NullView) -> None:
        """Nothing to add."""

    def read(self) -> tuple[complex, float, float]:
        """No sums."""
        return 0.0, 0.0, 0.0
