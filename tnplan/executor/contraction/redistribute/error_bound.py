"""What compressing did to the values: its bounds accumulated over a schedule, and the fidelity on samples.

Knows sums; never a codec, a device or a schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, isfinite, nan, sqrt
from typing import Any

from tnplan.executor.device.protocols.codec import Packed, SampledOverlaps


@dataclass
class Tally:
    """Sums over all that one instruction compressed on one rank, or on several ranks once they are added.

    `errors` bounds the 2-norm of x - x', `norm` is that of x. Over sampled values: `overlap` is the sum of
    conj(x) x', `before` of |x|^2, `after` of |x'|^2. Bytes are those of values and of streams. What
    `overlaps` have still to say is added by `read`.
    """

    errors: float = 0.0
    norm: float = 0.0
    overlap: complex = 0.0
    before: float = 0.0
    after: float = 0.0
    tensor_bytes: int = 0
    stream_bytes: int = 0
    overlaps: SampledOverlaps | None = None

    def packed(self, packed: Packed, tensor_bytes: int) -> None:
        """Count a stream."""
        self.errors = hypot(self.errors, packed.error)
        self.norm = hypot(self.norm, packed.norm)
        self.tensor_bytes += tensor_bytes
        self.stream_bytes += packed.size_bytes

    def read(self) -> Tally:
        """The sums as numbers alone; waits for the device."""
        if self.overlaps is None:
            return self
        overlap, before, after = self.overlaps.read()
        return self.added(Tally(overlap=overlap, before=before, after=after))

    def added(self, other: Tally) -> Tally:
        """The numbers of both."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        errors, norm = hypot(self.errors, other.errors), hypot(self.norm, other.norm)
        return replace(self, **sums, errors=errors, norm=norm, overlaps=None)

    @property
    def error(self) -> float:
        """A bound of the 2-norm of x - x' over that of x; infinite where the norm cannot say."""
        if self.errors == 0:
            return 0.0
        if not (0 < self.norm < inf):
            return inf
        share = self.errors / self.norm
        return share if isfinite(share) else inf

    @property
    def fidelity(self) -> float:
        """|<x|x'>|^2 / (<x|x> <x'|x'>) over the samples; 1 where both vanish, NaN where all that was
        compressed is so small that its squares cannot say."""
        if self.before < LEAST_SQUARES and self.after < LEAST_SQUARES:
            return nan if self.errors and self.norm < LEAST_NORM else 1.0
        if self.before == 0 or self.after == 0:
            return 0.0
        return min((abs(self.overlap) / sqrt(self.before) / sqrt(self.after)) ** 2, 1.0)


LEAST_SQUARES, LEAST_NORM = 1e-290, 1e-140
"""Sums of squares below the first lost digits; samples of a tensor whose norm is above the second vanish if
their sum is below the first."""
SUMS = ("overlap", "before", "after", "tensor_bytes", "stream_bytes")


def summary(kinds: Sequence[str], ranks: Sequence[Sequence[Tally]]) -> dict[str, Any]:
    """What result.json says: `kinds` are those of all instructions that compress, `ranks` their tallies.

    `bound` is the product of 1 + error over the instructions, less 1; `fidelity` the product of fidelities.
    None where values that are not finite leave neither.
    """
    tallies = [Tally() for _ in kinds]
    for rank in ranks:
        tallies = [one.added(other) for one, other in zip(tallies, rank, strict=True)]
    bound = fidelity = 1.0
    for tally in tallies:
        bound *= 1 + tally.error
        fidelity *= tally.fidelity
    sizes = {
        kind: {
            name: sum(getattr(tally, name) for one, tally in zip(kinds, tallies, strict=True) if one == kind)
            for name in ("tensor_bytes", "stream_bytes")
        }
        for kind in sorted(set(kinds))
    }
    return {
        "bound": bound - 1 if isfinite(bound) else None,
        "fidelity": fidelity if isfinite(fidelity) else None,
        **sizes,
    }
