"""Those kernels of compression that take longest to compile, each with arguments of the types of its calls.

They work on whole numbers, so that one sample serves arrays of all types.
"""

from __future__ import annotations

import numpy as np

from tnplan.common.kernels.ahead import Sample, Samples, compile_soon
from tnplan.common.system_calls import cores
from tnplan.compress.cpu import fixed_length_kernel, predictor_kernel, rans_encode_kernel, rans_kernel
from tnplan.compress.cpu.rans import counting
from tnplan.compress.format.bit_tiling import TILE

CODING = tuple(
    Samples(__name__, name) for name in ("of_predictor", "of_fixed_length", "of_counts", "of_segments")
)  # fmt: skip
"""On two cores the first half takes about as long to compile as the second."""


def compile_coders() -> None:
    """Compile what is missing in processes beside this one, where there are cores for them."""
    if cores() > 1:
        compile_soon(CODING)


def of_predictor() -> list[Sample]:
    """Residuals."""
    numbers, lattices = np.empty((2, 2), np.int32), np.empty((1, 12), np.uint64)
    own = lattices, lattices, True, lattices[0, 0]
    return [(predictor_kernel.fill_passes, (numbers, *own, numbers, (numbers, lattices[0]), True))]


def of_counts() -> list[Sample]:
    """How often tokens occur, for the coder `small`."""
    counts = np.empty((2, 2), np.int64)
    return [
        (rans_encode_kernel.count, counting(np.zeros((1, TILE), np.int32))),
        (rans_kernel.normalize, (counts, counts)),
    ]


def of_segments() -> list[Sample]:
    """The coder `small` itself."""
    q, symbols, raw_bits = (np.empty((2, 2), kind) for kind in (np.int32, np.uint16, np.uint8))
    packed, words, sizes = np.empty(2, np.uint32), np.empty(2, np.uint16), np.empty(2, np.int64)
    return [
        (rans_encode_kernel.encode_segments,
         ((q, symbols, raw_bits), TILE, packed, words, sizes, words, packed)),
    ]  # fmt: skip


def of_fixed_length() -> list[Sample]:
    """The coder `fast`, there and back."""
    numbers, places, data = np.empty((2, 2), np.int32), np.empty(2, np.int64), np.empty(2, np.uint8)
    block = np.empty(2, np.uint32)
    return [
        (fixed_length_kernel.encode, (numbers, data, places, (data, places, block))),
        (fixed_length_kernel.decode, (data, places, numbers, (places, block))),
    ]
