"""Adds flat arrays of a GPU by one kernel, 16 bytes a thread where addresses allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.device.protocols.device import Call, nothing

Array = Any
"""A flat cupy.ndarray."""

ADD_FILE = Path(__file__).parent / "add.cu"
REALS = {4: "float", 8: "double"}
UNIT_BYTES = 16
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
    width = UNIT_BYTES // real_bytes
    fits = n_reals % width == 0 and all(address % UNIT_BYTES == 0 for address in addresses)
    return width if fits else 1
