"""How the CUDA kernels of compress/kernels are launched: files, definitions, grids, tables and structures.

Arguments are given in the order of the kernel, scalars as NumPy scalars, arrays as device pointers,
structures as ctypes arrays of bytes. Knows no CuPy: what has arrays, compiles and
launches kernels is a `KernelDevice`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import Array, c_char
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.predictor import N_BOXES
from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.bounds import pointwise_step, round_down
from tnplan.compress.format.box import MOST_AXES, STRIP, Box
from tnplan.compress.format.stream import Header, components, real_dtype

FOLDER = Path(__file__).parent / "kernels"
THREADS = 256
SMALL_WARPS = 4
SMALL_THREADS = 32 * SMALL_WARPS
WARP = 32

AXES_AT_ONCE = 8
"""Axes that a block of `neighbours` looks along."""
FAST_HEAD_BYTES = 1024
"""The most bytes of the head of a tile of the coder `fast`, before its numbers, in 32-bit words."""
SMALL_SLOT_BYTES = 640
"""The same of the coder `small`: states, and the words of one round."""
PLAN_BYTES = 2560
"""The most bytes of a `Plan` of plan.cuh."""

MOST_CLAIMING = 2048
"""Blocks that claim work: more than run at once on a GPU of today."""
TILES_PER_CHECK = 32
"""Tiles whose share of a payload one block sums."""
DECODE_HEADS = 2
"""Blocks that look at frames, in each row of `fast_decode`."""
EXACT_BLOCKS = 4
"""Blocks that write a frame's exact values."""

RULES = {np.dtype(np.float32): Struct("<3f4I"), np.dtype(np.float64): Struct("<3d4Q")}
"""`Rule` of quantize.cuh."""
ORDER = Struct("<36I12B")
"""`Order` of tile.cuh."""
TURNS = [4 * (1 << j ^ 1 << j >> 5 & 31 ^ 1 << j >> 10) for j in range(12)]
"""What each bit of a position in a tile flips in byte offsets in shared memory: rows permute the lanes."""
BOUND = np.dtype([("bound", "<f8"), ("bits_step", "<u8"), ("relative", "<u4"), ("filling", "<u4")])
"""`Bound` of survey.cu."""
FRAME = np.dtype(
    [(name, "<u8") for name in ("start", "size", "sum", "stated", "kind", "exact", "coded", "damaged")]
)
"""`Frame` of tile.cuh."""
FEW_AXES = 3
"""Boxes of more axes have kernels of their own, for MOST_AXES."""
LEVEL = Struct(f"<{N_BOXES}Q{MOST_AXES}Q36s3I")
"""`Level` of trial.cu."""
TRIAL_THREADS = 512
"""Of a block that tries a predictor on a coarse lattice."""
SPAN = Struct("<5Q2I")
"""`Span` of read.cuh."""
MOST_HEADER_WORDS = 79
"""Words of a stream's header, at most."""
SMALL_PLAN_WORDS = 3
"""`Plan` of small.cuh."""
WORD_BYTES = 8
MOST_BLOCKS = 1 << 11
"""Blocks that look at an array together, and at the bytes of frames."""


class KernelLaunch(NamedTuple):
    """A kernel with its grid (blocks along x and y) and the threads of a block."""

    file: str
    entry: str
    grid: tuple[int, int]
    threads: int

    @property
    def blocks(self) -> int:
        """How many there are."""
        return self.grid[0] * self.grid[1]


def defines(dtype: str) -> dict[str, str | int]:
    """The definitions with which every kernel is compiled for arrays of a dtype."""
    real, bits = (
        ("float", "unsigned") if real_dtype(dtype).itemsize == 4 else ("double", "unsigned long long")
    )
    return {"REAL": real, "BITS": bits, "COMPONENTS": components(dtype)}


def rules(header: Header, limits: tuple[float, ...] = ()) -> Array[c_char]:
    """The struct `Rules` (1,) of a header's quantizers; `limits` are the largest errors, which only coding
    needs."""
    dtype = header.real_dtype
    row = RULES[dtype]
    sign = 1 << (8 * dtype.itemsize - 1)
    packed = b""
    for rule, limit in zip(header.quantizers, limits or (0.0,) * header.components, strict=True):
        # Zeros of either sign are the same constant.
        checked = sign - 1 if rule.zero_bits == 0 else 2 * sign - 1
        inverse = least = 0.0
        if rule.step and limits:
            inverse = float(dtype.type(1) / dtype.type(rule.step))
            # The limit rounded down to the array's precision: an error that passes the comparison
            # there is within the limit.
            least = round_down(limit, dtype) if limit else 0.0
        packed += row.pack(rule.step, inverse, least, rule.zero_bits, checked, rule.bits_step, rule.base_bits)
    return structure(packed)


