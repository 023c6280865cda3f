"""Where the CUDA kernels of compress/ run in tests: a GPU, or the emulator.

Both are a `tnplan.compress.gpu.launches.KernelDevice`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.kernels.emulator import EmulatedKernels, source
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.launches import KernelLaunch


class EmulatedDevice:
    """A `tnplan.compress.gpu.launches.KernelDevice` of emulated kernels; its arrays are NumPy's."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[str, str], EmulatedKernels] = {}

    def upload(self, array: Any) -> Any:
        return np.array(array)

    def download(self, array: Any) -> Any:
        return np.array(array)

    def mailbox(self, n_words: int) -> Any:
        words = np.zeros(n_words + 1, np.uint64)

        def told() -> Any:
            assert words[-1] == 1
            return words[:-1]

        return words, told

    def zeros(self, size: int, dtype: str) -> Any:
        return np.zeros(size, dtype)

    def empty(self, size: int, dtype: str) -> Any:
        return np.full(size * np.dtype(dtype).itemsize, 0xA5, np.uint8).view(dtype)

    def launch(self, launch: KernelLaunch, dtype: str, *arguments: Any) -> None:
        key = launch.file, dtype
        if key not in self.kernels:
            text = source(launches.FOLDER / launch.file)
            self.kernels[key] = EmulatedKernels(text, launches.defines(dtype))
        self.kernels[key](launch.entry, launch.grid, launch.threads, *arguments)


def make_device(name: str) -> Any:
    """The device 'gpu' or 'emulated'."""
    if name == "gpu":
        from tnplan.executor.device.cuda.codec import CupyCodec

        return CupyCodec()
    return EmulatedDevice()
