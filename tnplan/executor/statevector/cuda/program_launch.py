"""The launch of a compiled pass over a state: all of it, a part of its tiles, or on another state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
from cupy.cuda import driver

from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.statevector.codegen.pass_program import tile_numbers
from tnplan.executor.statevector.cuda.bit_swap import OVERLAP_BLOCKS, OVERLAP_THREADS
from tnplan.executor.statevector.cuda.kernel_defines import PROGRAM_THREADS

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
