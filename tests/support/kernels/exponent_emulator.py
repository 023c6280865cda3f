"""A device of the CPU with the exponents of a GPU: exponents.cu runs on the CPU, the rest is NumPy's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.emulator import (
    ENTRY,
    Arrays,
    addresses,
    compiled,
    has_compiler,
    launched_by_addresses,
    source,
)
from tests.support.kernels.gpus import DEVICES, opened
from tnplan.executor.device.cpu.device import NumpyDevice

MULTIPROCESSORS = 1
HAS_EMULATOR = has_compiler() and find_spec("cupy") is not None
OR_EMULATED = [
    *DEVICES,
    pytest.param("emulated", marks=pytest.mark.skipif(not HAS_EMULATOR, reason="needs g++ and CuPy")),
]
"""Devices for `opened_or_emulated`."""


class Memory:
    """A piece of memory, aligned to 16 bytes; it is its own pointer."""

    def __init__(self, size_bytes: int) -> None:
        self._held = np.zeros(size_bytes + 16, np.uint8)
        self.ptr = -(-self._held.ctypes.data // 16) * 16


@cache
def _library(file: Path, defines: tuple[tuple[str, Any], ...]) -> ctypes.CDLL:
    text = source(file)
    return compiled(text + "".join(map(launched_by_addresses, ENTRY.findall(text))), dict(defines))


class EmulatedLaunch:
    """A launch with the arguments of `BoundKernel`."""

    def __init__(
        self, kernel: Any, blocks: int, threads: int, arguments: Any, shared_bytes: int, stream: Any,
        tables: Any = None,
    ) -> None:  # fmt: skip
        self._kernel, self._blocks, self._threads, self._tables = kernel, blocks, threads, tables
        self._values = [np.array([value]) for value in arguments]

    def __call__(self) -> None:
        self._kernel(self._blocks, self._threads, addresses(self._values))


class EmulatedDevice(NumpyDevice):
    """See above; `emulate` first."""

    def exponents(self, count: int, dtype: str) -> Any:
        """Those of a GPU."""
        return WithAddresses(count, dtype)


class WithAddresses:
    """The exponents of a GPU, for views that do not answer to what CuPy's do."""

    def __init__(self, count: int, dtype: str) -> None:
        from tnplan.executor.device.cuda.copy.exponents import CupyExponents

        stream = SimpleNamespace(ptr=0, synchronize=lambda: None)
        self._made = CupyExponents(count, dtype, stream, MULTIPROCESSORS)
        self.bind_clear, self.bind_total = self._made.bind_clear, self._made.bind_total

    def bind_normalize(self, views: Any, slots: Any, tolerated_bits: int = 0) -> Any:
        """See `Exponents`."""
        return self._made.bind_normalize([view.view(Arrays) for view in views], slots, tolerated_bits)

    def bind_accumulate(self, target: Any, source: Any, *rest: Any) -> Any:
        """See `Exponents`."""
        return self._made.bind_accumulate(target.view(Arrays), source.view(Arrays), *rest)

    def bind_aligned(self, target: Any, factor: Any, *rest: Any) -> Any:
        """See `Exponents`."""
        return self._made.bind_aligned(target.view(Arrays), factor.view(Arrays), *rest)


def emulate(patch: pytest.MonkeyPatch) -> None:
    """Run the exponents of GPUs on the CPU."""
    from tnplan.executor.device.cuda.copy import exponents

    def load(file: Path, entry: str, defines: dict[str, Any]) -> Any:
        return getattr(_library(file, tuple(defines.items())), f"emulated_{entry}")

    def array(count: int, kind: Any, memory: Memory) -> Any:
        return np.empty(count, kind).view(Arrays)

    memory = SimpleNamespace(
        Memory=Memory, MemoryPointer=lambda memory, _: memory, alloc_pinned_memory=bytearray
    )
    stand_in = SimpleNamespace(cuda=memory, ndarray=array)
    runtime = SimpleNamespace(
        memcpyDeviceToDevice=0, memcpyDeviceToHost=0,
        memcpyAsync=lambda into, origin, size, *_: ctypes.memmove(into, origin, size),
        memsetAsync=lambda into, value, size, _: ctypes.memset(into, value, size),
    )  # fmt: skip
    patch.setattr(exponents, "cupy", stand_in)
    patch.setattr(exponents, "on_device", lambda *tables: [np.array(table).view(Arrays) for table in tables])
    patch.setattr(exponents, "runtime", runtime)
    patch.setattr(exponents, "load_kernel", load)
    patch.setattr(exponents, "BoundKernel", EmulatedLaunch)


@contextmanager
def opened_or_emulated(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A device of `OR_EMULATED`."""
    if name == "emulated":
        emulate(monkeypatch)
        yield EmulatedDevice()
        return
    with opened(name) as made:
        yield made
