"""A fused chain on the GPU: a kernel made for its tables, launched behind one that holds the branches.

Knows CuPy and the kernel fused.cu; never which steps make a chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import cupy
import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.device.cuda.fused.bank_layout import TENSOR_SIDE
from tnplan.executor.device.cuda.fused.tables import FusedTables, StageTables, best_tables
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import (
    cached_per_device,
    compile_ahead,
    load_kernel,
    load_symbol,
    number_defines,
)
from tnplan.executor.device.protocols.device import Call, FusedShape, call_in_turn, nothing
from tnplan.planner.hardware.fusion_tile import MOST_STAGES

FILE = Path(__file__).parent / "fused.cu"
TILE_BYTES = (16384, 32768)
"""The capacities of a tile that the kernel has been made for: blocks of 32 to 256 threads."""
THREADS_A_MULTIPROCESSOR = 1024
TENSOR_THREADS_A_MULTIPROCESSOR, LARGE_TENSOR_THREADS = 768, 512
"""At least so many share it; bounds the registers of one."""
LARGE_TENSOR_SIDE = 64
"""n of a stage on tensor cores from which its sums need twice the registers."""
HOLD_THREADS = 256
SUM_REALS = 2
"""Double-precision numbers that a block leaves of what closes a chain; of real ones the second is unused."""
SOURCES_DTYPE = np.dtype([("branch", "u8", 2 * MOST_STAGES)])
"""The struct Sources of fused.cu."""
REMEDY = f"plan for it with {TILE_BYTES[0]}, or 0 for no chains"
"""Where a block has too little shared memory."""
TERMS = {"tf32": 1, "fp16x3": 3}
"""Products on tensor cores that make one of a chain, by precision; those of others are multiply-adds."""

Defines = tuple[tuple[str, str | int], ...]
_copies: dict[tuple[int, Path, Defines], WeakKeyDictionary[Any, int]] = {}
"""For the code of each chain on each device, which copy of it each living stream uses."""
_numbering = Lock()


def bind_fused(
    shape: FusedShape, operand: Any, branches: Sequence[Any], out: Any, stream: Any, capacity_bytes: int,
    precision: str = "fp32", closing: Any = None,
) -> Call:  # fmt: skip
    """out = the operand contracted with every branch in turn, or added to it, by tiles of `capacity_bytes`;
    with `closing` the sum of its products with that is added to the number `out`.

    Arrays are flat, of one dtype, and stay where they are. `precision`: tf32 and fp16x3 let stages of
    complex64 run on tensor cores. Raises ValueError where the chain does not fit, InputError where the
    capacity is none of `TILE_BYTES`, or more than this GPU has memory for.
    """
    dtype = operand.dtype.name
    tables, terms = chosen(shape, dtype, capacity_bytes, precision)
    if tables.n_tiles == 0 or out.size == 0:
        return nothing
    defines = kernel_defines(dtype, tables, terms, shape.adds, shape.closes)
    copy = module_copy(FILE, defines, stream)
    kernel, n_blocks = find_kernel(FILE, "fused", defines, tables.threads, tables.shared_bytes, REMEDY, copy)
    hold, constant = find_hold(FILE, defines, copy)
    *on_gpu, branch_place = on_device(
        tables.thread_offset, tables.near, tables.far, tables.thread_place, tables.branch_place
    )
    sources = np.zeros((), SOURCES_DTYPE)
    sources["branch"][: len(branches)] = [branch.data.ptr for branch in branches]
    parameters: list[Any] = [sources, np.uint64(branch_place.data.ptr), np.uint64(constant)]
    # The branches change from call to call and are in constant or shared memory in an order of their own: a
    # small kernel puts them there before each launch.
    holding = BoundKernel(hold, len(branches), HOLD_THREADS, parameters, 0, stream, branch_place)
    blocks = min(n_blocks, tables.n_tiles)
    # What closes a chain is read in place of the result that would be written; each block leaves one sum in
    # double precision.
    end, sums = out, None
    if closing is not None:
        end, sums = closing, cupy.ndarray((blocks, SUM_REALS), np.float64)
    arguments: list[Any] = [
        *(np.uint64(array.data.ptr) for array in (operand, end, *on_gpu)),
        np.int32(len(tables.near)), np.int32(tables.n_tiles),
    ]  # fmt: skip
    if sums is not None:
        arguments.append(np.uint64(sums.data.ptr))
    alive = (*on_gpu, sums)
    calls: list[Call] = [
        holding,
        BoundKernel(kernel, blocks, tables.threads, arguments, tables.shared_bytes, stream, alive),
    ]
    if sums is not None:
        add_up = load_kernel(FILE, "add_up", dict(defines))
        parts: list[Any] = [np.uint64(sums.data.ptr), np.int32(blocks), np.uint64(out.data.ptr)]
        # One block adds the blocks' sums in their order: the same bits each time.
        calls.append(BoundKernel(add_up, 1, tables.threads, parts, 0, stream, alive))
    return call_in_turn(calls)


def prepare_fused(chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int) -> None:
    """Compile the kernels of chains, each a shape and a precision, all at once; raises as `bind_fused`."""
    compile_ahead(chain_kernels(chains, dtype, capacity_bytes))


def chain_kernels(
    chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int
) -> list[tuple[Path, dict[str, str | int]]]:
    """The file and the definitions of each chain's kernel."""
    kernels = []
    for shape, precision in chains:
        tables, terms = chosen(shape, dtype, capacity_bytes, precision)
        kernels.append((FILE, dict(kernel_defines(dtype, tables, terms, shape.adds, shape.closes))))
    return kernels


