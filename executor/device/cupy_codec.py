"""The device of `compress.device_codec` and `compress.device_decode`: CuPy's arrays, kernels from the cache.

Knows how kernels are launched; never what a stream holds. Importing it makes `compress.compress` and
`compress.decompress` take CuPy arrays.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from compress.device_arrays import register
from compress.launches import FOLDER, Launch, defines
from executor.device.kernel_cache import load_kernel


class CupyCodec:
    """A `compress.device_codec.Device` on the current GPU and its current stream."""

    def upload(self, array: NDArray[Any]) -> Any:
        """A copy on the GPU."""
        return cupy.asarray(array)

    def download(self, array: Any) -> NDArray[Any]:
        """A copy on the host."""
        host: NDArray[Any] = array.get()
        return host

    def zeros(self, size: int, dtype: str) -> Any:
        """A new array of zeros."""
        return cupy.zeros(size, dtype)

    def empty(self, size: int, dtype: str) -> Any:
        """A new array of anything."""
        return cupy.empty(size, dtype)

    def launch(self, launch: Launch, dtype: str, *arguments: Any) -> None:
        """Run a kernel that is compiled for arrays of `dtype`; structures go as NumPy arrays on the host."""
        kernel = _kernel(cupy.cuda.runtime.getDevice(), launch.file, launch.entry, dtype)
        kernel(launch.grid, (launch.threads,), tuple(map(_argument, arguments)))


@cache
def _kernel(device: int, file: str, entry: str, dtype: str) -> Any:
    """A kernel of the current device, whose number only tells kernels of several apart."""
    return load_kernel(file, entry, defines(dtype), FOLDER)


def _argument(given: Any) -> Any:
    """A structure as one value, anything else as it is."""
    if isinstance(given, np.ndarray):
        return np.frombuffer(given.tobytes(), f"V{given.nbytes}")[0]
    return given


register("cupy", CupyCodec)
