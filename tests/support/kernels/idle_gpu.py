"""A GPU that does nothing, for code that launches kernels: CuPy's arrays are NumPy's, and no kernel runs.

Every launch is held against the kernel as it is compiled: as many arguments as it has parameters, each of the
same size and kind, no more threads than it allows, no more shared memory than was asked for.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import current_thread
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.kernels.emulator import Arrays

MULTIPROCESSORS, SHARED_BYTES, PLAIN_SHARED_BYTES, ALIGNMENT_BYTES = 132, 227 << 10, 48 << 10, 256
ATTRIBUTES = {
    "MultiProcessorCount": MULTIPROCESSORS, "MaxSharedMemoryPerBlockOptin": SHARED_BYTES,
    "MaxSharedMemoryPerMultiprocessor": SHARED_BYTES + 1024,
}  # fmt: skip
KERNEL = re.compile(
    r'^extern "C" __global__ void\s+(?:[A-Z]+\s+)?(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\((.*?)\)\s*\{',
    re.DOTALL | re.MULTILINE,
)
"""A kernel and its parameters as they are written."""
ENTRIES = re.compile(r"\.entry (\w+)\((.*?)\)\n([^{]*)\{", re.DOTALL)
PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.([a-z]+)(\d+) \w+(?:\[(\d+)\])?")
"""A parameter in PTX: the kind and the bits of its type, and of a structure how many bytes."""


class Parameter(NamedTuple):
    """The bytes of a parameter; whether it is an address, a floating-point number or a structure."""

    size_bytes: int
    is_address: bool
    kind: str


class Signature(NamedTuple):
    """What a kernel takes, and the most threads of a block."""

    parameters: tuple[Parameter, ...]
    most_threads: int


@cache
def signatures(file: Path, defines: tuple[tuple[str, str], ...]) -> dict[str, Signature]:
    """Of all kernels of a file with some definitions, as NVIDIA's compiler lays them out."""
    from cupy_backends.cuda.libs import nvrtc

    from tnplan.executor.device.cuda.runtime.kernel_cache import OPTIONS, source

    program = nvrtc.createProgram(source(file), file.name, (), ())
    arch = "compute_90a" if file.name == "wgmma.cu" else "compute_90"
    given = [f"-D{name}={value}" for name, value in defines]
    # Optimizing takes most of the time and changes neither parameters nor launch bounds.
    nvrtc.compileProgram(program, [*OPTIONS, "--Ofast-compile=max", f"--gpu-architecture={arch}", *given])
    ptx = nvrtc.getPTX(program)
    text = re.sub(r"(?m)^\s*(#|//).*$|//.*$", "", source(file))
    named = {entry: parameters.split(",") for entry, parameters in KERNEL.findall(text)}
    found = {}
    for entry, listed, bounds in ENTRIES.findall(ptx.decode() if isinstance(ptx, bytes) else ptx):
        of_entry = []
        # A parameter that a definition leaves out is the last.
        for (kind, bits, length), name in zip(PARAMETER.findall(listed), named[entry], strict=False):
            size_bytes = int(bits) // 8 * int(length or 1)
            of_entry.append(Parameter(size_bytes, "*" in name, "struct" if length else kind))
        most = re.search(r"\.maxntid (\d+)", bounds)
        found[entry] = Signature(tuple(of_entry), int(most[1]) if most else 1024)
    return found


class Array(Arrays):
    """An array of CuPy; on given memory, or on its own."""

    def __new__(cls, shape: Any, dtype: Any = float, memory: Any = None, strides: Any = None) -> Array:
        held = Pointer(Memory(int(np.prod(shape)) * np.dtype(dtype).itemsize)) if memory is None else memory
        made = np.ndarray.__new__(cls, shape, dtype, held.memory.bytes, held.offset, strides)
        made.memory = held.memory
        return made


class Bytes(np.ndarray):
    """Memory of the host."""

    @property
    def ptr(self) -> int:
        """Its address."""
        return self.ctypes.data