def chosen(shape: FusedShape, dtype: str, capacity_bytes: int, precision: str) -> tuple[FusedTables, int]:
    """The tables of a chain, and the products on tensor cores that make one of it; 0: none runs on them."""
    capacity, itemsize = tile_elements(capacity_bytes, dtype), np.dtype(dtype).itemsize
    terms = TERMS.get(precision, 0) if dtype == "complex64" else 0
    tables = best_tables(shape, capacity, itemsize, terms > 0)
    return tables, terms if any(stage.kind[0] == "TENSOR" for stage in tables.stages) else 0


def tile_elements(capacity_bytes: int, dtype: str) -> int:
    """The elements of a tile of so many bytes; InputError where the kernels have no such tiles."""
    if capacity_bytes not in TILE_BYTES:
        names = " or ".join(map(str, TILE_BYTES))
        raise InputError(
            "profile: fused_bytes", f"is {capacity_bytes}", f"plan for GPUs with {names}",
            topic="hardware profiles",
        )
    return capacity_bytes // np.dtype(dtype).itemsize


def block_shared_bytes() -> int:
    """The shared memory of a block on the current device."""
    return int(cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])


def module_copy(file: Path, defines: Defines, stream: Any) -> int:
    """Which copy of a chain's code this stream of the current device uses.

    Invariant: the branches of a chain are in memory of its code, so two streams that live at the same time
    never use the same copy. Threads of a process contract on streams of their own.
    """
    with _numbering:
        numbers = _copies.setdefault((cupy.cuda.runtime.getDevice(), file, defines), WeakKeyDictionary())
        if stream not in numbers:
            used = set(numbers.values())
            numbers[stream] = next(number for number in count() if number not in used)
        return numbers[stream]


@cached_per_device
def find_hold(file: Path, defines: Defines, copy: int) -> tuple[Any, int]:
    """The kernel of a file that holds the branches, and the address of constant memory that it writes."""
    definitions = dict(defines)
    hold = load_kernel(file, "hold", definitions, copy=copy)
    return hold, load_symbol(file, "constant_branches", definitions, copy)


@cached_per_device
def find_kernel(
    file: Path, entry: str, defines: Defines, threads: int, shared_bytes: int, remedy: str, copy: int
) -> tuple[Any, int]:  # fmt: skip
    """The kernel of these definitions on the current device; the blocks that fill it."""
    most = block_shared_bytes()
    if shared_bytes > most:
        raise InputError(
            "profile: fused_bytes",
            f"makes a chain need {shared_bytes} bytes of shared memory, and this GPU has {most} for a block",
            remedy, topic="hardware profiles",
        )
    kernel = load_kernel(file, entry, dict(defines), copy=copy)
    # Never less than before: launches that were bound with more use the same kernel.
    kernel.max_dynamic_shared_size_bytes = max(shared_bytes, kernel.max_dynamic_shared_size_bytes)
    a_multiprocessor = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        kernel.kernel.ptr, threads, shared_bytes
    )
    return kernel, a_multiprocessor * cupy.cuda.Device().attributes["MultiProcessorCount"]


def kernel_defines(dtype: str, tables: FusedTables, terms: int, adds: bool, closes: bool = False) -> Defines:
    """The definitions of fused.cu for a chain."""
    columns = [stage.n for stage in tables.stages if stage.kind[0] == "TENSOR"]
    most = THREADS_A_MULTIPROCESSOR
    if columns:
        most = TENSOR_THREADS_A_MULTIPROCESSOR if max(columns) < LARGE_TENSOR_SIDE else LARGE_TENSOR_THREADS
    places = {
        "ROW": [stage.row_place for stage in tables.stages],
        "K": [stage.k_place for stage in tables.stages],
        "N": [stage.n_place for stage in tables.stages],
    }
    return (
        *number_defines(dtype).items(),
        ("THREADS", tables.threads), ("BLOCKS", max(1, most // tables.threads)),
        ("STAGES", " ".join(stage_text(number, stage) for number, stage in enumerate(tables.stages))),
        ("N_STAGES", len(tables.stages)), ("TILE_BYTES", tables.tile_bytes),
        ("CONSTANT_BYTES", tables.constant_bytes), ("SHARED_BYTES", tables.branch_bytes),
        ("LOAD_PLACES", listed(tables.load[0])), ("LOAD_OFFSETS", listed(tables.load[1])),
        ("STORE_PLACES", listed(tables.store[0])), ("STORE_OFFSETS", listed(tables.store[1])),
        *((f"{name}_PLACES", listed(map(listed, parts))) for name, parts in places.items()),
        *((f"MOST_{name}", max(map(len, parts))) for name, parts in places.items()),
        ("MEETS", listed(map(int, tables.meets))), ("TERMS", terms),
        ("ADD", int(adds)), ("CLOSE", int(closes)),
    )  # fmt: skip


def stage_text(number: int, stage: StageTables) -> str:
    """A stage as the kernel's STAGES name it."""
    unit, first, second = stage.kind
    if unit == "FMA":
        parts = (number, first, second, stage.k, stage.n, stage.first)
    else:
        parts = (number, first, stage.n // TENSOR_SIDE, stage.k // TENSOR_SIDE, second, stage.first)
    return f"{unit}({','.join(map(str, parts))})"


def listed(values: Iterable[object]) -> str:
    """An initializer of C."""
    return f"{{{','.join(map(str, values))}}}"
