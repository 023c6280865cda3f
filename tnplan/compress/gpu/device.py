"""The interface of a device on which the codec has arrays, launches kernels and copies. Knows no CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.gpu.launches import KernelLaunch

WORD_BYTES = 8
MOST_BLOCKS = 1 << 11
"""Blocks that look at an array together, and at the bytes of frames."""

DeviceArray = Any
"""A flat array on the device, sliced and assigned like NumPy's."""


def block_count(size: int) -> int:
    """The blocks that look at so many elements or words, some thousands each."""
    return max(1, min(MOST_BLOCKS, size // TILE))


@runtime_checkable
class KernelDevice(Protocol):
    """A device for the codec. Arrays are flat; launches and copies happen in order."""

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """A copy on the device."""

    def download(self, array: DeviceArray) -> NDArray[Any]:
        """A copy on the host."""

    def mailbox(self, n_words: int) -> tuple[Any, Callable[[], NDArray[np.uint64]]]:
        """Memory in which a kernel sends the host so many words of 8 bytes, behind which it writes a 1, and
        what returns them: it waits for the 1, at most until all launches before are done."""

    def zeros(self, size: int, dtype: str) -> DeviceArray:
        """A new array of zeros."""

    def empty(self, size: int, dtype: str) -> DeviceArray:
        """A new array of anything."""

    def launch(self, launch: KernelLaunch, dtype: str, *arguments: Any) -> None:
        """Run a kernel that is compiled for arrays of `dtype`; arguments are device arrays, NumPy scalars,
        structures as ctypes arrays of bytes, and what `mailbox` gave."""
