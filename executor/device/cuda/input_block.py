"""Inputs whose values change between runs, on a GPU: one block, filled from pinned memory by one copy.

Values that are on the GPU already are copied there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from tnplan.executor.device.cuda.gpus import check_free

ALIGNMENT_BYTES = 256
"""CUDA aligns what it allocates to this."""


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
        self._sent = cupy.cuda.Event(disable_timing=True)

    def set(self, number: int, values: Any) -> None:
        """Copy the values to pinned memory once what it held is sent; or on the GPU."""
        view = self.views[number]
        if isinstance(values, cupy.ndarray) and values.dtype == view.dtype and values.flags.c_contiguous:
            runtime.memcpyAsync(
                view.data.ptr, values.data.ptr, view.nbytes, runtime.memcpyDeviceToDevice, self._stream.ptr
            )
            return
        if isinstance(values, cupy.ndarray):
            with self._stream:
                view.reshape(values.shape)[...] = values
            return
        if not self._unsent:
            self._sent.synchronize()
        np.copyto(self._host[number].reshape(values.shape), values)
        self._unsent.append(number)

    def send(self) -> None:
        """Copy from pinned memory what was set since the last time; neighbours in one piece."""
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


def neighbours(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of every run of numbers that follow one another."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
