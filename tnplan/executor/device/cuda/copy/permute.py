"""Permuting copies, loads and sums on the GPU: bound once to flat arrays, launched on a stream.

A bound call allocates nothing and waits for nothing. Knows CuPy and boxes; never schedules or ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime
from cupy_backends.cuda.api import driver
from numpy.typing import NDArray

from tnplan.executor.device.cuda.copy.tiling import (
    BLOCK_THREADS,
    CopyTiles,
    parts,
    shared_bytes,
    tiles,
    two_levels,
)
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, bind_zero, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import cached_per_device, load_kernel
from tnplan.executor.device.protocols.copy import Axis, Copy, offsets, row_major, widen
from tnplan.executor.device.protocols.device import Call, call_in_turn, nothing

Array = Any
"""A flat cupy.ndarray: a view of memory that stays where it is."""

COPY_FILE, SUM_FILE = (Path(__file__).parent / name for name in ("copy.cu", "sum.cu"))
UNIT_BYTES = (4, 8, 16)
SUM_THREADS = 256
SUM_BLOCKS = 4096
TERMS_A_BLOCK, TERMS_A_WARP = 1024, 64
"""Sums of at least so many terms, if they are few, are shared by the threads of a block, or of a warp."""
WARP = 32
OUTPUTS_MANY = 1 << 16


def bind_copy(
    target: Array, source: Array, copy: Copy, target_start: int, source_start: int,
    rows: tuple[int, int] | None, stream: Any, *, add: bool = False, share: int = 1,
) -> Call:  # fmt: skip
    """Copy a box, or the given range of its leading rows; with `add`, add it to the target.

    Flat arrays of one dtype of 4, 8 or 16 bytes, starts in elements; ValueError for other dtypes. One in
    `share` of the blocks that the device runs at once work on it.
    """
    itemsize = _itemsize(target, source)
    calls: list[Call] = []
    for box in parts(copy, rows):
        into = target.data.ptr + (target_start + box.target_start) * itemsize
        origin = source.data.ptr + (source_start + box.source_start) * itemsize
        if box.copy.contiguous and not add:
            calls.append(_bind_contiguous(into, origin, box.copy.run * itemsize, stream))
        else:
            # Wider units need starts, strides and addresses that are multiples of them: `divisor` is what all
            # starts share.
            divisor = gcd(into, origin) // itemsize
            calls.append(bind_box(box.copy, target.dtype, into, origin, divisor, add, stream, share))
    return call_in_turn(calls)


def bind_placed(
    target: Array, source: Array, copy: Copy, start_divisor: int, stream: Any
) -> Callable[[int], None]:
    """The whole copy from the start of `source`, called with its start in `target`, in elements.

    `start_divisor` divides all starts (0: only zero is used).
    """
    itemsize = _itemsize(target, source)
    placed: list[tuple[BoundKernel, int]] = []
    for box in parts(copy):
        into = target.data.ptr + box.target_start * itemsize
        origin = source.data.ptr + box.source_start * itemsize
        divisor = gcd(into // itemsize, origin // itemsize, start_divisor)
        placed.append((bind_box(box.copy, target.dtype, into, origin, divisor, False, stream), into))
    if len(placed) == 1:
        launch, base = placed[0]
        return lambda start: launch.at(0, base + start * itemsize)

    def run(start: int) -> None:
        for launch, base in placed:
            launch.at(0, base + start * itemsize)

    return run


def bind_load(target: Array, array: NDArray[Any], copy: Copy, source_start: int, stream: Any) -> Call:
    """Copy a box of a flat host array: taken to pinned memory now, sent to the device by each call.

    The box fills the target. ValueError where dtypes differ.
    """
    if array.dtype != target.dtype:
        raise ValueError(f"values of dtype {array.dtype} cannot be loaded as {target.dtype}")
    if target.size == 0:
        return nothing
    from tnplan.executor.device.cpu.device import NumpyDevice

    memory = cupy.cuda.alloc_pinned_memory(target.nbytes)
    box = np.frombuffer(memory, target.dtype, target.size)
    NumpyDevice().bind_copy(box, array, copy, 0, source_start)()
    into, origin, size_bytes, where = target.data.ptr, box.ctypes.data, target.nbytes, stream.ptr

    def run() -> None:
        runtime.memcpyAsync(into, origin, size_bytes, runtime.memcpyHostToDevice, where)

    run.__dict__["memory"] = memory
    return run


def bind_sum(
    target: Array, source: Array, extents: tuple[int, ...], in_target: tuple[bool, ...], stream: Any
) -> Call:
    """Sum a row-major source of `extents` over the axes that are not kept, always in the same order.

    float32, float64, complex64 or complex128; summed in double precision.
    """
    if target.size == 0:
        return nothing
    if source.size == 0:
        return bind_zero(target, stream)
    table, lengths = sum_levels(extents, in_target)
    outputs, terms = lengths[0] * lengths[1], lengths[2] * lengths[3]
    # Few long sums: a warp or a block shares one, in an order that is fixed by the numbers alone.
    lanes = 1
    if outputs < OUTPUTS_MANY and terms >= TERMS_A_WARP:
        lanes = SUM_THREADS if terms >= TERMS_A_BLOCK else WARP
    kind = target.dtype
    kernel = load_kernel(SUM_FILE, "sum_axes", sum_defines(kind, lanes))
    blocks = min(SUM_BLOCKS, -(-outputs * lanes // SUM_THREADS))
    pointers = [np.uint64(array.data.ptr) for array in (target, source, table)]
    return BoundKernel(kernel, blocks, SUM_THREADS, [*pointers, *map(np.uint32, lengths)], 0, stream, table)


def sum_levels(extents: tuple[int, ...], in_target: tuple[bool, ...]) -> tuple[Array, list[int]]:
    """Where the elements of a row-major source lie, on the GPU: two levels of the axes that are kept and two
    of those that are summed, and the length of each level."""
    sides: dict[bool, list[Axis]] = {True: [], False: []}
    for extent, stride, is_kept in zip(extents, row_major(extents), in_target, strict=True):
        if extent > 1:
            sides[is_kept].append((extent, stride, 0))
    levels = [axes for is_kept in (True, False) for axes in two_levels(sides[is_kept])]
    (table,) = on_device(np.concatenate([offsets(axes, 1) for axes in levels]))
    return table, [prod(axis[0] for axis in axes) for axes in levels]


def _itemsize(target: Array, source: Array) -> int:
    """The bytes of an element; ValueError where they cannot be copied."""
    itemsize: int = target.dtype.itemsize
    if itemsize not in UNIT_BYTES or source.dtype != target.dtype:
        raise ValueError(f"elements of {source.dtype} cannot be copied to {target.dtype} on a GPU")
    return itemsize


def _real(kind: np.dtype[Any]) -> str:
    """The C type of the real numbers of a dtype; ValueError where there is none."""
    names = {"f4": "float", "f8": "double", "c8": "float", "c16": "double"}
    if kind.str[1:] not in names:
        raise ValueError(f"elements of {kind} cannot be added on a GPU")
    return names[kind.str[1:]]


def _bind_contiguous(into: int, origin: int, size_bytes: int, stream: Any) -> Call:
    return lambda: runtime.memcpyAsync(into, origin, size_bytes, runtime.memcpyDeviceToDevice, stream.ptr)


def bind_box(
    copy: Copy, kind: np.dtype[Any], into: int, origin: int, divisor: int, add: bool, stream: Any,
    share: int = 1,
) -> BoundKernel:  # fmt: skip
    """The launch of a copy without leading axes between two addresses, multiples of `divisor` elements."""
    if into % kind.itemsize or origin % kind.itemsize:
        raise ValueError(f"addresses {into:#x} and {origin:#x} are not aligned to elements of {kind}")
    wide, unit = widen(copy, divisor, max(UNIT_BYTES) // kind.itemsize)
    unit_bytes = unit * kind.itemsize
    tiling, table = _tables(wide, unit_bytes)
    kernel, blocks, shared = _kernel(tiling, unit_bytes, add, _real(kind) if add else "float")
    phases = [tiling.load, *([tiling.store] if tiling.store else [])]
    sizes = [len(entries) for phase in phases for entries in (phase.lanes, phase.steps)]
    arguments: list[np.generic] = [
        *map(np.uint64, (into, origin, table.data.ptr)),
        *map(np.uint32, (*sizes, len(tiling.rows), len(tiling.columns))),
    ]
    blocks = min(max(1, blocks // share), tiling.count)
    return BoundKernel(kernel, blocks, tiling.threads, arguments, shared, stream, table)


@cached_per_device
def _tables(copy: Copy, unit_bytes: int) -> tuple[CopyTiles, Array]:
    """The tiles of a copy, and their tables, in bytes, on the current device."""
    tiling = tiles(copy, unit_bytes)
    phases = [tiling.load, *([tiling.store] if tiling.store else [])]
    entries = [
        *(phase.lanes for phase in phases),
        *(phase.steps for phase in phases),
        tiling.rows,
        tiling.columns,
    ]
    (table,) = on_device(np.concatenate(entries) * np.uint64(unit_bytes))
    return tiling, table


def _kernel(tiling: CopyTiles, unit_bytes: int, add: bool, real: str) -> tuple[Any, int, int]:
    """The kernel of a copy, the blocks that fill the device, and the shared memory of a block in bytes."""
    shared = shared_bytes(tiling.load, tiling.store, tiling.slots, unit_bytes) if tiling.store else 0
    entry = "copy_tiles" if tiling.store else "copy_direct"
    return (*_filled(entry, unit_bytes, add, real, tiling.threads, shared), shared)


@cached_per_device
def _filled(entry: str, unit_bytes: int, add: bool, real: str, threads: int, shared: int) -> tuple[Any, int]:
    """A kernel, and how many of its blocks run at once on the current device."""
    kernel = load_kernel(COPY_FILE, entry, copy_defines(unit_bytes, add, real, threads))
    if shared:
        kernel.preferred_shared_memory_carveout = 100
        kernel.max_dynamic_shared_size_bytes = max(shared, kernel.max_dynamic_shared_size_bytes)
    blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, shared)
    return kernel, blocks * cupy.cuda.Device().attributes["MultiProcessorCount"]


def copy_defines(unit_bytes: int, add: bool, real: str, threads: int) -> dict[str, str | int]:
    """The definitions of copy.cu; `real` is the C type of what is added."""
    most = next(most for most in BLOCK_THREADS if threads <= most)
    return {"UNIT_BYTES": unit_bytes, "ADD": int(add), "REAL": real, "MOST_THREADS": most}


def sum_defines(kind: np.dtype[Any], lanes: int) -> dict[str, str | int]:
    """The definitions of sum.cu; `lanes` threads share a sum."""
    return {"REAL": _real(kind), "PARTS": 2 if kind.kind == "c" else 1, "LANES": lanes}


ADD_FILE = Path(__file__).parent / "add.cu"
REALS = {4: "float", 8: "double"}
ADDED_BYTES = 16
THREADS = 256
BLOCKS_A_MULTIPROCESSOR = 8


def bind_accumulate(target: Array, source: Array, stream: Any, multiprocessors: int) -> Call:
    """Add the source to the target, on a GPU of so many multiprocessors."""
    if not target.size:
        return nothing
    real_bytes = target.real.itemsize
    n_reals = target.nbytes // real_bytes
    width = add_width(real_bytes, n_reals, target.data.ptr, source.data.ptr)
    kernel = load_kernel(ADD_FILE, "add", add_defines(real_bytes, width))
    n_units = n_reals // width
    grid = (min(-(-n_units // THREADS), multiprocessors * BLOCKS_A_MULTIPROCESSOR),)
    arguments = (target, source, np.int64(n_units))

    def run() -> None:
        kernel(grid, (THREADS,), arguments, stream=stream)

    return run


def bind_add_block(
    target: Array, source: Array, start: Callable[[], int], stream: Any, multiprocessors: int
) -> Call:
    """Add the source to the block of its length that begins at element `start()` of the target."""
    bound: dict[int, Call] = {}
    if not source.size:
        return nothing

    def run() -> None:
        first = start()
        if first not in bound:
            block = target[first : first + source.size]
            bound[first] = bind_accumulate(block, source, stream, multiprocessors)
        bound[first]()

    return run


def add_defines(real_bytes: int, width: int) -> dict[str, str | int]:
    """The definitions of add.cu."""
    return {"REAL": REALS[real_bytes], "WIDTH": width}


def add_width(real_bytes: int, n_reals: int, *addresses: int) -> int:
    """How many real numbers a thread adds at once: 16 bytes of them where the addresses and the count fit."""
    width = ADDED_BYTES // real_bytes
    fits = n_reals % width == 0 and all(address % ADDED_BYTES == 0 for address in addresses)
    return width if fits else 1
