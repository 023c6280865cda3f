"""The device of `compress.device_codec` and `compress.device_decode`: CuPy's arrays, kernels from the cache.

Knows how kernels are launched; never what a stream holds.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

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

    def launch(self, launch: Launch, dtype: str, *arguments: Any) -> None:
        """Run a kernel that is compiled for arrays of `dtype`; structures go as NumPy arrays on the host."""
        kernel = load_kernel(launch.file, launch.entry, defines(dtype), FOLDER)
        kernel(launch.grid, (launch.threads,), tuple(map(_argument, arguments)))


def _argument(given: Any) -> Any:
    """A structure as one value, anything else as it is."""
    if isinstance(given, np.ndarray):
        return np.frombuffer(given.tobytes(), f"V{given.nbytes}")[0]
    return given
