"""The kernels of Pauli words on a CPU: g++ compiles them, CUDA's threads are fibers, arrays are NumPy's.

A launch has one block, so that meetings of blocks are not tried. `emulate` puts all this in the place of CuPy
in `executor/pauli/cuda/`.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.emulator import ENTRY, Arrays, addresses, compiled, launched_by_addresses, source

THREADS = 64
"""Of the only block."""
FREE_BYTES = 1 << 40
MORE_FUNCTIONS = """
struct alignas(16) ulonglong2 { unsigned long long x, y; };
struct uint2 { unsigned x, y; };
static ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static double __shfl_xor_sync(unsigned mask, double value, unsigned bits)
{
    return __longlong_as_double(__shfl_xor_sync(mask, __double_as_longlong(value), bits));
}
static double __shfl_down_sync(unsigned mask, double value, unsigned step)
{
    return __longlong_as_double(__shfl_down_sync(mask, __double_as_longlong(value), step));
}
"""
ASSEMBLY = (
    (
        re.compile(r"asm volatile\(\"red\.release.*?;\" ::\"l\"\((.*?)\), \"l\"\((\w+)\) : \"memory\"\);"),
        r"*(\1) += \2;",
    ),
    (
        re.compile(r"asm volatile\(\"ld\.acquire.*?;\" : \"=l\"\((\w+)\) : \"l\"\((.*?)\) : \"memory\"\);"),
        r"\1 = *(\2);",
    ),
)
"""How blocks meet, and what that is in C++."""


def mine(array: Any) -> Any:
    """The same as CuPy's stand-in."""
    return np.ascontiguousarray(array).view(Arrays)


class EmulatedKernel:
    """A kernel, called with the addresses of its arguments."""

    def __init__(self, file: Path, name: str, defines: dict[str, Any]) -> None:
        text = source(file)
        for pattern, with_what in ASSEMBLY:
            text = pattern.sub(with_what, text)
        assert "asm" not in text
        entries = "".join(map(launched_by_addresses, ENTRY.findall(text)))
        library = compiled(f"{MORE_FUNCTIONS}{text}{entries}", defines)
        self.function = getattr(library, f"emulated_{name}")


class EmulatedLaunch:
    """A launch with the arguments of `BoundKernel`, of one block."""

    def __init__(
        self, kernel: EmulatedKernel, blocks: int, threads: int, arguments: Any, shared_bytes: int,
        stream: Any, tables: Any = None,
    ) -> None:  # fmt: skip
        self.kernel, self.values = kernel, [np.array([value]) for value in arguments]

    def put(self, number: int, value: int) -> None:
        """Set an argument."""
        self.values[number][0] = value

    def __call__(self) -> None:
        self.kernel.function(1, THREADS, addresses(self.values))


def stand_in() -> Any:
    """What `table.py` uses of CuPy."""
    made = {
        name: (lambda call: lambda *arguments, **named: mine(call(*arguments, **named)))(getattr(np, name))
        for name in ("zeros", "ones", "empty", "partition", "flatnonzero", "sort", "cumsum", "arange")
    }
    same = ("abs", "argmax", "bincount", "copysign", "count_nonzero", "minimum", "searchsorted", "where")
    return SimpleNamespace(
        **made, **{name: getattr(np, name) for name in same}, ndarray=Arrays,
        argsort=lambda array: mine(np.argsort(array, kind="stable")),
        asarray=lambda array, kind=None: mine(np.array(array, kind)), asnumpy=np.array,
        get_default_memory_pool=lambda: SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None),
        cuda=SimpleNamespace(
            get_current_stream=lambda: SimpleNamespace(ptr=0, synchronize=lambda: None),
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            Device=lambda: SimpleNamespace(mem_info=(FREE_BYTES, FREE_BYTES)),
        ),
    )  # fmt: skip


def emulate(patch: pytest.MonkeyPatch) -> None:
    """Run the terms of GPUs on the CPU."""
    from tnplan.executor.pauli.cuda import selection, table, taped_terms

    kernels: dict[Any, EmulatedKernel] = {}

    def load(file: Path, name: str, defines: dict[str, Any]) -> EmulatedKernel:
        key = (file, name, *defines.items())
        if key not in kernels:
            kernels[key] = EmulatedKernel(file, name, defines)
        return kernels[key]

    for module in (selection, table, taped_terms):
        patch.setattr(module, "cupy", stand_in())
    patch.setattr(table, "load_kernel", load)
    patch.setattr(table, "compile_ahead", lambda files: None)
    patch.setattr(table, "BoundKernel", EmulatedLaunch)
    patch.setattr(table, "CooperativeLaunch", EmulatedLaunch)
    patch.setattr(
        table, "runtime",
        SimpleNamespace(
            deviceGetAttribute=lambda *_: 1, getDevice=lambda: 0, cudaDevAttrMultiProcessorCount=0,
            memcpyHostToDevice=1, memcpyDeviceToHost=2,
            memcpyAsync=lambda to, source, size, *_: ctypes.memmove(to, source, size),
            memsetAsync=lambda to, value, size, _: ctypes.memset(to, value, size),
        ),
    )  # fmt: skip
