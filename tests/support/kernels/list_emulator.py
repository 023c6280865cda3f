"""Kernels of selected-basis diagonalization on a CPU: g++ compiles them, CUDA's threads are fibers (simt)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tests.support.kernels.emulator import EmulatedKernels, source
from tests.support.root import ROOT
from tnplan.executor.sbd.cuda.list_steps import CupyList, list_defines, list_words

FOLDER = ROOT / "tnplan" / "executor" / "sbd" / "cuda"
ONE_AT_A_TIME = threading.Lock()
"""The emulator runs one grid at a time; ranks are threads."""


class EmulatedFile:
    """The kernels of a file with some definitions."""

    def __init__(self, name: str, defines: dict[str, Any]) -> None:
        with ONE_AT_A_TIME:
            self._kernels = EmulatedKernels(source(FOLDER / name), defines)
        self._threads = int(defines["THREADS"])

    def __call__(self, entry: str, blocks: int, *arguments: Any) -> None:
        """Run a kernel; arrays are changed in place."""
        with ONE_AT_A_TIME:
            self._kernels(entry, (blocks, 1), self._threads, *arguments)


class EmulatedList(CupyList):
    """See `batched_list.ListSteps`; arrays are NumPy's. `changed` are definitions besides those of a GPU."""

    def __init__(self, n_orbitals: int, **changed: int) -> None:
        self._n, self._changed = n_orbitals, changed
        self._kernels: dict[bool, EmulatedFile] = {}

    def put(self, array: np.ndarray) -> np.ndarray:
        """A copy; words of strings as the kernels take them."""
        return np.array(list_words(array, self._n) if array.dtype == np.uint64 else array, order="C")

    def get(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def empty(self, *shape: int) -> np.ndarray:
        """An array, not set."""
        return np.full(shape, np.nan)

    def launch(self, entry: str, counting: bool, blocks: int, *arguments: Any) -> None:
        """Run a kernel; arrays are changed in place."""
        if counting not in self._kernels:
            defines = {**list_defines(self._n, counting), **self._changed}
            self._kernels[counting] = EmulatedFile("list_rows.cu", defines)
        if blocks:
            self._kernels[counting](entry, blocks, *arguments)
