"""Kernels of selected-basis diagonalization on a CPU: g++ compiles them, CUDA's threads are fibers."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np

from tests.support.kernels.emulator import DOUBLE_MMA, EmulatedKernels, source
from tests.support.root import ROOT
from tnplan.executor.sbd.cuda.list_steps import CupyList, list_defines, list_words
from tnplan.executor.sbd.cuda.steps import THREADS, CupyBatch, excite_defines, tile_bytes, tile_defines

FOLDER = ROOT / "tnplan" / "executor" / "sbd" / "cuda"
DOUBLE_MMA_FILE = ROOT / "tnplan/executor/device/cuda/contract/kernels/double_mma.cuh"
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

    arrays = np

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


class EmulatedBatch(CupyBatch):
    """See `batched.BatchSteps`; arrays are NumPy's, and so are products of matrices."""

    def __init__(self, dtype: str = "float64", in_shared: bool = True) -> None:
        """`in_shared`: sums of a row are in shared memory."""
        self.dtype, self._real, self._in_shared = dtype, np.dtype(dtype).type, in_shared
        self._tiled = cache(self._load_tiled)

    def put(self, array: np.ndarray) -> np.ndarray:
        """A copy."""
        return np.array(array, order="C")

    def get(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def empty(self, *shape: int) -> np.ndarray:
        """An array, not set."""
        return np.full(shape, np.nan, self.dtype)

    def add_product(self, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
        """y += a b."""
        y += a @ b

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        """target = source, for views of any strides."""
        np.copyto(target, source)

    def _load_tiled(self, n_beta: int, warps: int) -> tuple[Any, int]:
        count = tile_bytes(n_beta * self._in_shared, warps) // 8
        text = source(FOLDER / "excite_tiles.cu").replace(source(DOUBLE_MMA_FILE), DOUBLE_MMA)
        text = text.replace("extern __shared__ double memory[];", f"__shared__ double memory[{count}];")
        with ONE_AT_A_TIME:
            kernels = EmulatedKernels(text, tile_defines(self.dtype, self._in_shared, warps))

        def launch(grid: tuple[int], block: tuple[int], arguments: Any, shared_mem: int) -> None:
            with ONE_AT_A_TIME:
                kernels("opposite_spin", (*grid, 1), *block, *arguments)

        return launch, 0

    def _launch(self, entry: str, grid: tuple[int, ...], sizes: tuple[int, ...], *arguments: Any) -> None:
        if 0 not in grid:
            defines = excite_defines(self.dtype)
            with ONE_AT_A_TIME:
                kernels = EmulatedKernels(source(FOLDER / "excite.cu"), defines)
                kernels(entry, (*grid, 1)[:2], THREADS, *map(np.int64, sizes), *arguments)
