"""Tensors that wait compressed: bound to be written into bytes of the arena and read again.

Knows views and a codec's interface; never schedules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import Header
from tnplan.executor.contraction.redistribute.error_bound import Tally
from tnplan.executor.device.protocols.codec import Codec, StreamTooLongError
from tnplan.executor.device.protocols.device import Call, View, nothing
from tnplan.planner.hardware.compression_options import Lossy


@dataclass
class SpilledTensor:
    """A tensor of `step` that waits compressed in `data`: its stream's size and header, and some of its
    values."""

    data: View
    step: int
    tally: Tally = field(default_factory=Tally)
    size_bytes: int = 0
    header: Header | None = None
    sample: View | None = None


def bind_encode(values: View, stored: SpilledTensor, codec: Codec, lossy: Lossy, setting: str) -> Call:
    """The call that compresses `values`; it raises InputError where they need more room than was planned."""
    if not len(values):
        return nothing

    def run() -> None:
        try:
            packed = codec.encode(values, lossy, setting, stored.data)
        except StreamTooLongError:
            raise InputError(
                f"step {stored.step}",
                f"its result of {size_text(values.nbytes)}, which is to wait compressed to "
                f"{size_text(len(stored.data))}, takes more at a bound of {lossy.bound:g}",
                "plan with a smaller ratio in --compress store=BOUND:RATIO, or run with a larger bound",
                topic="compressed exchanges",
            ) from None
        except CodecError as error:
            raise InputError(
                f"step {stored.step}",
                f"its result cannot be compressed ({error.place} {error.problem})",
                "plan without store=... in --compress",
                topic="compressed exchanges",
            ) from None
        stored.sample = codec.sample(values, stored.sample)
        stored.size_bytes, stored.header = packed.size_bytes, packed.header
        stored.tally.packed(packed, values.nbytes)

    return run


def bind_decode(stored: SpilledTensor, values: View, codec: Codec) -> Call:
    """The call that restores the tensor into `values`."""
    if not len(values):
        return nothing
    overlaps = stored.tally.overlaps = stored.tally.overlaps or codec.overlaps()

    def run() -> None:
        codec.decode(stored.data[: stored.size_bytes], values, stored.header)
        assert stored.sample is not None
        overlaps.add(stored.sample, values)

    return run
