"""A fused chain on the GPU: its tables on the device and in the kernel's parameters, one launch a call.

Knows CuPy and the kernel fused.cu; never which steps make a chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from executor.device.device import Call, FusedShape, nothing
from executor.device.fused_layout import TENSOR_SIDE
from executor.device.fused_tables import LARGE_TENSOR_SIDE, FusedTables, best_tables
from executor.device.kernel_cache import compile_ahead, load_kernel
from executor.device.launch import Launch
from planner.errors import InputError

TILE_BYTES = (16384, 32768)
"""The capacities of a tile that the kernel has been made for: blocks of 32 to 256 threads."""
THREADS_A_MULTIPROCESSOR = 384
TENSOR_THREADS_A_MULTIPROCESSOR = 512
"""At least so many share it; bounds the registers of one."""
TERMS = {"tf32": 1, "fp16x3": 3}
"""Products on tensor cores that make one of a chain, by precision; those of others are multiply-adds."""

Defines = tuple[tuple[str, str | int], ...]


def bind_fused(
    shape: FusedShape, operand: Any, branches: Sequence[Any], out: Any, stream: Any, capacity_bytes: int,
    precision: str = "fp32",
) -> Call:  # fmt: skip
    """out = the operand contracted with every branch in turn, by tiles of at most `capacity_bytes`.

    Arrays are flat, of one dtype, and stay where they are. `precision`: tf32 and fp16x3 let stages of
    complex64 run on tensor cores. Raises ValueError where the chain does not fit, InputError where the
    capacity is none of `TILE_BYTES`, or more than this GPU has room for.
    """
    dtype = operand.dtype.name
    tables, terms = chosen(shape, dtype, capacity_bytes, precision)
    if tables.n_tiles == 0 or out.size == 0:
        return nothing
    defines = kernel_defines(dtype, tables, terms)
    kernel, n_blocks = _kernel(defines, tables.threads, tables.shared_bytes, cupy.cuda.Device().id)
    parameters = tables.parameters.copy()
    parameters["branch"][: len(branches)] = [branch.data.ptr for branch in branches]
    on_device = _on_device(tables)
    arguments: list[Any] = [
        np.uint64(operand.data.ptr), np.uint64(out.data.ptr), parameters,
        *(np.uint64(table.data.ptr) for table in on_device),
        np.int32(tables.n_stages), np.int32(len(tables.near)), np.int32(tables.n_tiles),
        np.int32(tables.tile_bytes), np.int32(tables.branch_bytes),
    ]  # fmt: skip
    blocks = min(n_blocks, tables.n_tiles)
    return Launch(kernel, blocks, tables.threads, arguments, tables.shared_bytes, stream, on_device)


def prepare_fused(chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int) -> None:
    """Compile the kernels of chains, each a shape and a precision, all at once; raises as `bind_fused`."""
    choices = (chosen(shape, dtype, capacity_bytes, precision) for shape, precision in chains)
    compile_ahead("fused.cu", [dict(kernel_defines(dtype, *choice)) for choice in choices])


def chosen(shape: FusedShape, dtype: str, capacity_bytes: int, precision: str) -> tuple[FusedTables, int]:
    """The tables of a chain, and the products on tensor cores that make one of it; 0: none runs on them."""
    if capacity_bytes not in TILE_BYTES:
        listed = " or ".join(map(str, TILE_BYTES))
        raise InputError("profile: fused_bytes", f"is {capacity_bytes}", f"plan for GPUs with {listed}")
    itemsize = np.dtype(dtype).itemsize
    terms = TERMS.get(precision, 0) if dtype == "complex64" else 0
    tables = best_tables(shape, capacity_bytes // itemsize, itemsize, terms > 0)
    return tables, terms if any(unit == "TENSOR" for unit, *_ in tables.kinds) else 0


def _on_device(tables: FusedTables) -> tuple[Any, ...]:
    parts = (tables.own_offset, tables.near, tables.far, tables.own_place, tables.branch_place)
    on_device = tuple(cupy.asarray(part) for part in parts)
    cupy.cuda.get_current_stream().synchronize()
    return on_device


@lru_cache(maxsize=1024)
def _kernel(defines: Defines, threads: int, shared_bytes: int, device: int) -> tuple[Any, int]:
    """The kernel of these definitions on the current device (a key of the cache); the blocks that fill it."""
    attributes = cupy.cuda.Device(device).attributes
    most = attributes["MaxSharedMemoryPerBlockOptin"]
    if shared_bytes > most:
        raise InputError(
            "profile: fused_bytes",
            f"makes a chain need {shared_bytes} bytes of shared memory, and this GPU has {most} for a block",
            f"plan for it with {TILE_BYTES[0]}, or 0 for no chains",
        )
    kernel = load_kernel("fused.cu", "fused", dict(defines))
    kernel.max_dynamic_shared_size_bytes = max(shared_bytes, kernel.max_dynamic_shared_size_bytes)
    a_multiprocessor = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        kernel.kernel.ptr, threads, shared_bytes
    )
    return kernel, a_multiprocessor * attributes["MultiProcessorCount"]


def kernel_defines(dtype: str, tables: FusedTables, terms: int) -> Defines:
    """The definitions of fused.cu for a chain."""
    is_complex = dtype.startswith("complex")
    real_bytes = np.dtype(dtype).itemsize // (2 if is_complex else 1)
    columns = [TENSOR_SIDE * n_steps for unit, _, n_steps, _ in tables.kinds if unit == "TENSOR"]
    few_registers = columns and max(columns) < LARGE_TENSOR_SIDE
    most = TENSOR_THREADS_A_MULTIPROCESSOR if few_registers else THREADS_A_MULTIPROCESSOR
    shapes = (
        f"{unit}({number},{','.join(map(str, rest))})" for number, (unit, *rest) in enumerate(tables.kinds)
    )
    return (
        ("REAL", "float" if real_bytes == 4 else "double"), ("COMPLEX", int(is_complex)),
        ("THREADS", tables.threads), ("BLOCKS", max(1, most // tables.threads)),
        ("LOADS", tables.n_loads), ("STORES", tables.n_stores), ("SHAPES", " ".join(shapes)),
        ("OWN_PART", int(tables.own_part)), ("TERMS", terms),
    )  # fmt: skip
