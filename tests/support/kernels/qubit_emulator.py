"""The rows of a qubit Hamiltonian as a GPU makes them, by kernels that run on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.kernels.list_emulator import EmulatedFile
from tnplan.executor.sbd.cuda.qubit_steps import FILE, GpuQubits, qubit_defines
from tnplan.executor.sbd.lists.qubit_hamiltonian import QubitHamiltonian


class EmulatedQubits(GpuQubits):
    """See `GpuQubits`; arrays are NumPy's."""

    def __init__(self, hamiltonian: QubitHamiltonian, memory_bytes: float) -> None:
        defines = qubit_defines(hamiltonian.strings.words.shape[1], hamiltonian.is_complex)
        self._emulated = EmulatedFile(FILE.name, defines)
        super().__init__(hamiltonian, memory_bytes)

    def get(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def copy(self, array: np.ndarray) -> np.ndarray:
        """A copy."""
        return np.array(array, order="C")

    def new(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array, set to what no element is."""
        return np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else -1, dtype)

    def launch(self, entry: str, *arguments: Any) -> None:
        """Run a kernel."""
        blocks = -(-int(arguments[0]) * 32 // int(qubit_defines(1, False)["THREADS"]))
        if blocks:
            self._emulated(entry, blocks, *arguments)
