"""What a list couples to as a GPU finds it, by kernels that run on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.kernels.list_emulator import EmulatedFile
from tnplan.executor.sbd.cuda.coupling_steps import FILE, GpuCouplings, coupling_defines


class EmulatedCouplings(GpuCouplings):
    """See `GpuCouplings`; arrays are NumPy's, and all of the memory given is free."""

    def room_bytes(self, memory_bytes: float) -> float:
        """The memory given."""
        return memory_bytes

    def order(self, keys: np.ndarray) -> np.ndarray:
        """What sorts keys on the GPU."""
        return np.lexsort(keys.T)

    def copy(self, array: np.ndarray) -> np.ndarray:
        """A copy."""
        return np.array(array, order="C")

    def get(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def new(self, shape: Any, dtype: Any) -> np.ndarray:
        """An array, set to what no element is."""
        return np.full(shape, 77, dtype)

    def set_bytes(self, array: np.ndarray, byte: int) -> None:
        """Set all bytes of an array."""
        array.view(np.uint8)[...] = byte

    def launch(self, entry: str, mode: int, blocks: int, *arguments: Any) -> None:
        """Run a kernel."""
        EmulatedFile(FILE.name, coupling_defines(self._words, mode))(entry, blocks, *arguments)
