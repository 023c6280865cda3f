"""The nine pipelines of Fig. 15 by name, each a composition of stages, for whole arrays.

A component (real or imaginary part) is coded by itself, threshold and bound relative to its range (VII-A).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shah2023 import base_coders as base
from shah2023 import stages
from shah2023.stages import Values

Encode = Callable[[Values, float], bytes]
Decode = Callable[[bytes, float, int], Values]

BASES: dict[str, tuple[Encode, Decode]] = {
    "cuSZ": (base.encode_cusz, base.decode_cusz),
    "cuSZx": (base.encode_cuszx, base.decode_blocks),
}


@dataclass(frozen=True)
class Pipeline:
    """A base coder, and what stands before it: nothing, 'threshold', 'grouping' with a coder of the bitmap
    ('raw', '2L' or 'LZ4'), or 'integrated'."""

    base: str
    before: str = ""
    bitmap: str = ""

    @property
    def name(self) -> str:
        """As in the paper's figures."""
        return "+".join(part for part in (self.base, self.before, self.bitmap) if part)

    def encode(self, values: Values, limit: float, bound: float) -> bytes:
        """The bytes of flat float32 values, with an absolute threshold and bound above 0."""
        encode = BASES[self.base][0]
        if self.before == "integrated":
            return base.encode_integrated(values, bound, limit)
        if self.before:
            values = stages.threshold(values, limit)
        if self.before != "grouping":
            return encode(values, bound)
        bitmap, significant = stages.group(values)
        return stages.join(stages.BITMAPS[self.bitmap][0](bitmap), encode(significant, bound))

    def decode(self, data: bytes, bound: float, size: int) -> Values:
        """The `size` values of what `encode` returned for this bound."""
        decode = BASES[self.base][1]
        if self.before != "grouping":
            return decode(data, bound, size)
        packed, body = stages.split(data, 2)
        bitmap = stages.BITMAPS[self.bitmap][1](packed, -(-size // 8))
        n_significant = int(np.unpackbits(bitmap, count=size, bitorder="little").sum())
        return stages.ungroup(bitmap, decode(body, bound, n_significant), size)


PIPELINES = (
    Pipeline("cuSZ"),
    Pipeline("cuSZ", "threshold"),
    Pipeline("cuSZ", "grouping", "LZ4"),
    Pipeline("cuSZ", "grouping", "2L"),
    Pipeline("cuSZx"),
    Pipeline("cuSZx", "threshold"),
    Pipeline("cuSZx", "grouping", "LZ4"),
    Pipeline("cuSZx", "grouping", "2L"),
    Pipeline("cuSZx", "integrated"),
)


def components(array: NDArray[np.generic]) -> list[Values]:
    """The parts of an array as flat float32, as the paper casts them; infinite beyond its largest number."""
    flat = np.ravel(array)
    parts = [flat.real, flat.imag] if np.iscomplexobj(flat) else [flat]
    with np.errstate(over="ignore"):
        return [np.ascontiguousarray(part, np.float32) for part in parts]


def value_range(values: Values) -> float:
    """Greatest less least value."""
    return float(values.max()) - float(values.min())