class Memory:
    """Zeros."""

    def __init__(self, size_bytes: int) -> None:
        whole = np.zeros(size_bytes + ALIGNMENT_BYTES, np.uint8).view(Bytes)
        start = -whole.ctypes.data % ALIGNMENT_BYTES
        self.bytes = whole[start : start + size_bytes]
        self.ptr = self.bytes.ptr


class Pointer:
    """A place in memory."""

    def __init__(self, memory: Memory, offset: int = 0) -> None:
        self.memory, self.offset, self.ptr = memory, offset, memory.ptr + offset

    def __add__(self, count: int) -> Pointer:
        return Pointer(self.memory, self.offset + count)


class Stream:
    """A stream, or an event."""

    ptr, done = 0, True

    def __init__(self, *_: Any, **named: Any) -> None:
        pass

    def synchronize(self, *_: Any) -> None:
        """Nothing to wait for."""

    record = wait_event = begin_capture = synchronize

    def end_capture(self) -> Any:
        """A graph that does nothing."""
        return SimpleNamespace(launch=self.synchronize)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class Device(Stream):
    """An H100."""

    id, compute_capability, mem_info, attributes = 0, "90", (80 << 30, 80 << 30), ATTRIBUTES


class Kernel:
    """A kernel, which can be called as one of CuPy, or bound."""

    def __init__(self, file: Path, defines: tuple[tuple[str, str], ...], entry: str) -> None:
        self.file, self.entry, self.defines = file.resolve(), entry, defines
        self.kernel, self.max_dynamic_shared_size_bytes = SimpleNamespace(ptr=1), PLAIN_SHARED_BYTES

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], *, shared_mem: int = 0,
        stream: Any = None,
    ) -> None:  # fmt: skip
        assert len(block) == 1
        assert all(0 < count < 1 << (31 if axis == 0 else 16) for axis, count in enumerate(grid))
        self.check(block[0], arguments, shared_mem)

    def check(self, threads: int, arguments: Sequence[Any], shared_bytes: int) -> None:
        """Whether the kernel can be launched so."""
        wanted, where = signatures(self.file, self.defines)[self.entry], f"{self.file.name}: {self.entry}"
        launched.add((self.file, self.entry))
        assert 0 < threads <= wanted.most_threads, where
        assert shared_bytes <= self.max_dynamic_shared_size_bytes <= SHARED_BYTES, where
        assert len(arguments) == len(wanted.parameters), where
        for number, (one, parameter) in enumerate(zip(arguments, wanted.parameters, strict=True)):
            at, is_array = f"{where}, argument {number}", isinstance(one, Array)
            assert is_array or type(one) not in (int, float, complex), at
            kind = np.dtype(np.uint64) if is_array else np.asarray(one).dtype
            assert kind.itemsize == parameter.size_bytes, at
            assert kind == np.uint64 if parameter.is_address else not is_array, at
            assert parameter.kind == "struct" or (kind.kind == "f") == (parameter.kind == "f"), at


class UncheckedKernel(Kernel):
    """A kernel that can be launched anyhow: `check` takes its compiled signature, which takes long."""

    def check(self, threads: int, arguments: Sequence[Any], shared_bytes: int) -> None:
        """Nothing."""


launched: set[tuple[Path, str]] = set()
"""Kernels that were launched in this process, by file and name: caches keep them from test to test."""


@dataclass
class Compilations:
    """Kernels that were compiled, in threads ahead and where they are loaded, and those that were loaded."""

    ahead: list[tuple[Any, ...]] = field(default_factory=list)
    late: list[tuple[Any, ...]] = field(default_factory=list)
    loaded: set[tuple[Any, ...]] = field(default_factory=set)

    def compile(self, file: Path, defines: dict[str, str], arch: str) -> bytes:
        """In the place of the compiler."""
        noted = self.ahead if current_thread().name == "tnplan kernels" else self.late
        noted.append((file, tuple(defines.items()), arch))
        return b"kernel"