def no_rules(dtype: str) -> Array[c_char]:
    """Rules (1,) under which no value is stored exactly."""
    return structure(bytes(RULES[real_dtype(dtype)].size * components(dtype)))


def box_axes(extents: Box) -> int:
    """For how many axes the kernels are that take a box."""
    return FEW_AXES if len(extents) <= FEW_AXES else MOST_AXES


def box(extents: Box, n_axes: int, cubic: bool = False, strip: int = STRIP, last: int = 1) -> Array[c_char]:
    """The struct `Box` (1,) of predicted.cuh for so many axes."""
    ones = (1,) * (n_axes - len(extents))
    return structure(np.array([*ones, *extents, cubic, strip.bit_length() - 1, last], np.uint32).tobytes())


def level(
    firsts: Sequence[int], steps: Sequence[int], counts: Box, taken: int, skipped: int, n_tiles: int
) -> bytes:
    """The struct `Level` of trial.cu: first points of boxes, and along each axis how far points are apart, in
    elements, and how many there are."""
    more, fewer = MOST_AXES - len(counts), N_BOXES - len(firsts)
    own = bytes(box(counts, MOST_AXES))
    return LEVEL.pack(*firsts, *[0] * (fewer + more), *steps, own, taken, skipped, n_tiles)


def steps(of_components: NDArray[np.float64], most: float) -> Array[c_char]:
    """The struct `Steps` (1,) of trial.cu."""
    return structure(np.append(of_components, most).tobytes())


@lru_cache(256)
def bound(value: float, mode: str, dtype: str) -> Array[c_char]:
    """The struct `Bound` (1,) of a bound in a mode (compress/format/bounds.py)."""
    fields = np.zeros(1, BOUND)
    fields["bound"], fields["relative"] = value, mode == "range"
    if mode == "pointwise":
        fields["bits_step"] = pointwise_step(value, real_dtype(dtype))
    return structure(fields.tobytes())


def header(data: bytes) -> Array[c_char]:
    """The struct `Header` (1,) of a header's bytes."""
    return structure(data.ljust(8 * MOST_HEADER_WORDS, b"\0"))


@lru_cache(256)
def order(axes: tuple[int, ...]) -> Array[c_char]:
    """The struct `Order` (1,) of a frame's axes."""
    ranked = sorted(range(len(axes)), key=axes.__getitem__)
    numbers = [1 << axes[bit] for bit in ranked]
    above = [(1 << 32) - number for number in numbers]
    packed = ORDER.pack(*above, *numbers, *(TURNS[bit] for bit in ranked), *axes)
    return structure(packed)


def structure(data: bytes) -> Array[c_char]:
    """The bytes of a structure where a kernel's launch takes them from."""
    return (c_char * len(data)).from_buffer_copy(data)


def plan(entry: str) -> KernelLaunch:
    """A kernel of plan.cu: one block."""
    return KernelLaunch("common/plan.cu", entry, (1, 1), THREADS)


def fast_encode(n_frames: int, n_tiles: int) -> KernelLaunch:
    """A block a tile, of frames of equal size."""
    return KernelLaunch("fixed_length/encode.cu", "fast_encode", (n_tiles, n_frames), THREADS)


