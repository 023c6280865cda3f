"""A kernel launch prepared once: arguments packed, then given to the driver at little cost; its tables.

Knows CuPy and its driver calls; never what a kernel computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.api import driver, runtime
from numpy.typing import NDArray

from tnplan.common.arrays import CACHE_LINE_BYTES, round_up
from tnplan.executor.device.protocols.device import Call


class BoundKernel:
    """A kernel with its grid, block, shared memory, stream and arguments, to be called without arguments.

    `arguments` are NumPy scalars of the kernel's types, pointers as uint64. `tables` are arrays that the
    kernel reads and that live as long as the launch.
    """

    def __init__(
        self, kernel: Any, blocks: int, threads: int, arguments: Sequence[np.generic], shared_bytes: int,
        stream: Any, tables: Any = None,
    ) -> None:  # fmt: skip
        self._alive = (kernel, stream, tables)
        self._values = [np.array([value]) for value in arguments]
        self._addresses = np.array([value.ctypes.data for value in self._values], np.uint64)
        self._call = (
            int(kernel.kernel.ptr), blocks, 1, 1, threads, 1, 1, shared_bytes, int(stream.ptr),
            int(self._addresses.ctypes.data), 0,
        )  # fmt: skip

    def __call__(self) -> None:
        driver.launchKernel(*self._call)

    def put(self, number: int, value: int) -> None:
        """Set argument `number` to this value, which stays."""
        self._values[number][0] = value

    def at(self, number: int, value: int) -> None:
        """Launch with argument `number` set to this value, which stays."""
        self._values[number][0] = value
        driver.launchKernel(*self._call)


def on_device(*tables: NDArray[Any]) -> list[Any]:
    """Tables on the current device, which are there when this returns: for launches on any stream."""
    arrays = copied(*tables)
    cupy.cuda.get_current_stream().synchronize()
    return arrays


def copied(*tables: NDArray[Any]) -> list[Any]:
    """Tables on the current device, for launches on the current stream, whose work is not waited for.

    They are copied together: each copy takes the host longer than a small table does.
    """
    sizes = [round_up(max(table.nbytes, 1), CACHE_LINE_BYTES) for table in tables]
    starts = [0, *accumulate(sizes)]
    packed = np.zeros(starts[-1], np.uint8)
    for start, table in zip(starts, tables, strict=False):
        packed[start : start + table.nbytes] = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
    memory = cupy.asarray(packed)
    return [
        memory[start : start + size].view(table.dtype)[: table.size].reshape(table.shape)
        for start, size, table in zip(starts, sizes, tables, strict=False)
    ]


def bind_zero(view: Any, stream: Any) -> Call:
    """Fill an array with zeros."""
    return lambda: runtime.memsetAsync(view.data.ptr, 0, view.nbytes, stream.ptr)
