"""The device of `compress.device_codec` and `compress.device_decode`: CuPy's arrays, kernels from the cache.

Knows how kernels are launched; never what a stream holds. Importing it makes `compress.compress` and
`compress.decompress` take CuPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_uint64
from functools import cache
from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.api import driver
from numpy.typing import NDArray

from compress.device_arrays import register
from compress.launches import FOLDER, Launch, defines
from executor.device.kernel_cache import load_kernel

WORD_BYTES = 8


class CupyCodec:
    """A `compress.device_codec.Device` on the current GPU and its current stream."""

    def upload(self, array: NDArray[Any]) -> Any:
        """A copy on the GPU."""
        return cupy.asarray(array)

    def download(self, array: Any) -> NDArray[Any]:
        """A copy on the host."""
        host: NDArray[Any] = array.get()
        return host

    def fetch(self, array: Any) -> Callable[[], NDArray[Any]]:
        """A copy of a few bytes in pinned memory, begun now; what is returned waits for it."""
        pinned = cupy.cuda.alloc_pinned_memory(max(1, array.nbytes))
        host: NDArray[Any] = np.frombuffer(pinned, array.dtype, array.size)
        stream, runtime = cupy.cuda.get_current_stream(), cupy.cuda.runtime
        runtime.memcpyAsync(
            pinned.ptr, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost, stream.ptr
        )  # fmt: skip
        copied = cupy.cuda.Event(disable_timing=True)
        copied.record(stream)

        def wait() -> NDArray[Any]:
            copied.synchronize()
            return host

        return wait

    def zeros(self, size: int, dtype: str) -> Any:
        """A new array of zeros."""
        return cupy.zeros(size, dtype)

    def empty(self, size: int, dtype: str) -> Any:
        """A new array of anything."""
        return cupy.empty(size, dtype)

    def launch(self, launch: Launch, dtype: str, *arguments: Any) -> None:
        """Run a kernel that is compiled for arrays of `dtype`; structures go as NumPy arrays on the host."""
        kernel = _kernel(cupy.cuda.runtime.getDevice(), launch.file, launch.entry, dtype)
        words, places = _words(len(arguments))(), _words(len(arguments))()
        first = addressof(words)
        for number, one in enumerate(arguments):
            if isinstance(one, np.ndarray):
                places[number] = one.ctypes.data
            else:
                words[number] = int(one) if isinstance(one, np.generic) else one.data.ptr
                places[number] = first + WORD_BYTES * number
        # The driver has copied all arguments when it returns.
        driver.launchKernel(
            kernel, *launch.grid, 1, launch.threads, 1, 1, 0, cupy.cuda.get_current_stream().ptr,
            addressof(places), 0,
        )  # fmt: skip


@cache
def _kernel(device: int, file: str, entry: str, dtype: str) -> int:
    """A kernel of the current device, whose number only tells kernels of several apart."""
    return int(load_kernel(file, entry, defines(dtype), FOLDER).kernel.ptr)


@cache
def _words(count: int) -> Any:
    """So many words of 8 bytes."""
    return c_uint64 * count


register("cupy", CupyCodec)