def fast_pack(n_frames: int, n_tiles: int) -> KernelLaunch:
    """A warp a tile, of frames of equal size."""
    return KernelLaunch(
        "fixed_length/encode.cu", "fast_pack", (-(-n_tiles * WARP // THREADS), n_frames), THREADS
    )


def fast_decode(n_frames: int, n_tiles: int) -> KernelLaunch:
    """A block a tile, of frames of equal size; before them blocks that look at frames and form checksums."""
    blocks = DECODE_HEADS + -(-n_tiles // TILES_PER_CHECK) + n_tiles
    return KernelLaunch("fixed_length/decode.cu", "fast_decode", (blocks, n_frames), THREADS)


def small_count(n_frames: int, n_tiles: int) -> KernelLaunch:
    """A warp a tile, of frames of equal size."""
    return KernelLaunch(
        "rans/encode.cu", "small_count", (-(-n_tiles // SMALL_WARPS), n_frames), SMALL_THREADS
    )


def small_plan(n_frames: int) -> KernelLaunch:
    """A block a frame."""
    return KernelLaunch("rans/heads.cu", "small_plan", (n_frames, 1), THREADS)


def small_encode(n_frames: int, n_tiles: int) -> KernelLaunch:
    """A warp a segment, of which a frame has at most as many as tiles."""
    return KernelLaunch(
        "rans/encode.cu", "small_encode", (-(-n_tiles // SMALL_WARPS), n_frames), SMALL_THREADS
    )


def keep_symbols(n_frames: int, n_tiles: int) -> KernelLaunch:
    """A warp a tile, of frames of equal size."""
    return small_count(n_frames, n_tiles)._replace(file="rans/symbols.cu", entry="keep_symbols")


def encode_symbols(n_frames: int, n_tiles: int) -> KernelLaunch:
    """A warp a segment, of which a frame has at most as many as tiles."""
    return small_encode(n_frames, n_tiles)._replace(file="rans/symbols.cu", entry="encode_symbols")


def small_pack(n_frames: int, n_tiles: int) -> KernelLaunch:
    """A block a segment, of which a frame has at most as many as tiles."""
    return KernelLaunch("rans/pack.cu", "small_pack", (n_tiles, n_frames), SMALL_THREADS)


def small_index(n_frames: int) -> KernelLaunch:
    """A block that finds frames, and one for each."""
    return KernelLaunch("rans/heads.cu", "small_index", (1 + n_frames, 1), THREADS)


def small_decode(n_frames: int, n_tiles: int) -> KernelLaunch:
    """Blocks that claim work: segments, a warp each, of which a frame has at most as many as tiles, and
    checksums."""
    shares = -(-n_tiles // SMALL_WARPS) + -(-n_tiles // TILES_PER_CHECK)
    blocks = min(shares * n_frames, MOST_CLAIMING)
    return KernelLaunch("rans/decode.cu", "small_decode", (blocks, 1), SMALL_THREADS)


def frames(entry: str, blocks: int, n_frames: int = 1) -> KernelLaunch:
    """A kernel of frames.cu, with so many blocks along x."""
    return KernelLaunch("common/frames.cu", entry, (blocks, n_frames), THREADS)


def trial(entry: str, blocks: int, n_trials: int = 1, threads: int = SMALL_THREADS) -> KernelLaunch:
    """A kernel of trial.cu, with so many blocks along x."""
    return KernelLaunch("predicted/trial.cu", entry, (blocks, n_trials), threads)


def predicted(file: str, entry: str, blocks: int, n_frames: int = 1) -> KernelLaunch:
    """A kernel of a file of predicted/, with so many blocks along x."""
    return KernelLaunch(f"predicted/{file}.cu", entry, (blocks, n_frames), THREADS)


def send_header() -> KernelLaunch:
    """A warp."""
    return KernelLaunch("common/frames_read.cu", "send_header", (1, 1), WARP)


def put_exact_values(n_frames: int) -> KernelLaunch:
    """A few blocks a frame."""
    return KernelLaunch("common/frames_read.cu", "put_exact_values", (EXACT_BLOCKS, n_frames), THREADS)


def neighbours(blocks: int, n_axes: int) -> KernelLaunch:
    """So many blocks share the samples, along each few axes."""
    return KernelLaunch("common/survey.cu", "neighbours", (blocks, -(-n_axes // AXES_AT_ONCE)), THREADS)


def survey(entry: str, blocks: int) -> KernelLaunch:
    """A kernel of survey.cu, with so many blocks."""
    return KernelLaunch("common/survey.cu", entry, (blocks, 1), THREADS)


DeviceArray = Any
"""A flat array on the device, sliced and assigned like NumPy's."""


def block_count(size: int) -> int:
    """The blocks that look at so many elements or words, some thousands each."""
    return max(1, min(MOST_BLOCKS, size // TILE))


@runtime_checkable
class KernelDevice(Protocol):
    """A device for the codec. Arrays are flat; launches and copies happen in order."""

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """A copy on the device."""

    def download(self, array: DeviceArray) -> NDArray[Any]:
        """A copy on the host."""

    def mailbox(self, n_words: int) -> tuple[Any, Callable[[], NDArray[np.uint64]]]:
        """Memory in which a kernel sends the host so many words of 8 bytes, behind which it writes a 1, and
        what returns them: it waits for the 1, at most until all launches before are done."""

    def zeros(self, size: int, dtype: str) -> DeviceArray:
        """A new array of zeros."""

    def empty(self, size: int, dtype: str) -> DeviceArray:
        """A new array of anything."""

    def launch(self, launch: KernelLaunch, dtype: str, *arguments: Any) -> None:
        """Run a kernel that is compiled for arrays of `dtype`; arguments are device arrays, NumPy scalars,
        structures as ctypes arrays of bytes, and what `mailbox` gave."""
