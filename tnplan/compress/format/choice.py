"""What a stream's header says, chosen from what is known of an array: quantizers, coder, order of the axes.

CPU and GPU find extents, symmetry and samples each in its own way; what follows from them is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import NATURAL, TILE, ranked_axes, tile_axes
from tnplan.compress.format.bounds import Extent, check_bound, error_limit, fine_quantizer, quantizer
from tnplan.compress.format.box import SHIFT, Predictor, may_be_smooth
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import (
    FIRST_VERSION,
    LOSSLESS_VERSION,
    PREDICTED_VERSION,
    Header,
    Quantizer,
)

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
            raise CodecError("setting", f"is {self.setting!r}", f"choose from {', '.join(SETTINGS)}")
        if self.nonfinite not in NONFINITE:
            raise CodecError("nonfinite", f"is {self.nonfinite!r}", f"choose from {', '.join(NONFINITE)}")
        least, most, log2 = stream.TILE_LOG2, stream.LARGEST_FRAME_LOG2, self.frame_log2
        if not isinstance(log2, int | np.integer) or not least <= log2 <= most:
            raise CodecError("frame_log2", f"is {log2!r}", f"give a whole number from {least} to {most}")

    def check_finite(self, any_nonfinite: bool) -> None:
        """CodecError where values that are not finite are refused, and there are any."""
        if any_nonfinite and self.nonfinite == "refuse":
            raise CodecError(
                "array", "holds NaN or infinities", "replace them, or allow them with `nonfinite`"
            )


RANKED_FROM = 1 << 16
"""Elements from which the order of the axes is chosen."""
TRIAL = 1 << 16
TRIALS = 4
WORTH = 1.2
"""`auto` takes the coder `small` where it makes trials this much smaller than `fast`."""
NEVER_LARGER = 1.05
"""Without a predictor `small` makes no array larger than so many times what `fast` makes: nothing is tried
where a predictor saves enough."""

Limits = tuple[float, ...]
"""The largest error of an element of each component."""
TrialBytes = Callable[[Header, Limits], int]
"""The bytes that some pieces of the array (`trial_pieces`) take with a header's coder."""
CountClasses = Callable[[Header, Limits, int], NDArray[np.integer]]
"""How often pairs of classes (`bit_tiling.CLASSES`) occur in a sample, along so many axes."""

FindPredictor = Callable[[Header], tuple[Predictor | None, float]]
"""The predictor of an array of the coder `small`, or None, and the share of the bytes that it takes with
it."""


class ArrayFacts(NamedTuple):
    """What is known of an array: the extents of its components, and which of `REFLECTIONS` it is."""

    dtype: str
    shape: tuple[int, ...]
    reaches: Sequence[Extent]
    reflection: str


def chosen_header(
    options: CodingOptions, facts: ArrayFacts, trial_bytes: TrialBytes, count_classes: CountClasses,
    find_predictor: FindPredictor,
) -> tuple[Header, Limits]:  # fmt: skip
    """The header of an array's stream, and the largest errors of its components.

    Where the bound is 0 or too fine for the dtype, the array is stored without loss.
    """
    dtype, shape, reaches, reflection = facts
    options.check_finite(any(reach.any_nonfinite for reach in reaches))
    bound, mode, n = options.bound, options.mode, stream.components(dtype)
    none = (Quantizer(),) * n
    header = Header(
        dtype, shape, "lossless", bound, "lossless", reflection, none, NATURAL, options.frame_log2,
        version=LOSSLESS_VERSION,
    )  # fmt: skip
    rules = [quantizer(reach, bound, mode, header.real_dtype) for reach in reaches] if bound else [None]
    lossy = tuple(rule for rule in rules if rule is not None)
    if len(lossy) < len(rules):
        return header, (0.0,) * n
    limits = tuple(0.0 if mode == "pointwise" else error_limit(reach, bound, mode) for reach in reaches)
    header = replace(header, mode=mode, coder=options.setting, quantizers=lossy, version=FIRST_VERSION)
    predictor, share = None, 1.0
    if options.predict and may_predict(header):
        predictor, share = find_predictor(header)
    if options.setting == "auto" and predictor and share * WORTH * NEVER_LARGER < 1:
        header = replace(header, coder="small")
    elif options.setting == "auto":
        fast, small = (trial_bytes(replace(header, coder=name), limits) for name in ("fast", "small"))
        header = replace(header, coder="small" if small * share * WORTH < fast else "fast")
    if predictor and header.coder == "small":
        if not predictor.is_lorenzo:
            lossy = tuple(fine_quantizer(rule, header.real_dtype) for rule in lossy)
        return replace(header, predictor=predictor, quantizers=lossy, version=PREDICTED_VERSION), limits
    n_axes = axis_count(header.stored, header.frame_log2)
    if not n_axes:
        return header, limits
    ranked = ranked_axes(count_classes(header, limits, n_axes))
    element_bytes = n * header.real_dtype.itemsize
    return replace(header, axes=tile_axes(ranked, header.coder, element_bytes)), limits


def may_predict(header: Header) -> bool:
    """Whether the coder `small` may have a predictor: for linear steps alone, and where an axis is long."""
    # The step of fine numbers has an inverse.
    least = float(np.finfo(header.real_dtype).tiny) * (2 << SHIFT)
    linear = all(rule.step >= least and not rule.bits_step for rule in header.quantizers)
    return linear and header.coder != "fast" and may_be_smooth(header.shape)


def axis_count(stored: int, frame_log2: int) -> int:
    """How many axes are ranked on a sample of so many stored elements; 0 where they keep their order."""
    return 0 if stored < RANKED_FROM else min(frame_log2, stored.bit_length() - 1)


def trial_pieces(stored: int) -> list[tuple[int, int]]:
    """First element and number of elements of the pieces on which coders are compared."""
    if stored <= TRIAL * TRIALS:
        return [(0, stored)]
    return [(k * (stored - TRIAL) // (TRIALS - 1) // TILE * TILE, TRIAL) for k in range(TRIALS)]
