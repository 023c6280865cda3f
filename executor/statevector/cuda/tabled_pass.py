"""A pass that is read from tables, and what pass.cu is compiled for. Knows launches, no state."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import driver

from tnplan.executor.device.cuda.runtime.kernel_cache import (
    QUICK,
    cached_per_device,
    compile_soon,
    is_kept,
    load_kernel,
    may_compile,
)
from tnplan.executor.statevector.cuda.kernel_defines import PASS_FILE, pass_defines, shared_bytes
from tnplan.executor.statevector.cuda.program_launch import ProgramLaunch
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS, MultiplexedGate
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

TARGETS = (1, 2, LARGEST_TARGETS)
"""For so many targets pass.cu is compiled: for one in a third of the time of all."""

COPIED_BYTES_PER_S = 2.5e12
QUICK_COPIES, QUICK_S = 25.0, 2.5e-4
"""Copies of the state, and seconds at least, that a pass takes longer where pass.cu is compiled quickly."""
MOST_LOST_S = 0.5
"""Seconds that passes lose to quick code until better code is begun. Compiling takes longer, but goes on
beside them, and later processes have it too."""


def most_targets(item: Pass) -> int:
    """Of the gates of a pass: one of `TARGETS`."""
    sizes = (len(step.targets) for step in item.steps if isinstance(step, MultiplexedGate))
    return compiled_for(max(sizes, default=0))


def compiled_for(targets: int) -> int:
    """For how many targets pass.cu is compiled where gates have so many."""
    return next((number for number in TARGETS if number >= targets), LARGEST_TARGETS)


class PassKernel:
    """pass.cu for tiles of so many bits and gates on so many targets, on the current device.

    It is compiled quickly, unless the cache has better code. That is compiled beside the launches once they
    have lost some time, and replaces the quick code when it is there.
    """

    def __init__(self, dtype: str, tile_bits: int, targets: int) -> None:
        self._defines = pass_defines(dtype, tile_bits, targets)
        self._size_bytes = shared_bytes(dtype, tile_bits)
        self._tile_bytes = np.dtype(dtype).itemsize << tile_bits
        self._is_quick = not is_kept(PASS_FILE, self._defines)
        self._lost_s = 0.0
        self._better: list[Future[Path]] = []
        self._loaded: tuple[Any, int] | None = None

    @property
    def source(self) -> tuple[Path, dict[str, str | int]]:
        """The file and the definitions of the code that is launched now."""
        return PASS_FILE, {**self._defines, QUICK: 1} if self._is_quick else self._defines

    def launch(self, n_tiles: int, arguments: tuple[Any, ...]) -> None:
        """Do a pass of so many tiles."""
        if self._is_quick:
            self._improve(n_tiles)
        if self._loaded is None:
            self._loaded = self._load()
        kernel, fitting = self._loaded
        threads = int(self._defines["THREADS"])
        kernel((min(fitting, n_tiles),), (threads,), arguments, shared_mem=self._size_bytes)

    def _improve(self, n_tiles: int) -> None:
        """Take the better code if it is there, or begin with it if it is worth its time."""
        self._lost_s += max(QUICK_S, QUICK_COPIES * 2 * n_tiles * self._tile_bytes / COPIED_BYTES_PER_S)
        if not self._better and self._lost_s > MOST_LOST_S and may_compile():
            self._better = compile_soon([(PASS_FILE, self._defines)])
        if self._better and self._better[0].done():
            self._is_quick, self._loaded = False, None

    def _load(self) -> tuple[Any, int]:
        """The kernel, and how many of its blocks the device holds."""
        file, defines = self.source
        kernel, threads = load_kernel(file, "run_tiles", defines), int(defines["THREADS"])
        kernel.max_dynamic_shared_size_bytes = self._size_bytes
        fitting = driver.occupancyMaxActiveBlocksPerMultiprocessor(
            kernel.kernel.ptr, threads, self._size_bytes
        )
        return kernel, fitting * cupy.cuda.Device().attributes["MultiProcessorCount"]


@cached_per_device
def pass_kernel(dtype: str, tile_bits: int, targets: int) -> PassKernel:
    """The kernel of the current device; all its states share it."""
    return PassKernel(dtype, tile_bits, targets)


class TabledPass:
    """A pass by pass.cu; after `worth` times by a kernel of its own, which is compiled then.

    `launch` takes `arguments`, the amplitudes first; `compiled` makes the launch of the pass's own kernel, or
    gives None where it has none.
    """

    def __init__(
        self, launch: Callable[[tuple[Any, ...]], None], arguments: tuple[Any, ...],
        compiled: Callable[[], ProgramLaunch | None] | None = None, worth: float = 0,
    ) -> None:  # fmt: skip
        self._launch, self._arguments, self._compiled, self._worth = launch, arguments, compiled, worth
        self._times = 0
        self.program: ProgramLaunch | None = None
        """The launch of its own kernel, once it is made."""

    def whole(self) -> None:
        """Do the pass on all tiles."""
        if self.program is None and self._compiled is not None and self._times >= self._worth:
            self.program, self._compiled = self._compiled(), None
        self._times += 1
        if self.program is None:
            self._launch(self._arguments)
        else:
            self.program.whole()

    def on(self, amplitudes: Any) -> TabledPass:
        """The same pass over other amplitudes."""
        return TabledPass(self._launch, (amplitudes, *self._arguments[1:]))
