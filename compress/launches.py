"""How the CUDA kernels of compress/kernels are launched: files, definitions, grids, tables and structures.

Arguments are given in the order of the kernel, scalars as NumPy scalars, arrays as device pointers. Knows no
CuPy: whatever compiles and launches kernels is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.bounds import LARGEST_Q, round_down
from compress.stream import Header, components, real_dtype

FOLDER = Path(__file__).parent / "kernels"
FAST_THREADS = 256
SMALL_WARPS = 4
SMALL_THREADS = 32 * SMALL_WARPS
SURVEY_THREADS = 256

RULE = np.dtype(
    [(name, "<f8") for name in ("step", "inverse", "limit", "largest")]
    + [(name, "<u8") for name in ("zero_bits", "checked", "bits_step", "base_bits")]
)
"""`Rule` of quantize.cuh; `Rules` is one for each component."""


@dataclass(frozen=True)
class Launch:
    """A kernel with its grid (blocks along x and y) and the threads of a block."""

    file: str
    entry: str
    grid: tuple[int, int]
    threads: int


def defines(dtype: str) -> dict[str, str | int]:
    """The definitions with which every kernel is compiled for arrays of a dtype."""
    real, bits = (
        ("float", "unsigned") if real_dtype(dtype).itemsize == 4 else ("double", "unsigned long long")
    )
    return {"REAL": real, "BITS": bits, "COMPONENTS": components(dtype)}


def rules(header: Header, limits: tuple[float, ...]) -> NDArray[np.void]:
    """The struct `Rules` of a header's quantizers (components,); `limits` are the largest errors."""
    made = np.zeros(header.components, RULE)
    dtype = header.real_dtype
    sign = 1 << (8 * dtype.itemsize - 1)
    for row, rule, limit in zip(made, header.quantizers, limits, strict=True):
        row["step"], row["zero_bits"] = rule.step, rule.zero_bits
        row["bits_step"], row["base_bits"] = rule.bits_step, rule.base_bits
        # Zeros of either sign are the same constant.
        row["checked"] = sign - 1 if rule.zero_bits == 0 else 2 * sign - 1
        if rule.step:
            row["inverse"] = dtype.type(1) / dtype.type(rule.step)
            row["limit"] = round_down(limit, dtype) if limit else 0.0
            row["largest"] = LARGEST_Q[dtype]
    return made


def fast_encode(n_frames: int, n_tiles: int) -> Launch:
    """A block a tile, of frames of equal size."""
    return Launch("fast.cu", "fast_encode", (n_frames * n_tiles, 1), FAST_THREADS)


def gather_exact(n_tiles: int) -> Launch:
    """A block a tile, of one frame."""
    return Launch("fast.cu", "gather_exact", (n_tiles, 1), FAST_THREADS)


def fast_decode(n_frames: int, n_tiles: int) -> Launch:
    """A block a tile, of frames of equal size."""
    return Launch("fast.cu", "fast_decode", (n_frames * n_tiles, 1), FAST_THREADS)


def small_count(n_frames: int, n_tiles: int) -> Launch:
    """A warp a tile, of frames of equal size."""
    return Launch("small.cu", "small_count", (-(-n_tiles // SMALL_WARPS), n_frames), SMALL_THREADS)


def small_encode(n_frames: int, n_segments: int) -> Launch:
    """A warp a segment, of frames of equal size."""
    return Launch("small.cu", "small_encode", (-(-n_segments // SMALL_WARPS), n_frames), SMALL_THREADS)


def small_pack(n_segments: int) -> Launch:
    """A block a segment, of all frames."""
    return Launch("small.cu", "small_pack", (n_segments, 1), SMALL_THREADS)


def small_decode(n_frames: int, n_segments: int) -> Launch:
    """A warp a segment, of frames of equal size."""
    return Launch("small.cu", "small_decode", (-(-n_segments // SMALL_WARPS), n_frames), SMALL_THREADS)


def survey(entry: str, blocks: int, parts: int = 1) -> Launch:
    """`extents`, `mirror`, `fill_mirrored`, or `checksums` of `parts` ranges; any number of blocks."""
    return Launch("survey.cu", entry, (blocks, parts), SURVEY_THREADS)
