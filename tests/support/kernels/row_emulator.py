"""A device of the CPU that multiplies pairs of rows as a GPU does: with rows.cu, and NumPy for cuBLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.emulator import ENTRY, Arrays, compiled, launched_by_addresses, source
from tests.support.kernels.exponent_emulator import EmulatedLaunch
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call, RowShape

STREAM = SimpleNamespace(ptr=0)
launched: list[str] = []
"""The kernels that were launched, in turn; `cublas` for its products."""


_one_at_a_time = Lock()


class _Launch(EmulatedLaunch):
    """One after the other: the emulator's threads are those of the process."""

    def __call__(self) -> None:
        with _one_at_a_time:
            super().__call__()


@cache
def _library(file: Path, defines: tuple[tuple[str, Any], ...]) -> ctypes.CDLL:
    text = source(file)
    return compiled(text + "".join(map(launched_by_addresses, ENTRY.findall(text))), dict(defines))


def _numpy_cublas(
    _: Any, sizes: tuple[int, int, int, int], dtype: str, precision: str
) -> Callable[[int, int, int], None]:
    """c = a b^T of matrices at addresses in tables at addresses."""
    n_batch, m, n, k = sizes

    def at(address: int, count: int, kind: Any) -> np.ndarray:
        size_bytes = count * np.dtype(kind).itemsize
        memory = (ctypes.c_uint8 * size_bytes).from_address(int(address))
        return np.frombuffer(memory, kind)

    def run(a: int, b: int, c: int) -> None:
        launched.append("cublas")
        for left, right, to in zip(*(at(table, n_batch, np.uint64) for table in (a, b, c)), strict=True):
            product = at(left, m * k, dtype).reshape(m, k) @ at(right, n * k, dtype).reshape(n, k).T
            at(to, m * n, dtype)[:] = product.reshape(-1)

    return run


def _placed(target: Any, origin: Any, copy: Copy, divisor: int, _: Any) -> Callable[[int], None]:
    views = target.view(np.ndarray), origin.view(np.ndarray)

    def run(start: int) -> None:
        assert start % divisor == 0
        NumpyDevice().bind_copy(*views, copy, start)()

    return run


def emulate(patch: pytest.MonkeyPatch) -> None:
    """Have the kernels run on the CPU, as on a GPU of one multiprocessor."""
    from tnplan.executor.device.cuda.contract import rows, scatter

    def load_kernel(file: Path, entry: str, defines: dict[str, Any]) -> Any:
        launched.append(entry)
        return getattr(_library(file, tuple(sorted(defines.items()))), f"emulated_{entry}")

    def on_device(*tables: Any) -> list[Any]:
        return [np.array(table).view(Arrays) for table in tables]

    patch.setattr(rows, "load_kernel", load_kernel)
    patch.setattr(rows, "BoundKernel", _Launch)
    patch.setattr(rows, "multiprocessors", lambda: 1)
    patch.setattr(rows, "on_device", on_device)
    patch.setattr(rows, "offset_tables", lambda modes: on_device(*scatter.two_level_offsets(modes)))
    patch.setattr(rows, "bind_placed", _placed)
    patch.setattr(rows.cublas, "handle", lambda _: SimpleNamespace(use_workspace=lambda _: None))
    patch.setattr(rows.cublas, "bind_addressed", _numpy_cublas)


class EmulatedRowDevice(NumpyDevice):
    """See above; `emulate` first."""

    def bind_rows(
        self, shape: RowShape, pairs: Any, a: Any, b: Any, c: Any, workspace: Any, precision: str = "fp32"
    ) -> Call:
        """By the kernels."""
        from tnplan.executor.device.cuda.contract import rows

        arrays = tuple(view.view(Arrays) for view in (a, b, c))
        scratch = np.zeros(1, np.uint8) if rows.by_cublas(shape) else None
        return rows.bind_rows(shape, pairs, arrays, workspace.view(Arrays), precision, STREAM, scratch)  # type: ignore[arg-type]
