"""The way back through chains on a CPU: adjoint.cu runs on the CPU, launched as on a GPU."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.emulator import ENTRY, Arrays, compiled, launched_by_addresses, source
from tests.support.kernels.exponent_emulator import EmulatedLaunch
from tnplan.executor.device.cpu.device import NumpyDevice

BLOCKS = 3
MOST_SHARED_BYTES = 1 << 20
CONSTANT = '\nextern "C" void* constant_address() { return constant_branches; }\n'


@cache
def _library(defines: tuple[tuple[str, Any], ...]) -> ctypes.CDLL:
    from tnplan.executor.device.cuda.fused.adjoint import FILE

    text = re.sub(
        r"extern __shared__ (.*) memory\[\];",
        rf"__shared__ \1 memory[{MOST_SHARED_BYTES}];", source(FILE),
    )  # fmt: skip
    calls = "".join(map(launched_by_addresses, ENTRY.findall(text)))
    library = compiled(text + calls + CONSTANT, dict(defines))
    library.constant_address.restype = ctypes.c_void_p
    return library


def emulate_adjoints(patch: pytest.MonkeyPatch, most_bytes: int = MOST_SHARED_BYTES) -> None:
    """Run the way back of GPUs on the CPU, by a few blocks with so much shared memory."""
    from cupy.cuda import runtime

    from tnplan.executor.device.cuda.fused import adjoint

    def kernel(
        _: Any, entry: str, defines: Any, _threads: int, shared_bytes: int, _r: str, _copy: int
    ) -> tuple[Any, int]:
        assert entry == "adjoint"
        assert shared_bytes <= most_bytes
        return _library(defines).emulated_adjoint, BLOCKS

    def hold(_: Any, defines: Any, _copy: int) -> tuple[Any, int]:
        return _library(defines).emulated_hold, _library(defines).constant_address()

    patch.setattr(adjoint, "on_device", lambda *tables: [np.array(table).view(Arrays) for table in tables])
    patch.setattr(runtime, "memsetAsync", lambda at, value, size, _: ctypes.memset(at, value, size))
    patch.setattr(adjoint, "module_copy", lambda *_: 0)
    patch.setattr(adjoint, "find_kernel", kernel)
    patch.setattr(adjoint, "find_hold", hold)
    patch.setattr(adjoint, "block_shared_bytes", lambda: most_bytes)
    patch.setattr(
        adjoint, "load_kernel",
        lambda _, entry, defines: getattr(_library(tuple(defines.items())), f"emulated_{entry}"),
    )  # fmt: skip
    patch.setattr(adjoint, "BoundKernel", EmulatedLaunch)
    patch.setattr(adjoint, "compile_ahead", list)


def emulate_on_cpus(patch: pytest.MonkeyPatch) -> None:
    """Have ways back on devices of the CPU done so too, by one rank at a time."""
    from tnplan.executor.device.cuda.fused import adjoint

    emulate_adjoints(patch)
    alone = Lock()

    def mine(array: Any) -> Any:
        return None if array is None else array.view(Arrays)

    def scratch(size_bytes: int) -> Any:
        return Arrays(size_bytes, dtype=np.uint8)

    def bind(
        _: NumpyDevice, shape: Any, operand: Any, branches: Any, cotangent: Any, outputs: Any,
        capacity_bytes: int,
    ) -> Any:  # fmt: skip
        read, made = list(map(mine, branches)), list(map(mine, outputs))
        stream = SimpleNamespace(ptr=0)
        with alone:
            call = adjoint.bind_adjoint(
                shape, mine(operand), read, mine(cotangent), made, stream, capacity_bytes, scratch
            )

        def run() -> None:
            with alone:
                call()

        return run

    patch.setattr(NumpyDevice, "bind_adjoint", bind)
