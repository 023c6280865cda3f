"""Swaps of index bits between GPUs whose memory is mapped: kernels/state_swap.cu says what is done.

Knows mapped memory and flat launches; no circuit.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from executor.device.communicator import Communicator
from executor.device.cuda_memory import CudaMemory
from executor.device.device import Call
from executor.device.kernel_cache import load_kernel
from executor.device.launch import Launch

SWAP_FILE = "state_swap.cu"
THREADS = 512
BLOCKS_A_MULTIPROCESSOR = 4


def swap_defines(item_bytes: int, bits: Sequence[int]) -> dict[str, str | int]:
    """The definitions of state_swap.cu for bits of an index of amplitudes of `item_bytes`."""
    shift = int(item_bytes == 8 and min(bits) > 0)
    unit = "float2" if item_bytes == 8 and not shift else "double2"
    return {"UNIT": unit, "BITS": ",".join(str(bit - shift) for bit in sorted(bits))}


class StateSwap:
    """The amplitudes of all ranks, `own` those of this one; made by all ranks together."""

    def __init__(self, own: Any, ranks: Communicator) -> None:
        memory = ranks.open_memory(own.view(np.uint8))
        self._memory = memory if isinstance(memory, CudaMemory) else None
        self._own, self._rank = own, ranks.rank
        if self._memory is not None:
            weakref.finalize(self, self._memory.close)

    def bind(self, inside: Sequence[int], peers: Sequence[tuple[int, int]], value: int) -> Call | None:
        """The call that swaps what has value v in the bits `inside` with what has `value` there on a peer.

        `peers` are pairs of v and a rank; bit k of v is inside[k]. None where a peer cannot be reached.
        """
        memory = self._memory
        if memory is None or not {peer for _, peer in peers} <= memory.ranks:
            return None
        item_bytes = self._own.itemsize
        defines = swap_defines(item_bytes, inside)
        kernel = load_kernel(SWAP_FILE, "swap_places", defines)
        unit = 8 if defines["UNIT"] == "float2" else 16
        count = self._own.nbytes // unit >> len(inside)
        device = cupy.cuda.Device()
        most = BLOCKS_A_MULTIPROCESSOR * int(device.attributes["MultiProcessorCount"])
        calls = []
        for own_value, peer in peers:
            theirs = memory.view(peer, 0, len(self._own), self._own.dtype.name)
            first, end = (0, count // 2) if self._rank < peer else (count // 2, count)
            starts = [
                array.data.ptr + item_bytes * sum((number >> k & 1) << bit for k, bit in enumerate(inside))
                for array, number in ((self._own, own_value), (theirs, value))
            ]
            arguments = (np.uint64(starts[0]), np.uint64(starts[1]), np.int64(first), np.int64(end))
            blocks = max(1, min(most, (end - first) // THREADS))
            calls.append(Launch(kernel, blocks, THREADS, arguments, 0, memory.copy_stream, theirs))
        return memory.bind(calls, (), [peer for _, peer in peers], 0)
