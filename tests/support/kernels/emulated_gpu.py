"""A GPU whose kernels run on a CPU: CuPy's arrays are NumPy's, g++ compiles the kernels, and every
launch that code makes through CuPy or the driver is done, so that whole states of a GPU run where there is
none."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest

from tests.support.kernels import idle_gpu
from tests.support.kernels.emulator import addresses, compiled, launched_by_addresses, source

PLAIN = "#define MEET(NUMBER, COUNT) __syncthreads()\n"
SHARED = re.compile(r"extern __shared__ (.*) shared\[\];")
DEFINED = re.compile(r"#ifdef (\w+)\n(.*?)#endif\n", re.DOTALL)
WHOLE_SHARED = 1 << 18
"""Elements of shared memory that every kernel has."""
one_at_a_time = Lock()
"""Held while a kernel runs: its threads are kept in variables that ranks in threads would share."""


@cache
def library(file: Path, defines: tuple[tuple[str, str], ...]) -> ctypes.CDLL:
    """The kernels of a file, each callable by the addresses of its arguments."""
    text, given = source(file), dict(defines)

    def taken(parameters: str) -> str:
        kept = DEFINED.sub(lambda found: found[2] if found[1] in given else "", parameters)
        return " ".join(re.sub(r"//.*", "", kept).split())

    calls = [launched_by_addresses((entry, taken(listed))) for entry, listed in idle_gpu.KERNEL.findall(text)]
    text = SHARED.sub(rf"__shared__ \1 shared[{WHOLE_SHARED}];", text)
    return compiled(PLAIN + text + "".join(calls), given)


class Kernel(idle_gpu.Kernel):
    """A kernel that runs."""

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], *, shared_mem: int = 0,
        stream: Any = None,
    ) -> None:  # fmt: skip
        values = [
            np.array([one.ctypes.data], np.uint64) if isinstance(one, np.ndarray) and one.ndim
            else np.asarray(one) for one in arguments
        ]  # fmt: skip
        self.run(grid[0], block[0], values)

    def check(self, threads: int, arguments: Sequence[Any], shared_bytes: int) -> None:
        """Nothing: `idle_gpu` holds launches against kernels."""

    def run(self, blocks: int, threads: int, values: Sequence[np.ndarray]) -> None:
        """Launch it with values of its arguments."""
        call = getattr(library(self.file, self.defines), f"emulated_{self.entry}")
        with one_at_a_time:
            call(blocks, threads, addresses(values))


def put_in_place(patch: pytest.MonkeyPatch, blocks_on_one: int = 1) -> None:
    """As `idle_gpu.put_in_place`; so many blocks of a kernel fit on each of two multiprocessors."""
    from cupy.cuda import driver

    from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel

    idle_gpu.put_in_place(patch, Kernel)
    bind = BoundKernel.__init__

    def bound(made: Any, kernel: Kernel, blocks: int, threads: int, arguments: Any, *rest: Any) -> None:
        bind(made, kernel, blocks, threads, arguments, *rest)
        made.emulated = kernel, blocks, threads, [np.array([value]) for value in arguments]

    def launch(made: Any) -> None:
        kernel, blocks, threads, values = made.emulated
        kernel.run(blocks, threads, values)

    def launch_at(made: Any, number: int, value: int) -> None:
        made.emulated[3][number][0] = value
        launch(made)

    patch.setitem(idle_gpu.ATTRIBUTES, "MultiProcessorCount", 2)
    patch.setattr(driver, "occupancyMaxActiveBlocksPerMultiprocessor", lambda *_: blocks_on_one)
    for name, value in (("__init__", bound), ("__call__", launch), ("at", launch_at)):
        patch.setattr(BoundKernel, name, value)
