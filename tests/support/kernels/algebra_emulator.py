"""A device of the CPU over an algebra with the kernels of a GPU: they run on the CPU, copies are NumPy's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.emulator import ENTRY, Arrays, compiled, launched_by_addresses, source
from tests.support.kernels.exponent_emulator import EmulatedLaunch
from tnplan.executor.device.cpu.algebra import Algebra
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.cuda.algebra import kernels, products
from tnplan.executor.device.cuda.algebra.kernels import AlgebraKernels
from tnplan.executor.device.cuda.contract import Product, dispatch
from tnplan.executor.device.cuda.copy import permute
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call, ContractShape

MOST_BLOCKS = 3
_one_at_a_time = Lock()
launched: set[str] = set()
"""The kernels that were launched."""


@cache
def _library(file: Path, defines: tuple[tuple[str, Any], ...]) -> ctypes.CDLL:
    text = source(file)
    return compiled(text + "".join(map(launched_by_addresses, ENTRY.findall(text))), dict(defines))


class AlgebraLaunch(EmulatedLaunch):
    """A launch on few blocks, so that a block does more than one piece, whose addresses may change."""

    def __call__(self) -> None:
        self._blocks = min(self._blocks, MOST_BLOCKS)
        with _one_at_a_time:  # the emulator's threads are those of the process
            super().__call__()

    def put(self, number: int, value: int) -> None:
        """As of `BoundKernel`."""
        self._values[number][0] = value

    def at(self, number: int, value: int) -> None:
        """As of `BoundKernel`."""
        self.put(number, value)
        self()


class EmulatedAlgebraDevice(NumpyDevice):
    """See above; `emulate` first."""

    def __init__(self, algebra: Algebra) -> None:
        super().__init__()
        modulus = np.asarray(getattr(algebra, "modulus", np.ones(1)))
        self._stream = SimpleNamespace(ptr=0, synchronize=lambda: None)
        self._kernels = AlgebraKernels(algebra.name, modulus.ctypes.data, self._stream, garbage)

    def view(self, offset_bytes: int, count: int, dtype: str) -> Any:
        """With an address."""
        return super().view(offset_bytes, count, dtype).view(Arrays)

    def input_block(self, counts: Sequence[int], dtype: str) -> Any:
        """With addresses."""
        block = super().input_block(counts, dtype)
        block.views = [view.view(Arrays) for view in block.views]
        return block

    def zero(self, target: Any) -> None:
        """By the kernel."""
        self._kernels.fill(target)

    def bind_copy(
        self, target: Any, source: Any, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """A copy of NumPy's, or the kernel that adds."""
        if add:
            return self._kernels.bind_add(target[target_start:], source[source_start:], copy, rows)
        views = target.view(np.ndarray), source.view(np.ndarray)
        return super().bind_copy(*views, copy, target_start, source_start, rows)

    def bind_accumulate(self, target: Any, source: Any) -> Call:
        """By the kernel."""
        return self._kernels.bind_add(target, source, Copy((), (), target.size))

    def bind_add_block(self, target: Any, source: Any, start: Callable[[], int]) -> Call:
        """By the kernel, bound anew each time."""
        return lambda: self.bind_accumulate(target[start() : start() + source.size], source)()

    def bind_sum(
        self, target: Any, source: Any, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> Call:
        """By the kernel."""
        return self._kernels.bind_sum(target, source, extents, in_target)

    def bind_contract(
        self, shape: ContractShape, a: Any, b: Any, c: Any, workspace: Any, precision: str = "fp32",
        engine: str = "gemm",
    ) -> Call:  # fmt: skip
        """By the kernels."""
        return self._kernels.bind_contract(Product(shape, a, b, c, self._stream), workspace)


def garbage(size_bytes: int) -> Any:
    """New memory, which is no zeros."""
    return np.full(size_bytes, 255, np.uint8).view(Arrays)


def emulate(patch: pytest.MonkeyPatch) -> None:
    """Have kernels of algebras run on the CPU."""

    def load_kernel(file: Path, entry: str, defines: dict[str, Any]) -> Any:
        launched.add(entry)
        return getattr(_library(file, tuple(sorted(defines.items()))), f"emulated_{entry}")

    def bind_placed(target: Any, origin: Any, copy: Any, divisor: int, stream: Any) -> Any:
        flat = target.view(np.ndarray), origin.view(np.ndarray)
        return lambda start: NumpyDevice().bind_copy(*flat, copy, start)()

    for module in (kernels, products):
        patch.setattr(module, "load_kernel", load_kernel)
        patch.setattr(module, "BoundKernel", AlgebraLaunch)
    for module in (kernels, permute):
        patch.setattr(module, "on_device", lambda *tables: [table.view(Arrays) for table in tables])
    patch.setattr(dispatch, "bind_placed", bind_placed)
