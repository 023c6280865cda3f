"""Where the tape of a gradient lies: in blocks on the GPU, the oldest on the host where the GPU is full.

Knows arrays of entries; no step and no term.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.cpu.host_memory import host_memory

FIRST_ENTRIES, BLOCK_ENTRIES = 1 << 18, 1 << 22
"""Entries of the first block, and of others at least."""
KEPT_FREE = 0.25
"""The share of the free memory of a GPU that is left to terms, where no limit of memory is set."""


class Entries(NamedTuple):
    """Entries of the tape, as tape.cu says: arrays of the GPU, or of the host."""

    first: Any
    second: Any
    both: Any
    kinds: Any

    @property
    def size_bytes(self) -> int:
        """What the arrays take."""
        return sum(int(array.nbytes) for array in self)


class EntryRange(NamedTuple):
    """So many entries of a block, from `first` on."""

    block: int
    first: int
    n_entries: int


class TapeStore:
    """Blocks of entries, the last of which is written."""

    memory_bytes: float | None = None
    """What blocks on the GPU may take; None: what is free when one is allocated."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.blocks: list[Entries] = []
        self.used = self.on_host = 0
        """Entries of the last block; how many of the first blocks are on the host."""

    @property
    def gpu_bytes(self) -> int:
        """What the blocks on the GPU take."""
        return sum(block.size_bytes for block in self.blocks[self.on_host :])

    @property
    def size_bytes(self) -> int:
        """What all blocks take."""
        return sum(block.size_bytes for block in self.blocks)

    def reserve(self, n: int) -> tuple[Entries, int]:
        """A block with n free entries, and the number of the first of them."""
        if not self.blocks or self.used + n > len(self.blocks[-1].kinds):
            self._add_block(max(n, BLOCK_ENTRIES if self.blocks else FIRST_ENTRIES))
        return self.blocks[-1], self.used

    def take(self, count: int) -> EntryRange:
        """The range of the entries that were written after the last `reserve`."""
        entries = EntryRange(len(self.blocks) - 1, self.used, count)
        self.used += count
        return entries

    def _add_block(self, n: int) -> None:
        needed = n * (9 + 2 * self.dtype.itemsize)
        # The oldest blocks go first: the backward pass needs them last.
        while self.on_host < len(self.blocks) and needed > self._free():
            self.spill(self.on_host + 1)
        while (block := self._new_block(n)) is None:
            on_gpu = len(self.blocks) - self.on_host
            if not on_gpu:
                raise InputError(
                    "GPU", f"has no memory for {size_text(needed)} of the tape of a gradient",
                    "truncate, or choose --device cpu",
                    topic="memory",
                )  # fmt: skip
            self.spill(self.on_host + -(-on_gpu // 2))
        self.blocks.append(block)
        self.used = 0

    def _new_block(self, n: int) -> Entries | None:
        """A block of n entries; None where the GPU has no memory for it."""
        try:
            return Entries(
                cupy.empty(n, np.uint32), cupy.empty(n, np.uint32), cupy.empty(2 * n, self.dtype),
                cupy.empty(n, np.uint8),
            )  # fmt: skip
        except cupy.cuda.memory.OutOfMemoryError:
            return None

    def _free(self) -> float:
        """What another block may take."""
        if self.memory_bytes is not None:
            return self.memory_bytes - self.gpu_bytes
        pool = cupy.get_default_memory_pool()
        return (1 - KEPT_FREE) * (cupy.cuda.Device().mem_info[0] + pool.free_bytes())

    def spill(self, count: int) -> None:
        """Have the first `count` blocks on the host."""
        for number in range(self.on_host, min(count, len(self.blocks))):
            block = self.blocks[number]
            free = host_memory()[1]
            if block.size_bytes > free:
                raise InputError(
                    "gradient", f"has a tape of {size_text(self.size_bytes)}, and the host has no room for "
                    f"{size_text(block.size_bytes - free)} of it", "truncate, or give more memory",
                    topic="memory",
                )  # fmt: skip
            self.blocks[number] = Entries(*map(cupy.asnumpy, block))
            self.on_host = number + 1
            del block
        cupy.get_default_memory_pool().free_all_blocks()

    def spill_all(self) -> None:
        """Have all blocks on the host; what is written next goes to a new one."""
        self.spill(len(self.blocks))
        if self.blocks:
            self.used = len(self.blocks[-1].kinds)

    def on_gpu(self, block: int) -> Entries:
        """A block, to be read in the backward pass; those after it are freed."""
        del self.blocks[block + 1 :]
        if block < self.on_host:
            self.blocks[block] = Entries(*map(cupy.asarray, self.blocks[block]))
            self.on_host = block
        return self.blocks[block]
