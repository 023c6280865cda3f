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
THREADS = 256
SMALL_WARPS = 4
SMALL_THREADS = 32 * SMALL_WARPS
WARP = 32

FAST_SLOT_BYTES = 1024
"""Room for the head of a tile of the coder `fast`, before that of its numbers, in 32-bit words."""
SMALL_SLOT_BYTES = 640
"""The same of the coder `small`: states, and the words of one round."""

ORDER = np.dtype([(name, "<u4", 12) for name in ("above", "numbers", "turns")] + [("axes", "u1", 12)])
"""`Order` of tile.cuh."""
PLACES = 1 << np.arange(12, dtype=np.uint32)
TURNS = 4 * (PLACES ^ PLACES >> 5 & 31 ^ PLACES >> 10)
"""What each bit of a place in a tile turns in bytes of shared memory: the lane is turned by the row."""
FRAME = np.dtype(
    [(name, "<u8") for name in ("start", "size", "sum", "stated", "kind", "exact", "coded", "damaged")]
)
"""`Frame` of tile.cuh."""
MOST_HEADER_WORDS = 79
"""Words of a stream's header, at most."""
PLAN_WORDS = 3
"""`Plan` of small.cuh."""


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
    dtype = header.real_dtype
    bits = f"<u{dtype.itemsize}"
    sign = 1 << (8 * dtype.itemsize - 1)
    made = np.zeros(
        header.components,
        [(name, dtype) for name in ("step", "inverse", "limit", "largest")]
        + [(name, bits) for name in ("zero_bits", "checked", "bits_step", "base_bits")],
    )
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


def header(data: bytes) -> NDArray[np.void]:
    """The struct `Header` (1,) of a header's bytes."""
    return np.frombuffer(data.ljust(8 * MOST_HEADER_WORDS, b"\0"), [("words", "<u8", MOST_HEADER_WORDS)])


def order(axes: tuple[int, ...]) -> NDArray[np.void]:
    """The struct `Order` (1,) of a frame's axes."""
    made = np.zeros(1, ORDER)
    made["axes"] = axes
    numbers = np.uint32(1) << np.array(sorted(axes), np.uint32)
    made["numbers"], made["above"] = numbers, -numbers
    made["turns"] = TURNS[np.argsort(axes)]
    return made


def fast_encode(n_frames: int, n_tiles: int) -> Launch:
    """A block a tile, of frames of equal size."""
    return Launch("fast.cu", "fast_encode", (n_tiles, n_frames), THREADS)


def fast_pack(n_frames: int, n_tiles: int) -> Launch:
    """A warp a tile, of frames of equal size."""
    return Launch("fast.cu", "fast_pack", (-(-n_tiles * WARP // THREADS), n_frames), THREADS)


def fast_index(n_frames: int) -> Launch:
    """A block a frame."""
    return Launch("fast_decode.cu", "fast_index", (n_frames, 1), THREADS)


def fast_decode(n_frames: int, n_tiles: int) -> Launch:
    """A block a tile, of frames of equal size."""
    return Launch("fast_decode.cu", "fast_decode", (n_tiles, n_frames), THREADS)


def small_count(n_frames: int, n_tiles: int) -> Launch:
    """A warp a tile, of frames of equal size."""
    return Launch("small_encode.cu", "small_count", (-(-n_tiles // SMALL_WARPS), n_frames), SMALL_THREADS)


def small_plan(n_frames: int) -> Launch:
    """A block a frame."""
    return Launch("small_heads.cu", "small_plan", (n_frames, 1), THREADS)


def small_encode(n_frames: int, n_tiles: int) -> Launch:
    """A warp a segment, of which a frame has at most as many as tiles."""
    return Launch("small_encode.cu", "small_encode", (-(-n_tiles // SMALL_WARPS), n_frames), SMALL_THREADS)


def small_pack(n_frames: int, n_tiles: int) -> Launch:
    """A block a segment, of which a frame has at most as many as tiles."""
    return Launch("small_encode.cu", "small_pack", (n_tiles, n_frames), SMALL_THREADS)


def small_index(n_frames: int) -> Launch:
    """A block a frame."""
    return Launch("small_heads.cu", "small_index", (n_frames, 1), THREADS)


def small_decode(n_frames: int, n_tiles: int) -> Launch:
    """A warp a segment, of which a frame has at most as many as tiles."""
    return Launch("small_decode.cu", "small_decode", (-(-n_tiles // SMALL_WARPS), n_frames), SMALL_THREADS)


def frames(entry: str, blocks: int, n_frames: int = 1) -> Launch:
    """A kernel of frames.cu, with so many blocks along x."""
    return Launch("frames.cu", entry, (blocks, n_frames), WARP if entry == "find_frames" else THREADS)


def survey(entry: str, blocks: int, axes: int = 1) -> Launch:
    """A kernel of survey.cu, with so many blocks along x."""
    return Launch("survey.cu", entry, (blocks, axes), THREADS)
