"""A pass that is read from tables, and what pass.cu is compiled for. Knows launches, no state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import driver

from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import (
    QUICK,
    cached_per_device,
    compile_soon,
    has_quick,
    is_kept,
    load_kernel,
    may_compile,
)
from tnplan.executor.statevector.codegen.pass_program import tile_numbers
from tnplan.executor.statevector.cuda.bit_swap import OVERLAP_BLOCKS, OVERLAP_THREADS
from tnplan.executor.statevector.cuda.kernel_defines import (
    COPIED_BYTES_PER_S,
    PASS_FILE,
    PROGRAM_THREADS,
    pass_defines,
    shared_bytes,
)
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS, MultiplexedGate
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

TARGETS = (1, 2, LARGEST_TARGETS)
"""For so many targets pass.cu is compiled: for one in a third of the time of all."""

QUICK_COPIES, QUICK_S = 25.0, 2.5e-4
"""Copies of the state, and seconds at least, that a pass takes longer by quick code."""
QUICK_BYTES = 1 << 30
"""Passes of larger states wait for better code: each would lose 20 ms or more."""
MOST_LOST_S = 0.5
"""Seconds that passes lose to quick code until better code begins to be compiled. That takes longer, but goes
on beside them, and later processes have it too."""


def most_targets(item: Pass) -> int:
    """Of the gates of a pass: one of `TARGETS`."""
    sizes = (len(step.targets) for step in item.steps if isinstance(step, MultiplexedGate))
    return compiled_for(max(sizes, default=0))


def compiled_for(targets: int) -> int:
    """For how many targets pass.cu is compiled where gates have so many."""
    return next((number for number in TARGETS if number >= targets), LARGEST_TARGETS)


class PassKernel:
    """pass.cu for tiles of so many bits and gates on so many targets, on the current device.

    Small states take quick code, unless the cache has better. Once their passes have lost some time, better
    code is compiled beside them, which is taken by passes that are prepared later.
    """

    def __init__(self, dtype: str, tile_bits: int, targets: int, code_bits: int = 0) -> None:
        self._defines = pass_defines(dtype, tile_bits, targets, code_bits)
        self._size_bytes = shared_bytes(dtype, tile_bits)
        self._tile_bytes = np.dtype(dtype).itemsize << tile_bits
        self._lost_s = 0.0
        self._is_begun = False

    def code(self, may_be_quick: bool) -> tuple[Path, dict[str, str | int]]:
        """The file and the definitions of the code that there is, or that is to be compiled."""
        is_quick = may_be_quick and has_quick() and not is_kept(PASS_FILE, self._defines)
        return PASS_FILE, {**self._defines, QUICK: 1} if is_quick else self._defines

    def launcher(self, n_tiles: int, may_be_quick: bool) -> Callable[[tuple[Any, ...]], None]:
        """What does a pass of so many tiles, given its arguments."""
        file, defines = self.code(may_be_quick)
        kernel, threads = load_kernel(file, "run_tiles", defines), int(defines["THREADS"])
        kernel.max_dynamic_shared_size_bytes = self._size_bytes
        fitting = driver.occupancyMaxActiveBlocksPerMultiprocessor(
            kernel.kernel.ptr, threads, self._size_bytes
        )
        blocks = min(fitting * cupy.cuda.Device().attributes["MultiProcessorCount"], n_tiles)

        def launch(arguments: tuple[Any, ...]) -> None:
            kernel((blocks,), (threads,), arguments, shared_mem=self._size_bytes)

        def launch_quick(arguments: tuple[Any, ...]) -> None:
            launch(arguments)
            self._lose(n_tiles)

        return launch_quick if QUICK in defines else launch

    def _lose(self, n_tiles: int) -> None:
        """Count what a pass of so many tiles lost, and begin with better code once that is much."""
        copy_s = 2 * n_tiles * self._tile_bytes / COPIED_BYTES_PER_S
        self._lost_s += max(QUICK_S, QUICK_COPIES * copy_s)
        if self._lost_s > MOST_LOST_S and not self._is_begun and may_compile():
            self._is_begun = True
            compile_soon([(PASS_FILE, self._defines)])


@cached_per_device
def pass_kernel(dtype: str, tile_bits: int, targets: int, code_bits: int = 0) -> PassKernel:
    """The kernel of the current device; all its states share it, or those compressed to so many bits."""
    return PassKernel(dtype, tile_bits, targets, code_bits)


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


CLUSTER_GROUPS = 8
"""Parts of a GPU; neighbouring blocks share one, where other blocks may leave resources for one of two."""


@dataclass(frozen=True)
class Blocks:
    """Their threads and shared memory, and how many come together."""

    threads: int
    size_bytes: int
    together: int = 1


class ProgramLaunch:
    """A compiled pass over 2^n_bits amplitudes.

    `arguments` are those before the tiles, after them, and after the sums; `word_sums` as in `PassProgram`.
    With arguments after the sums, a block has two: see program.cu.
    """

    def __init__(
        self, kernel: Any, n_bits: int, held_bits: Sequence[int], blocks: Blocks,
        arguments: tuple[Sequence[np.generic], Sequence[np.generic], Sequence[np.generic]], tables: Any,
        word_sums: Sequence[tuple[int, float]] = (),
    ) -> None:  # fmt: skip
        self._kernel, self._n_bits, self._held_bits, self._arguments = kernel, n_bits, held_bits, arguments
        self._blocks, self._tables, self.word_sums = blocks, tables, word_sums
        self.last_argument = sum(map(len, arguments)) + 1
        """The number of the last argument of `whole`: the tiles and the sums come in besides."""
        threads, size_bytes = blocks.threads, blocks.size_bytes
        attributes = cupy.cuda.Device().attributes
        most = max(1, PROGRAM_THREADS // threads)
        self._part_bytes = max(size_bytes, attributes["MaxSharedMemoryPerMultiprocessor"] // (most + 1))
        """So much that no more blocks fit than have `PROGRAM_THREADS`, also where there are registers for
        more: else blocks that exchange would not fit on multiprocessors that run three of a pass."""
        kernel.max_dynamic_shared_size_bytes = self._part_bytes
        all_blocks, part_blocks = (
            driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, size)
            * attributes["MultiProcessorCount"]
            for size in (size_bytes, self._part_bytes)
        )
        self._part_blocks = part_blocks
        self.sums = cupy.zeros((all_blocks, 2 if arguments[2] else len(word_sums)), np.float64)
        """[block, word]: the sums of the last launch over all tiles, by block."""
        self.whole = self._launch((), 0, all_blocks, size_bytes)

    def on(self, amplitudes: Any) -> ProgramLaunch:
        """The same pass over other amplitudes."""
        (_, base), after, last = self._arguments
        return ProgramLaunch(
            self._kernel, self._n_bits, self._held_bits, self._blocks,
            ((np.uint64(amplitudes.data.ptr), base), after, last), self._tables, self.word_sums,
        )  # fmt: skip

    def part(self, bits: Sequence[int], value: int, share: int) -> BoundKernel:
        """The launch of a part of the tiles, which leaves multiprocessors to an exchange."""
        exchange_blocks = -(-OVERLAP_BLOCKS[share] * OVERLAP_THREADS // self._blocks.threads)
        n_blocks = self._part_blocks - exchange_blocks - (CLUSTER_GROUPS if self._blocks.together > 1 else 0)
        return self._launch(bits, value, max(1, n_blocks), self._part_bytes)

    def _launch(self, bits: Sequence[int], value: int, blocks: int, size_bytes: int) -> BoundKernel:
        tiles = tile_numbers(self._n_bits, self._held_bits, bits, value)
        before, after, last = self._arguments
        blocks = max(1, min(int(tiles[0]), blocks) // self._blocks.together) * self._blocks.together
        return BoundKernel(
            self._kernel, blocks, self._blocks.threads,
            (*before, tiles.view(f"V{tiles.nbytes}")[0], *after, np.uint64(self.sums.data.ptr), *last),
            size_bytes, cupy.cuda.get_current_stream(), self._tables,
        )  # fmt: skip
