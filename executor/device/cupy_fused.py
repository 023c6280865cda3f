"""A fused chain on the GPU: its tables on the device and in the kernel's parameters, one launch a call.

Knows CuPy and the kernel fused.cu; never which steps make a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from executor.device.device import Call, FusedShape, nothing
from executor.device.fused_layout import FusedTables, fused_tables
from executor.device.kernel_cache import load_kernel
from executor.device.launch import Launch
from planner.errors import InputError
from planner.hardware.fusion import fused_tile

OUTPUTS_A_THREAD = {4: 32, 8: 32, 16: 16}
"""By bytes an element: the sums that a thread holds in registers."""
LARGE_PRODUCT = 1024
TILE_BYTES = (16384, 32768)
"""The capacities of a tile that the kernel has been made for: blocks of 32 to 256 threads."""
THREADS_A_MULTIPROCESSOR = 384
"""At least so many share it; bounds the registers of one."""


def bind_fused(
    shape: FusedShape, operand: Any, branches: Sequence[Any], out: Any, stream: Any, capacity_bytes: int
) -> Call:
    """out = the operand contracted with every branch in turn, by tiles of at most `capacity_bytes`.

    Arrays are flat, of one dtype, and stay where they are. Raises ValueError where the chain does not fit,
    InputError where the capacity is none of `TILE_BYTES`.
    """
    if capacity_bytes not in TILE_BYTES:
        listed = " or ".join(map(str, TILE_BYTES))
        raise InputError("profile: fused_bytes", f"is {capacity_bytes}", f"plan for GPUs with {listed}")
    itemsize = operand.dtype.itemsize
    threads, tables = choose(shape, capacity_bytes // itemsize, itemsize)
    if tables.n_tiles == 0 or out.size == 0:
        return nothing
    unit = max(1, 16 // itemsize)
    branch_elements = sum(-(-branch.size // unit) * unit for branch in branches)
    shared_bytes = 2 * tables.tile_bytes + branch_elements * itemsize + tables.own_place.nbytes
    kind = (tables.n_loads, tables.n_stores, tables.shapes, tables.own_part)
    kernel, n_blocks = _kernel(operand.dtype.str, threads, kind, shared_bytes, cupy.cuda.Device().id)
    parameters = tables.parameters.copy()
    parameters["branch"][: len(branches)] = [branch.data.ptr for branch in branches]
    on_device = _on_device(tables)
    arguments: list[Any] = [
        np.uint64(operand.data.ptr), np.uint64(out.data.ptr), parameters,
        *(np.uint64(table.data.ptr) for table in on_device),
        np.int32(tables.n_stages), np.int32(len(tables.near)), np.int32(tables.n_tiles),
        np.int32(tables.tile_bytes), np.int32(branch_elements),
    ]  # fmt: skip
    blocks = min(n_blocks, tables.n_tiles)
    return Launch(kernel, blocks, threads, arguments, shared_bytes, stream, on_device)


def choose(shape: FusedShape, capacity: int, itemsize: int) -> tuple[int, FusedTables]:
    """Threads and tables: half the capacity where that holds the chain and no stage is a large product.

    Measured on an H200: smaller tiles leave more blocks to hide loads, larger ones reuse the branches.
    """
    half = capacity // 2
    tile = fused_tile(shape.operand, shape.branches, shape.out, half)
    if tile is not None and all(stage.k * stage.n < LARGE_PRODUCT for stage in tile.stages):
        capacity = half
    threads = capacity // OUTPUTS_A_THREAD[itemsize]
    return threads, fused_tables(shape, capacity, threads, itemsize)


def _on_device(tables: FusedTables) -> tuple[Any, ...]:
    parts = (tables.own_offset, tables.near, tables.far, tables.own_place, tables.branch_place)
    on_device = tuple(cupy.asarray(part) for part in parts)
    cupy.cuda.get_current_stream().synchronize()
    return on_device


@lru_cache(maxsize=1024)
def _kernel(
    dtype: str, threads: int, kind: tuple[int, int, tuple[tuple[int, int, int], ...], bool],
    shared_bytes: int, device: int,
) -> tuple[Any, int]:  # fmt: skip
    """The kernel of a dtype on the current device (a key of the cache), and the blocks that fill it."""
    kernel = load_kernel("fused.cu", "fused", kernel_defines(dtype, threads, *kind))
    kernel.max_dynamic_shared_size_bytes = max(shared_bytes, kernel.max_dynamic_shared_size_bytes)
    a_multiprocessor = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        kernel.kernel.ptr, threads, shared_bytes
    )
    return kernel, a_multiprocessor * cupy.cuda.Device(device).attributes["MultiProcessorCount"]


def kernel_defines(
    dtype: str, threads: int, loads: int, stores: int, shapes: Sequence[tuple[int, int, int]], own_part: bool
) -> dict[str, str | int]:
    """The definitions of fused.cu."""
    kind = np.dtype(dtype)
    is_complex = kind.kind == "c"
    cases = " ".join(f"SHAPE({number},{','.join(map(str, shape))})" for number, shape in enumerate(shapes))
    return {
        "REAL": "float" if kind.itemsize // (2 if is_complex else 1) == 4 else "double",
        "COMPLEX": int(is_complex), "THREADS": threads, "BLOCKS": THREADS_A_MULTIPROCESSOR // threads,
        "LOADS": loads, "STORES": stores, "SHAPES": cases, "OWN_PART": int(own_part),
    }  # fmt: skip
