"""The backward pass through a fused chain on the GPU: a kernel made for its tables, between one that holds
the branches and one that adds up what its blocks have left.

Knows CuPy and the kernel adjoint.cu; never which steps make a chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cuda.fused.adjoint_tables import (
    LANES,
    AdjointTables,
    adjoint_tables,
    steps_that_run,
)
from tnplan.executor.device.cuda.fused.chain import (
    HOLD_THREADS,
    SOURCES_DTYPE,
    Defines,
    block_shared_bytes,
    find_hold,
    find_kernel,
    listed,
    module_copy,
    stage_text,
    tile_elements,
)
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, bind_zero, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import compile_ahead, load_kernel, number_defines
from tnplan.executor.device.protocols.copy import mode_strides
from tnplan.executor.device.protocols.device import AdjointShape, Call, call_in_turn

FILE = Path(__file__).parent / "adjoint.cu"
REMEDY = "plan for it with 0, which means no chains"
"""Where a block has too little shared memory."""
ADDERS = 8
THREADS_A_MULTIPROCESSOR = 512
"""At least so many share it where its memory allows it; bounds the registers of one."""
SHARED_BYTES = 227 << 10
"""The memory of a multiprocessor for which registers are bounded; one with less has fewer blocks."""


def bind_adjoint(
    shape: AdjointShape, operand: Any, branches: Sequence[Any], cotangent: Any, outputs: Sequence[Any],
    stream: Any, capacity_bytes: int, scratch: Callable[[int], Any],
) -> Call:  # fmt: skip
    """From the cotangent of a chain's result to `outputs`, those of its branches and of its operand; None
    where the shape has none. `scratch` gives so many bytes, which other calls on the stream may share.

    Arrays are flat, of one dtype, and stay where they are. Raises ValueError where the chain does not fit,
    InputError where this GPU has too little memory for it.
    """
    dtype = operand.dtype
    tables = chosen(shape, dtype.name, capacity_bytes, block_shared_bytes())
    if tables.n_tiles == 0:  # sums of no terms
        return call_in_turn([bind_zero(out, stream) for out in outputs if out is not None and out.size])
    defines = adjoint_defines(dtype.name, shape, tables)
    copy = module_copy(FILE, defines, stream)
    kernel, n_blocks = _kernel(defines, tables, copy)
    hold, constant = find_hold(FILE, defines, copy)
    *on_gpu, branch_place = on_device(
        tables.thread_offset, tables.near, tables.far, tables.thread_place, tables.slots, tables.branch_place
    )
    sources = np.zeros((), SOURCES_DTYPE)
    # Each branch twice: as its step takes it, and as the step back does.
    sources["branch"][: 2 * len(branches)] = [branch.data.ptr for branch in (*branches, *branches)]
    parameters: list[Any] = [sources, np.uint64(branch_place.data.ptr), np.uint64(constant)]
    # Persistent blocks: each adds up its own gradients over all of its tiles and leaves them in `partial`. A
    # last kernel adds the blocks' sums in one order, so that a run gives the same bits each time.
    blocks = min(n_blocks, tables.n_tiles)
    real = np.empty(0, dtype).real.dtype
    *gradients, back = outputs
    partial = scratch(blocks * tables.n_results * real.itemsize)
    arguments: list[Any] = [
        *(np.uint64(array.data.ptr) for array in (operand, cotangent)),
        np.uint64(0 if back is None else back.data.ptr),
        *(np.uint64(array.data.ptr) for array in (partial, *on_gpu)),
        np.int32(len(tables.near)), np.int32(tables.n_tiles),
    ]  # fmt: skip
    # The launches know addresses alone: these arrays must live as long as the calls.
    alive = (*on_gpu, partial)
    calls: list[Call] = [
        BoundKernel(hold, 2 * len(branches), HOLD_THREADS, parameters, 0, stream, branch_place),
        BoundKernel(kernel, blocks, tables.threads, arguments, tables.shared_bytes, stream, alive),
    ]
    if tables.n_results:
        first = [0 if array is None else array.data.ptr for array in gradients]
        (targets,) = on_device(target_addresses(shape, tables, first, real.itemsize))
        add_up = load_kernel(FILE, "add_up", dict(defines))
        parts: list[Any] = [np.uint64(partial.data.ptr), np.int32(blocks), np.uint64(targets.data.ptr)]
        n_adding = -(-tables.n_results // LANES)
        calls.append(BoundKernel(add_up, n_adding, ADDERS * LANES, parts, 0, stream, (alive, targets)))
    return call_in_turn(calls)


def prepare_adjoints(shapes: Iterable[AdjointShape], dtype: str, capacity_bytes: int) -> int:
    """Compile the kernels of chains, all at once; raises as `bind_adjoint`. The most scratch bytes of one."""
    chains = [(shape, chosen(shape, dtype, capacity_bytes, block_shared_bytes())) for shape in shapes]
    defines = [adjoint_defines(dtype, *chain) for chain in chains]
    compile_ahead((FILE, dict(chain)) for chain in defines)
    part_bytes = np.empty(0, dtype).real.itemsize
    return max(
        min(_kernel(chain_defines, tables)[1], tables.n_tiles)
        * tables.n_results * part_bytes
        for chain_defines, (_, tables) in zip(defines, chains, strict=True)
    )  # fmt: skip


def chosen(shape: AdjointShape, dtype: str, capacity_bytes: int, block_bytes: float = inf) -> AdjointTables:
    """The tables of a chain, for blocks with so many bytes of shared memory."""
    return adjoint_tables(shape, tile_elements(capacity_bytes, dtype), dtype, block_bytes)


def target_addresses(
    shape: AdjointShape, tables: AdjointTables, first: Sequence[int], part_bytes: int
) -> NDArray[np.uint64]:
    """The address of every result, where `first` are those of the gradients."""
    addresses = []
    for modes, branch, order, start in zip(
        shape.gradients, shape.chain.branches, tables.result_order, first, strict=True
    ):
        if modes is None:
            continue
        strides = mode_strides(modes)
        offsets = np.zeros(1, np.int64)
        for mode, extent in branch:
            offsets = (offsets[:, None] + strides[mode] * np.arange(extent)).ravel()
        inside = (offsets[order][:, None] * tables.parts + np.arange(tables.parts)).ravel()
        addresses.append(np.uint64(start) + (inside * part_bytes).astype(np.uint64))
    return np.concatenate(addresses)


def _kernel(defines: Defines, tables: AdjointTables, copy: int = 0) -> tuple[Any, int]:
    return find_kernel(FILE, "adjoint", defines, tables.threads, tables.shared_bytes, REMEDY, copy)


def adjoint_defines(dtype: str, shape: AdjointShape, tables: AdjointTables) -> Defines:
    """The definitions of adjoint.cu for a chain."""
    steps = tables.steps
    stages = [stage_text(number, stage) for number, stage in enumerate(tables.stages)]
    # Values are made again only up to the last one that a gradient needs, and the cotangent goes back only
    # down to the first gradient that is wanted, or to the operand.
    runs_forward, runs_back = steps_that_run(shape)
    forward, back, way_back = stages[: runs_forward.stop], stages[steps:], []
    # The gradient of a step needs its value and the cotangent of its result, so that it comes before the
    # cotangent is taken back through the step.
    for step in reversed(range(steps)):
        own = tables.gradients[step]
        if shape.gradients[step] is not None:
            numbers = step, own.k, own.n, own.row_lanes, own.blocks, own.rounds, own.first
            way_back.append(f"GRADIENT({','.join(map(str, numbers))})")
        if step in runs_back:
            way_back.append(back[step])
    stages_done = [*forward, *back[runs_back.start :]]
    places = {
        "ROW": [stage.row_place for stage in tables.stages],
        "K": [stage.k_place for stage in tables.stages],
        "N": [stage.n_place for stage in tables.stages],
        "ROUND": [gradient.round_place for gradient in tables.gradients],
        "BLOCK_K": [gradient.block_k_place for gradient in tables.gradients],
        "BLOCK_N": [gradient.block_n_place for gradient in tables.gradients],
    }
    most = {name: max(map(len, parts)) for name, parts in places.items()}
    walks = {"LOAD": tables.load, "STORE": tables.store, "BACK": tables.back}
    # Bounds the registers of a thread: as many blocks as share a multiprocessor, by threads or by shared
    # memory.
    blocks = min(THREADS_A_MULTIPROCESSOR // tables.threads, SHARED_BYTES // tables.shared_bytes)
    return (
        *number_defines(dtype).items(),
        ("THREADS", tables.threads), ("BLOCKS", max(1, blocks)), ("STAGES", " ".join(stages_done)),
        ("FORWARD", " ".join(forward)), ("BACK", " ".join(way_back)), ("STEPS", steps),
        ("IMAGES", tables.images), ("N_STAGES", 2 * steps),
        ("TILE_BYTES", tables.tile_bytes), ("N_SUMS", max(1, len(tables.slots))),
        ("RESULTS", tables.n_results), ("WRITES", int(shape.back is not None)), ("TERMS", 0),
        ("CONSTANT_BYTES", tables.constant_bytes), ("SHARED_BYTES", tables.branch_bytes),
        *((f"{name}_PLACES", listed(walk[0])) for name, walk in walks.items()),
        *((f"{name}_OFFSETS", listed(walk[1])) for name, walk in walks.items()),
        *((f"{name}_PLACES", listed(map(listed, parts))) for name, parts in places.items()),
        *((f"MOST_{name}", most[name]) for name in ("ROW", "K", "N", "ROUND")),
        ("MOST_BLOCK", most["BLOCK_K"]),
        ("MEETS", listed([1] * (2 * steps + 2))),
    )  # fmt: skip