def put_in_place(
    patch: pytest.MonkeyPatch, kernel_type: type[Kernel] = Kernel, compilations: Compilations | None = None
) -> None:
    """Have all that is used of CuPy and of the driver by this GPU, and its kernels of a type. Not where there
    is another one: functions that are cached keep what this one has given.

    With `compilations` these are compiled for nothing, and kept in the folder of compiled kernels; else none
    is compiled.
    """
    import cupy
    from cupy.cuda import driver, runtime

    from tnplan.executor.device.cuda import gpus
    from tnplan.executor.device.cuda.contract import cublas
    from tnplan.executor.device.cuda.runtime import kernel_cache, signals
    from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel

    bind = BoundKernel.__init__

    def bound(made: Any, kernel: Kernel, blocks: int, threads: int, arguments: Any, *rest: Any) -> None:
        assert 0 < blocks < 1 << 31
        kernel.check(threads, arguments, rest[0])
        bind(made, kernel, blocks, threads, arguments, *rest)

    def module(_: int, file: Path, defines: Any, is_specific: bool = False, copy: int = 0) -> Any:
        if compilations is not None:
            key = file, defines, f"sm_{Device.compute_capability}" + "a" * is_specific
            kernel_cache.cached_cubin(*key)
            compilations.loaded.add(key)
        return SimpleNamespace(
            get_function=lambda entry: kernel_type(file, defines, entry),
            get_global=lambda name: SimpleNamespace(ptr=ALIGNMENT_BYTES),
        )

    def by_numpy(name: str) -> Any:
        return lambda *given, **named: _placed(getattr(np, name)(*given, **named))

    none: Any = lambda: 0  # noqa: E731
    pool = SimpleNamespace(free_bytes=none, used_bytes=none, total_bytes=none, free_all_blocks=none)
    names = ("zeros", "ones", "arange", "flatnonzero", "argsort", "partition", "bincount")
    properties = {"multiProcessorCount": MULTIPROCESSORS, "name": b"H100"}
    nothing: Any = lambda *_: 0  # noqa: E731
    compiler = {"_made": lambda *_: b""} if compilations is None else {"compile_cubin": compilations.compile}
    for of, values in (
        (cupy, {name: by_numpy(name) for name in names}),
        (cupy, {name: getattr(np, name) for name in ("abs", "copyto", "count_nonzero", "where")}),
        (cupy, {
            "ndarray": Array, "empty": Array, "asnumpy": np.array, "get_default_memory_pool": lambda: pool,
            "asarray": lambda array, dtype=None: _placed(np.asarray(array, dtype)),
        }),
        (cupy.cuda, {
            "Memory": Memory, "MemoryPointer": Pointer, "Stream": Stream, "Event": Stream, "Device": Device,
            "get_current_stream": Stream, "alloc_pinned_memory": lambda count: Memory(count).bytes,
        }),
        (runtime, {
            "getDevice": lambda: 0, "setDevice": nothing, "memGetInfo": lambda: Device.mem_info,
            "deviceGetAttribute": lambda *_: MULTIPROCESSORS, "getDeviceProperties": lambda _: properties,
            "memcpyAsync": lambda into, origin, size_bytes, *_: ctypes.memmove(into, origin, size_bytes),
            "memsetAsync": lambda into, value, size_bytes, _: ctypes.memset(into, value, size_bytes),
        }),
        (driver, {
            "occupancyMaxActiveBlocksPerMultiprocessor": lambda *_: 2, "launchKernel": nothing,
            "launchCooperativeKernel": nothing,
        }),
        (gpus, {"Device": Device}), (signals, {"driver_record": lambda: nothing}),
        (cublas, {"bindings": _Library}), (kernel_cache, {"_module": module, **compiler}),
        (BoundKernel, {"__init__": bound}),
    ):  # fmt: skip
        for name, value in values.items():
            patch.setattr(of, name, value)


class _Library:
    """A library whose calls do nothing."""

    cuBLASError = RuntimeError  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


def _placed(array: np.ndarray) -> Array:
    """A copy on the GPU."""
    made = Array(array.shape, array.dtype)
    made[...] = array
    return made
