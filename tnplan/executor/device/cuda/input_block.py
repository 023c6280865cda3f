"""Inputs whose values change between runs, on a GPU: one block, filled from pinned memory by one copy.

Values that are on the GPU already are copied there, many of them by one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from tnplan.executor.device.cuda.gpus import check_free
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel

ALIGNMENT_BYTES = 256
"""CUDA aligns what it allocates to this."""
GATHER_FILE = Path(__file__).parent / "gather.cu"
GATHERED_TOGETHER = 6
"""From so many inputs on GPU memory on, one kernel copies them all: a copy of its own costs a launch."""
GATHER_THREADS = 256
GATHER_BLOCK_BYTES = 1 << 14
"""What a block copies at least, where an input has it."""
MOST_BLOCKS_AN_INPUT = 64


class CupyInputBlock:
    """Flat views of one block of a GPU's memory; see `InputBlock`."""

    def __init__(self, counts: Sequence[int], dtype: str, device_id: int, stream: Any) -> None:
        kind = np.dtype(dtype)
        sizes = [-(-count * kind.itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for count in counts]
        self.size_bytes = sum(sizes)
        check_free(device_id, self.size_bytes)
        self._ends = list(accumulate(sizes))
        self._starts = [end - size for end, size in zip(self._ends, sizes, strict=True)]
        self._stream = stream
        self._block = cupy.cuda.MemoryPointer(cupy.cuda.Memory(self.size_bytes), 0)
        self._pinned = cupy.cuda.alloc_pinned_memory(max(self.size_bytes, 1))
        inputs = list(zip(self._starts, counts, strict=True))
        self._host = [np.frombuffer(self._pinned, kind, count, start) for start, count in inputs]
        self.views: list[Any] = [cupy.ndarray(count, kind, self._block + start) for start, count in inputs]
        self._unsent: list[int] = []
        self._addresses: dict[int, int] = {}
        self._sent = cupy.cuda.Event(disable_timing=True)
        self._table = _AddressTable(self._block, self._starts, [view.nbytes for view in self.views], stream)

    def set(self, number: int, values: Any) -> None:
        """Copy the values to pinned memory once what it held is sent; or on the GPU.

        An address is that of values on the GPU as the block has them; they are read with `send`.
        """
        if isinstance(values, int):
            self._addresses[number] = values
            return
        view = self.views[number]
        if isinstance(values, cupy.ndarray):
            with self._stream:
                view.reshape(values.shape)[...] = values
            return
        if not self._unsent:
            self._sent.synchronize()
        np.copyto(self._host[number].reshape(values.shape), values)
        self._unsent.append(number)

    def send(self) -> None:
        """Copy what was set since the last time: from pinned memory neighbours in one piece."""
        if self._addresses:
            self._copy_there()
        if not self._unsent:
            return
        for first, last in neighbours(self._unsent):
            start, end = self._starts[first], self._ends[last]
            runtime.memcpyAsync(
                (self._block + start).ptr, self._pinned.ptr + start, end - start,
                runtime.memcpyHostToDevice, self._stream.ptr,
            )  # fmt: skip
        self._sent.record(self._stream)
        self._unsent.clear()

    def _copy_there(self) -> None:
        """Copy values that are on the GPU."""
        if len(self._addresses) < GATHERED_TOGETHER:
            for number, address in self._addresses.items():
                view = self.views[number]
                runtime.memcpyAsync(
                    view.data.ptr, address, view.nbytes, runtime.memcpyDeviceToDevice, self._stream.ptr
                )
        else:
            self._table.copy(self._addresses)
        self._addresses.clear()


class _AddressTable:
    """Copies many inputs to their places by one kernel, which reads a table of their addresses.

    The table is sent from pinned memory; it is written again once it is sent.
    """

    def __init__(self, block: Any, starts: Sequence[int], sizes: Sequence[int], stream: Any) -> None:
        self._block, self._stream = block, stream
        self._starts, self._sizes = np.asarray(starts, np.int64), np.asarray(sizes, np.int64)
        self._is_made = False

    def copy(self, addresses: Mapping[int, int]) -> None:
        """Copy the values at these addresses to the inputs of these numbers."""
        if not self._is_made:
            self._make()
        n = len(addresses)
        numbers = np.fromiter(addresses, np.int64, n)
        sizes = self._sizes[numbers]
        self._sent.synchronize()
        self._host[0, :n] = np.fromiter(addresses.values(), np.int64, n)
        self._host[1, :n], self._host[2, :n] = self._starts[numbers], sizes
        runtime.memcpyAsync(
            self._device.data.ptr, self._host.ctypes.data, self._host.nbytes, runtime.memcpyHostToDevice,
            self._stream.ptr,
        )  # fmt: skip
        self._sent.record(self._stream)
        blocks = min(MOST_BLOCKS_AN_INPUT, -(-int(sizes.max()) // GATHER_BLOCK_BYTES))
        arguments = self._device, np.int64(self._host.shape[1]), np.uint64(self._block.ptr)
        self._kernel((max(blocks, 1), n), (GATHER_THREADS,), arguments, stream=self._stream)

    def _make(self) -> None:
        n = len(self._starts)
        self._kernel = load_kernel(GATHER_FILE, "gather", {})
        pinned = cupy.cuda.alloc_pinned_memory(3 * n * 8)
        self._host = np.frombuffer(pinned, np.int64, 3 * n).reshape(3, n)
        self._device = cupy.ndarray((3, n), np.int64)
        self._sent = cupy.cuda.Event(disable_timing=True)
        self._is_made = True


def neighbours(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of every run of numbers that follow one another."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
