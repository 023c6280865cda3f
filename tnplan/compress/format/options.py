"""What a caller asks of a stream: bound, mode, coder, values that are not finite, size of the frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tnplan.compress.format import stream
from tnplan.compress.format.bounds import check_bound
from tnplan.compress.format.errors import CodecError

SETTINGS = ("auto", "fast", "small")
"""The coders that a caller may ask for; 'auto' chooses on a sample."""
NONFINITE = ("keep", "refuse")


@dataclass(frozen=True)
class CodingOptions:
    """How an array is to be coded; CodecError for an option that is none. See `compress.compress`."""

    bound: float
    mode: str = "range"
    setting: str = "auto"
    nonfinite: str = "keep"
    frame_log2: int = stream.FRAME_LOG2
    predict: bool = False
    """Whether the coder `small` may have a predictor."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", check_bound(self.bound, self.mode))
        if self.setting not in SETTINGS:
            raise CodecError("setting", f"is {self.setting!r}", f"give one of {', '.join(SETTINGS)}")
        if self.nonfinite not in NONFINITE:
            raise CodecError("nonfinite", f"is {self.nonfinite!r}", f"give one of {', '.join(NONFINITE)}")
        least, most, given = stream.TILE_LOG2, stream.LARGEST_FRAME_LOG2, self.frame_log2
        if not isinstance(given, int | np.integer) or not least <= given <= most:
            raise CodecError("frame_log2", f"is {given!r}", f"give a whole number from {least} to {most}")

    def check_finite(self, any_nonfinite: bool) -> None:
        """CodecError where values that are not finite are refused, and there are any."""
        if any_nonfinite and self.nonfinite == "refuse":
            raise CodecError("array", "holds NaN or infinities", "mend it, or do not refuse them")
